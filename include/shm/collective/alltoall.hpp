#pragma once
/// @file A block from each rank for each rank.

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <optional>
#include <span>
#include <type_traits>

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

/// Each rank copies its block of what each rank sends.
struct alltoall_work {
  std::size_t block_bytes = 0;

  void operator()(plan_core& plan) const {
    auto const sources = plan.sources();
    auto const own = static_cast<std::size_t>(plan.rank()) * block_bytes;
    // Each begins with another one, so that not all read the same at once.
    for (int i = 0; i < plan.size(); ++i) {
      auto const r = static_cast<std::size_t>((plan.rank() + i) % plan.size());
      copy_block(plan.own_result() + r * block_bytes, sources[r] + own, block_bytes);
    }
  }
};

/// No buffers overlap.
inline std::optional<failure> failure_of_alltoall(plan_layout const& layout) {
  auto const never = [](auto, auto) { return false; };
  return failure_of_overlap(layout, never, never);
}

/// Measured by bench/collectives_against_mpi, with one way and the other.
inline constexpr staged_limits alltoall_limits{.own_processor = 1024, .shared_processor = 4096};

/// Returns what one rank brings to the making of a plan.
template <class T>
plan_request alltoall_request(group& ranks, std::span<T const> send, std::span<T> receive) {
  auto mine = request_of<T>(operation::alltoall, send, receive, alltoall_limits);
  mine.algorithm = settings_of(ranks).alltoall;
  if (!are_blocks_of_all(send.size(), receive.size(), ranks)) {
    mine.cause = length_failure(send.size(), receive.size(),
                                "send and receive equal blocks, one for each rank");
  }
  return mine;
}

}  // namespace detail

/// Copies block s of what rank r sends to block r of what rank s receives, for all r and s.
///
/// Shapes: send [ranks * n], receive [ranks * n] elements on every rank.
/// Cost:   up to 1 KiB (4 KiB with more ranks than processors) from each rank, one hand-over; else
///         two. Each rank reads and writes ranks * n elements.
template <shareable T>
class alltoall_plan : public detail::plan<detail::alltoall_work> {
 public:
  alltoall_plan() noexcept = default;

  /// Plans an exchange of all with all. The buffers lie anywhere in live windows of the group, each
  /// in blocks that follow each other, and do not overlap.
  ///
  /// Collective, Errors: as `allreduce_plan`; errc::invalid_argument where a length is no multiple
  ///                     of the number of ranks.
  alltoall_plan(group& ranks, std::span<T const> send, std::span<T> receive)
      : plan(ranks, detail::alltoall_request<T>(ranks, send, receive), detail::failure_of_alltoall,
             {.block_bytes = detail::block_of(send.size_bytes(), ranks)}) {}
};

template <class S, std::size_t M, class T, std::size_t N>
alltoall_plan(group&, std::span<S, M>, std::span<T, N>) -> alltoall_plan<T>;

/// Copies block s of what rank r sends to block r of what rank s receives, in any memory.
///
/// Shapes:     send [ranks * n], receive [ranks * n] elements; n and T are the same on all ranks.
/// Requires:   the buffers do not overlap.
/// Collective: all ranks of the group.
/// Ordering:   as `group::barrier`.
/// Errors:     as `allreduce`.
/// Cost:       one hand-over for each 64 KiB that a rank sends, which are copied once into shared
///             memory. The first such call of a group creates the memory.
template <class S, std::size_t M, shareable T, std::size_t N>
  requires std::same_as<std::remove_const_t<S>, T>
void alltoall(group& ranks, std::span<S, M> send, std::span<T, N> receive) {
  detail::require_stageable<T>();
  auto& staging = detail::staging::of(ranks, operation::alltoall);
  detail::staged_call const call{
      .where = operation::alltoall,
      .signature = detail::type_signature<T>(),
      .count = send.size(),
      .refusal = detail::refusal_unless(
          detail::are_blocks_of_all(send.size(), receive.size(), ranks) &&
          static_cast<std::size_t>(ranks.size()) <= detail::staging::slot_bytes)};
  auto const n = static_cast<std::size_t>(staging.size());
  auto const block = send.size_bytes() / n;
  auto const* const from = std::as_bytes(send).data();
  auto* const to = std::as_writable_bytes(receive).data();
  auto const most = std::max<std::size_t>(detail::staging::slot_bytes / n, 1);
  detail::for_each_piece(block, most, [&](std::size_t at, std::size_t bytes) {
    staging.step(call, [&](std::byte* mine) {
      for (std::size_t r = 0; r < n; ++r) {
        detail::copy_bytes(mine + r * bytes, from + r * block + at, bytes, false);
      }
    });
    auto const own = static_cast<std::size_t>(staging.rank()) * bytes;
    for (std::size_t r = 0; r < n; ++r) {
      auto const* const theirs = staging.source(static_cast<int>(r)) + own;
      detail::copy_bytes(to + r * block + at, theirs, bytes, false);
    }
  });
}

}  // namespace shm::inline v1
