#pragma once
/// @file Agreement: every rank votes, and every rank returns the same decision.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "shm/base/size.hpp"
#include "shm/error.hpp"
#include "shm/group/control_block.hpp"
#include "shm/group/state.hpp"
#include "shm/sync/arrival.hpp"
#include "shm/sync/wait.hpp"

namespace shm::inline v1::detail {

/// What one rank brings to an agreement.
struct proposal {
  operation where = operation::none;
  call_arguments arguments{};
  std::span<std::string_view const> equal{};  ///< names of the leading arguments, the same on all
  failure cause{};                            ///< a failure of this rank, if it has failed
};

/// How an agreement has ended, in the 64 bits of one of `control_header::decisions`:
///
///     bits 32..63  epoch
///     bits 28..31  kind
///     bits  0..27  rank
struct decision {
  enum class kind : std::uint32_t {
    done,       ///< every rank has voted and none has failed
    failed,     ///< `rank` is the first that has; why, its ballot says
    ruled,      ///< rank 0 has found a failure, in its ruling
    left,       ///< `rank` has left without a vote
    elsewhere,  ///< `rank` has passed over this agreement
    dead,       ///< `rank` has died without a vote, or rank 0 before it could decide
  };
  kind is = kind::done;
  int rank = 0;

  static constexpr std::uint64_t encode(std::uint32_t epoch, kind is, int rank) noexcept {
    return static_cast<std::uint64_t>(epoch) << 32 | static_cast<std::uint64_t>(is) << 28 |
           static_cast<std::uint32_t>(rank);
  }
  static constexpr decision decode(std::uint64_t word) noexcept {
    return {static_cast<kind>(word >> 28 & 15U), static_cast<int>(word & 0xfffffffU)};
  }
};

/// One agreement among all ranks of a group.
///
/// A rank casts its vote into its ballot of this epoch. Rank 0 reads all votes and sets the
/// decision by compare-and-swap; any rank that finds a voter missing for good sets that by the same
/// compare-and-swap. So there is one decision, and everybody returns it. Ballot and decision are
/// used again two epochs later: an agreement between that found nobody missing says that all have
/// read them, and after one that did there is no other.
class agreement {
 public:
  explicit agreement(group_state& state) noexcept : state_(state), epoch_(state.next_epoch()) {}

  /// Votes and returns the error that all ranks agreed on, if any.
  ///
  /// `prepare` is run by rank 0 alone once every rank has voted without a failure and with equal
  /// arguments; what it throws becomes the error of all. What rank 0 writes in it is visible to all
  /// ranks afterwards. After the decision rank 0 makes no system call, and is the first to return.
  template <class Prepare>
  std::optional<error> settle(proposal const& mine, Prepare const& prepare) {
    auto const how = state_.patience();  // before the vote: rank 0 may change it after that
    auto& ballot = state_.block().ballot_of(state_.rank(), epoch_);
    ballot.where = mine.where;
    ballot.arguments = mine.arguments;
    ballot.cause = mine.cause;
    ballot.started = state_.started();
    sync::store(ballot.epoch, epoch_);
    if (state_.rank() == 0) {
      decide(how, mine, prepare);
    } else {
      sync::wait_until(how, [&] { return is_decided(); }, [&] { return give_up(); });
    }
    auto const how_it_ended = decision::decode(sync::load(word()));
    if (how_it_ended.is == decision::kind::failed || how_it_ended.is == decision::kind::ruled) {
      level_starts();
    }
    return explain(how_it_ended, mine.where);
  }

  std::optional<error> settle(proposal const& mine) {
    return settle(mine, [] {});
  }

  [[nodiscard]] std::uint32_t epoch() const noexcept { return epoch_; }

 private:
  [[nodiscard]] ballot& ballot_of(int rank) const noexcept {
    return state_.block().ballot_of(rank, epoch_);
  }
  [[nodiscard]] std::uint64_t& word() const noexcept {
    return state_.header().decisions[epoch_ & 1U];
  }
  [[nodiscard]] bool has_voted(int rank) const noexcept {
    return sync::load(ballot_of(rank).epoch) == epoch_;
  }
  [[nodiscard]] bool is_decided() const noexcept { return sync::load(word()) >> 32 == epoch_; }

  /// Sets the decision unless there is one.
  void set(decision::kind is, int rank) noexcept {
    std::atomic_ref shared(word());
    auto seen = shared.load(std::memory_order_acquire);
    if (seen >> 32 == epoch_) return;
    // acq_rel: the decision carries all votes, and what rank 0 has prepared. A failure means that
    // another rank has decided; its decision is loaded, with acquire, by `settle`.
    shared.compare_exchange_strong(seen, decision::encode(epoch_, is, rank),
                                   std::memory_order_acq_rel, std::memory_order_acquire);
  }

  /// Looks at all votes. Returns whether the agreement is decided now.
  bool give_up() noexcept {
    auto const view = sync::look_at_all(
        state_.size(), [&](int rank) { return has_voted(rank); }, agreement_roll{{state_}});
    if (view.is == sync::outlook::state::hopeless) {
      set_missing(view.missing);
    } else if (state_.rank() != 0) {
      auto const root = control_roll{state_}(0);
      if (root != sync::standing::present) set_missing({root, 0});
    }
    return is_decided();
  }

  void set_missing(sync::absence const& missing) noexcept {
    switch (missing.why) {
      case sync::standing::dead:
        return set(decision::kind::dead, missing.rank);
      case sync::standing::elsewhere:
        return set(decision::kind::elsewhere, missing.rank);
      default:
        return set(decision::kind::left, missing.rank);
    }
  }

  template <class Prepare>
  void decide(sync::patience how, proposal const& mine, Prepare const& prepare) {
    for (int rank = 1; rank < state_.size(); ++rank) {
      sync::wait_until(how, [&] { return has_voted(rank); }, [&] { return give_up(); });
      if (is_decided()) return;
    }
    if (int const first = first_failed(); first >= 0) return set(decision::kind::failed, first);
    try {
      if (auto const difference = first_difference(mine)) return rule(*difference);
      prepare();
    } catch (...) {
      return rule(failure_of_exception(errc::rank_failed));
    }
    set(decision::kind::done, 0);
  }

  /// The first rank that has failed, or -1. One that only misses another rank's end does so,
  /// mostly, because that one has failed.
  [[nodiscard]] int first_failed() const noexcept {
    int first = -1;
    for (int rank = 0; rank < state_.size(); ++rank) {
      auto const& cause = ballot_of(rank).cause;
      if (!cause.is_failure()) continue;
      if (cause.cause != errc::peer_left) return rank;
      if (first < 0) first = rank;
    }
    return first;
  }

  /// Every rank has voted, and some may have failed before they started what others did.
  void level_starts() noexcept {
    auto most = ballot_of(0).started;
    bool is_level = true;
    for (int rank = 1; rank < state_.size(); ++rank) {
      auto const theirs = ballot_of(rank).started;
      is_level = is_level && theirs == most;
      if (reached(theirs, most)) most = theirs;
    }
    if (!is_level) state_.level_starts(most);
  }

  void rule(failure const& found) noexcept {
    auto& ruling = state_.header().rulings[epoch_ & 1U];
    ruling = found;
    if (ruling.rank < 0) ruling.rank = 0;
    set(decision::kind::ruled, ruling.rank);
  }

  /// Compares what every rank calls, and with what, to rank 0's own.
  [[nodiscard]] std::optional<failure> first_difference(proposal const& mine) const {
    for (int rank = 1; rank < state_.size(); ++rank) {
      auto const& other = ballot_of(rank);
      if (other.where != mine.where) {
        return failure{.cause = errc::mismatch,
                       .rank = rank,
                       .subject = "the call is " + std::string(words_for(other.where)) +
                                  " there, and " + std::string(words_for(mine.where)) +
                                  " on rank 0",
                       .remedy = "make collective calls in the same order on every rank"};
      }
      for (std::size_t i = 0; i < mine.equal.size(); ++i) {
        if (other.arguments[i] == mine.arguments[i]) continue;
        return failure{.cause = errc::mismatch,
                       .rank = rank,
                       .subject = std::string(mine.equal[i]) + " is " +
                                  std::to_string(other.arguments[i]) + " there, and " +
                                  std::to_string(mine.arguments[i]) + " on rank 0",
                       .remedy = {}};
      }
    }
    return std::nullopt;
  }

  [[nodiscard]] std::optional<error> explain(decision const& how, operation where) const {
    auto context = state_.agreed_context(where);
    switch (how.is) {
      case decision::kind::done:
        return std::nullopt;
      case decision::kind::failed: {
        failure found = ballot_of(how.rank).cause;
        context.where = ballot_of(how.rank).where;  // which may be another call
        if (found.rank < 0) found.rank = how.rank;
        return error(found, context);
      }
      case decision::kind::ruled:
        context.where = ballot_of(0).where;
        return error(state_.header().rulings[epoch_ & 1U], context);
      case decision::kind::left:
        return state_.absence_error(state_.settle({sync::standing::left, how.rank}), where);
      case decision::kind::dead:
        return state_.absence_error(state_.settle({sync::standing::dead, how.rank}), where);
      case decision::kind::elsewhere:
        break;
    }
    return state_.absence_error(state_.settle({sync::standing::elsewhere, how.rank}), where);
  }

  group_state& state_;
  std::uint32_t epoch_;
};

}  // namespace shm::inline v1::detail
