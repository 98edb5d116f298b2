#pragma once
/// @file A fence of all ranks over plain memory that they share, with three algorithms.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "shm/base/size.hpp"
#include "shm/options.hpp"
#include "shm/sync/arrival.hpp"
#include "shm/sync/gather.hpp"
#include "shm/sync/wait.hpp"

namespace shm::inline v1::sync {

/// A word with a cache line of its own.
struct alignas(line_bytes) lone_word {
  std::uint32_t value = 0;
};

/// The words of a fence that belong to no rank.
struct fence_words {
  lone_word count;    ///< arrivals of all ranks in all fences so far (counter)
  lone_word release;  ///< number of the last fence that rank 0 has released (linear)
};

/// Returns the algorithm that `automatic` stands for.
///
/// Dissemination has the shortest chain of hand-overs, but needs each partner's processor in turn;
/// one counter lets whoever runs go on. Measured by bench/nested.
constexpr fence_algorithm choose_fence(fence_algorithm wanted, int ranks, int processors) noexcept {
  if (wanted != fence_algorithm::automatic) return wanted;
  return ranks <= processors ? fence_algorithm::dissemination : fence_algorithm::counter;
}

/// One rank's view of a fence. The state lies in the shared words: the number of the last fence is
/// the rank's own `arrived`. Fences are numbered modulo 2^32.
///
/// One that is kept for many fences remembers that number: some processors hand a line that was
/// written and is then read over to the reader altogether, so that reading one's own word again
/// costs as much as the fence. Nothing else may enter fences of the same words as long as it lives.
///
/// A fence is decided by arrival alone: entering fence k, a rank first stores arrived = k. A waiter
/// that has waited long looks at all ranks: all have arrived, so the fence has happened; or one
/// that has not arrived is dead or has left, so it never will. Every survivor comes to the same
/// end.
class fence {
 public:
  fence(std::span<arrival_line> lines, fence_words& words, int rank, fence_algorithm algorithm,
        patience how) noexcept
      : lines_(lines),
        words_(&words),
        rank_(rank),
        algorithm_(algorithm),
        patience_(how),
        number_(load_own(own().arrived)) {}

  /// Enters the next fence and waits until all ranks have.
  ///
  /// Requires: no earlier fence has returned an absence: its arrivals would be counted twice.
  /// Returns:  nothing when all ranks have entered, or the lowest rank that never will.
  /// Ordering: what any rank wrote before its call is visible to every rank after it: each rank's
  ///           release of `arrived` (or of a word that follows it) is acquired by every other,
  ///           directly or through a chain of ranks.
  template <roll_call Roll>
  std::optional<absence> cross(Roll const& roll) noexcept {
    auto const number = ++number_;
    store(own().arrived, number);
    switch (algorithm_) {
      case fence_algorithm::linear:
        return linear(number, roll);
      case fence_algorithm::counter:
        return count(number, roll);
      default:
        return disseminate(number, roll);
    }
  }

 private:
  [[nodiscard]] int size() const noexcept { return static_cast<int>(lines_.size()); }
  [[nodiscard]] arrival_line& line(int rank) const noexcept {
    return lines_[static_cast<std::size_t>(rank)];
  }
  [[nodiscard]] arrival_line& own() const noexcept { return line(rank_); }
  [[nodiscard]] bool has_arrived(int rank, std::uint32_t number) const noexcept {
    return reached(load(line(rank).arrived), number);
  }

  /// Waits for `ready`, or until a look at all ranks says how the fence ends.
  template <class Ready, roll_call Roll>
  outlook wait(std::uint32_t number, Ready const& ready, Roll const& roll) const noexcept {
    outlook view;
    wait_until(patience_, ready, [&] {
      view = look_at_all(size(), [&](int rank) { return has_arrived(rank, number); }, roll);
      return view.is != outlook::state::open;
    });
    return view;
  }

  static std::optional<absence> result_of(outlook const& view) noexcept {
    if (view.is == outlook::state::hopeless) return view.missing;
    return std::nullopt;
  }

  template <roll_call Roll>
  std::optional<absence> linear(std::uint32_t number, Roll const& roll) noexcept {
    if (rank_ != 0) {
      return result_of(
          wait(number, [&] { return reached(load(words_->release.value), number); }, roll));
    }
    auto const missing =
        gather(size(), patience_, [&](int rank) { return has_arrived(rank, number); }, roll);
    if (missing) return missing;
    store(words_->release.value, number);
    return std::nullopt;
  }

  template <roll_call Roll>
  std::optional<absence> count(std::uint32_t number, Roll const& roll) noexcept {
    // All ranks have added `number` times, modulo 2^32, once the sum is number * n. A rank that is
    // ahead has seen all arrivals, so a sum that is larger says the same.
    auto const complete = number * static_cast<std::uint32_t>(size());
    std::atomic_ref sum(words_->count.value);
    // acq_rel: every addition continues the release sequence of those before it
    if (reached(sum.fetch_add(1, std::memory_order_acq_rel) + 1, complete)) return std::nullopt;
    return result_of(
        wait(number, [&] { return reached(load(words_->count.value), complete); }, roll));
  }

  /// In round i, hears rank - 2^i and is heard by rank + 2^i.
  ///
  /// Source: Hensgen, Finkel, Manber: Two algorithms for barrier synchronization (1988).
  template <roll_call Roll>
  std::optional<absence> disseminate(std::uint32_t number, Roll const& roll) noexcept {
    auto signal = [](arrival_line& from, std::size_t round) -> std::uint32_t& {
      return round == 0 ? from.arrived : from.rounds[round - 1];
    };
    std::size_t round = 0;
    bool complete = false;
    for (int distance = 1; distance < size(); ++round) {
      if (round > 0) store(signal(own(), round), number);
      if (!complete) {
        int const partner = rank_ >= distance ? rank_ - distance : rank_ - distance + size();
        auto& word = signal(line(partner), round);
        auto const view = wait(number, [&] { return reached(load(word), number); }, roll);
        if (view.is == outlook::state::hopeless) return view.missing;
        complete = view.is == outlook::state::complete;  // the remaining rounds are only signalled
      }
      if (distance > size() / 2) break;  // doubling could overflow, and is not needed
      distance *= 2;
    }
    return std::nullopt;
  }

  std::span<arrival_line> lines_;
  fence_words* words_;
  int rank_;
  fence_algorithm algorithm_;
  patience patience_;
  std::uint32_t number_;  ///< of the last fence that this rank has entered
};

}  // namespace shm::inline v1::sync
