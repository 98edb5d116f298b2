#pragma once
/// @file One window's shared memory in one process, whatever the type of its elements.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "shm/error.hpp"
#include "shm/group/state.hpp"
#include "shm/options.hpp"
#include "shm/os/mapping.hpp"
#include "shm/sync/arrival.hpp"
#include "shm/sync/fence.hpp"
#include "shm/sync/peers.hpp"
#include "shm/window/segment_layout.hpp"

namespace shm::inline v1::detail {

/// Owns one rank's mapping of a window, and fences over it. Shared by the window and whatever else
/// works on its memory. Destroying it is local: it marks that this rank has left, and unmaps.
class segment {
 public:
  explicit segment(std::shared_ptr<group_state> state) : state_(std::move(state)) {}
  segment(segment const&) = delete;
  segment& operator=(segment const&) = delete;
  ~segment() {
    if (is_complete_ && state_->is_owner()) sync::store(line(rank()).left, 1);
  }

  [[nodiscard]] group_state& state() const noexcept { return *state_; }
  [[nodiscard]] int rank() const noexcept { return state_->rank(); }
  [[nodiscard]] int size() const noexcept { return state_->size(); }
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
  [[nodiscard]] sync::peer_table peers() const noexcept {
    return {base() + layout_.peers_at, rank(), size(), state_->patience()};
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
  }

  /// Presets every counter, as if `first` fences had happened.
  void start_at(std::uint32_t first) const {
    for (auto& line : lines()) {
      line.arrived = first;
      line.rounds.fill(first);
    }
    auto& words = header().fence;
    words.count.value = first * static_cast<std::uint32_t>(size());
    words.release.value = first;
    auto const table = peers();
    for (int from = 0; from < size(); ++from) {
      for (int to = 0; to < size(); ++to) table.word(from, to) = first;
    }
  }

  /// Makes room for everything that later calls need, so that they cannot fail for want of memory.
  void reserve() { met_.resize(has_lazy_peers() ? ranks() : 0); }
  /// Called once, when all ranks have agreed that the window exists.
  void complete() noexcept {
    is_complete_ = true;
    page_bytes_ = smallest_pages();
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
    sync::fence fence(lines(), header().fence, rank(), state_->fence_in_use(), state_->patience());
    if (auto const missing = fence.cross(roll{*this})) fail(*missing, operation::fence);
  }

  /// Waits until this rank and each of `peers` have named each other; see `window::fence`.
  void fence(std::span<int const> peers_of_call) {
    for (int const peer : peers_of_call) require_rank(peer, operation::fence_peers);
    require_whole(operation::fence_peers);
    for (int const peer : peers_of_call) reserve_words_with(peer, operation::fence_peers);
    if (auto const missing = peers().meet(peers_of_call, roll{*this})) {
      fail(*missing, operation::fence_peers);
    }
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
    throw error({.cause = errc::invalid_argument,
                 .rank = this->rank(),
                 .subject = "there is no rank " + std::to_string(rank) + "; ranks are 0 to " +
                            std::to_string(size() - 1),
                 .remedy = {}},
                {.where = where, .size = size(), .agreed = false});
  }

 private:
  struct roll {
    segment const& of;
    sync::standing operator()(int rank) const noexcept {
      return of.state_->standing_of(rank, of.line(rank).left);
    }
    [[nodiscard]] std::optional<sync::absence> verdict() const noexcept {
      if (auto const settled = of.header().verdict.settled()) return settled;
      return of.state_->header().deaths.settled();
    }
  };

  [[nodiscard]] std::size_t ranks() const noexcept { return static_cast<std::size_t>(size()); }
  [[nodiscard]] bool has_lazy_peers() const noexcept {
    return layout_.header_end > segment_layout::eager_bytes;
  }

  /// Throws where no fence can succeed any more, as far as this rank has learnt. It does not arrive
  /// at one then, as `group_state::require_alive` explains.
  void require_whole(operation where) const {
    state_->require_alive(where);
    if (missing_) throw state_->absence_error(*missing_, where);
  }

  [[noreturn]] void fail(sync::absence const& missing, operation where) {
    missing_ = state_->settle(header().verdict, missing);
    throw state_->absence_error(*missing_, where);
  }

  /// Populates the words through which this rank and `peer` meet, where creation did not.
  ///
  /// Errors: errc::out_of_memory (of the file system, where the window lies in one), on this rank
  ///         alone, which has not arrived then.
  void reserve_words_with(int peer, operation where) {
    if (met_.empty() || met_[static_cast<std::size_t>(peer)]) return;
    locally(where, [&] {
      for (auto* const word : {&peers().word(rank(), peer), &peers().word(peer, rank())}) {
        os::populate(mapping_.bytes(), std::as_writable_bytes(std::span(word, 1)), -1);
      }
    });
    met_[static_cast<std::size_t>(peer)] = true;
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
  std::vector<bool> met_;  ///< empty where creation has populated all words
  std::optional<sync::absence> missing_;
  std::size_t page_bytes_ = 0;
  std::size_t object_page_bytes_ = 0;
  bool is_complete_ = false;
};

}  // namespace shm::inline v1::detail
