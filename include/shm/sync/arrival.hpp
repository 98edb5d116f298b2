#pragma once
/// @file What each rank says of itself in shared memory: where it has arrived, and that it has
/// left.

#include <array>
#include <atomic>
#include <concepts>
#include <cstdint>
#include <optional>
#include <type_traits>

#include "shm/base/size.hpp"

namespace shm::inline v1::sync {

/// Loads a word that other ranks write; what they wrote before their store is visible afterwards.
template <class Word>
Word load(Word& word) noexcept {
  // A lock would be one of this process alone.
  static_assert(std::atomic_ref<Word>::is_always_lock_free);
  return std::atomic_ref(word).load(std::memory_order_acquire);
}

/// Loads a word that only the calling rank writes.
template <class Word>
Word load_own(Word& word) noexcept {
  // relaxed: the caller reads its own last store, and learns nothing of other ranks from it
  return std::atomic_ref(word).load(std::memory_order_relaxed);
}

/// Stores a word for other ranks: everything before is visible to whoever loads it.
template <class Word>
void store(Word& word, std::type_identity_t<Word> value) noexcept {
  std::atomic_ref(word).store(value, std::memory_order_release);
}

/// The line of one rank, written by that rank alone and read by all.
///
///     byte   0  arrived   number of the last fence that the rank has entered
///            4  left      1: the rank has destroyed its end
///            8  rounds    [30] number of the last fence in which the rank has signalled in round
///                         i + 1 of a dissemination; `arrived` is the signal of round 0
struct alignas(line_bytes) arrival_line {
  std::uint32_t arrived = 0;
  std::uint32_t left = 0;
  std::array<std::uint32_t, 30> rounds{};
};
static_assert(sizeof(arrival_line) == line_bytes);

/// Whether a rank can still be waited for.
enum class standing : std::uint32_t {
  present,
  left,       ///< it has destroyed its end, and will not come again
  dead,       ///< its process has ended without a word
  elsewhere,  ///< it is in a later collective call, having passed over this one
};

/// Why a wait cannot succeed: the lowest rank that will not come.
struct absence {
  standing why = standing::present;
  int rank = -1;

  friend bool operator==(absence const&, absence const&) = default;
};

/// What a waiter that has waited long wants to know.
///
/// `roll(rank)` tells the standing of a rank; it may cost a system call. `roll.verdict()` tells
/// what was settled for good about the memory that is waited on, if anything.
template <class Roll>
concept roll_call = requires(Roll const& roll, int rank) {
  { roll(rank) } -> std::same_as<standing>;
  { roll.verdict() } -> std::same_as<std::optional<absence>>;
};

/// What a look at all ranks of a group says.
struct outlook {
  enum class state { open, complete, hopeless };
  state is = state::open;
  absence missing{};  ///< where hopeless: the lowest rank that will never come
};

/// Looks at all ranks. The standing is asked first and the arrival read again after it: a rank may
/// arrive, and only then leave or die.
///
/// What others have settled ends a wait that would last, unless it is a rank that has left: after a
/// death, or a mismatch of calls, those that know of it come to nothing any more. So a rank that is
/// present may be one that will not come, and one that has left may have done so for that reason.
template <std::predicate<int> Arrived, roll_call Roll>
outlook look_at_all(int size, Arrived const& has_arrived, Roll const& roll) {
  outlook view{.is = outlook::state::complete};
  for (int rank = 0; rank < size && view.is != outlook::state::hopeless; ++rank) {
    if (has_arrived(rank)) continue;
    auto const why = roll(rank);
    if (has_arrived(rank)) continue;
    view.is = outlook::state::open;
    if (why != standing::present) view = {outlook::state::hopeless, {why, rank}};
  }
  if (view.is == outlook::state::complete) return view;
  auto const settled = roll.verdict();
  if (settled && settled->why != standing::left) return {outlook::state::hopeless, *settled};
  return view;
}

/// One word that settles which absence is reported: the first one that a rank finds.
///
///     bits 32..63  standing: 0 nothing settled, 1 left, 2 dead, 3 elsewhere
///     bits  0..31  rank
struct alignas(line_bytes) verdict_word {
  std::uint64_t word = 0;
  std::uint32_t told = 0;  ///< 1: a rank has said so to the user

  /// Settles on `found` unless something is settled already. Returns what is settled.
  absence settle(absence found) noexcept {
    std::uint64_t expected = 0;
    auto const desired =
        static_cast<std::uint64_t>(found.why) << 32 | static_cast<std::uint32_t>(found.rank);
    // acq_rel: the reporter's view of the absent rank goes along with its verdict
    if (std::atomic_ref(word).compare_exchange_strong(expected, desired, std::memory_order_acq_rel,
                                                      std::memory_order_acquire)) {
      return found;
    }
    return decode(expected);
  }

  /// Returns true for the first rank that asks, which is the one to tell the user.
  bool tell() noexcept {
    // relaxed: the word guards nothing but itself
    return std::atomic_ref(told).exchange(1, std::memory_order_relaxed) == 0;
  }

  /// Returns what is settled, if anything.
  [[nodiscard]] std::optional<absence> settled() noexcept {
    auto const value = load(word);
    if (value == 0) return std::nullopt;
    return decode(value);
  }

 private:
  static absence decode(std::uint64_t value) noexcept {
    return {static_cast<standing>(value >> 32), static_cast<int>(value & 0xffffffffU)};
  }
};

}  // namespace shm::inline v1::sync
