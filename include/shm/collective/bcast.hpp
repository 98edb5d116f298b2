#pragma once
/// @file One rank's elements on all ranks.

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
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

/// Each rank but the root copies the root's elements.
struct bcast_work {
  std::size_t bytes = 0;
  int root = 0;

  void operator()(plan_core& plan) const {
    if (plan.rank() == root) return;
    auto const* const from = plan.sources()[static_cast<std::size_t>(root)];
    copy_block(plan.own_result(), from, bytes);
  }
};

/// A rank may name the root's own memory, where it then reads; else buffers do not overlap.
inline std::optional<failure> failure_of_bcast(plan_layout const& layout) {
  return failure_of_overlap(
      layout, [&](auto r, auto s) { return layout.receive[r] == layout.send[s]; },
      [&](auto r, auto s) {
        return layout.receive[r] == layout.receive[s] &&
               std::ranges::find(layout.send, layout.receive[r]) != layout.send.end();
      });
}

/// Returns the failure of a root that does not exist, if so.
inline failure failure_of_root(int root, group const& ranks) {
  if (root >= 0 && root < ranks.size()) return {};
  return {.cause = errc::invalid_argument,
          .subject = "the root is " + std::to_string(root) + ", and ranks are 0 to " +
                     std::to_string(ranks.size() - 1),
          .remedy = {}};
}

/// Measured by bench/collectives_against_mpi, with one way and the other.
inline constexpr staged_limits bcast_limits{.own_processor = 32768, .shared_processor = 32768};

/// Returns what one rank brings to the making of a plan.
template <class T>
plan_request bcast_request(group& ranks, std::span<T> buffer, int root) {
  bool const is_root = ranks.rank() == root;
  return {.where = operation::bcast,
          .element_bytes = sizeof(T),
          .alignment = alignof(T),
          .signature = type_signature<T>(),
          .count = buffer.size(),
          .root = root,
          .send = is_root ? std::as_bytes(buffer) : std::span<std::byte const>{},
          .receive = is_root ? std::span<std::byte>{} : std::as_writable_bytes(buffer),
          .algorithm = settings_of(ranks).bcast,
          .limits = bcast_limits,
          .cause = failure_of_root(root, ranks)};
}

}  // namespace detail

/// Copies the elements of one rank, the root, from its window memory to that of all others.
///
/// Shapes: buffer [n] elements on every rank.
/// Cost:   up to 32 KiB, one hand-over; the root goes on at once, and is never more than one
///         operation ahead of any rank that is still there. Room for two such copies on every rank.
///         Else two hand-overs; each rank reads n elements and writes n, and the root waits until
///         all have.
template <shareable T>
class bcast_plan : public detail::plan<detail::bcast_work> {
 public:
  bcast_plan() noexcept = default;

  /// Plans to copy what `root` has in its `buffer` into those of the others. The buffers lie
  /// anywhere in live windows of the group, each within one block, and do not overlap; but a rank
  /// may name the root's own memory, and reads it there: then a fence must come before the root
  /// writes to it again.
  ///
  /// Collective, Errors: as `allreduce_plan`; errc::invalid_argument where there is no such root.
  bcast_plan(group& ranks, std::span<T> buffer, int root)
      : plan(ranks, detail::bcast_request<T>(ranks, buffer, root), detail::failure_of_bcast,
             {.bytes = buffer.size_bytes(), .root = root}) {}
};

template <class T, std::size_t N>
bcast_plan(group&, std::span<T, N>, int) -> bcast_plan<T>;

/// Copies the elements of one rank, the root, to all others, in any memory.
///
/// Shapes:     buffer [n] elements; n and T are the same on all ranks.
/// Collective: all ranks of the group.
/// Ordering:   as `group::barrier`.
/// Errors:     the same on every rank: errc::invalid_argument where there is no such root on any;
///             errc::mismatch where ranks differ, errc::peer_lost, errc::peer_left. errc::empty.
/// Cost:       one hand-over for each 64 KiB, which are copied once into shared memory. The first
///             such call of a group creates the memory.
template <shareable T, std::size_t N>
void bcast(group& ranks, std::span<T, N> buffer, int root) {
  detail::require_stageable<T>();
  auto& staging = detail::staging::of(ranks, operation::bcast);
  detail::staged_call const call{.where = operation::bcast,
                                 .signature = detail::type_signature<T>(),
                                 .count = buffer.size(),
                                 .root = root,
                                 .refusal = root >= 0 && root < ranks.size()
                                                ? detail::staged_refusal::none
                                                : detail::staged_refusal::root};
  auto const bytes = std::as_writable_bytes(buffer);
  detail::for_each_piece(bytes.size(), detail::staging::slot_bytes,
                         [&](std::size_t at, std::size_t n) {
                           bool const is_root = staging.rank() == root;
                           staging.step(call, [&](std::byte* mine) {
                             if (is_root) detail::copy_bytes(mine, bytes.data() + at, n, false);
                           });
                           if (is_root) return;
                           detail::copy_bytes(bytes.data() + at, staging.source(root), n, false);
                         });
}

/// Returns the root's value.
template <shareable T>
[[nodiscard]] T bcast(group& ranks, T value, int root) {
  bcast(ranks, std::span<T, 1>(&value, 1), root);
  return value;
}

}  // namespace shm::inline v1
