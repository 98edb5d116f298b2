#pragma once
/// @file Layout of a window's shared memory.

#include <sys/types.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>

#include "shm/base/size.hpp"
#include "shm/base/text.hpp"
#include "shm/error.hpp"
#include "shm/options.hpp"
#include "shm/os/process.hpp"
#include "shm/os/shared_object.hpp"
#include "shm/sync/arrival.hpp"
#include "shm/sync/fence.hpp"
#include "shm/sync/pair_table.hpp"
#include "shm/version.hpp"

namespace shm::inline v1::detail {

/// "shm wndw" in ASCII.
inline constexpr std::uint64_t segment_magic = 0x77646e77206d6873U;

/// Where one rank's block lies.
struct block_entry {
  std::uint64_t offset = 0;  ///< from the beginning of the segment, in bytes
  std::uint64_t bytes = 0;
  std::uint64_t page_bytes = 0;  ///< that it came in; written by its rank
};

/// The beginning of a segment.
///
///     segment_header
///     arrival_line [ranks]          lines_at
///     block_entry  [ranks]          blocks_at
///     pair_table of meetings        peers_at; grows with the square of the ranks, as the next one
///     pair_table of posts           posts_at
///     blocks, in rank order         data_at, on a page
struct segment_header {
  std::uint64_t magic = 0;
  std::uint32_t layout = 0;
  std::int32_t ranks = 0;
  os::identifier nonce{};
  std::uint64_t bytes = 0;
  std::uint64_t page_bytes = 0;
  shm::layout block_layout = shm::layout::page_aligned;
  os::origin origin = os::origin::memfd;
  bool is_populated = true;
  fixed_text<24> backend{};
  sync::verdict_word verdict;  ///< why no fence of the window can succeed any more
  sync::fence_words fence;
};

/// The offsets of a segment's parts, in bytes.
struct segment_layout {
  /// Of the tables of pairs, what lies in so many first bytes of the segment is populated at
  /// creation; the rest when two ranks first meet, or one first posts to or waits for another.
  static constexpr std::size_t eager_bytes = 1024 * 1024;

  std::size_t lines_at = 0;
  std::size_t blocks_at = 0;
  std::size_t peers_at = 0;
  std::size_t posts_at = 0;
  std::size_t header_end = 0;
  std::size_t data_at = 0;
  std::size_t total = 0;

  /// Returns where the parts before the blocks lie.
  static constexpr segment_layout of_header(int ranks, std::size_t page_bytes) noexcept {
    auto const n = static_cast<std::size_t>(ranks);
    segment_layout result;
    result.lines_at = sizeof(segment_header);
    result.blocks_at = result.lines_at + n * sizeof(sync::arrival_line);
    result.peers_at = *round_up(result.blocks_at + n * sizeof(block_entry), line_bytes);
    result.posts_at = result.peers_at + sync::pair_table::size_bytes(ranks);
    result.header_end = result.posts_at + sync::pair_table::size_bytes(ranks);
    result.data_at = *round_up(result.header_end, page_bytes);
    result.total = result.data_at;
    return result;
  }

  /// The most bytes that an object can have.
  static constexpr auto largest = static_cast<std::size_t>(std::numeric_limits<off_t>::max());

  /// Places the blocks after the header: fills `entries` and `total`.
  ///
  /// Shapes: block_bytes, entries [ranks].
  /// Errors: errc::size_overflow where the sum does not fit.
  void place(std::span<std::uint64_t const> block_bytes, std::span<block_entry> entries,
             shm::layout how, std::size_t page_bytes) {
    std::size_t at = data_at;
    for (std::size_t r = 0; r < entries.size(); ++r) {
      entries[r] = {.offset = at, .bytes = block_bytes[r]};
      auto next = checked_add(at, block_bytes[r]);
      if (next && how == shm::layout::page_aligned) next = round_up(*next, page_bytes);
      if (!next) fail_for_size(block_bytes);
      at = *next;
    }
    auto const end = round_up(at, page_bytes);
    if (!end || *end > largest) fail_for_size(block_bytes);
    total = *end;
  }

 private:
  [[noreturn]] static void fail_for_size(std::span<std::uint64_t const> block_bytes) {
    auto const most = std::ranges::max_element(block_bytes);
    throw error({.cause = errc::size_overflow,
                 .rank = -1,
                 .subject = "the blocks of all " + std::to_string(block_bytes.size()) +
                            " ranks together, of which rank " +
                            std::to_string(most - block_bytes.begin()) + " wants " +
                            bytes_in_words(*most) + ", are more than can be addressed",
                 .remedy = {}});
  }
};

}  // namespace shm::inline v1::detail
