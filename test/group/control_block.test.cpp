#include "shm/group/control_block.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <type_traits>
#include <vector>

#include "support/catch.hpp"

using namespace shm;
using detail::control_block;
using detail::control_header;
using detail::desk;

namespace {

/// Zeroed memory for a control block.
class zeroed {
 public:
  explicit zeroed(int ranks)
      : bytes_(control_block::size_bytes(ranks)),
        at_(static_cast<std::byte*>(::operator new(bytes_, std::align_val_t{line_bytes}))) {
    std::memset(at_, 0, bytes_);
  }
  zeroed(zeroed const&) = delete;
  zeroed& operator=(zeroed const&) = delete;
  ~zeroed() { ::operator delete(at_, std::align_val_t{line_bytes}); }

  [[nodiscard]] std::byte* begin() const noexcept { return at_; }
  [[nodiscard]] std::byte* end() const noexcept { return at_ + bytes_; }

 private:
  std::size_t bytes_;
  std::byte* at_;
};

template <class T>
bool is_on_line(T const& object) {
  return reinterpret_cast<std::uintptr_t>(&object) % line_bytes == 0;
}

template <class T>
std::byte const* begin_of(T const& object) {
  return reinterpret_cast<std::byte const*>(&object);
}

template <class T>
std::byte const* end_of(T const& object) {
  return begin_of(object) + sizeof object;
}

}  // namespace

TEST_CASE("everything in a control block is copied byte by byte") {
  STATIC_REQUIRE(std::is_trivially_copyable_v<control_header>);
  STATIC_REQUIRE(std::is_trivially_copyable_v<desk>);
  STATIC_REQUIRE(std::is_trivially_copyable_v<detail::ballot>);
}

TEST_CASE("the parts of a control block follow each other and fill it") {
  for (int const ranks : {1, 2, 3, 8, 100}) {
    zeroed const whole(ranks);
    control_block const block(whole.begin(), ranks);
    CHECK(begin_of(block.header()) == whole.begin());
    CHECK(begin_of(block.line(0)) == end_of(block.header()));
    CHECK(begin_of(block.desk_of(0)) == end_of(block.line(ranks - 1)));
    CHECK(end_of(block.desk_of(ranks - 1)) == whole.end());
    CHECK(block.lines().size() == static_cast<std::size_t>(ranks));
  }
}

TEST_CASE("what different ranks write is never on one line") {
  zeroed const whole(3);
  control_block const block(whole.begin(), 3);
  for (int rank = 0; rank < 3; ++rank) {
    CHECK(is_on_line(block.line(rank)));
    CHECK(is_on_line(block.desk_of(rank)));
    CHECK(is_on_line(block.desk_of(rank).ballots[0]));
    CHECK(is_on_line(block.desk_of(rank).ballots[1]));
    CHECK(is_on_line(block.desk_of(rank).entered));
    CHECK(is_on_line(block.desk_of(rank).scratch));
  }
  auto& header = block.header();
  CHECK(is_on_line(header.stage));
  CHECK(is_on_line(header.decisions));
  CHECK(is_on_line(header.deaths));
  CHECK(is_on_line(header.verdict));
  CHECK(is_on_line(header.fence.count));
  CHECK(is_on_line(header.fence.release));
}

TEST_CASE("ballots of consecutive epochs are different, and of every second one the same") {
  zeroed const whole(2);
  control_block const block(whole.begin(), 2);
  CHECK(&block.ballot_of(1, 6) == &block.ballot_of(1, 8));
  CHECK(&block.ballot_of(1, 6) != &block.ballot_of(1, 7));
  CHECK(&block.ballot_of(1, 0xffffffffU) != &block.ballot_of(1, 0));
  CHECK(&block.ballot_of(0, 6) != &block.ballot_of(1, 6));
}

TEST_CASE("a control block is of its nonce only, in its layout and for its number of ranks") {
  zeroed const whole(3);
  control_block const block(whole.begin(), 3);
  os::identifier const nonce{11, 22};
  auto& header = block.header();
  CHECK_FALSE(block.is_of(nonce));
  header.magic = detail::control_magic;
  header.layout = layout_version;
  header.ranks = 3;
  header.nonce = nonce;
  CHECK(block.is_of(nonce));
  CHECK_FALSE(block.is_of({11, 23}));
  CHECK_FALSE(block.is_of({12, 22}));
  CHECK_FALSE(control_block(whole.begin(), 2).is_of(nonce));
  header.layout = layout_version + 1;
  CHECK_FALSE(block.is_of(nonce));
  header.layout = layout_version;
  header.magic ^= 1;
  CHECK_FALSE(block.is_of(nonce));
}

TEST_CASE("fresh memory of zeros is a control block in which nothing has happened") {
  zeroed const whole(2);
  control_block const block(whole.begin(), 2);
  CHECK(block.header().stage == detail::phase::exchanging);
  CHECK_FALSE(block.header().deaths.settled().has_value());
  CHECK_FALSE(block.header().verdict.settled().has_value());
  CHECK(block.line(1).arrived == 0);
  CHECK(block.line(1).left == 0);
  CHECK_FALSE(block.ballot_of(1, 0).cause.is_failure());
}
