#pragma once
/// @file The collective creation of a segment.

#include <sched.h>

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "shm/base/size.hpp"
#include "shm/error.hpp"
#include "shm/group/agreement.hpp"
#include "shm/group/state.hpp"
#include "shm/options.hpp"
#include "shm/os/file_descriptor.hpp"
#include "shm/os/mapping.hpp"
#include "shm/os/process.hpp"
#include "shm/os/shared_object.hpp"
#include "shm/policy/segment_policy.hpp"
#include "shm/sync/arrival.hpp"
#include "shm/version.hpp"
#include "shm/window/room.hpp"
#include "shm/window/segment.hpp"
#include "shm/window/segment_layout.hpp"

namespace shm::inline v1::detail {

/// What one rank asks for. Everything but the block's own size is the same on every rank.
struct segment_wish {
  std::uint64_t element_bytes = 1;
  std::uint64_t block_bytes = 0;
  window_options options{};
  bool has_equal_blocks = false;  ///< whether blocks must be equal on all ranks
  /// Whether the other ranks give rank 0 time to go first, even where it loses its processor at
  /// that moment, rather than yielding once.
  bool has_head_start = false;
  /// Whether this rank, on its own, protects the blocks from its stores.
  bool is_read_only = false;
  failure cause{};  ///< where the arguments of this rank are no good
};

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
    state_.require_whole(operation::create_window);
    for (attempt_ = 0;; ++attempt_) {
      auto failed = try_once();
      if (failed && is_outdated(*failed)) {
        has_looked_again_ = true;
        failed = try_once();
      }
      if (!failed) break;
      if (attempt_ + 1 >= policy_.attempts() || !is_worth_another(*failed)) throw *failed;
    }
    result_->complete();
    return std::move(result_);
  }

 private:
  static constexpr std::size_t block_argument = 5;  ///< in the vote: the size of the own block

  /// Whether another kind of memory could succeed.
  static bool is_worth_another(error const& failed) noexcept {
    if (failed.where() != operation::create_window) return false;
    switch (failed.details().cause) {
      case errc::out_of_memory:
      case errc::no_space:
      case errc::limit_reached:
      case errc::permission_denied:
      case errc::unsupported:
      case errc::system_failure:
        return true;
      default:
        return false;
    }
  }

  /// Whether a refusal may rest on what a rank saw before another had come here, and so had freed
  /// its part of an earlier window: what control groups allow is read before the first vote.
  [[nodiscard]] bool is_outdated(error const& failed) const noexcept {
    return !has_looked_again_ && !has_joined_ && failed.where() == operation::create_window &&
           failed.code() == errc::limit_reached;
  }

  /// Whether a rank is missing, so that no further agreement can be reached.
  static bool is_loss(error const& failed) noexcept {
    return failed.code() == errc::peer_lost || failed.code() == errc::peer_left;
  }

  std::optional<error> try_once() {
    static constexpr std::array<std::string_view, 6> equal = {
        "the size of an element in bytes", "the policy with its options (as a hash)",
        "window_options::layout",          "window_options::prefault",
        "window_options::core_dump",       "the size of a block in bytes"};
    auto const word = [](auto choice) { return static_cast<std::uint64_t>(choice); };
    proposal const mine{
        .where = operation::create_window,
        .arguments = {wish_.element_bytes, policy_.signature(), word(wish_.options.layout),
                      word(wish_.options.prefault), word(wish_.options.core_dump),
                      wish_.block_bytes},
        .equal = std::span(equal).first(wish_.has_equal_blocks ? equal.size() : block_argument),
        .cause = failure_before_vote()};
    has_joined_ = false;
    agreement wishes(state_);
    if (auto failed = wishes.settle(mine, [&] { make_object(wishes.epoch()); })) {
      drop_object();
      return failed;
    }
    has_joined_ = true;
    proposal const outcome{.where = operation::create_window, .cause = try_to_join()};
    auto failed = agreement(state_).settle(outcome, [&] {
      object_ = {};
      if (wish_.has_head_start) ::sched_yield();  // begins the time slice that it leaves in anew
    });
    if (!failed) {
      if (state_.rank() != 0) tidy_up();
      return std::nullopt;
    }
    drop_object();
    if (is_loss(*failed)) return failed;
    if (auto lost = agreement(state_).settle({.where = operation::create_window})) return lost;
    return failed;
  }

  /// Shows rank 0 what it must know of this rank; returns what is wrong with its wish, if anything.
  failure failure_before_vote() {
    try {
      show_memory_bounds(state_, wish_.block_bytes, wish_.options.prefault != prefault::none);
      return wish_.cause.is_failure() ? wish_.cause : failure_of(wish_.options);
    } catch (...) {
      return failure_of_exception(errc::rank_failed);
    }
  }

  /// Returns what is wrong with options, if anything: a number that is none of an enumeration's.
  static failure failure_of(window_options const& options) {
    failure found;
    auto const check = [&found](std::string_view name, auto choice, auto last) {
      if (choice <= last) return;
      found.cause = errc::invalid_argument;
      found.subject = "window_options::" + std::string(name) + " is " +
                      std::to_string(static_cast<std::uint32_t>(choice)) + ", which has no name";
    };
    check("layout", options.layout, layout::contiguous);
    check("prefault", options.prefault, prefault::none);
    check("core_dump", options.core_dump, core_dump::include);
    return found;
  }

  /// Rank 0: makes the object for the sizes that all ranks have voted with, and writes its header.
  void make_object(std::uint32_t epoch) {
    auto const page_bytes = policy_.page_bytes(attempt_);
    if (!std::has_single_bit(page_bytes) || page_bytes < os::base_page_bytes()) {
      throw error({.cause = errc::invalid_argument,
                   .subject = "pages of " + bytes_in_words(page_bytes),
                   .remedy = "let the policy's page_bytes return a power of two, at least the "
                             "size of the machine's base pages"});
    }
    std::vector<std::uint64_t> sizes;
    for (int r = 0; r < state_.size(); ++r) {
      sizes.push_back(state_.block().ballot_of(r, epoch).arguments[block_argument]);
    }
    std::vector<block_entry> entries(sizes.size());
    auto layout = segment_layout::of_header(state_.size(), page_bytes);
    layout.place(sizes, entries, wish_.options.layout, page_bytes);
    object_ = policy_.create({.bytes = layout.total,
                              .page_bytes = page_bytes,
                              .attempt = attempt_,
                              .settings = state_.settings()});
    require_as_asked(layout.total, page_bytes);
    if (wish_.options.prefault != prefault::none) {
      require_room(state_, object_.descriptor.number(), layout, sizes);
    }
    map(object_.descriptor.number(), layout.total, page_bytes);
    populate_first(layout, entries.front());
    auto nonce = state_.header().nonce;
    nonce[1] ^= epoch;
    write_header(layout, entries, nonce);
    result_->reserve();
    state_.publish(object_, nonce);
  }

  void map(int descriptor, std::size_t bytes, std::size_t page_bytes) {
    os::mapping made(descriptor, bytes);
    if (wish_.options.core_dump == core_dump::leave_out) made.leave_out_of_dumps();
    result_->map(std::move(made), page_bytes);
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
    auto part = whole.first(is_preset ? layout.data_at
                                      : std::max(layout.peers_at, std::min(layout.data_at, eager)));
    constexpr std::size_t small = 64 * 1024;
    has_own_block_ =
        wish_.options.prefault != prefault::none && layout.data_at <= eager && own.bytes <= small;
    if (has_own_block_) {
      policy_.place(whole.subspan(own.offset, own.bytes));
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
    header.backend = policy_.name();
    std::ranges::copy(entries, result_->blocks().begin());
    if (auto const first = state_.settings().first_number; first != 0) start_at(first);
    header.magic = segment_magic;
  }

  /// Presets every counter, as if `first` fences had happened.
  void start_at(std::uint32_t first) const {
    for (auto& line : result_->lines()) {
      line.arrived = first;
      line.rounds.fill(first);
    }
    auto& words = result_->header().fence;
    words.count.value = first * static_cast<std::uint32_t>(state_.size());
    words.release.value = first;
    auto const table = result_->peers();
    for (int from = 0; from < state_.size(); ++from) {
      for (int to = 0; to < state_.size(); ++to) table.word(from, to) = first;
    }
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
      map(descriptor_.number(), notice.address.bytes, notice.page_bytes);
      auto const& header = result_->header();
      if (header.magic != segment_magic || header.nonce != notice.nonce) {
        throw error({.cause = errc::system_failure,
                     .subject = "the object is not the one that rank 0 has made",
                     .remedy = {}});
      }
      result_->reserve();
    }
    if (wish_.options.prefault != prefault::none && !has_own_block_) populate_own_block();
    if (wish_.is_read_only) result_->make_read_only();
  }

  void populate_own_block() {
    auto const mine = result_->block(state_.rank());
    policy_.place(mine);
    auto const& own = state_.rank() == 0 ? object_.descriptor : descriptor_;
    os::populate(result_->mapping().bytes(), mine, own.number());
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
  bool has_looked_again_ = false;
  bool has_joined_ = false;     ///< in this attempt: the object was made, and has been opened
  bool has_own_block_ = false;  ///< on rank 0: its block was populated with the header
};

}  // namespace shm::inline v1::detail
