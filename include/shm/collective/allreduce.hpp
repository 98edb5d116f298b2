#pragma once
/// @file Combining the elements of all ranks, with the result on all.

#include <concepts>
#include <cstddef>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>

#include "shm/collective/kernel.hpp"
#include "shm/collective/operation.hpp"
#include "shm/collective/places.hpp"
#include "shm/collective/plan.hpp"
#include "shm/collective/plan_core.hpp"
#include "shm/collective/staging.hpp"
#include "shm/error.hpp"
#include "shm/group.hpp"
#include "shm/window.hpp"

namespace shm::inline v1 {

namespace detail {

/// Each rank combines its slice of all blocks and writes it to all results; or, where the blocks
/// are staged, all of them for itself.
template <class T, class Op>
struct allreduce_work {
  std::size_t count = 0;
  Op op = {};

  void operator()(plan_core& plan) const {
    auto const sources = plan.sources();
    if (plan.is_staged()) {
      auto* const own = plan.own_result();
      return combine<T>(sources, std::span(&own, 1), {.count = count}, op);
    }
    auto const results = plan.results();
    combine<T>(sources, plan.is_one_result() ? results.first(1) : results,
               slice::of(count, sizeof(T), plan.rank(), plan.size()), op);
  }
};

/// Results may be the same for all, or lie where somebody sends, exactly; else they overlap
/// nothing.
inline std::optional<failure> failure_of_allreduce(plan_layout const& layout) {
  bool const is_one = layout.is_one_result();
  return failure_of_overlap(
      layout, [&](auto r, auto s) { return layout.receive[r] == layout.send[s]; },
      [&](auto, auto) { return is_one; });
}

/// Measured by bench/collectives_against_mpi, with one way and the other.
inline constexpr staged_limits allreduce_limits{.own_processor = 512, .shared_processor = 4096};

/// Returns what one rank brings to the making of a plan.
template <class T, class Op>
plan_request allreduce_request(group& ranks, std::span<T const> send, std::span<T> receive) {
  auto mine = request_of<T, Op>(operation::allreduce, send, receive, allreduce_limits);
  mine.algorithm = settings_of(ranks).allreduce;
  if (send.size() != receive.size()) {
    mine.cause = length_failure(send.size(), receive.size(), "receive as many as is sent");
  }
  return mine;
}

}  // namespace detail

/// Combines the elements of all ranks, which lie in windows, with the result in window memory of
/// each rank, or in one place for all.
///
/// Shapes:      send [n], receive [n] elements on every rank.
/// Determinism: every element is ((x0 op x1) op x2) …, in the order of the ranks, whatever the
///              algorithm: the same bits on every rank and in every run.
/// Cost:        up to 512 bytes (4 KiB with more ranks than processors), one hand-over of one line
///              from each rank for 112 bytes, and of further lines beyond; each rank reads all
///              blocks. Else two hand-overs; each rank reads its slice, 1 / ranks, of all blocks
///              and writes it to all results: ranks * n elements are read altogether and as many
///              written; with one result, n are written.
/// Source:      the slices are the reduce-scatter of Rabenseifner, Optimization of Collective
///              Reduction Operations (2004); writing into all results takes the place of its
///              allgather.
template <class T, class Op = op::sum>
  requires reduction<Op, T>
class allreduce_plan : public detail::plan<detail::allreduce_work<T, Op>> {
 public:
  allreduce_plan() noexcept = default;

  /// Plans to combine what all ranks have in `send`. The buffers lie anywhere in live windows of
  /// the group, each within one block. `receive` is `send` itself, or overlaps no buffer of any
  /// rank, or is the same memory on all ranks: then there is one result, which all read where it
  /// is, until they start the next operation.
  ///
  /// Collective: all ranks of the group; no bootstrap call.
  /// Errors:     the same on every rank: errc::invalid_argument for lengths that differ, for
  ///             buffers outside of live windows, and where they overlap otherwise; errc::mismatch
  ///             where types, operations or lengths differ between ranks; as creating a window;
  ///             errc::empty.
  allreduce_plan(group& ranks, std::span<T const> send, std::span<T> receive, Op op = {})
      : base(ranks, detail::allreduce_request<T, Op>(ranks, send, receive),
             detail::failure_of_allreduce, {.count = send.size(), .op = std::move(op)}) {}

  /// The same in place.
  explicit allreduce_plan(group& ranks, std::span<T> buffer, Op op = {})
      : allreduce_plan(ranks, buffer, buffer, std::move(op)) {}

 private:
  using base = detail::plan<detail::allreduce_work<T, Op>>;
};

template <class S, std::size_t M, class T, std::size_t N, class Op = op::sum>
allreduce_plan(group&, std::span<S, M>, std::span<T, N>, Op = {}) -> allreduce_plan<T, Op>;
template <class T, std::size_t N>
allreduce_plan(group&, std::span<T, N>) -> allreduce_plan<T, op::sum>;

/// Combines the elements of all ranks, in any memory.
///
/// Shapes:      send [n], receive [n] elements; n, T and the operation are the same on all ranks.
/// Requires:    receive is send, or overlaps it not.
/// Collective:  all ranks of the group.
/// Determinism: as `allreduce_plan`.
/// Ordering:    as `group::barrier`.
/// Errors:      the same on every rank: errc::invalid_argument where the lengths differ on any,
///              errc::mismatch where ranks differ, errc::peer_lost, errc::peer_left. errc::empty.
/// Cost:        each element is copied once into shared memory, in pieces of 64 KiB; one hand-over
///              a piece for up to three ranks, or up to 4 KiB; else two, where each rank combines a
///              slice. The first such call of a group creates the memory.
template <class T, class Op = op::sum>
  requires reduction<Op, T>
void allreduce(group& ranks, std::span<T const> send, std::span<T> receive, Op const& op = {}) {
  detail::require_stageable<T>();
  auto& staging = detail::staging::of(ranks, operation::allreduce);
  detail::staged_call const call{.where = operation::allreduce,
                                 .signature = detail::type_signature<T, Op>(),
                                 .count = send.size(),
                                 .refusal = detail::refusal_unless(send.size() == receive.size())};
  constexpr std::size_t most = detail::staging::slot_bytes / sizeof(T);
  detail::for_each_piece(send.size(), most, [&](std::size_t at, std::size_t n) {
    auto const from = std::as_bytes(send.subspan(at, n));
    staging.step(
        call, [&](std::byte* mine) { detail::copy_bytes(mine, from.data(), from.size(), false); });
    auto* const to = std::as_writable_bytes(receive.subspan(at, n)).data();
    constexpr int most_readers_of_all = 3;
    constexpr std::size_t small_bytes = 4096;
    if (staging.size() <= most_readers_of_all || from.size() <= small_bytes) {
      return detail::combine<T>(staging.sources(), std::span(&to, 1), {.count = n}, op);
    }
    auto const part_of = [&](int rank) {
      return detail::slice::of(n, sizeof(T), rank, staging.size());
    };
    auto const own = part_of(staging.rank());
    // Its results begin where they will be announced.
    auto* const result = staging.next_data() - own.begin * sizeof(T);
    detail::combine<T>(staging.sources(), std::span(&result, 1), own, op);
    staging.step(call, [](std::byte*) {});
    for (int r = 0; r < staging.size(); ++r) {
      auto const part = part_of(r);
      detail::copy_bytes(to + part.begin * sizeof(T), staging.source(r), part.count * sizeof(T),
                         false);
    }
  });
}

template <class S, std::size_t M, class T, std::size_t N, class Op = op::sum>
  requires std::same_as<std::remove_const_t<S>, T> && reduction<Op, T>
void allreduce(group& ranks, std::span<S, M> send, std::span<T, N> receive, Op const& op = {}) {
  allreduce<T, Op>(ranks, std::span<T const>(send), std::span<T>(receive), op);
}

/// The same in place.
template <class T, std::size_t N, class Op = op::sum>
  requires reduction<Op, T>
void allreduce(group& ranks, std::span<T, N> buffer, Op const& op = {}) {
  allreduce<T, Op>(ranks, std::span<T const>(buffer), std::span<T>(buffer), op);
}

/// Returns the combination of one value of each rank.
template <class T, class Op = op::sum>
  requires reduction<Op, T>
[[nodiscard]] T allreduce(group& ranks, T value, Op const& op = {}) {
  allreduce<T, Op>(ranks, std::span<T const>(&value, 1), std::span<T>(&value, 1), op);
  return value;
}

}  // namespace shm::inline v1
