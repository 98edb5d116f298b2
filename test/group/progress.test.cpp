#include "shm/group/progress.hpp"

#include <memory>
#include <thread>

#include "support/catch.hpp"

namespace {

class counter final : public shm::detail::begun_work {
 public:
  void advance() noexcept override { ++calls; }
  void start() { begin(); }
  void stop() { end(); }
  int calls = 0;
};

}  // namespace

TEST_CASE("all that is begun advances, until it ends or is destroyed") {
  counter a;
  counter b;
  auto c = std::make_unique<counter>();
  a.start();
  b.start();
  c->start();
  shm::detail::advance_begun_work();
  CHECK((a.calls == 1 && b.calls == 1 && c->calls == 1));
  b.stop();
  b.stop();
  shm::detail::advance_begun_work();
  CHECK((a.calls == 2 && b.calls == 1 && c->calls == 2));
  c.reset();
  shm::detail::advance_begun_work();
  CHECK(a.calls == 3);
  a.stop();
  shm::detail::advance_begun_work();
  CHECK(a.calls == 3);
}

TEST_CASE("what another thread has begun is its own") {
  counter mine;
  mine.start();
  std::jthread([] { shm::detail::advance_begun_work(); }).join();
  CHECK(mine.calls == 0);
}
