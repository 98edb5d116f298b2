#pragma once
/// @file One-sided signals between ranks, counted for each ordered pair, over plain memory that
/// they share.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "shm/base/size.hpp"
#include "shm/sync/arrival.hpp"
#include "shm/sync/pair_table.hpp"
#include "shm/sync/wait.hpp"

namespace shm::inline v1::sync {

/// How a wait for posts has ended. With neither, there was no post in time.
struct heard {
  int from = -1;                     ///< the rank whose post was consumed
  std::optional<absence> missing{};  ///< the rank that will never post, and why
};

/// One rank's end of the signals between all ranks.
///
/// Word (from, to) of the shared table counts the posts that `from` has ever made to `to`, modulo
/// 2^32. Only `from` writes it, so a post is a store without a lock. It lies in the row of the
/// poster: whoever waits polls a line that one rank writes, and posts to one rank by many do not
/// take a line from each other. How many of them a rank has consumed is its own affair: nobody else
/// asks, so it is counted in the memory of its process, for as long as this object lives.
///
/// At most 2^31 posts of a pair may be unconsumed. One thread may post while another waits.
class signals {
 public:
  signals() noexcept = default;
  /// Begins where every pair has posted and consumed `first` times. Allocates what waits need.
  signals(pair_table table, int rank, int ranks, std::uint32_t first)
      : table_(table),
        own_(table.row(rank)),
        rank_(rank),
        inboxes_(static_cast<std::size_t>(ranks), inbox{.consumed = first}) {}

  /// Posts to a rank, which may be this one.
  ///
  /// Ordering: what this rank wrote before is visible to `to` after the wait that consumes it.
  /// Cost:     a store; the line that it lies in moves to `to` and back.
  void post(int to) noexcept {
    auto& count = own_[to];
    store(count, load_own(count) + 1);
  }

  /// Consumes a post of `from` where there is one. Returns whether there was.
  bool take(int from) noexcept {
    if (!has_post(from)) return false;
    ++inbox_of(from).consumed;
    return true;
  }

  /// Consumes a post of the rank that has gone longest without in this call, of those in `peers`
  /// that have posted: it comes after each other one at most once. Returns the rank, or -1.
  int take_any(std::span<int const> peers) noexcept {
    int first = -1;
    for (int const peer : peers) {
      if (!has_post(peer)) continue;
      if (first < 0 || inbox_of(peer).turn < inbox_of(first).turn) first = peer;
    }
    if (first < 0) return -1;
    ++inbox_of(first).consumed;
    inbox_of(first).turn = ++turns_;
    return first;
  }

  /// Waits until one of `peers` has posted, and consumes the post as `take_any` does; until one is
  /// found that will never post; or until the deadline.
  ///
  /// Returns:  a post wherever there is one: those that a rank made before it left or died count.
  ///           Of several that will never post, the first in `peers`, unless a verdict of the roll
  ///           says who is to be named.
  /// Ordering: what the poster wrote before its post is visible after.
  template <roll_call Roll>
  [[gnu::noinline]] heard wait(std::span<int const> peers, patience how, Roll const& roll,
                               wait_clock::time_point deadline = wait_clock::time_point::max()) {
    heard result;
    wait_until(
        how, [&] { return (result.from = take_any(peers)) >= 0; },
        [&] {
          result = look(peers, roll);
          return result.from >= 0 || result.missing;
        },
        deadline);
    return result;
  }

  /// Tells a rank that does not wait what a wait would find out, at most five times a second: what
  /// `from` has posted meanwhile, or that it never will. In between, nothing.
  template <roll_call Roll>
  heard look_now_and_then(int from, Roll const& roll) {
    auto const now = wait_clock::now();
    auto& box = inbox_of(from);
    if (now < box.next_look) return {};
    box.next_look = now + between_looks;
    return look(std::span(&from, 1), roll);
  }

 private:
  /// What this rank knows of the posts of one peer.
  struct inbox {
    std::uint32_t consumed = 0;
    std::uint64_t turn = 0;  ///< when `take_any` has last consumed one
    wait_clock::time_point next_look{};
  };

  [[nodiscard]] inbox& inbox_of(int from) noexcept {
    return inboxes_[static_cast<std::size_t>(from)];
  }
  [[nodiscard]] bool has_post(int from) noexcept {
    return reached(load(table_.word(from, rank_)), inbox_of(from).consumed + 1);
  }

  /// Looks at all peers. Posts are read after the standings: a rank may post, and only then leave
  /// or die.
  template <roll_call Roll>
  heard look(std::span<int const> peers, Roll const& roll) {
    auto missing = roll.verdict();
    for (int const peer : peers) {
      if (missing) break;
      if (auto const why = roll(peer); why != standing::present) missing = absence{why, peer};
    }
    if (int const from = take_any(peers); from >= 0) return {.from = from};
    return {.missing = missing};
  }

  pair_table table_;
  std::uint32_t* own_ = nullptr;  ///< this rank's row
  int rank_ = -1;
  std::vector<inbox> inboxes_;
  std::uint64_t turns_ = 0;  ///< how often `take_any` has found a post
};

}  // namespace shm::inline v1::sync
