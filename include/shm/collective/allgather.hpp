#pragma once
/// @file The elements of all ranks, one after the other, on all ranks.

#include <concepts>
#include <cstddef>
#include <optional>
#include <span>
#include <type_traits>
#include <vector>

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

/// Each rank copies all blocks to its result; or, where there is one for all, its own block.
struct allgather_work {
  std::size_t block_bytes = 0;

  void operator()(plan_core& plan) const {
    auto const sources = plan.sources();
    auto* const result = plan.own_result();
    auto const copy = [&](int rank) {
      auto const r = static_cast<std::size_t>(rank);
      copy_block(result + r * block_bytes, sources[r], block_bytes);
    };
    if (plan.is_one_result()) return copy(plan.rank());
    // Each begins with another one, so that not all read the same at once.
    for (int i = 0; i < plan.size(); ++i) copy((plan.rank() + i) % plan.size());
  }
};

/// A rank may send its own block of the result; else buffers do not overlap.
inline std::optional<failure> failure_of_allgather(plan_layout const& layout) {
  bool const is_one = layout.is_one_result();
  return failure_of_overlap(
      layout,
      [&](auto r, auto s) {
        auto const& sent = layout.send[s];
        return (r == s || is_one) && sent == layout.receive[r].part(s * sent.bytes, sent.bytes);
      },
      [&](auto, auto) { return is_one; });
}

/// Measured by bench/collectives_against_mpi, with one way and the other.
inline constexpr staged_limits allgather_limits{.own_processor = 1024, .shared_processor = 4096};

/// Returns what one rank brings to the making of a plan.
template <class T>
plan_request allgather_request(group& ranks, std::span<T const> send, std::span<T> receive) {
  auto mine = request_of<T>(operation::allgather, send, receive, allgather_limits);
  if (!is_block_of(send.size(), receive.size(), ranks)) {
    mine.cause = length_failure(send.size(), receive.size(),
                                "receive a block of what is sent from each rank");
  }
  return mine;
}

}  // namespace detail

/// Gathers the elements of all ranks, which lie in windows, in window memory of each rank, or in
/// one place for all.
///
/// Shapes: send [n], receive [ranks * n] elements: block r belongs to rank r.
/// Cost:   up to 1 KiB (4 KiB with more ranks than processors) from each rank, one hand-over; else
///         two. Each rank reads and writes ranks * n elements; with one result, n.
template <shareable T>
class allgather_plan : public detail::plan<detail::allgather_work> {
 public:
  allgather_plan() noexcept = default;

  /// Plans to gather what all ranks have in `send`. The buffers lie anywhere in live windows of the
  /// group, each in blocks that follow each other. `send` may be this rank's block of `receive`;
  /// `receive` may be the same memory on all ranks, which all read where it is until they start the
  /// next operation; else no buffers overlap.
  ///
  /// Collective, Errors: as `allreduce_plan`.
  allgather_plan(group& ranks, std::span<T const> send, std::span<T> receive)
      : plan(ranks, detail::allgather_request<T>(ranks, send, receive),
             detail::failure_of_allgather, {.block_bytes = send.size_bytes()}) {}
};

template <class S, std::size_t M, class T, std::size_t N>
allgather_plan(group&, std::span<S, M>, std::span<T, N>) -> allgather_plan<T>;

/// Gathers the elements of all ranks, in any memory.
///
/// Shapes:     send [n], receive [ranks * n] elements: block r belongs to rank r. n and T are the
///             same on all ranks.
/// Requires:   receive overlaps send not, or send is this rank's block of it.
/// Collective: all ranks of the group.
/// Ordering:   as `group::barrier`.
/// Errors:     as `allreduce`.
/// Cost:       one hand-over for each 64 KiB of a block, which are copied once into shared memory.
///             The first such call of a group creates the memory.
template <class S, std::size_t M, shareable T, std::size_t N>
  requires std::same_as<std::remove_const_t<S>, T>
void allgather(group& ranks, std::span<S, M> send, std::span<T, N> receive) {
  detail::require_stageable<T>();
  auto& staging = detail::staging::of(ranks, operation::allgather);
  detail::staged_call const call{
      .where = operation::allgather,
      .signature = detail::type_signature<T>(),
      .count = send.size(),
      .refusal = detail::refusal_unless(detail::is_block_of(send.size(), receive.size(), ranks))};
  auto const from = std::as_bytes(send);
  auto const to = std::as_writable_bytes(receive);
  detail::for_each_piece(
      from.size(), detail::staging::slot_bytes, [&](std::size_t at, std::size_t n) {
        staging.step(
            call, [&](std::byte* mine) { detail::copy_bytes(mine, from.data() + at, n, false); });
        for (int r = 0; r < staging.size(); ++r) {
          auto const block = static_cast<std::size_t>(r) * from.size();
          detail::copy_bytes(to.data() + block + at, staging.source(r), n, false);
        }
      });
}

/// Returns one value of each rank, in rank order.
template <shareable T>
[[nodiscard]] std::vector<T> allgather(group& ranks, T value) {
  std::vector<T> all(static_cast<std::size_t>(ranks.size()), value);
  allgather(ranks, std::span<T const>(&value, 1), std::span<T>(all));
  return all;
}

}  // namespace shm::inline v1
