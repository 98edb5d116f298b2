#pragma once
/// @file Whether the system has room for a window, asked before any of its memory is touched.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "shm/base/size.hpp"
#include "shm/error.hpp"
#include "shm/group/control_block.hpp"
#include "shm/group/state.hpp"
#include "shm/os/control_group.hpp"
#include "shm/os/limits.hpp"
#include "shm/window/segment.hpp"

namespace shm::inline v1::detail {

/// Below this size in bytes of a whole window, asking costs more than creating it.
inline constexpr std::size_t unasked_bytes = 1024 * 1024;

/// Checks that the object's file system and the machine have room for all blocks: what follows
/// could otherwise be killed instead of being refused. Rank 0 only, once all have voted.
///
/// Shapes: block_bytes [ranks].
/// Errors: errc::no_space, errc::out_of_memory.
inline void require_room_for_all(int descriptor, std::size_t total,
                                 std::span<std::uint64_t const> block_bytes) {
  if (total < unasked_bytes) return;
  auto const most = std::ranges::max_element(block_bytes);
  os::require_room(descriptor, total,
                   " by all ranks together (" + bytes_in_words(*most) + " by rank " +
                       std::to_string(most - block_bytes.begin()) + ")");
}

/// Shows rank 0, on this rank's desk, what its control groups allow. Before a vote, whose order
/// makes it visible.
inline void show_memory_bounds(group_state& state) {
  auto& shown = state.block().desk_of(state.rank()).memory;
  auto const bounds = state.memory_bounds();
  shown.count = static_cast<std::uint32_t>(std::min(bounds.size(), shown.bounds.size()));
  std::copy_n(bounds.begin(), shown.count, shown.bounds.begin());
}

/// Checks for all ranks that each control group has room for the blocks of all ranks in it, and one
/// with rank 0 in it for the header: memory is charged to the groups of the rank that populates it.
/// Rank 0 only, once all have shown theirs.
///
/// Errors: errc::limit_reached; its rank is the first of those in the group.
inline void require_room_in_control_groups(group_state const& state, segment const& made) {
  auto const blocks = made.blocks();
  struct demand {
    os::memory_bound bound;
    int first = 0;
    int sharers = 0;
    std::uint64_t bytes = 0;   // no overflow: less than the window, whose size has been checked
    std::uint64_t header = 0;  // where rank 0 is in the group
  };
  std::vector<demand> demands;
  for (int rank = 0; rank < state.size(); ++rank) {
    auto const& table = state.block().desk_of(rank).memory;
    auto const count = std::min<std::size_t>(table.count, table.bounds.size());
    for (auto const& bound : std::span(table.bounds).first(count)) {
      auto found = std::ranges::find(demands, bound.group,
                                     [](demand const& one) { return one.bound.group; });
      if (found == demands.end()) {
        found = demands.insert(found, {.bound = bound, .first = rank});
        if (rank == 0) found->header = made.layout().header_end;
      }
      found->bound.room = std::min(found->bound.room, bound.room);  // what was read last, mostly
      auto const own = blocks[static_cast<std::size_t>(rank)].bytes;
      found->bytes += round_up(own, made.header().page_bytes).value_or(own);
      ++found->sharers;
    }
  }
  for (auto const& one : demands) {
    // What the kernel keeps about pages is charged too: tables of 8 bytes a base page in each
    // process that touches it, and the object's index. And each processor holds back some pages.
    auto const margin = one.header + one.bytes / 128 + 512 * 1024;
    if (one.bytes + margin <= one.bound.room) continue;
    throw error(
        {.cause = errc::limit_reached,
         .rank = one.first,
         .subject = std::to_string(one.sharers) +
                    (one.sharers == 1 ? " rank needs " : " ranks need ") +
                    bytes_in_words(one.bytes) + " in the control group " +
                    std::string(one.bound.name.view()) + ", which has " +
                    bytes_in_words(one.bound.room) + " left of " + bytes_in_words(one.bound.limit),
         .remedy = std::string("ask for less, or raise the memory of the job or "
                               "container (") +
                   (one.bound.version == 2 ? "memory.max" : "memory.limit_in_bytes") + ")"});
  }
}

}  // namespace shm::inline v1::detail
