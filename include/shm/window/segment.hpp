#pragma once
/// @file One window's shared memory in one process, whatever the type of its elements.

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "shm/error.hpp"
#include "shm/group/agreement.hpp"
#include "shm/group/progress.hpp"
#include "shm/group/state.hpp"
#include "shm/options.hpp"
#include "shm/os/mapping.hpp"
#include "shm/sync/arrival.hpp"
#include "shm/sync/fence.hpp"
#include "shm/sync/gather.hpp"
#include "shm/sync/pair_table.hpp"
#include "shm/sync/peers.hpp"
#include "shm/sync/signal.hpp"
#include "shm/sync/wait.hpp"
#include "shm/window/segment_layout.hpp"

namespace shm::inline v1::detail {

/// Owns one rank's mapping of a window, and fences and signals over it. Shared by the window and
/// whatever else works on its memory. Destroying it is local: it marks that this rank has left, and
/// unmaps.
class segment {
 public:
  explicit segment(std::shared_ptr<group_state> state) : state_(std::move(state)) {}
  segment(segment const&) = delete;
  segment& operator=(segment const&) = delete;
  ~segment() {
    if (!is_complete_ || !state_->is_owner()) return;  // a forked child only unmaps
    state_->windows().remove(base());
    leave();
  }

  /// Marks that this rank waits in no fence of it any more.
  void leave() const noexcept {
    if (state_->is_owner()) sync::store(line(rank()).left, 1);
  }

  [[nodiscard]] group_state& state() const noexcept { return *state_; }
  [[nodiscard]] int rank() const noexcept { return state_->rank(); }
  [[nodiscard]] int size() const noexcept { return state_->size(); }
  /// A number that tells the window from the group's others, the same on all ranks.
  [[nodiscard]] std::uint64_t number() const noexcept { return header().nonce[1]; }
  [[nodiscard]] std::byte* base() const noexcept { return mapping_.bytes().data(); }
  [[nodiscard]] segment_header& header() const noexcept {
    return *reinterpret_cast<segment_header*>(base());
  }
  [[nodiscard]] std::span<block_entry> blocks() const noexcept {
    return {reinterpret_cast<block_entry*>(base() + layout_.blocks_at), ranks()};
  }
  [[nodiscard]] std::span<std::byte> block(int rank) const noexcept {
    auto const& entry = blocks()[static_cast<std::size_t>(rank)];
    return mapping_.bytes().subspan(entry.offset, entry.bytes);
  }
  [[nodiscard]] sync::arrival_line& line(int rank) const noexcept {
    return lines()[static_cast<std::size_t>(rank)];
  }
  [[nodiscard]] std::span<sync::arrival_line> lines() const noexcept {
    return {reinterpret_cast<sync::arrival_line*>(base() + layout_.lines_at), ranks()};
  }
  [[nodiscard]] sync::pair_table met() const noexcept {
    return {base() + layout_.peers_at, size()};
  }
  [[nodiscard]] sync::pair_table posted() const noexcept {
    return {base() + layout_.posts_at, size()};
  }

  /// Takes a mapping. The segment leaves no mark until it is complete.
  void map(os::mapping mapping, std::size_t page_bytes, std::size_t object_page_bytes) {
    mapping_ = std::move(mapping);
    object_page_bytes_ = object_page_bytes;
    layout_ = segment_layout::of_header(size(), page_bytes);
  }
  /// Gives the mapping up again, after a failure.
  void unmap() noexcept { mapping_.reset(); }
  [[nodiscard]] os::mapping const& mapping() const noexcept { return mapping_; }

  /// Protects all blocks from stores of this process. What fences need stays writable.
  ///
  /// Errors: as `os::mapping::make_read_only`.
  void make_read_only() {
    locally(operation::use_window, [&] { mapping_.make_read_only(layout_.data_at); });
    is_read_only_ = true;
  }
  [[nodiscard]] bool is_read_only() const noexcept { return is_read_only_; }

  /// Presets every counter, as if `first` fences had happened, and posts of every pair.
  void start_at(std::uint32_t first) const {
    for (auto& line : lines()) {
      line.arrived = first;
      line.rounds.fill(first);
    }
    auto& words = header().fence;
    words.count.value = first * static_cast<std::uint32_t>(size());
    words.release.value = first;
    for (auto const& table : {met(), posted()}) {
      for (int from = 0; from < size(); ++from) {
        for (int to = 0; to < size(); ++to) table.word(from, to) = first;
      }
    }
  }

  /// Makes room for everything that later calls need, so that they cannot fail for want of memory.
  void reserve() {
    auto const lazy = has_lazy_words() ? ranks() : 0;
    for (auto* const done : {&can_meet_, &can_post_, &can_hear_}) done->resize(lazy);
    signals_ = {posted(), rank(), size(), state_->settings().first_number};
  }
  /// Called once, when all ranks have agreed that the window exists.
  void complete() noexcept {
    is_complete_ = true;
    page_bytes_ = smallest_pages();
    fence_.emplace(lines(), header().fence, rank(), state_->fence_in_use(), state_->patience());
  }
  /// The size in bytes of the smallest pages that any block came in, read anew.
  [[nodiscard]] std::size_t smallest_pages() const noexcept {
    auto smallest = header().page_bytes;
    for (auto const& block : blocks()) {
      if (block.bytes > 0) smallest = std::min(smallest, block.page_bytes);
    }
    return smallest;
  }

  /// The same, as it was when all had agreed.
  [[nodiscard]] std::size_t page_bytes() const noexcept { return page_bytes_; }
  /// The size in bytes of the pages that the kernel counts the object in: huge only where reserved.
  [[nodiscard]] std::size_t object_page_bytes() const noexcept { return object_page_bytes_; }
  [[nodiscard]] segment_layout const& layout() const noexcept { return layout_; }

  /// Waits until every rank has called it; see `window::fence`.
  void fence() {
    require_whole(operation::fence);
    if (auto const missing = fence_->cross(roll{*this})) fail(*missing, operation::fence);
  }

  /// Waits until this rank and each of `peers` have named each other; see `window::fence`.
  void fence(std::span<int const> peers_of_call) {
    for (int const peer : peers_of_call) require_rank(peer, operation::fence_peers);
    require_whole(operation::fence_peers);
    for (int const peer : peers_of_call) {
      if (has_lazy_words()) populate_meetings_with(peer);
    }
    sync::meetings meetings(met(), rank(), state_->patience());
    if (auto const missing = meetings.meet(peers_of_call, roll{*this})) {
      fail(*missing, operation::fence_peers);
    }
  }

  /// Throws where no wait can succeed any more, as far as this rank has learnt. It does not arrive
  /// anywhere then, as `group_state::require_alive` explains.
  void require_whole(operation where) const {
    state_->require_alive(where);
    if (missing_) throw state_->absence_error(*missing_, where);
  }

  /// What is known about those that wait for the same thing at the same time.
  struct wait_rules {
    /// Whether all ranks do, so that a missing one is an error of all; else one that has left is an
    /// error of those that wait for it.
    bool is_of_all = true;
    /// What is waited for, of an operation that has its place among the group's collective calls.
    enum class phase {
      none,       ///< it has no such place
      starting,   ///< that others start it
      finishing,  ///< that those who start it finish it
    };
    wait_rules::phase of = phase::none;
    std::uint32_t start = 0;  ///< which of this rank's starts it is
  };

  /// Waits until `has_come(rank)` of every rank; throws where one never will.
  template <std::predicate<int> HasCome>
  void await_all(operation where, wait_rules const& rules, HasCome const& has_come) {
    auto const missing = sync::gather(size(), state_->patience(), has_come, roll{*this, &rules});
    if (missing) fail(*missing, where, rules);
  }
  /// Throws where a rank that has not come never will. Costs a system call for each of these.
  template <std::predicate<int> HasCome>
  void require_hope(operation where, wait_rules const& rules, HasCome const& has_come) {
    auto const view = sync::look_at_all(size(), has_come, roll{*this, &rules});
    if (view.is == sync::outlook::state::hopeless) fail(view.missing, where, rules);
  }

  /// Posts to `peer`; see `window::post`.
  void post(int peer) {
    require_rank(peer, operation::post);
    if (has_lazy_words()) populate_posts_to(peer);
    signals_.post(peer);
  }

  /// Consumes a post of `peer` where there is one; see `window::try_wait`.
  bool try_wait(int peer) {
    require_poster(peer);
    if (signals_.take(peer)) return true;
    advance_begun_work();  // which the peer may wait for before it posts
    return is_heard_now_and_then(peer);
  }

  /// Waits for a post of one of `peers`, and consumes it; see `window::wait`, `window::wait_any`.
  ///
  /// Returns: the rank that has posted, or -1 where the deadline has passed.
  int wait(std::span<int const> peers,
           sync::wait_clock::time_point deadline = sync::wait_clock::time_point::max()) {
    for (int const peer : peers) require_poster(peer);
    if (peers.empty()) {
      throw error({.cause = errc::invalid_argument,
                   .rank = rank(),
                   .subject = "no rank is named that could post",
                   .remedy = {}},
                  {.where = operation::wait, .size = size(), .agreed = false});
    }
    if (int const from = signals_.take_any(peers); from >= 0) return from;
    state_->require_alive(operation::wait);
    auto const heard = signals_.wait(peers, state_->patience(), signal_roll{{*this}}, deadline);
    if (heard.missing) fail_to_hear(*heard.missing);
    // Short waits one after the other find out as well.
    if (heard.from < 0 && is_heard_now_and_then(peers.front())) return peers.front();
    return heard.from;
  }

  /// Whether this rank is the one to tell the user of a missing rank: the first that finds it.
  [[nodiscard]] bool is_first_to_tell() const noexcept {
    auto const settled = header().verdict.settled();
    bool const is_death = settled && settled->why == sync::standing::dead;
    return is_death ? state_->header().deaths.tell() : header().verdict.tell();
  }

  /// Errors: errc::invalid_argument where there is no such rank; on the calling rank alone.
  void require_rank(int rank, operation where) const {
    if (rank >= 0 && rank < size()) return;
    throw_no_rank(rank, where);
  }

 private:
  struct roll {
    segment const& of;
    wait_rules const* rules = nullptr;

    sync::standing operator()(int rank) const noexcept {
      auto const why = of.state_->standing_of(rank, of.line(rank).left);
      if (why == sync::standing::dead || rules == nullptr) return why;
      return has_passed_over(rank) ? sync::standing::elsewhere : why;
    }
    /// Whether a rank that has not come is in a later collective call, or has started something
    /// else in the place of this.
    [[nodiscard]] bool has_passed_over(int rank) const noexcept {
      if (rules->of == wait_rules::phase::none) return false;
      auto const& state = *of.state_;
      bool const is_ahead = state.has_voted_ahead(rank) || state.has_fenced_ahead(rank);
      bool const has_started = state.has_started(rank, rules->start);
      return rules->of == wait_rules::phase::starting ? is_ahead || has_started
                                                      : is_ahead && !has_started;
    }
    [[nodiscard]] std::optional<sync::absence> verdict() const noexcept {
      auto& group = of.state_->header();
      if (auto const death = group.deaths.settled()) return death;
      auto const calls = group.verdict.settled();
      if (calls && calls->why == sync::standing::elsewhere) return calls;
      return of.header().verdict.settled();
    }
  };

  /// The roll for waits of a pair. Unlike a fence, which a rank that has learnt of a missing one
  /// does not enter, a post may come from any rank that lives: only a death ends all waits.
  struct signal_roll : roll {
    [[nodiscard]] std::optional<sync::absence> verdict() const noexcept {
      return of.state_->header().deaths.settled();
    }
  };

  [[nodiscard]] std::size_t ranks() const noexcept { return static_cast<std::size_t>(size()); }
  [[nodiscard]] bool has_lazy_words() const noexcept {
    return layout_.header_end > segment_layout::eager_bytes;
  }

  [[noreturn, gnu::cold, gnu::noinline]] void throw_no_rank(int rank, operation where) const {
    throw error({.cause = errc::invalid_argument,
                 .rank = this->rank(),
                 .subject = "there is no rank " + std::to_string(rank) + "; ranks are 0 to " +
                            std::to_string(size() - 1),
                 .remedy = {}},
                {.where = where, .size = size(), .agreed = false});
  }

  [[noreturn]] void fail(sync::absence const& missing, operation where) {
    fail(missing, where, wait_rules{});
  }
  [[noreturn]] void fail(sync::absence const& missing, operation where, wait_rules const& rules) {
    if (missing.why == sync::standing::elsewhere) fail_elsewhere(missing, where);
    if (!rules.is_of_all && missing.why == sync::standing::left) {
      throw error({.cause = errc::peer_left, .rank = missing.rank},
                  {.where = where, .size = size(), .agreed = false});
    }
    missing_ = state_->settle(header().verdict, missing);
    throw state_->absence_error(*missing_, where);
  }

  /// What a rank that waits for `peer` has to see to first.
  void require_poster(int peer) {
    require_rank(peer, operation::wait);
    if (has_lazy_words()) populate_posts_of(peer);
  }

  /// For one that polls: whether `peer` has posted, found where it is time to look whether it ever
  /// will. The post is consumed.
  bool is_heard_now_and_then(int peer) {
    state_->require_alive(operation::wait);
    auto const heard = signals_.look_now_and_then(peer, signal_roll{{*this}});
    if (heard.missing) fail_to_hear(*heard.missing);
    return heard.from >= 0;
  }

  /// Ends a call that another rank has passed over. Where that one votes in an agreement this rank
  /// votes too, and gets what all get: the other's failure, mostly. Else the group is lost.
  [[noreturn]] void fail_elsewhere(sync::absence const& missing, operation where) {
    if (state_->has_voted_ahead(missing.rank)) {
      if (auto failed = agreement(*state_).settle({.where = where})) throw std::move(*failed);
    }
    throw state_->absence_error(state_->settle(missing), where);
  }

  /// A death is the same for all. A rank that has left is missed by this one alone: others may go
  /// on with each other, so that is not settled for them.
  [[noreturn]] void fail_to_hear(sync::absence const& missing) const {
    if (missing.why == sync::standing::dead) {
      throw state_->absence_error(state_->settle_death(missing.rank), operation::wait);
    }
    throw error({.cause = errc::peer_left,
                 .rank = missing.rank,
                 .subject = "rank " + std::to_string(rank()) + " waits for a post of rank " +
                            std::to_string(missing.rank),
                 .remedy = {}},
                {.where = operation::wait, .size = size(), .agreed = false});
  }

  /// Populates words that this rank and `peer` share, where creation did not; `done` notes it.
  ///
  /// Errors: errc::out_of_memory (of the file system, where the window lies in one), on this rank
  ///         alone, which has not arrived or posted then.
  void populate_once(std::vector<bool>& done, int peer, operation where,
                     std::initializer_list<std::uint32_t*> words) const {
    if (done[static_cast<std::size_t>(peer)]) return;
    locally(where, [&] {
      for (auto* const word : words) {
        os::populate(mapping_.bytes(), std::as_writable_bytes(std::span(word, 1)), -1);
      }
    });
    done[static_cast<std::size_t>(peer)] = true;
  }
  [[gnu::noinline]] void populate_meetings_with(int peer) {
    populate_once(can_meet_, peer, operation::fence_peers,
                  {&met().word(rank(), peer), &met().word(peer, rank())});
  }
  [[gnu::noinline]] void populate_posts_to(int peer) {
    populate_once(can_post_, peer, operation::post, {&posted().word(rank(), peer)});
  }
  [[gnu::noinline]] void populate_posts_of(int peer) {
    populate_once(can_hear_, peer, operation::wait, {&posted().word(peer, rank())});
  }

  /// Runs a step of this rank alone; what it throws names the rank and the operation.
  template <class Step>
  void locally(operation where, Step const& step) const {
    try {
      step();
    } catch (error const& refused) {
      auto found = refused.details();
      found.rank = rank();
      throw error(found, {.where = where, .size = size(), .agreed = false});
    }
  }

  std::shared_ptr<group_state> state_;
  os::mapping mapping_;
  segment_layout layout_;
  sync::signals signals_;
  std::optional<sync::fence> fence_;  ///< of all ranks, once the segment is complete
  /// Of each rank, whether the words shared with it are populated; empty where all are.
  std::vector<bool> can_meet_, can_post_, can_hear_;
  std::optional<sync::absence> missing_;
  std::size_t page_bytes_ = 0;
  std::size_t object_page_bytes_ = 0;
  bool is_complete_ = false;
  bool is_read_only_ = false;  ///< the blocks, for this process
};

}  // namespace shm::inline v1::detail
