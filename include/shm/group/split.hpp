#pragma once
/// @file How a group is split into smaller ones, through its own shared memory.

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "shm/error.hpp"
#include "shm/group/agreement.hpp"
#include "shm/group/gathering.hpp"
#include "shm/group/handshake.hpp"
#include "shm/group/state.hpp"
#include "shm/oob/out_of_band.hpp"

namespace shm::inline v1::detail {

/// What a rank says in one round of a split.
struct split_message {
  std::uint32_t has_ended = 0;            ///< 1: the rank exchanges nothing more
  failure why{};                          ///< where it has ended for that
  std::array<std::byte, 256> greeting{};  ///< where it has not
};
static_assert(sizeof(split_message) <= gathering::most_bytes);
static_assert(std::is_trivially_copyable_v<split_message>);

/// The bootstrap of all groups that one split makes, at the same time.
///
/// An exchange of one group is a round of the parent, in which all ranks bring something and each
/// takes what those of its color have brought. Groups can need different numbers of exchanges; a
/// rank that needs no more goes on with rounds until all ranks have ended in the same one:
///
///     color 1, sends descriptors   exchange   exchange   exchange   end
///     color 2                      exchange   exchange   end        end
///     no color                     end        end        end        end
///
/// Between its exchanges a rank waits only for ranks of its color, which come out of the same
/// round, or are found dead; so all come to the next round. A round that fails does so on all, and
/// so does every later one.
class split_rounds {
 public:
  explicit split_rounds(group_state& parent) noexcept : parent_(parent) {}
  split_rounds(split_rounds const&) = delete;
  split_rounds& operator=(split_rounds const&) = delete;

  /// Allocates what the rounds need: they cannot fail on this rank alone.
  void reserve() { members_.reserve(static_cast<std::size_t>(parent_.size())); }

  /// Learns which ranks have the color of this one. Collective.
  void join(int color, int key) {
    struct wish {
      std::int32_t color;
      std::int32_t key;
    };
    auto const gathered = gather(wish{color, key});
    for (int rank = 0; color >= 0 && rank < parent_.size(); ++rank) {
      auto const theirs = read<wish>(gathered, rank);
      if (theirs.color == color) members_.emplace_back(theirs.key, rank);
    }
    std::ranges::sort(members_);
    auto const own = std::ranges::find(members_, parent_.rank(), &member::second);
    rank_ = static_cast<int>(own - members_.begin());
  }

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return static_cast<int>(members_.size()); }

  /// Throws errors of all ranks alone, so that the group in creation waits for nobody after them.
  void allgather(std::span<std::byte const> mine, std::span<std::byte> all) {
    split_message own;
    std::ranges::copy(mine, own.greeting.begin());
    auto const gathered = gather(own);
    for (std::size_t at = 0; at < members_.size(); ++at) {
      auto const theirs = read<split_message>(gathered, members_[at].second);
      if (theirs.has_ended != 0) {
        ended_early_ = theirs.why;
        throw error(theirs.why, {.where = operation::split, .size = size(), .agreed = true});
      }
      auto const from = std::span(theirs.greeting).first(mine.size());
      std::ranges::copy(from, all.subspan(at * mine.size()).begin());
    }
  }

  /// Takes part in rounds until all ranks have ended. Collective.
  ///
  /// Errors: that of the round that has failed, if any.
  void end(failure const& why) {
    split_message const own{.has_ended = 1, .why = why};
    for (bool is_over = false; !is_over;) {
      auto const gathered = gather(own);
      is_over = true;
      for (int rank = 0; rank < parent_.size(); ++rank) {
        if (read<split_message>(gathered, rank).has_ended == 0) is_over = false;
      }
    }
  }

  /// Returns the failure of a group in creation with the ranks that its members have in the parent.
  [[nodiscard]] failure in_parent(failure found) const {
    if (ended_early_) return *ended_early_;
    if (found.cause == errc::not_shareable) {  // whose words number ranks too
      auto const words = std::exchange(found.subject, "counting the ranks of this color alone: ");
      found.subject.append(words.view());
    }
    if (found.rank >= 0 && found.rank < size()) {
      found.rank = members_[static_cast<std::size_t>(found.rank)].second;
    }
    return found;
  }

 private:
  using member = std::pair<int, int>;  // key, and rank in the parent

  template <class Message>
  [[nodiscard]] gathering gather(Message const& mine) const {
    return {parent_,
            {.where = operation::split, .length = sizeof mine},
            std::as_bytes(std::span(&mine, 1))};
  }

  template <class Message>
  static Message read(gathering const& gathered, int rank) noexcept {
    Message result;
    std::memcpy(&result, gathered.from(rank).data(), sizeof result);
    return result;
  }

  group_state& parent_;
  std::vector<member> members_;  ///< in the order of their new ranks
  int rank_ = 0;
  std::optional<failure> ended_early_;  ///< why another rank of this color has
};

/// Splits a group; see `group::split`. `find_color` may throw. `by` must be the same on all ranks.
template <std::invocable FindColor>
std::shared_ptr<group_state> split(group_state& parent, std::uint64_t by, int key,
                                   FindColor const& find_color) {
  split_rounds rounds(parent);
  failure mine;
  int color = -1;
  try {
    rounds.reserve();
    color = find_color();
  } catch (...) {
    mine = failure_of_exception(errc::system_failure);
  }
  rounds.join(color, key);
  std::shared_ptr<group_state> made;
  if (color >= 0) {
    try {
      handshake one(out_of_band_ref(rounds), parent.settings(), operation::split);
      made = one.run();
    } catch (...) {
      mine = rounds.in_parent(failure_of_exception(errc::system_failure));
    }
  }
  rounds.end(mine);
  constexpr std::string_view equal[] = {
      "what the group is split by (0 color, 1 NUMA node, 2 package, 3 level 3 cache)"};
  agreement last(parent);
  auto failed =
      last.settle({.where = operation::split, .arguments = {by}, .equal = equal, .cause = mine});
  if (failed) throw std::move(*failed);
  return made;
}

}  // namespace shm::inline v1::detail
