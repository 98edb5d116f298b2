#include "shm/os/file_descriptor.hpp"

#include <type_traits>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include "support/catch.hpp"

namespace {

using shm::os::file_descriptor;

static_assert(!std::is_copy_constructible_v<file_descriptor>);
static_assert(!std::is_copy_assignable_v<file_descriptor>);
static_assert(std::is_nothrow_move_constructible_v<file_descriptor>);
static_assert(std::is_nothrow_move_assignable_v<file_descriptor>);
static_assert(!std::is_convertible_v<int, file_descriptor>);

/// Opens something; the number belongs to whoever takes it.
int opened() { return ::open("/dev/null", O_RDONLY | O_CLOEXEC); }

bool is_open(int number) { return ::fcntl(number, F_GETFD) != -1; }

TEST_CASE("a default descriptor is not open") {
  file_descriptor const none;
  CHECK_FALSE(none.is_open());
  CHECK(none.number() == -1);
}

TEST_CASE("descriptor 0 is an open one") {
  file_descriptor zero(0);
  CHECK(zero.is_open());
  int const kept = ::fcntl(0, F_DUPFD_CLOEXEC, 3);
  zero.reset();
  if (kept >= 0) {
    ::dup2(kept, 0);
    ::close(kept);
  }
}

TEST_CASE("a descriptor is closed at the end of its scope and not before") {
  int const number = opened();
  {
    file_descriptor const file(number);
    CHECK(file.number() == number);
    CHECK(is_open(number));
  }
  CHECK_FALSE(is_open(number));
}

TEST_CASE("a moved descriptor stays open and leaves nothing behind") {
  int const number = opened();
  file_descriptor first(number);
  file_descriptor const second(std::move(first));
  CHECK_FALSE(first.is_open());  // NOLINT(bugprone-use-after-move)
  CHECK(second.number() == number);
  CHECK(is_open(number));
}

TEST_CASE("a moved-from descriptor does not close the number that it had") {
  int const number = opened();
  file_descriptor second;
  {
    file_descriptor first(number);
    second = std::move(first);
  }
  CHECK(is_open(number));
}

TEST_CASE("assigning to a descriptor closes what it had once both are gone") {
  int const old_number = opened();
  int const new_number = opened();
  {
    file_descriptor target(old_number);
    {
      file_descriptor source(new_number);
      target = std::move(source);
    }
    CHECK_FALSE(is_open(old_number));
    CHECK(target.number() == new_number);
    CHECK(is_open(new_number));
  }
  CHECK_FALSE(is_open(new_number));
}

TEST_CASE("a descriptor assigned to itself stays open") {
  int const number = opened();
  file_descriptor file(number);
  auto& same = file;
  file = std::move(same);
  CHECK(file.number() == number);
  CHECK(is_open(number));
}

TEST_CASE("a descriptor that is reset twice closes once") {
  int const number = opened();
  file_descriptor file(number);
  file.reset();
  CHECK_FALSE(file.is_open());
  CHECK_FALSE(is_open(number));
  file_descriptor const reused(opened());
  REQUIRE(reused.number() == number);
  file.reset();
  CHECK(is_open(number));
}

TEST_CASE("a descriptor that was assigned from is empty, and the old one is closed") {
  shm::os::file_descriptor a(::dup(2));
  shm::os::file_descriptor b(::dup(2));
  int const old = a.number();
  int const taken = b.number();
  a = std::move(b);
  CHECK_FALSE(b.is_open());
  CHECK(a.number() == taken);
  CHECK(::fcntl(old, F_GETFD) == -1);
}

}  // namespace
