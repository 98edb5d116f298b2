#pragma once
/// @file Combining the elements of all ranks, of which each rank gets a block.

#include <algorithm>
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

/// Each rank combines its own block of what all send.
template <class T, class Op>
struct reduce_scatter_work {
  std::size_t block = 0;  ///< elements
  Op op = {};

  void operator()(plan_core& plan) const {
    auto const begin = static_cast<std::size_t>(plan.rank()) * block;
    auto* const to = plan.own_result() - begin * sizeof(T);
    combine<T>(plan.sources(), std::span(&to, 1), {.begin = begin, .count = block}, op);
  }
};

/// A rank may receive in the block of what it sends that is its own; else buffers do not overlap.
inline std::optional<failure> failure_of_reduce_scatter(plan_layout const& layout) {
  return failure_of_overlap(
      layout,
      [&](auto r, auto s) {
        auto const& mine = layout.receive[r];
        return r == s && mine == layout.send[s].part(r * mine.bytes, mine.bytes);
      },
      [](auto, auto) { return false; });
}

/// Measured by bench/collectives_against_mpi, with one way and the other.
inline constexpr staged_limits reduce_scatter_limits{.own_processor = 1024,
                                                     .shared_processor = 4096};

/// Returns what one rank brings to the making of a plan.
template <class T, class Op>
plan_request reduce_scatter_request(group& ranks, std::span<T const> send, std::span<T> receive) {
  auto mine = request_of<T, Op>(operation::reduce_scatter, send, receive, reduce_scatter_limits);
  if (!is_block_of(receive.size(), send.size(), ranks)) {
    mine.cause = length_failure(send.size(), receive.size(),
                                "send a block of what is received for each rank");
  }
  return mine;
}

}  // namespace detail

/// Combines the elements of all ranks, which lie in windows; each rank gets its block of the
/// result.
///
/// Shapes:      send [ranks * n], receive [n] elements on every rank.
/// Determinism: as `allreduce_plan`.
/// Cost:        up to 1 KiB (4 KiB with more ranks than processors) from each rank, one hand-over;
///              else two. Each rank reads ranks * n elements and writes n.
template <class T, class Op = op::sum>
  requires reduction<Op, T>
class reduce_scatter_plan : public detail::plan<detail::reduce_scatter_work<T, Op>> {
 public:
  reduce_scatter_plan() noexcept = default;

  /// Plans to combine what all ranks have in `send`. The buffers lie anywhere in live windows of
  /// the group, each in blocks that follow each other. `receive` may be this rank's block of
  /// `send`; else no buffers overlap.
  ///
  /// Collective, Errors: as `allreduce_plan`.
  reduce_scatter_plan(group& ranks, std::span<T const> send, std::span<T> receive, Op op = {})
      : base(ranks, detail::reduce_scatter_request<T, Op>(ranks, send, receive),
             detail::failure_of_reduce_scatter, {.block = receive.size(), .op = std::move(op)}) {}

 private:
  using base = detail::plan<detail::reduce_scatter_work<T, Op>>;
};

template <class S, std::size_t M, class T, std::size_t N, class Op = op::sum>
reduce_scatter_plan(group&, std::span<S, M>, std::span<T, N>, Op = {})
    -> reduce_scatter_plan<T, Op>;

/// Combines the elements of all ranks, in any memory; each rank gets its block of the result.
///
/// Shapes:      send [ranks * n], receive [n] elements; n, T and the operation are the same on all
///              ranks.
/// Requires:    receive overlaps send not.
/// Collective:  all ranks of the group.
/// Determinism: as `allreduce_plan`.
/// Ordering:    as `group::barrier`.
/// Errors:      as `allreduce`.
/// Cost:        one hand-over for each 64 KiB that a rank sends, which are copied once into shared
///              memory. The first such call of a group creates the memory.
template <class S, std::size_t M, class T, std::size_t N, class Op = op::sum>
  requires std::same_as<std::remove_const_t<S>, T> && reduction<Op, T>
void reduce_scatter(group& ranks, std::span<S, M> send, std::span<T, N> receive,
                    Op const& op = {}) {
  detail::require_stageable<T>();
  auto& staging = detail::staging::of(ranks, operation::reduce_scatter);
  detail::staged_call const call{
      .where = operation::reduce_scatter,
      .signature = detail::type_signature<T, Op>(),
      .count = receive.size(),
      .refusal = detail::refusal_unless(detail::is_block_of(receive.size(), send.size(), ranks))};
  auto const n = static_cast<std::size_t>(staging.size());
  auto const block = receive.size();
  // As many blocks at a time as have room for an element at least: all of them, mostly.
  constexpr std::size_t room = detail::staging::slot_bytes / sizeof(T);
  detail::for_each_piece(n, std::min(n, room), [&](std::size_t first, std::size_t blocks) {
    detail::for_each_piece(block, room / blocks, [&](std::size_t at, std::size_t count) {
      staging.step(call, [&](std::byte* mine) {
        for (std::size_t b = 0; b < blocks; ++b) {
          auto const part = std::as_bytes(send.subspan((first + b) * block + at, count));
          detail::copy_bytes(mine + b * part.size(), part.data(), part.size(), false);
        }
      });
      auto const own = static_cast<std::size_t>(staging.rank());
      if (own < first || own >= first + blocks) return;
      auto const begin = (own - first) * count;
      auto* const to = std::as_writable_bytes(receive.subspan(at, count)).data();
      auto* const result = to - begin * sizeof(T);
      detail::combine<T>(staging.sources(), std::span(&result, 1), {.begin = begin, .count = count},
                         op);
    });
  });
}

}  // namespace shm::inline v1
