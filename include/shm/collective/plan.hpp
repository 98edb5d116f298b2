#pragma once
/// @file What users see of every persistent collective.

#include <memory>
#include <utility>

#include "shm/collective/plan_core.hpp"
#include "shm/error.hpp"
#include "shm/group.hpp"

namespace shm::inline v1::detail {

/// A plan with its work, which is `work(plan_core&)`.
template <class Work>
class working_plan final : public plan_core {
 public:
  template <class MayLie>
  working_plan(group& ranks, plan_request const& mine, MayLie const& may_lie, Work work)
      : plan_core(ranks, mine, may_lie), work_(std::move(work)) {}

 private:
  void work() noexcept override { work_(*this); }

  Work work_;
};

/// A persistent collective: planned once, started often. Move-only; a default-constructed or
/// moved-from one is empty. One thread makes, starts, completes and destroys it.
///
/// Collective: every rank starts the same plans, in the same order as its other collective calls of
///             the group. Several may be under way at once, and each rank may complete them in an
///             order of its own, with other calls between. Of one plan, each rank completes one
///             operation before it starts the next, which it may do at once.
/// Ordering:   what a rank wrote before it started is visible to every rank that needs its data,
///             once that one has completed.
/// Cost:       a rank's part of the work is done while its thread asks or completes, or waits in
/// any
///             other call of the library.
///
/// A plan shares ownership of the memory that its buffers lie in, which no rank may freeze while
/// others write there. Destroying it never waits, also when it is started: ranks that still wait
/// for this one then get errc::peer_left. Where a rank fails in `group::agree` before it starts
/// what others start, all get its error, and plans made before are refused: make them anew.
template <class Work>
class plan {
 public:
  /// Makes an empty plan.
  plan() noexcept = default;

  /// Begins an operation: from here until it is complete, this rank leaves its buffers alone. Never
  /// waits.
  ///
  /// Errors: errc::invalid_argument where the last operation is not complete, errc::empty, on this
  ///         rank alone; errc::peer_lost, errc::peer_left where a rank was found missing before.
  void start() { core().start(); }

  /// Returns whether the last operation is complete, having done what could be done without
  /// waiting.
  ///
  /// Errors: as `wait`.
  bool test() { return core().test(); }

  /// Completes the operation: the result is there, and this rank may change all of its buffers; but
  /// one that other ranks have named as theirs too, who read there, only after a fence.
  /// Returns at once where it is complete already.
  ///
  /// Errors: errc::peer_lost, errc::peer_left where a rank that is waited for will never come;
  ///         errc::invalid_argument where the plan has never been started; errc::empty.
  void wait() { core().wait(); }

  /// Whether this is a plan, not a default-constructed or moved-from one.
  [[nodiscard]] bool valid() const noexcept { return core_ != nullptr; }

 protected:
  template <class MayLie>
  plan(group& ranks, plan_request const& mine, MayLie const& may_lie, Work work)
      : core_(std::make_unique<working_plan<Work>>(ranks, mine, may_lie, std::move(work))) {}

 private:
  plan_core& core() const {
    if (core_) return *core_;
    throw error({.cause = errc::empty, .subject = "the plan", .remedy = {}});
  }

  std::unique_ptr<plan_core> core_;
};

}  // namespace shm::inline v1::detail
