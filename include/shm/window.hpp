#pragma once
/// @file A window: memory of every rank, reachable by all.

#include <cassert>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <ranges>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "shm/base/size.hpp"
#include "shm/error.hpp"
#include "shm/group.hpp"
#include "shm/options.hpp"
#include "shm/policy/runtime.hpp"
#include "shm/policy/segment_policy.hpp"
#include "shm/residency.hpp"
#include "shm/sync/wait.hpp"
#include "shm/window/creation.hpp"
#include "shm/window/segment.hpp"
#include "shm/window/wish.hpp"

namespace shm::inline v1 {

/// A type whose objects processes can share: copied byte by byte, and no pointer, nor a view, which
/// holds one.
template <class T>
concept shareable = std::is_object_v<T> && std::is_trivially_copyable_v<T> &&
                    !std::ranges::view<std::remove_all_extents_t<T>> &&
                    !std::is_pointer_v<std::remove_all_extents_t<T>> &&
                    !std::is_member_pointer_v<std::remove_all_extents_t<T>>;

namespace detail {

/// Everything of a window that does not depend on its type. Moved-from and default-constructed ones
/// are empty.
class untyped_window {
 public:
  untyped_window() noexcept = default;
  explicit untyped_window(std::shared_ptr<detail::segment> made) noexcept
      : segment_(std::move(made)),
        base_(segment_->base()),
        blocks_(segment_->blocks().data()),
        rank_(segment_->rank()),
        size_(segment_->size()) {}
  untyped_window(untyped_window&& other) noexcept
      : segment_(std::move(other.segment_)),
        base_(std::exchange(other.base_, nullptr)),
        blocks_(std::exchange(other.blocks_, nullptr)),
        rank_(std::exchange(other.rank_, -1)),
        size_(std::exchange(other.size_, 0)) {}
  untyped_window& operator=(untyped_window&& other) noexcept {
    untyped_window taken(std::move(other));
    std::swap(segment_, taken.segment_);
    std::swap(base_, taken.base_);
    std::swap(blocks_, taken.blocks_);
    std::swap(rank_, taken.rank_);
    std::swap(size_, taken.size_);
    return *this;
  }
  ~untyped_window() {
    if (segment_) segment_->leave();  // a plan may keep the memory
  }

  /// Creates a window; see `window`.
  static untyped_window create(group& ranks, segment_policy_ref policy, segment_wish wish) {
    auto& windows = ranks.state()->windows();
    try {
      windows.reserve();
    } catch (...) {
      wish.cause = failure_of_exception(errc::out_of_memory);
    }
    auto made = segment_creation(ranks.state(), policy, wish).run();
    windows.add(made->mapping().bytes(), made->number(), made);
    return untyped_window(std::move(made));
  }

  [[nodiscard]] bool valid() const noexcept { return base_ != nullptr; }
  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return size_; }

  /// The block of a rank that exists.
  [[nodiscard]] std::span<std::byte> block(int rank) const noexcept {
    auto const& entry = blocks_[rank];
    return {base_ + entry.offset, entry.bytes};
  }
  /// Errors: errc::empty; errc::invalid_argument where there is no such rank.
  [[nodiscard]] std::span<std::byte> checked_block(int rank) const {
    segment_for(operation::use_window).require_rank(rank, operation::use_window);
    return block(rank);
  }
  [[nodiscard]] std::span<std::byte> local() const noexcept {
    return valid() ? block(rank_) : std::span<std::byte>{};
  }
  /// Errors: errc::unsupported where the blocks do not follow each other without padding.
  [[nodiscard]] std::span<std::byte> all() const {
    if (!valid()) return {};
    if (segment_->header().block_layout != layout::contiguous) {
      throw error({.cause = errc::unsupported,
                   .rank = rank(),
                   .subject = "the blocks of this window lie on pages of their own",
                   .remedy = "create it with window_options{.layout = layout::contiguous}"},
                  {.where = operation::use_window, .size = size(), .agreed = false});
    }
    auto const last = block(size() - 1);
    return {block(0).data(), last.data() + last.size()};
  }

  /// Errors: errc::empty where there is none.
  [[nodiscard]] detail::segment& segment_for(operation where) const {
    if (!segment_) throw_empty(where);
    return *segment_;
  }
  [[nodiscard]] std::shared_ptr<detail::segment> const& segment() const noexcept {
    return segment_;
  }

 private:
  [[noreturn, gnu::cold, gnu::noinline]] static void throw_empty(operation where) {
    throw error({.cause = errc::empty, .subject = "the window", .remedy = {}}, {.where = where});
  }

  std::shared_ptr<detail::segment> segment_;
  std::byte* base_ = nullptr;
  block_entry const* blocks_ = nullptr;
  int rank_ = -1;
  int size_ = 0;
};

}  // namespace detail

/// Memory of every rank of a group, in which every rank can load and store all blocks. Move-only.
///
/// Each rank contributes a block of its own length, which may be 0. Blocks read as zero at first
/// and begin on a page (layout::contiguous: each where the one before ends). They stay where they
/// are as long as the window, or one that it is moved into, lives; that may be longer than the
/// group's handle. Access through a const window is const: `std::as_const(w)[peer]` reads only.
///
/// In a `window<T const>` this rank only reads: its blocks are protected from stores of this
/// process, which would be a segmentation fault. Other ranks may create the same window as a
/// `window<T>`, and write. `freeze` makes one of the other.
///
/// Accessors may be called from any thread; fences as `group` says. One thread may post and another
/// one wait for posts, each of them at the same time as a third one fences.
template <class T, segment_policy Policy = runtime_policy>
class window {
  static_assert(
      shareable<T>,
      "shm::window<T>: T must be trivially copyable and not a pointer, since other "
      "processes see its bytes and have other addresses; store values, indices or offsets");
  static_assert(alignof(T) <= 4096,
                "shm::window<T>: blocks begin on pages, which are not aligned for this T");

 public:
  /// Makes an empty window: no ranks, empty spans.
  window() noexcept = default;

  /// Creates a window in which this rank's block has `count` elements.
  ///
  /// Collective: all ranks of the group; no bootstrap call.
  /// Ordering:   rank 0 is the first to return.
  /// Errors:     the same on every rank, and nothing is left: errc::invalid_argument for a negative
  ///             count, or options without a name; errc::size_overflow; errc::mismatch where T's
  ///             size, policy or options differ; errc::no_space, errc::out_of_memory,
  ///             errc::limit_reached and what else the system refuses; errc::peer_lost,
  ///             errc::peer_left. errc::empty for an invalid group.
  /// Cost:       two agreements, and the system calls of one mapping on each rank; from 1 MiB on a
  ///             third one, and reading what the system has left.
  template <std::integral Count>
  window(group& ranks, Count count, Policy const& policy = {}, window_options const& options = {})
      : window_(make(ranks, count, policy, options)) {}

  template <std::integral Count>
  window(group& ranks, Count count, window_options const& options)
      : window(ranks, count, Policy{}, options) {}

  /// Takes over a window of any backend.
  template <segment_policy Other>
    requires(std::same_as<Policy, runtime_policy> && !std::same_as<Other, runtime_policy>)
  window(window<T, Other>&& other) noexcept : window_(std::move(other.window_)) {}

  /// This rank's block.
  [[nodiscard]] std::span<T> local() noexcept { return typed(window_.local()); }
  [[nodiscard]] std::span<T const> local() const noexcept { return typed(window_.local()); }

  /// The block of `rank`, which must exist; asserted in debug builds only.
  [[nodiscard]] std::span<T> operator[](int rank) noexcept {
    assert(rank >= 0 && rank < size());
    return typed(window_.block(rank));
  }
  [[nodiscard]] std::span<T const> operator[](int rank) const noexcept {
    assert(rank >= 0 && rank < size());
    return typed(window_.block(rank));
  }

  /// The block of `rank`.
  ///
  /// Errors: errc::invalid_argument where there is no such rank, errc::empty; on this rank alone.
  [[nodiscard]] std::span<T> at(int rank) { return typed(window_.checked_block(rank)); }
  [[nodiscard]] std::span<T const> at(int rank) const { return typed(window_.checked_block(rank)); }

  /// The blocks of all ranks as one span, in rank order.
  ///
  /// Errors: errc::unsupported where the layout is not layout::contiguous; on this rank alone.
  [[nodiscard]] std::span<T> all() { return typed(window_.all()); }
  [[nodiscard]] std::span<T const> all() const { return typed(window_.all()); }

  /// This process's rank; -1 where the window is empty.
  [[nodiscard]] int rank() const noexcept { return window_.rank(); }
  /// The number of ranks; 0 where the window is empty.
  [[nodiscard]] int size() const noexcept { return window_.size(); }
  /// Whether this is a window, not a default-constructed or moved-from one.
  [[nodiscard]] bool valid() const noexcept { return window_.valid(); }

  /// Waits until every rank has called it.
  ///
  /// Collective: all ranks of the window.
  /// Ordering:   what any rank wrote before the call is visible to every rank after it.
  /// Errors:     errc::peer_lost, errc::peer_left where a rank will never call it, the same on all
  ///             ranks; errc::empty.
  /// Cost:       no system call unless it waits long.
  void fence() { window_.segment_for(operation::fence).fence(); }

  /// Waits until this rank and `peer` have called it for each other.
  ///
  /// Ordering: what either wrote before the call is visible to the other after it.
  /// Errors:   as `fence()`; errc::invalid_argument where there is no such rank.
  void fence(int peer) { fence(std::span<int const>(&peer, 1)); }

  /// Waits until this rank and each of `peers` have called it for each other: tells all of them
  /// first and then waits, so that rings and other cycles work. This rank itself and repeated ranks
  /// count once.
  ///
  /// Ordering, Errors: as `fence(peer)`.
  void fence(std::span<int const> peers) {
    window_.segment_for(operation::fence_peers).fence(peers);
  }

  /// Posts to `peer`, which may be this rank itself: "my part is ready". Never waits. Posts are
  /// counted for each window and ordered pair of ranks, apart from the fences: several may be made
  /// before the first is waited for, at most 2^31.
  ///
  /// Ordering: what this rank wrote before the call is visible to `peer` after the wait that
  ///           consumes the post.
  /// Errors:   on this rank alone, and nothing is posted: errc::invalid_argument where there is no
  ///           such rank; errc::empty; errc::out_of_memory at the first post of a pair, in a window
  ///           of hundreds of ranks. None where `peer` is dead or has left: nobody hears it then.
  /// Cost:     one store with release: the line that the count is in moves to `peer` when it looks,
  ///           and back at the next post.
  void post(int peer) { window_.segment_for(operation::post).post(peer); }

  /// Waits for the next post of `peer` to this rank, and consumes it.
  ///
  /// Ordering: what `peer` wrote before the post is visible after the call.
  /// Errors:   on this rank alone, and nothing is consumed: those of `post`; errc::peer_left where
  ///           `peer` has destroyed its window and no post of it is left; the window goes on, since
  ///           others still post. errc::peer_lost, as in all calls of the group from then on, where
  ///           any rank is found to have died and no post is left.
  /// Cost:     one load where the post is there already: the line comes from `peer`. No system call
  ///           unless it waits long.
  void wait(int peer) { window_.segment_for(operation::wait).wait(std::span(&peer, 1)); }

  /// Consumes a post of `peer` where there is one, and returns whether there was. Never waits.
  ///
  /// Ordering, Errors: as `wait`. A program that polls comes to an end: five times a second at most
  ///                   it is looked whether `peer` can still post.
  /// Cost:             a load; where there is no post also a look at the clock, and at most five
  ///                   times a second a system call.
  bool try_wait(int peer) { return window_.segment_for(operation::wait).try_wait(peer); }

  /// Waits as `wait` does, but no longer than `timeout`; one of zero or less is `try_wait`. Returns
  /// whether a post was consumed.
  ///
  /// Ordering, Errors, Cost: as `wait`, and where the time is up as `try_wait`.
  template <class Rep, class Period>
  bool wait_for(int peer, std::chrono::duration<Rep, Period> timeout) {
    auto& segment = window_.segment_for(operation::wait);
    if (!(timeout > timeout.zero())) return segment.try_wait(peer);
    return segment.wait(std::span(&peer, 1), sync::deadline_after(timeout)) == peer;
  }

  /// Waits for a post of any of `peers`, consumes it, and returns the rank that has made it. Where
  /// several have posted, the one that has gone longest without: none waits for ever while others
  /// go on posting.
  ///
  /// Ordering: as `wait`.
  /// Errors:   as `wait`, errc::peer_left for the first in `peers` that has left, though others may
  ///           still post: wait for the rest then. errc::invalid_argument where there are none.
  /// Cost:     a load for each of `peers`, of a line each.
  int wait_any(std::span<int const> peers) {
    return window_.segment_for(operation::wait).wait(peers);
  }

  /// Makes the blocks read-only for this process, in the type and in the protection of their pages,
  /// and returns the window as such. Local: other ranks may still write. What they wrote before a
  /// fence is visible after it, as ever, so a table is filled, fenced, and frozen.
  ///
  /// Errors: errc::limit_reached where the process has no mapping left (vm.max_map_count) for the
  ///         blocks; errc::empty. The window is then as it was.
  [[nodiscard]] window<T const, Policy> freeze() && {
    window_.segment_for(operation::use_window).make_read_only();
    window<T const, Policy> frozen;
    frozen.window_ = std::move(window_);
    return frozen;
  }

  /// The page size in bytes that was really obtained, or that pages are asked for in where they are
  /// not populated; 0 where the window is empty.
  [[nodiscard]] std::size_t page_size() const noexcept {
    return valid() ? window_.segment()->page_bytes() : 0;
  }

  /// What the window's memory is.
  ///
  /// Errors: errc::empty.
  [[nodiscard]] shm::residency residency() const {
    auto const& segment = window_.segment_for(operation::use_window);
    shm::residency result{.backend = std::string(segment.header().backend.view()),
                          .page_bytes = segment.page_bytes(),
                          .origin = segment.header().origin,
                          .nodes = {}};
    for (int r = 0; r < size(); ++r) {
      result.nodes.push_back(detail::node_of_block(segment, r));
    }
    return result;
  }

 private:
  template <class, segment_policy>
  friend class window;

  template <std::integral Count>
  static detail::untyped_window make(group& ranks, Count count, Policy const& policy,
                                     window_options const& options) {
    if (!ranks.valid()) {
      throw error({.cause = errc::empty, .subject = "the group", .remedy = {}},
                  {.where = operation::create_window});
    }
    auto wish = detail::wish_for(count, sizeof(T), options);
    wish.is_read_only = std::is_const_v<T>;
    return detail::untyped_window::create(
        ranks, segment_policy_ref(policy, ranks.state()->settings()), wish);
  }

  static std::span<T> typed(std::span<std::byte> bytes) noexcept {
    return {reinterpret_cast<T*>(bytes.data()), bytes.size() / sizeof(T)};
  }

  detail::untyped_window window_;
};

}  // namespace shm::inline v1
