#pragma once
/// @file A fence of a rank with some of its peers, over plain memory that they share.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "shm/base/size.hpp"
#include "shm/sync/arrival.hpp"
#include "shm/sync/wait.hpp"

namespace shm::inline v1::sync {

/// One rank's view of the table of posts. Row r, written by rank r alone, counts for each peer how
/// often r has met it, modulo 2^32; rows begin on a line.
class peer_table {
 public:
  /// Returns the bytes from one row to the next.
  static constexpr std::size_t row_bytes(int ranks) noexcept {
    return *round_up(static_cast<std::size_t>(ranks) * sizeof(std::uint32_t), line_bytes);
  }

  peer_table(std::byte* table, int rank, int ranks, patience how) noexcept
      : table_(table), rank_(rank), ranks_(ranks), patience_(how) {}

  /// The word in which `from` counts its meetings with `to`.
  [[nodiscard]] std::uint32_t& word(int from, int to) const noexcept {
    auto* const row = table_ + static_cast<std::size_t>(from) * row_bytes(ranks_);
    return reinterpret_cast<std::uint32_t*>(row)[to];
  }

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
      auto& mine = word(rank_, peers[i]);
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
    auto const number = load_own(word(rank_, peer));
    auto& theirs = word(peer, rank_);
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

  std::byte* table_;
  int rank_;
  int ranks_;
  patience patience_;
};

}  // namespace shm::inline v1::sync
