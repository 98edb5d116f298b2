#pragma once
/// @file The shared words of a collective: what each rank announces, and with it small data.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "shm/base/size.hpp"
#include "shm/error.hpp"
#include "shm/group.hpp"
#include "shm/group/state.hpp"
#include "shm/options.hpp"
#include "shm/policy/runtime.hpp"
#include "shm/policy/segment_policy.hpp"
#include "shm/sync/arrival.hpp"
#include "shm/window/creation.hpp"
#include "shm/window/segment.hpp"
#include "shm/window/wish.hpp"

namespace shm::inline v1::detail {

/// What a rank says of the call in which it takes a step.
///
///     call    bits 24..31 operation, 0..23 a hash of type and operation of the elements
///     low     count of elements, its lower half
///     high    bits 0..11 the rest of the count, 12..31 root + 1
struct board_remark {
  std::uint32_t call = 0;
  std::uint32_t low = 0;
  std::uint32_t high = 0;

  static constexpr std::uint64_t most_count = (std::uint64_t{1} << 44) - 1;

  static constexpr board_remark of(operation where, std::uint64_t signature, std::uint64_t count,
                                   int root) noexcept {
    auto const hash = signature ^ signature >> 24 ^ signature >> 48;
    return {.call = static_cast<std::uint32_t>(where) << 24 |
                    static_cast<std::uint32_t>(hash & 0xffffffU),
            .low = static_cast<std::uint32_t>(count),
            .high = static_cast<std::uint32_t>(count >> 32) | static_cast<std::uint32_t>(root + 1)
                                                                  << 12};
  }
  [[nodiscard]] constexpr operation where() const noexcept {
    return static_cast<operation>(call >> 24);
  }
  [[nodiscard]] constexpr std::uint64_t count() const noexcept {
    return std::uint64_t{high & 0xfffU} << 32 | low;
  }
  [[nodiscard]] constexpr int root() const noexcept { return static_cast<int>(high >> 12) - 1; }
};

/// A segment in which ranks hand each other data in numbered steps. Each rank has a block:
///
///     byte   0                done    number of the last step that the rank is done with
///          128                slot    of even steps
///          128 + slot_stride  slot    of odd steps
///
///     slot: byte 0   ready   number of the last step of this parity that the rank has announced
///               4   remark  what the call is, where the board's user says so
///               16   data    what it announces, in the same line as far as it fits
///
/// Numbers wrap around at 2^32. A slot is written again two steps later; whoever does so must know
/// that all have read it: because all have announced the step between, or are done with this one.
class board {
 public:
  static constexpr std::size_t data_at = 16;

  board() noexcept = default;

  /// Makes the board of a group, with room for `data_bytes` bytes of each rank in each step.
  ///
  /// Collective. Errors: the same on all ranks: `cause`, where a rank brings one; as creating a
  /// window.
  board(group& ranks, std::size_t data_bytes, operation where, failure const& cause)
      : stride_(slot_stride(data_bytes)) {
    auto const& state = ranks.state();
    segment_wish wish{.where = where,
                      .block_bytes = line_bytes + 2 * stride_,
                      .has_equal_blocks = true,
                      .is_internal = true,
                      .initialize = start_own_words,
                      .cause = cause};
    runtime_policy const policy;
    segment_ = segment_creation(state, {policy, state->settings()}, wish).run();
    first_block_ = segment_->block(0).data();
    block_stride_ =
        static_cast<std::size_t>(segment_->block(segment_->size() - 1).data() - first_block_);
    if (segment_->size() > 1) block_stride_ /= static_cast<std::size_t>(segment_->size() - 1);
    number_ = state->settings().first_number;
  }

  board(board&& other) noexcept = default;
  board& operator=(board&& other) noexcept = default;

  [[nodiscard]] bool valid() const noexcept { return segment_ != nullptr; }
  [[nodiscard]] detail::segment& segment() const noexcept { return *segment_; }
  [[nodiscard]] int rank() const noexcept { return segment_->rank(); }
  [[nodiscard]] int size() const noexcept { return segment_->size(); }
  /// The number of the step that this rank is in.
  [[nodiscard]] std::uint32_t number() const noexcept { return number_; }

  /// Begins the next step.
  void begin() noexcept { ++number_; }
  /// What `rank` announces in this step.
  [[nodiscard]] std::byte* data(int rank) const noexcept { return slot(rank, number_) + data_at; }
  /// Where this rank writes what it announces in the next step. Free once all have announced this
  /// one.
  [[nodiscard]] std::byte* next_data() const noexcept {
    return slot(rank(), number_ + 1) + data_at;
  }
  /// Announces this rank's part of this step: everything before is visible to whoever sees it.
  void announce() const noexcept { sync::store(word(slot(rank(), number_)), number_); }
  /// What the call is in which `rank` announces this step.
  [[nodiscard]] board_remark& remark(int rank) const noexcept {
    return *reinterpret_cast<board_remark*>(slot(rank, number_) + sizeof(std::uint32_t));
  }
  [[nodiscard]] bool has_announced(int rank) const noexcept {
    return reached(sync::load(word(slot(rank, number_))), number_);
  }
  /// Whether `rank` has destroyed its end.
  [[nodiscard]] bool has_left(int rank) const noexcept {
    return sync::load(segment_->line(rank).left) != 0;
  }
  /// Says that this rank is done with this step.
  void finish() const noexcept { sync::store(word(block(rank())), number_); }
  /// Whether `rank` is done with the step that lies `ago` before this one.
  [[nodiscard]] bool has_finished(int rank, std::uint32_t ago = 0) const noexcept {
    return reached(sync::load(word(block(rank))), number_ - ago);
  }

 private:
  static constexpr std::size_t slot_stride(std::size_t data_bytes) noexcept {
    return round_up(data_at + data_bytes, line_bytes).value_or(line_bytes);
  }

  static std::uint32_t& word(std::byte* where) noexcept {
    return *reinterpret_cast<std::uint32_t*>(where);
  }
  [[nodiscard]] std::byte* block(int rank) const noexcept {
    return first_block_ + static_cast<std::size_t>(rank) * block_stride_;
  }
  [[nodiscard]] std::byte* slot(int rank, std::uint32_t number) const noexcept {
    return block(rank) + line_bytes + (number & 1U) * stride_;
  }

  static void start_own_words(detail::segment const& made) {
    auto const first = made.state().settings().first_number;
    if (first == 0) return;
    auto const own = made.block(made.rank());
    auto const stride = (own.size() - line_bytes) / 2;
    for (auto const at : {std::size_t{0}, line_bytes, line_bytes + stride}) {
      word(own.data() + at) = first;
    }
  }

  std::shared_ptr<detail::segment> segment_;
  std::byte* first_block_ = nullptr;
  std::size_t block_stride_ = 0;
  std::size_t stride_ = 0;
  std::uint32_t number_ = 0;
};

}  // namespace shm::inline v1::detail
