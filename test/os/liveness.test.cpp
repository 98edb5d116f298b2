#include "shm/os/liveness.hpp"

#include <csignal>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

#include "shm/os/attach.hpp"
#include "shm/os/shared_object.hpp"
#include "support/catch.hpp"
#include "support/child.hpp"

namespace {

namespace os = shm::os;
using os::life_lock;
using shm::errc;

static_assert(!std::is_copy_constructible_v<life_lock>);
static_assert(!std::is_move_constructible_v<life_lock>);
static_assert(!std::is_move_assignable_v<life_lock>);

constexpr int own_rank = 0;
constexpr int other_rank = 1;

/// An object to lock.
class lockable {
 public:
  [[nodiscard]] int descriptor() const { return object_.descriptor.number(); }

 private:
  os::shared_object object_ = os::make_anonymous("liveness test", 4096);
};

TEST_CASE("a lock that nobody holds is not seen as held") {
  lockable const object;
  life_lock const mine(object.descriptor(), own_rank);
  CHECK_FALSE(mine.is_held_by(other_rank));
}

TEST_CASE("a lock is seen as held by its rank and no other") {
  lockable const object;
  life_lock const mine(object.descriptor(), own_rank);
  life_lock const other(object.descriptor(), 5);
  CHECK(mine.is_held_by(5));
  CHECK_FALSE(mine.is_held_by(4));
  CHECK_FALSE(mine.is_held_by(6));
  CHECK(other.is_held_by(own_rank));
}

TEST_CASE("a lock is dropped at the end of its scope") {
  lockable const object;
  life_lock const mine(object.descriptor(), own_rank);
  {
    life_lock const other(object.descriptor(), other_rank);
  }
  CHECK_FALSE(mine.is_held_by(other_rank));
}

TEST_CASE("asking for a lock does not take it") {
  lockable const object;
  life_lock const mine(object.descriptor(), own_rank);
  CHECK_FALSE(mine.is_held_by(other_rank));
  CHECK_NOTHROW(life_lock(object.descriptor(), other_rank));
}

TEST_CASE("a lock is seen as held while its process lives") {
  lockable const object;
  life_lock const mine(object.descriptor(), own_rank);
  shm_test::gate held;
  shm_test::gate end;
  shm_test::child holder([&] {
    life_lock const theirs(object.descriptor(), other_rank);
    held.open();
    static_cast<void>(end.pass());
  });
  REQUIRE(held.pass());
  CHECK(mine.is_held_by(other_rank));
  end.open();
  CHECK(holder.wait() == 0);
  CHECK_FALSE(mine.is_held_by(other_rank));
}

TEST_CASE("a lock is seen as held while its process is stopped") {
  lockable const object;
  life_lock const mine(object.descriptor(), own_rank);
  shm_test::gate held;
  shm_test::gate end;
  shm_test::child holder([&] {
    life_lock const theirs(object.descriptor(), other_rank);
    held.open();
    static_cast<void>(end.pass());
  });
  REQUIRE(held.pass());
  holder.send(SIGSTOP);
  holder.await_stop();
  CHECK(mine.is_held_by(other_rank));
  holder.send(SIGCONT);
}

TEST_CASE("a lock is dropped when its process is killed, even while it is a zombie") {
  lockable const object;
  life_lock const mine(object.descriptor(), own_rank);
  shm_test::gate held;
  shm_test::gate end;
  shm_test::child holder([&] {
    life_lock const theirs(object.descriptor(), other_rank);
    held.open();
    static_cast<void>(end.pass());
  });
  REQUIRE(held.pass());
  holder.send(SIGKILL);
  holder.await_death();
  CHECK(::kill(holder.pid(), 0) == 0);  // not reaped: a zombie, which kill(2) takes for alive
  CHECK_FALSE(mine.is_held_by(other_rank));
}

TEST_CASE("a lock is not kept by a forked child of its holder after the holder's death") {
  lockable const object;
  life_lock const mine(object.descriptor(), own_rank);
  shm_test::gate forked;
  shm_test::gate end;
  shm_test::gate ended;
  shm_test::child holder([&] {
    life_lock const theirs(object.descriptor(), other_rank);
    if (::fork() == 0) {
      ::alarm(100);
      forked.open();
      static_cast<void>(end.pass());
      ended.open();
      ::_exit(0);
    }
    for (;;) ::pause();
  });
  REQUIRE(forked.pass());
  CHECK(mine.is_held_by(other_rank));
  holder.send(SIGKILL);
  holder.await_death();
  CHECK_FALSE(mine.is_held_by(other_rank));
  end.open();
  CHECK(ended.pass());
}

TEST_CASE("a lock that ends is not kept by a forked child of its holder") {
  lockable const object;
  life_lock const mine(object.descriptor(), own_rank);
  auto other = std::make_unique<life_lock>(object.descriptor(), other_rank);
  shm_test::gate forked;
  shm_test::gate end;
  shm_test::child bystander([&] {
    forked.open();
    static_cast<void>(end.pass());
  });
  REQUIRE(forked.pass());
  CHECK(mine.is_held_by(other_rank));
  other.reset();
  CHECK_FALSE(mine.is_held_by(other_rank));
  end.open();
}

TEST_CASE("a forked child that ends does not drop its parent's lock") {
  lockable const object;
  life_lock const mine(object.descriptor(), own_rank);
  auto other = std::make_unique<life_lock>(object.descriptor(), other_rank);
  shm_test::child bystander([&] { other.reset(); });
  CHECK(bystander.wait() == 0);
  CHECK(mine.is_held_by(other_rank));
}

TEST_CASE("a forked child takes every rank for living, since it cannot ask") {
  lockable const object;
  life_lock const mine(object.descriptor(), own_rank);
  shm_test::in_child([&](shm_test::findings& found) {
    RANK_CHECK(found, mine.descriptor() == -1);
    RANK_CHECK(found, mine.is_held_by(other_rank));
  });
}

TEST_CASE("a forked child can hold a lock of its own") {
  lockable const object;
  life_lock const mine(object.descriptor(), own_rank);
  shm_test::in_child([&](shm_test::findings& found) {
    life_lock const theirs(object.descriptor(), other_rank);
    RANK_CHECK(found, theirs.descriptor() >= 0);
    RANK_CHECK(found, theirs.is_held_by(own_rank));
  });
}

TEST_CASE("a second holder of a rank is a mismatch that names the rank") {
  lockable const object;
  life_lock const first(object.descriptor(), 3);
  auto const refused = shm_test::failure_of([&] { life_lock(object.descriptor(), 3); });
  CHECK(refused.cause == errc::mismatch);
  CHECK(refused.subject.view() == "two processes have rank 3");
}

TEST_CASE("a rank that was refused can be taken after its holder has gone") {
  lockable const object;
  {
    life_lock const first(object.descriptor(), 3);
  }
  CHECK_NOTHROW(life_lock(object.descriptor(), 3));
}

TEST_CASE("a description that cannot be locked is not a mismatch") {
  auto const refused = shm_test::failure_of([] { life_lock(-1, own_rank); });
  CHECK(refused.cause == errc::system_failure);
}

TEST_CASE("a refused lock is forgotten, so that a later fork does not meet it") {
  lockable const object;
  life_lock const first(object.descriptor(), 3);
  CHECK_THROWS_AS(std::make_unique<life_lock>(object.descriptor(), 3), shm::error);
  std::vector<std::unique_ptr<int>> reused;  // takes the memory of the refused one
  for (int i = 0; i < 100; ++i) reused.push_back(std::make_unique<int>(i));
  shm_test::in_child([&](shm_test::findings& found) {
    for (int i = 0; i < 100; ++i) RANK_CHECK(found, *reused[static_cast<std::size_t>(i)] == i);
  });
}

TEST_CASE("all of many locks of a process are closed in its child and kept in the parent") {
  constexpr int count = 100;
  lockable const object;
  life_lock const observer(object.descriptor(), count);
  std::vector<std::unique_ptr<life_lock>> locks;
  std::vector<int> numbers;
  for (int r = 0; r < count; ++r) {
    locks.push_back(std::make_unique<life_lock>(object.descriptor(), r));
    numbers.push_back(locks.back()->descriptor());
  }
  shm_test::in_child([&](shm_test::findings& found) {
    for (int const number : numbers) RANK_CHECK(found, ::fcntl(number, F_GETFD) == -1);
  });
  int held = 0;
  for (int r = 0; r < count; ++r) held += observer.is_held_by(r) ? 1 : 0;
  CHECK(held == count);
}

TEST_CASE("a lock among many that ends is dropped alone") {
  lockable const object;
  life_lock const observer(object.descriptor(), 3);
  life_lock const first(object.descriptor(), 0);
  auto second = std::make_unique<life_lock>(object.descriptor(), 1);
  life_lock const third(object.descriptor(), 2);
  second.reset();
  CHECK(observer.is_held_by(0));
  CHECK_FALSE(observer.is_held_by(1));
  CHECK(observer.is_held_by(2));
  shm_test::in_child([&](shm_test::findings& found) {
    RANK_CHECK(found, first.descriptor() == -1);
    RANK_CHECK(found, third.descriptor() == -1);
  });
}

}  // namespace
