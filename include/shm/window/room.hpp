#pragma once
/// @file Whether the system has room for a window, asked before any of its memory is touched.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <ranges>
#include <span>
#include <string>

#include "shm/base/size.hpp"
#include "shm/error.hpp"
#include "shm/group/control_block.hpp"
#include "shm/group/state.hpp"
#include "shm/os/control_group.hpp"
#include "shm/os/limits.hpp"

namespace shm::inline v1::detail {

/// Below this size in bytes of a whole window, asking costs more than creating it.
inline constexpr std::size_t unasked_bytes = 1024 * 1024;

/// Shows rank 0, on this rank's desk, what its control groups allow, where its block is a part of
/// a window large enough to ask. Before a vote, whose order makes it visible.
inline void show_memory_bounds(group_state& state, std::uint64_t block_bytes, bool is_populated) {
  auto& shown = state.block().desk_of(state.rank()).memory;
  shown.count = 0;
  auto const ranks = static_cast<std::uint64_t>(state.size());
  if (!is_populated || block_bytes < unasked_bytes / ranks) return;
  auto const bounds = state.memory_bounds();
  shown.count = static_cast<std::uint32_t>(std::min(bounds.size(), shown.bounds.size()));
  std::ranges::copy(bounds | std::views::take(shown.count), shown.bounds.begin());
}

/// Checks for all ranks that each control group has room for the blocks of all ranks in it: a
/// block is charged to the groups of the rank that populates it. Rank 0 only, once all have voted.
///
/// Shapes: block_bytes [ranks].
/// Errors: errc::limit_reached; its rank is the first in the group.
inline void require_room_in_control_groups(group_state const& state,
                                           std::span<std::uint64_t const> block_bytes) {
  auto const shown_by = [&](std::size_t rank) -> std::span<os::memory_bound const> {
    auto const& table = state.block().desk_of(static_cast<int>(rank)).memory;
    return std::span(table.bounds).first(std::min<std::size_t>(table.count, table.bounds.size()));
  };
  for (std::size_t first = 0; first < block_bytes.size(); ++first) {
    for (auto const& bound : shown_by(first)) {
      std::uint64_t needed = 0;  // no overflow: less than the window, whose size has been checked
      int sharers = 0;
      for (std::size_t rank = 0; rank < block_bytes.size(); ++rank) {
        auto const is_same = [&](auto const& other) { return other.group == bound.group; };
        if (std::ranges::none_of(shown_by(rank), is_same)) continue;
        needed += block_bytes[rank];
        ++sharers;
      }
      if (needed <= bound.room) continue;
      bool const is_v2 = bound.version == 2;
      throw error(
          {.cause = errc::limit_reached,
           .rank = static_cast<int>(first),
           .subject = std::to_string(sharers) + (sharers == 1 ? " rank needs " : " ranks need ") +
                      bytes_in_words(needed) + " in the control group " +
                      std::string(bound.name.view()) + ", which has " + bytes_in_words(bound.room) +
                      " left of " + bytes_in_words(bound.limit),
           .remedy = std::string("ask for less, or raise the memory of the job or container (") +
                     (is_v2 ? "memory.max" : "memory.limit_in_bytes") + ")"});
    }
  }
}

/// Checks that the object's file system, the machine and the ranks' control groups have room for
/// all blocks: what follows could otherwise be killed instead of being refused. Rank 0 only.
///
/// Shapes: block_bytes [ranks].
/// Errors: errc::no_space, errc::out_of_memory, errc::limit_reached.
inline void require_room(group_state const& state, int descriptor, std::size_t total,
                         std::span<std::uint64_t const> block_bytes) {
  if (total < unasked_bytes) return;
  auto const most = std::ranges::max_element(block_bytes);
  os::require_room(descriptor, total,
                   " by all ranks together (" + bytes_in_words(*most) + " by rank " +
                       std::to_string(most - block_bytes.begin()) + ")");
  require_room_in_control_groups(state, block_bytes);
}

}  // namespace shm::inline v1::detail
