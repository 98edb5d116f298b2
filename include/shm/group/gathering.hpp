#pragma once
/// @file A barrier of a group, and what its ranks bring to it.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "shm/error.hpp"
#include "shm/group/control_block.hpp"
#include "shm/group/state.hpp"
#include "shm/sync/arrival.hpp"
#include "shm/sync/fence.hpp"

namespace shm::inline v1::detail {

/// Waits until every rank of a group has called it.
inline void cross(group_state& state, operation where) {
  state.require_whole(where);
  sync::fence fence(state.block().lines(), state.header().fence, state.rank(), state.fence_in_use(),
                    state.patience());
  if (auto const missing = fence.cross(fence_roll{{state}})) {
    throw state.absence_error(state.settle(*missing), where);
  }
}

/// One gathering of a few bytes from each rank. Allocates nothing.
class gathering {
 public:
  static constexpr std::size_t most_bytes = desk::scratch_bytes;

  /// What must be alike on all ranks besides the bytes of this gathering.
  struct call {
    operation where = operation::none;
    std::size_t length = 0;   ///< of the whole block in bytes
    bool is_refused = false;  ///< this rank's arguments cannot be
  };

  /// Brings `part` and waits for what the others bring.
  ///
  /// Requires:   at most `most_bytes`.
  /// Collective: all ranks of the group.
  /// Ordering:   what any rank wrote before the call is visible to every rank after it.
  /// Errors:     the same on every rank: those of `cross`; errc::mismatch where the calls differ;
  ///             errc::invalid_argument where any rank's is refused.
  gathering(group_state& state, call const& mine, std::span<std::byte const> part) : state_(state) {
    state.require_whole(mine.where);  // else a slow rank may still read what is written here
    // The two sets are used in turn: all ranks have read this one before they entered the fence
    // that they have come out of last.
    auto const number = sync::load_own(state.block().line(state.rank()).arrived) + 1;
    set_ = number & 1U;
    auto& own = state.block().desk_of(state.rank()).scratch[set_];
    own.number = number;
    own.where = mine.where;
    own.is_refused = mine.is_refused ? 1 : 0;
    own.length = mine.length;
    std::ranges::copy(part, own.bytes.begin());
    cross(state, mine.where);
    for (int rank = 0; rank < state.size(); ++rank) require_alike(mine.where, number, rank);
  }

  /// What a rank has brought, to be read before this rank makes the next collective call.
  [[nodiscard]] std::span<std::byte const> from(int rank) const noexcept {
    return scratch_of(rank).bytes;
  }

 private:
  [[nodiscard]] scratch const& scratch_of(int rank) const noexcept {
    return state_.block().desk_of(rank).scratch[set_];
  }

  /// Compares what a rank has brought with what rank 0 has. All ranks see the same.
  void require_alike(operation where, std::uint32_t number, int rank) const {
    auto const& root = scratch_of(0);
    auto const& theirs = scratch_of(rank);
    failure found{.rank = rank};
    if (theirs.number == number && theirs.where != root.where) {
      where = root.where;
      found.cause = errc::mismatch;
      found.subject = "the call is " + std::string(words_for(theirs.where)) + " there, and " +
                      std::string(words_for(where)) + " on rank 0";
      found.remedy = "make collective calls in the same order on every rank";
    } else if (theirs.number != number) {
      found.cause = errc::mismatch;
      found.subject = "the rank is in another collective call, and not in this one";
      found.remedy = "make collective calls in the same order on every rank";
    } else if (theirs.is_refused != 0) {
      found.cause = errc::invalid_argument;
      found.subject = "the result must have size() blocks of the length of one";
    } else if (theirs.length != root.length) {
      found.cause = errc::mismatch;
      found.subject = "the length of a block in bytes is " + std::to_string(theirs.length) +
                      " there, and " + std::to_string(root.length) + " on rank 0";
    } else {
      return;
    }
    throw error(found, state_.agreed_context(where));
  }

  group_state& state_;
  std::uint32_t set_ = 0;
};

}  // namespace shm::inline v1::detail
