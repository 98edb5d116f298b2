#pragma once
/// @file The collective creation of a segment.

#include <sched.h>

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "shm/base/size.hpp"
#include "shm/base/warning.hpp"
#include "shm/error.hpp"
#include "shm/group/agreement.hpp"
#include "shm/group/state.hpp"
#include "shm/options.hpp"
#include "shm/os/file_descriptor.hpp"
#include "shm/os/huge_page.hpp"
#include "shm/os/mapping.hpp"
#include "shm/os/process.hpp"
#include "shm/os/shared_object.hpp"
#include "shm/policy/segment_policy.hpp"
#include "shm/sync/arrival.hpp"
#include "shm/version.hpp"
#include "shm/window/block.hpp"
#include "shm/window/fallback.hpp"
#include "shm/window/report.hpp"
#include "shm/window/room.hpp"
#include "shm/window/segment.hpp"
#include "shm/window/segment_layout.hpp"
#include "shm/window/wish.hpp"

namespace shm::inline v1::detail {

/// Creates one segment, in attempts that the ranks agree on:
///
///     all: vote with their arguments; rank 0 makes the object, lays it out, publishes it, decides
///     all: open, map, place and populate their own block; vote; rank 0 cleans up and decides
///     where that failed on any rank: all unmap, vote once more, and try the policy's next kind
///
/// Rank 0's last decision is the last thing that happens in a creation: it makes no system call
/// after it and is the first to return, while the others still clean up.
class segment_creation {
 public:
  segment_creation(std::shared_ptr<group_state> state, segment_policy_ref policy,
                   segment_wish const& wish)
      : state_(*state),
        policy_(policy),
        wish_(wish),
        result_(std::make_shared<segment>(std::move(state))) {}

  /// Errors: the same on every rank.
  std::shared_ptr<segment> run() {
    state_.require_whole(wish_.where);
    for (;;) {
      auto failed = try_once();
      if (!failed) break;
      // Where the object could not be made, rank 0 has tried every kind of memory.
      if (!is_made_ || policy_.attempts() == 1 || !is_worth_another(*failed, wish_.where))
        throw *failed;
      fallback_.pass_over(failed->details());
    }
    result_->complete();
    return std::move(result_);
  }

 private:
  static constexpr std::size_t block_argument = 6;  ///< in the vote: the size of the own block

  /// Whether a rank is missing, so that no further agreement can be reached.
  static bool is_loss(error const& failed) noexcept {
    return failed.code() == errc::peer_lost || failed.code() == errc::peer_left;
  }

  std::optional<error> try_once() {
    static constexpr std::array<std::string_view, 7> equal = {
        "the size of an element in bytes", "the policy with its options (as a hash)",
        "window_options::layout",          "window_options::prefault",
        "window_options::core_dump",       "window_options::place (as a number)",
        "the size of a block in bytes"};
    auto const word = [](auto choice) { return static_cast<std::uint64_t>(choice); };
    proposal const mine{
        .where = wish_.where,
        .arguments = {wish_.element_bytes, policy_.signature(), word(wish_.options.layout),
                      word(wish_.options.prefault), word(wish_.options.core_dump),
                      word(wish_.options.place.code()), wish_.block_bytes},
        .equal = std::span(equal).first(wish_.has_equal_blocks ? equal.size() : block_argument),
        .cause = wish_.cause.is_failure() ? wish_.cause : failure_of(wish_.options)};
    is_made_ = false;
    agreement wishes(state_);
    if (auto failed = wishes.settle(mine, [&] { make_object(wishes.epoch()); })) {
      drop_object();
      return failed;
    }
    is_made_ = true;
    attempt_ = state_.header().notice.attempt;
    if (auto failed = look_for_room()) {
      drop_object();
      return failed;
    }
    proposal const outcome{.where = wish_.where, .cause = try_to_join()};
    auto failed = agreement(state_).settle(outcome, [&] {
      object_ = {};
      report();
      if (wish_.has_head_start) ::sched_yield();  // begins the time slice that it leaves in anew
    });
    if (!failed) {
      if (state_.rank() != 0) tidy_up();
      return std::nullopt;
    }
    drop_object();
    if (is_loss(*failed)) return failed;
    if (auto lost = agreement(state_).settle({.where = wish_.where})) return lost;
    return failed;
  }

  /// Asks, for a large window, whether the control groups of all ranks have room for it. All have
  /// come here by now, and so have freed their parts of earlier windows.
  std::optional<error> look_for_room() {
    if (!is_asked_for_room()) return std::nullopt;
    proposal mine{.where = wish_.where};
    try {
      show_memory_bounds(state_);
    } catch (...) {
      mine.cause = failure_of_exception(errc::rank_failed);
    }
    return agreement(state_).settle(mine, [&] {
      require_room_in_control_groups(state_, *result_);
      state_.hand_over(object_);
    });
  }

  /// Whether the window is so large that its room is looked for. The same on all ranks.
  [[nodiscard]] bool is_asked_for_room() const noexcept {
    auto const& notice = state_.header().notice;
    return is_populated() && notice.pages != os::page_kind::reserved &&
           notice.address.bytes >= unasked_bytes;
  }
  [[nodiscard]] bool is_populated() const noexcept {
    return wish_.options.prefault != prefault::none;
  }

  /// Rank 0: tells the user what became of the wish. Not worth a failure.
  void report() noexcept {
    if (wish_.is_internal) return;
    try {
      if (state_.settings().is_verbose) tell_of(*result_, policy_.asked());
      warn_of_smaller_pages(state_, *result_, fallback_);
      warn_of_other_nodes(state_, *result_, policy_, wish_.options.place);
    } catch (std::exception const&) {
      // The user can still ask the window.
    }
  }

  /// Rank 0: makes the object for the sizes that all ranks have voted with, in the best kind of
  /// memory that can be had, and writes its header. No other rank has to do with what fails here.
  void make_object(std::uint32_t epoch) {
    std::vector<std::uint64_t> sizes;
    for (int r = 0; r < state_.size(); ++r) {
      sizes.push_back(state_.block().ballot_of(r, epoch).arguments[block_argument]);
    }
    fallback_.plan(policy_, sizes, wish_.options.layout);
    for (;;) {
      int const attempt = fallback_.attempt();
      try {
        make_object_in(attempt, epoch, sizes);
        break;
      } catch (error const& refused) {
        drop_object();
        if (!is_worth_another(refused, wish_.where)) throw;
        fallback_.pass_over(refused.details());
      }
    }
    if (!is_asked_for_room()) state_.hand_over(object_);
  }

  void make_object_in(int attempt, std::uint32_t epoch, std::span<std::uint64_t const> sizes) {
    auto const page_bytes = policy_.page_bytes(attempt);
    if (!std::has_single_bit(page_bytes) || page_bytes < os::base_page_bytes()) {
      throw error({.cause = errc::invalid_argument,
                   .subject = "pages of " + bytes_in_words(page_bytes),
                   .remedy = "let the policy's page_bytes return a power of two, at least the "
                             "size of the machine's base pages"});
    }
    std::vector<block_entry> entries(sizes.size());
    auto layout = segment_layout::of_header(state_.size(), page_bytes);
    layout.place(sizes, entries, wish_.options.layout, page_bytes);
    object_ = policy_.create({.bytes = layout.total,
                              .page_bytes = page_bytes,
                              .attempt = attempt,
                              .place = wish_.options.place});
    require_as_asked(layout.total, page_bytes);
    bool const is_of_pool = object_.pages == os::page_kind::reserved;
    if (is_populated() && !is_of_pool) {
      require_room_for_all(object_.descriptor.number(), layout.total, sizes);
    }
    attempt_ = attempt;
    map(object_.descriptor.number(), layout.total, page_bytes, object_.pages);
    populate_first(layout, entries.front());
    auto nonce = state_.header().nonce;
    // Its descriptor may be on its way to some when the next attempt is made.
    nonce[1] ^= epoch | static_cast<std::uint64_t>(attempt + 1) << 32U;
    write_header(layout, entries, nonce);
    result_->reserve();
    state_.publish(object_, nonce, attempt);
  }

  void map(int descriptor, std::size_t bytes, std::size_t page_bytes, os::page_kind pages) {
    auto made = map_whole(descriptor, bytes, page_bytes, pages);
    if (wish_.options.core_dump == core_dump::leave_out) made.leave_out_of_dumps();
    result_->map(std::move(made), page_bytes,
                 pages == os::page_kind::reserved ? page_bytes : os::base_page_bytes());
  }

  /// Errors: errc::invalid_argument where the policy has made something else than it was asked for.
  void require_as_asked(std::size_t bytes, std::size_t page_bytes) const {
    if (object_.bytes == bytes && object_.page_bytes == page_bytes &&
        os::size_of(object_.descriptor.number()) >= bytes) {
      return;
    }
    throw error({.cause = errc::invalid_argument,
                 .subject = "the policy \"" + std::string(policy_.name()) +
                            "\" has not made the object that it was asked for",
                 .remedy = "let create return an object of request.bytes, in pages of "
                           "request.page_bytes, and say so in it"});
  }

  /// Populates what no rank owns, and with it rank 0's own block where that is small: one system
  /// call instead of two.
  void populate_first(segment_layout const& layout, block_entry const& own) {
    auto const whole = result_->mapping().bytes();
    constexpr auto eager = segment_layout::eager_bytes;
    bool const is_preset = state_.settings().first_number != 0;  // which writes to all of it
    auto part = whole.first(
        is_preset ? layout.data_at : std::max(layout.peers_at, std::min(layout.header_end, eager)));
    constexpr std::size_t small = 64 * 1024;
    has_own_block_ = is_populated() && layout.data_at <= eager && own.bytes <= small &&
                     object_.pages == os::page_kind::base;
    if (has_own_block_) {
      place(whole.subspan(own.offset, own.bytes), object_.page_bytes);
      part = whole.first(own.offset + own.bytes);
    }
    os::populate(whole, part, object_.descriptor.number());
  }

  void write_header(segment_layout const& layout, std::span<block_entry const> entries,
                    os::identifier const& nonce) const {
    auto& header = result_->header();
    header.layout = layout_version;
    header.ranks = state_.size();
    header.nonce = nonce;
    header.bytes = layout.total;
    header.page_bytes = object_.page_bytes;
    header.block_layout = wish_.options.layout;
    header.origin = object_.origin;
    header.is_populated = is_populated();
    header.backend = policy_.name();
    std::ranges::copy(entries, result_->blocks().begin());
    if (auto const first = state_.settings().first_number; first != 0) result_->start_at(first);
    header.magic = segment_magic;
  }

  /// Maps the object and populates this rank's block; returns what went wrong.
  failure try_to_join() {
    try {
      join();
      return {};
    } catch (...) {
      return failure_of_exception(errc::rank_failed);
    }
  }

  void join() {
    auto const& notice = state_.header().notice;
    if (state_.rank() != 0) {
      descriptor_ = state_.fetch();
      map(descriptor_.number(), notice.address.bytes, notice.page_bytes, notice.pages);
      auto const& header = result_->header();
      if (header.magic != segment_magic || header.nonce != notice.nonce) {
        throw error({.cause = errc::system_failure,
                     .subject = "the object is not the one that rank 0 has made",
                     .remedy = {}});
      }
      result_->reserve();
    }
    if (!has_own_block_) place(result_->block(state_.rank()), notice.page_bytes);
    if (!has_own_block_ && is_populated()) {
      auto const& own = state_.rank() == 0 ? object_.descriptor : descriptor_;
      populate_own_block(*result_, own.number(), notice.pages);
    }
    note_pages(*result_, notice, is_populated());
    if (wish_.initialize != nullptr) wish_.initialize(*result_);
    if (wish_.is_read_only) result_->make_read_only();
  }

  void place(std::span<std::byte> mine, std::size_t page_bytes) const {
    policy_.place({.mine = mine,
                   .page_bytes = page_bytes,
                   .attempt = attempt_,
                   .place = wish_.options.place});
  }

  /// Other ranks than 0: let rank 0 go first, then close what is no longer needed.
  void tidy_up() {
    if (wish_.has_head_start) {
      // The longer all of it took, the longer rank 0 may have to wait for a processor.
      using namespace std::chrono_literals;
      auto const taken = std::chrono::steady_clock::now() - start_;
      std::this_thread::sleep_for(std::clamp<std::chrono::nanoseconds>(taken, 50us, 2ms));
    } else {
      ::sched_yield();
    }
    descriptor_.reset();
  }

  void drop_object() noexcept {
    result_->unmap();
    object_ = {};
    descriptor_.reset();
  }

  group_state& state_;
  segment_policy_ref policy_;
  segment_wish wish_;
  std::shared_ptr<segment> result_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  os::shared_object object_;
  os::file_descriptor descriptor_;
  int attempt_ = 0;

  fallback fallback_;  ///< the kinds of memory on rank 0; on the others only what has failed

  bool is_made_ = false;        ///< whether there is an object, in this attempt
  bool has_own_block_ = false;  ///< on rank 0: its block was populated with the header
};

}  // namespace shm::inline v1::detail
