#pragma once
/// @file A fence of a rank with some of its peers, over plain memory that they share.

#include <optional>
#include <span>

#include "shm/base/size.hpp"
#include "shm/sync/arrival.hpp"
#include "shm/sync/pair_table.hpp"
#include "shm/sync/wait.hpp"

namespace shm::inline v1::sync {

/// One rank's view of the meetings of pairs. In its row of the table each rank counts how often it
/// has met each peer, modulo 2^32.
class meetings {
 public:
  meetings(pair_table table, int rank, patience how) noexcept
      : table_(table), rank_(rank), patience_(how) {}

  /// Tells every peer that this rank is here, then waits until each has done the same: a ring
  /// works. The caller itself and repeated peers count once.
  ///
  /// Requires: every rank of `peers` names this rank in its own call, and they call in one order.
  /// Returns:  nothing when all have met, or who will never come.
  /// Ordering: what a peer wrote before its call is visible to this rank after it, and the reverse.
  /// Cost:     a store and a wait for each peer; comparisons grow with the square of their number.
  template <roll_call Roll>
  std::optional<absence> meet(std::span<int const> peers, Roll const& roll) noexcept {
    for (std::size_t i = 0; i < peers.size(); ++i) {
      if (is_repeated(peers, i)) continue;
      auto& mine = table_.word(rank_, peers[i]);
      store(mine, load_own(mine) + 1);
    }
    for (int const peer : peers) {
      if (auto const missing = wait_for(peer, roll)) return missing;
    }
    return std::nullopt;
  }

 private:
  [[nodiscard]] bool is_repeated(std::span<int const> peers, std::size_t at) const noexcept {
    for (std::size_t i = 0; i < at; ++i) {
      if (peers[i] == peers[at]) return true;
    }
    return peers[at] == rank_;
  }

  template <roll_call Roll>
  std::optional<absence> wait_for(int peer, Roll const& roll) const noexcept {
    auto const number = load_own(table_.word(rank_, peer));
    auto& theirs = table_.word(peer, rank_);
    auto const has_come = [&] { return reached(load(theirs), number); };
    std::optional<absence> missing;
    wait_until(patience_, has_come, [&] {
      // A peer that has found another one missing does not come either: it has settled why.
      auto const why = roll(peer);
      auto const settled = roll.verdict();
      if (has_come()) return true;
      if (why != standing::present) missing = absence{why, peer};
      if (settled) missing = settled;
      return missing.has_value();
    });
    return missing;
  }

  pair_table table_;
  int rank_;
  patience patience_;
};

}  // namespace shm::inline v1::sync
