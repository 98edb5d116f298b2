#pragma once
/// @file A group of processes on one machine: agreement, barrier, allgather, splitting.

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>

#include "shm/base/size.hpp"
#include "shm/error.hpp"
#include "shm/group/agreement.hpp"
#include "shm/group/gathering.hpp"
#include "shm/group/split.hpp"
#include "shm/group/state.hpp"
#include "shm/options.hpp"
#include "shm/os/topology.hpp"

namespace shm::inline v1 {

namespace detail {
class staging;
}

/// A handle of a group of ranks. Move-only; the memory behind it is shared with the group's
/// windows, which may outlive it. Destroying it is local: it marks that this rank has left, and
/// ranks that still wait for it get errc::peer_left.
///
/// Collective calls of one group come from one thread at a time, in the same order on every rank.
class group {
 public:
  /// Makes an invalid group.
  group() noexcept = default;
  explicit group(std::shared_ptr<detail::group_state> state) noexcept : state_(std::move(state)) {}

  group(group&& other) noexcept
      : state_(std::move(other.state_)), staging_(std::move(other.staging_)) {}
  group& operator=(group&& other) noexcept {
    group taken(std::move(other));
    std::swap(state_, taken.state_);
    std::swap(staging_, taken.staging_);
    return *this;
  }
  ~group() {
    if (state_) state_->leave();
  }

  /// This process's number in the group, 0 .. size() - 1; -1 where the group is invalid.
  [[nodiscard]] int rank() const noexcept { return state_ ? state_->rank() : -1; }
  /// The number of ranks; 0 where the group is invalid.
  [[nodiscard]] int size() const noexcept { return state_ ? state_->size() : 0; }
  /// Whether this is a group, not a default-constructed or moved-from handle.
  [[nodiscard]] bool valid() const noexcept { return state_ != nullptr; }

  /// Waits until every rank has called it.
  ///
  /// Collective: all ranks.
  /// Ordering:   what any rank wrote before the call is visible to every rank after it.
  /// Errors:     errc::peer_lost, errc::peer_left where a rank will never call it; the same on all.
  /// Cost:       one fence; no system call unless it waits long.
  void barrier() { detail::cross(valid_state(operation::barrier), operation::barrier); }

  /// Runs `f` on every rank; where any throws, all throw the same error.
  ///
  /// Returns:    what this rank's `f` returns.
  /// Collective: all ranks.
  /// Ordering:   what any rank wrote before or in `f` is visible to every rank after the call.
  /// Errors:     the error of the first rank whose `f` threw: that `shm::error`, or
  ///             errc::rank_failed with the text of another exception. errc::peer_lost,
  ///             errc::peer_left as in `barrier`.
  template <std::invocable F>
  std::invoke_result_t<F> agree(F&& f) {
    static_assert(!std::is_reference_v<std::invoke_result_t<F>>,
                  "group::agree: return a value or a pointer from the function, not a reference");
    valid_state(operation::agree).require_whole(operation::agree);
    if constexpr (std::is_void_v<std::invoke_result_t<F>>) {
      run_and_vote([&] { std::invoke(std::forward<F>(f)); });
    } else {
      std::optional<std::invoke_result_t<F>> result;
      run_and_vote([&] { result.emplace(std::invoke(std::forward<F>(f))); });
      return *std::move(result);
    }
  }

  /// Gathers one block of equal length from every rank.
  ///
  /// Shapes:     mine [n] bytes; all [size() * n] bytes, block r belongs to rank r.
  /// Requires:   n is the same on all ranks; `all` does not overlap `mine`.
  /// Collective: all ranks.
  /// Ordering:   as `barrier`.
  /// Errors:     the same on every rank: errc::invalid_argument where `all` has another length on
  ///             any; errc::mismatch where n differs; else as `barrier`.
  /// Cost:       one fence for each 1024 bytes of a block.
  void allgather(std::span<std::byte const> mine, std::span<std::byte> all) {
    auto& state = valid_state(operation::allgather);
    auto const n = mine.size();
    bool const fits = checked_multiply(n, static_cast<std::size_t>(size())) == all.size();
    std::size_t at = 0;
    do {  // also once for nothing: it orders as a barrier does
      auto const part = mine.subspan(at, std::min(n - at, detail::gathering::most_bytes));
      detail::gathering const gathered(
          state, {.where = operation::allgather, .length = n, .is_refused = !fits}, part);
      for (int r = 0; r < size(); ++r) {
        auto const from = gathered.from(r).first(part.size());
        std::ranges::copy(from, all.subspan(static_cast<std::size_t>(r) * n + at).begin());
      }
      at += part.size();
    } while (at < n);
  }

  /// Makes a group of the ranks that give the same color, ordered by `key`, then by their rank
  /// here. It has the settings of this one, and does not need it any longer.
  ///
  /// Returns:    an invalid group where `color` is negative; such a rank takes part all the same.
  /// Collective: all ranks.
  /// Ordering:   as `barrier`.
  /// Errors:     the same on every rank, also where only one of the groups cannot be made: then no
  ///             rank gets one, nothing is left, and this group goes on. errc::limit_reached and
  ///             what else the kernel refuses; errc::not_shareable where ranks of one color can
  ///             reach rank 0 of this group, but not each other; errc::mismatch where others make
  ///             another call; else as `barrier`.
  /// Cost:       four or five fences and an agreement; each new group costs what a communicator
  ///             does, but for the bootstrap.
  group split(int color, int key = 0) {
    return group(detail::split(valid_state(operation::split), 0, key, [=] { return color; }));
  }

  /// Makes a group of the ranks that run on the same part of the machine, in the order of their
  /// ranks here.
  ///
  /// That is the part of the processor that the calling thread runs on at this moment, which says
  /// little where a rank may run on several parts: bind ranks first. Ranks for which the machine
  /// does not say are in one group together.
  ///
  /// Collective: all ranks.
  /// Ordering:   as `barrier`.
  /// Errors:     as `split`; errc::mismatch where `part` differs.
  group split_by(domain part) {
    auto const find = [=] {
      constexpr int unknown = std::numeric_limits<int>::max();
      return os::domain_of(part, os::current_processor()).value_or(unknown);
    };
    auto const by = std::uint64_t{1} + static_cast<std::uint32_t>(part);
    return group(detail::split(valid_state(operation::split), by, 0, find));
  }

  /// The state that windows share. For the library's own headers.
  [[nodiscard]] std::shared_ptr<detail::group_state> const& state() const noexcept {
    return state_;
  }
  /// The memory through which collectives stage private buffers; null until one has been called.
  /// For the library's own headers.
  [[nodiscard]] std::shared_ptr<detail::staging>& staging() noexcept { return staging_; }

 private:
  detail::group_state& valid_state(operation where) const {
    if (!state_) {
      throw error({.cause = errc::empty, .subject = "the group", .remedy = {}}, {.where = where});
    }
    return *state_;
  }

  /// Runs `f` and votes with what it throws. An error that all ranks of this group got from a
  /// collective call in `f` has been voted on already: every rank throws it as it is, and a rank
  /// that failed before that call has given its vote there.
  template <class F>
  void run_and_vote(F const& f) {
    failure mine;
    try {
      f();
    } catch (error const& e) {
      // That a rank has left a window or a plan is no vote: it may have failed, and votes itself.
      bool const is_settled = e.code() != errc::peer_left || !state_->is_whole();
      if (e.is_agreed_in(state_->number()) && is_settled) throw;
      mine = failure_of_exception(errc::rank_failed);
      mine.rank = rank();  // one that an error of another group names is none of this group's
    } catch (...) {
      mine = failure_of_exception(errc::rank_failed);
    }
    detail::agreement agreement(*state_);
    if (auto failed = agreement.settle({.where = operation::agree, .cause = mine})) {
      throw std::move(*failed);
    }
  }

  std::shared_ptr<detail::group_state> state_;
  std::shared_ptr<detail::staging> staging_;
};

}  // namespace shm::inline v1
