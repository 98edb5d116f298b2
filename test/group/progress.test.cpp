#include "shm/group/progress.hpp"

#include <memory>

#include "support/catch.hpp"

namespace {

class counter final : public shm::detail::begun_work {
 public:
  void advance() noexcept override { ++calls; }
  void begin(begun_work*& first) { begin_in(first); }
  void stop() { end(); }
  int calls = 0;
};

}  // namespace

TEST_CASE("all that is begun advances, until it ends or is destroyed") {
  shm::detail::begun_work* first = nullptr;
  counter a;
  counter b;
  auto c = std::make_unique<counter>();
  a.begin(first);
  b.begin(first);
  c->begin(first);
  shm::detail::advance_all(first);
  CHECK((a.calls == 1 && b.calls == 1 && c->calls == 1));
  b.stop();
  b.stop();
  shm::detail::advance_all(first);
  CHECK((a.calls == 2 && b.calls == 1 && c->calls == 2));
  c.reset();
  shm::detail::advance_all(first);
  CHECK(a.calls == 3);
  a.stop();
  CHECK(first == nullptr);
}
