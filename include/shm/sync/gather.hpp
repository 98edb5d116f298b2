#pragma once
/// @file Waiting for a word of every rank.

#include <concepts>
#include <optional>

#include "shm/sync/arrival.hpp"
#include "shm/sync/wait.hpp"

namespace shm::inline v1::sync {

/// Waits until `has_come(rank)` of every rank, in rank order.
///
/// Returns:  nothing when all have come, or the lowest rank that never will.
/// Ordering: that of the loads in `has_come`.
template <std::predicate<int> HasCome, roll_call Roll>
std::optional<absence> gather(int size, patience how, HasCome const& has_come, Roll const& roll) {
  outlook view;
  for (int rank = 0; rank < size && view.is == outlook::state::open; ++rank) {
    wait_until(
        how, [&] { return has_come(rank); },
        [&] {
          view = look_at_all(size, has_come, roll);
          return view.is != outlook::state::open;
        });
  }
  if (view.is == outlook::state::hopeless) return view.missing;
  return std::nullopt;
}

}  // namespace shm::inline v1::sync
