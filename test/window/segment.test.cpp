// One rank's end of a window of many ranks, most of which need not exist.

#include "shm/window/segment.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <vector>

#include "support/catch.hpp"
#include "support/ranks.hpp"

namespace {

using shm::detail::segment;
using shm::detail::segment_layout;
using shm_test::failure_of;

/// A segment of so many ranks that its tables are populated as they are used, seen by `rank`.
class large_segment {
 public:
  static constexpr int ranks = 2000;

  explicit large_segment(int rank)
      : control_(shm::os::make_anonymous("control", shm::detail::control_block::size_bytes(ranks))),
        object_(shm::os::make_unnamed("/dev/shm", layout().total)),
        of_(std::make_shared<shm::detail::group_state>(
            shm::os::mapping(control_.descriptor.number(), control_.bytes),
            control_.descriptor.number(), rank, ranks)) {
    of_.map(shm::os::mapping(object_.descriptor.number(), object_.bytes), page(), page());
    of_.reserve();
  }

  segment* operator->() noexcept { return &of_; }
  segment const* operator->() const noexcept { return &of_; }

  /// Takes the memory from `offset` on away, as if there were no more.
  void cut_off(std::size_t offset) const {
    CHECK(::ftruncate(object_.descriptor.number(), static_cast<off_t>(offset)) == 0);
  }
  void restore() const { cut_off(object_.bytes); }

  /// The pages of the object that exist from `offset` on.
  [[nodiscard]] std::size_t pages_from(std::size_t offset) const {
    auto const part = of_.mapping().bytes().subspan(shm::round_down(offset, page()));
    std::vector<unsigned char> present(part.size() / page());
    if (::mincore(part.data(), part.size(), present.data()) != 0) return ~std::size_t{0};
    return static_cast<std::size_t>(
        std::ranges::count_if(present, [](unsigned char byte) { return (byte & 1U) != 0; }));
  }

 private:
  static std::size_t page() { return shm::os::base_page_bytes(); }
  static segment_layout layout() { return segment_layout::of_header(ranks, page()); }

  shm::os::shared_object control_;
  shm::os::shared_object object_;
  segment of_;
};

}  // namespace

TEST_CASE("of the tables of many ranks there are the pages that ranks have used, and no others") {
  constexpr int peer = 1900;
  large_segment made(7);
  auto const from = made->layout().posts_at;
  REQUIRE(from > segment_layout::eager_bytes);
  CHECK(made.pages_from(made->layout().peers_at) == 0);

  for (int i = 0; i < 3; ++i) made->post(7);
  CHECK(made.pages_from(from) == 1);
  for (int i = 0; i < 3; ++i) CHECK(made->try_wait(7));
  CHECK_FALSE(made->try_wait(7));
  CHECK(made.pages_from(from) == 1);

  made->post(peer);  // further on in the same row
  auto const after_post = made.pages_from(from);
  CHECK(after_post <= 2);
  auto const refused = failure_of([&] { (void)made->try_wait(peer); });
  CHECK(refused.cause == shm::errc::peer_lost);  // there is no such process
  CHECK(made.pages_from(from) == after_post + 1);
  CHECK(made->posted().word(7, peer) == 1);
}

TEST_CASE("a rank that cannot have the memory for its first post or wait gets a local error") {
  large_segment made(7);
  auto const page = made->mapping().bytes().first(1);
  if (!shm::os::detail::has_populate_write(page)) {
    WARN("skipped: this kernel cannot reserve");
    return;
  }
  made.cut_off(made->layout().posts_at);
  for (bool const is_post : {true, false}) {
    try {
      is_post ? made->post(1900) : static_cast<void>(made->try_wait(1900));
      FAIL("there is no memory");
    } catch (shm::error const& e) {
      CHECK(e.code() == shm::errc::out_of_memory);
      CHECK(e.rank() == 7);
      CHECK(e.where() == (is_post ? shm::operation::post : shm::operation::wait));
      CHECK_FALSE(e.is_agreed());
    }
  }
  made.restore();
  made->post(1900);
  CHECK(made->posted().word(7, 1900) == 1);  // the refused one has not been counted
}
