#pragma once
/// @file Where the buffers of a collective lie, in words that all ranks know, and whether they may
/// lie so.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shm/base/settings.hpp"
#include "shm/base/size.hpp"
#include "shm/error.hpp"
#include "shm/group.hpp"
#include "shm/group/state.hpp"
#include "shm/window/segment.hpp"

namespace shm::inline v1::detail {

/// A range of bytes in one of a group's windows. One of no bytes is nowhere.
struct window_range {
  std::uint64_t window = 0;  ///< its number
  std::uint64_t offset = 0;  ///< from the beginning of the segment
  std::uint64_t bytes = 0;

  friend bool operator==(window_range const&, window_range const&) = default;

  [[nodiscard]] bool overlaps(window_range const& other) const noexcept {
    return bytes != 0 && other.bytes != 0 && window == other.window &&
           offset < other.offset + other.bytes && other.offset < offset + bytes;
  }
  /// The part that begins `at` bytes after the beginning.
  [[nodiscard]] window_range part(std::uint64_t at, std::uint64_t length) const noexcept {
    return {window, offset + at, length};
  }
};

/// Returns where `buffer` lies.
///
/// Errors: errc::invalid_argument where it is not altogether in blocks, one after the other, of one
///         live window of the group; on this rank alone.
inline window_range locate(group_state& state, std::span<std::byte const> buffer,
                           std::string_view name) {
  if (buffer.empty()) return {};
  auto const refuse = [&](std::string const& what, std::string_view remedy) {
    throw error({.cause = errc::invalid_argument,
                 .rank = state.rank(),
                 .subject = "the " + std::string(name) + " buffer of " +
                            bytes_in_words(buffer.size()) + " " + what,
                 .remedy = remedy});
  };
  constexpr std::string_view use_window =
      "pass part of a live window of this group; one of another group, and private memory, will "
      "not "
      "do";
  auto const made = state.windows().at(buffer.data());
  if (!made) refuse("does not begin in a live window of the group", use_window);
  auto const offset = static_cast<std::size_t>(buffer.data() - made->base());
  auto const end = checked_add(offset, buffer.size());
  // Where the memory that begins at the buffer ends: blocks may follow each other without padding.
  std::size_t covered = offset;
  for (auto const& block : made->blocks()) {
    if (block.offset <= covered && covered < block.offset + block.bytes) {
      covered = block.offset + block.bytes;
    }
  }
  if (!end || covered < *end) {
    if (covered == offset) refuse("does not begin in a block", use_window);
    refuse("ends outside of the block that it begins in, where " +
               bytes_in_words(covered - offset) + " are left",
           "pass fewer elements, or make the window larger");
  }
  return {made->number(), offset, buffer.size()};
}

/// Owns the windows in which the buffers of a collective lie, and finds them in this process.
class window_holder {
 public:
  /// Returns the address in this process of what any rank has located; null where that is nowhere.
  ///
  /// Errors: errc::invalid_argument where this process has the window no more.
  std::byte* address_of(group_state& state, window_range const& where, int owner) {
    return where.bytes == 0 ? nullptr : window_of(state, where, owner).base() + where.offset;
  }
  /// The same of what this rank is to write.
  ///
  /// Errors: also errc::invalid_argument where the window is read-only here.
  std::byte* writable_address_of(group_state& state, window_range const& where, int owner) {
    if (where.bytes == 0) return nullptr;
    auto const& found = window_of(state, where, owner);
    if (found.is_read_only()) {
      throw error({.cause = errc::invalid_argument,
                   .rank = state.rank(),
                   .subject = "the window in which rank " + std::to_string(owner) +
                              " receives is read-only in this process, which writes there",
                   .remedy = "freeze it on no rank, or receive in another one"});
    }
    return found.base() + where.offset;
  }

 private:
  segment const& window_of(group_state& state, window_range const& where, int owner) {
    for (auto const& held : held_) {
      if (held->number() == where.window) return *held;
    }
    auto found = state.windows().numbered(where.window);
    if (!found) {
      throw error({.cause = errc::invalid_argument,
                   .rank = state.rank(),
                   .subject = "the window in which a buffer of rank " + std::to_string(owner) +
                              " lies is not live here any more",
                   .remedy = "keep it on every rank until the plan is made"});
    }
    held_.push_back(std::move(found));
    return *held_.back();
  }

  std::vector<std::shared_ptr<segment>> held_;
};

/// Returns the failure of two ranks whose buffers may not lie as they do: "the buffer in which rank
/// 1 receives overlaps the one that rank 0 sends".
inline failure overlap_failure(std::size_t receiver, std::size_t other, bool is_sent) {
  return {.cause = errc::invalid_argument,
          .rank = static_cast<int>(receiver),
          .subject = "the buffer in which rank " + std::to_string(receiver) +
                     " receives overlaps the one " + (is_sent ? "that" : "in which") + " rank " +
                     std::to_string(other) + (is_sent ? " sends" : " receives"),
          .remedy = "give each rank memory of its own to receive in"};
}

/// How the buffers of all ranks lie.
struct plan_layout {
  std::vector<window_range> send;     ///< [ranks]
  std::vector<window_range> receive;  ///< [ranks]

  /// Whether all ranks receive in one and the same place.
  [[nodiscard]] bool is_one_result() const noexcept {
    return receive.size() > 1 && receive.front().bytes != 0 &&
           std::ranges::all_of(receive, [&](auto const& r) { return r == receive.front(); });
  }
  /// Whether any rank receives where another one sends or receives: it then writes when all have
  /// read.
  [[nodiscard]] bool is_shared() const noexcept {
    for (std::size_t r = 0; r < receive.size(); ++r) {
      for (std::size_t s = 0; s < receive.size(); ++s) {
        if (r == s) continue;
        if (receive[r].overlaps(send[s]) || receive[r].overlaps(receive[s])) return true;
      }
    }
    return false;
  }
};

/// Returns the failure of the first buffers that overlap: where a rank receives in what one sends,
/// unless `may_take(r, s)`; where two receive, unless `may_share(r, s)`.
template <class MayTake, class MayShare>
std::optional<failure> failure_of_overlap(plan_layout const& layout, MayTake const& may_take,
                                          MayShare const& may_share) {
  for (std::size_t r = 0; r < layout.receive.size(); ++r) {
    auto const& mine = layout.receive[r];
    for (std::size_t s = 0; s < layout.receive.size(); ++s) {
      if (mine.overlaps(layout.send[s]) && !may_take(r, s)) return overlap_failure(r, s, true);
      if (r == s || !mine.overlaps(layout.receive[s])) continue;
      if (!may_share(r, s)) return overlap_failure(r, s, false);
    }
  }
  return std::nullopt;
}

/// Returns the failure of a rank whose buffers do not fit each other.
inline failure length_failure(std::size_t sent, std::size_t received, std::string_view rule) {
  return {.cause = errc::invalid_argument,
          .subject = std::to_string(sent) + " elements are sent and " + std::to_string(received) +
                     " received",
          .remedy = rule};
}

/// Whether `all` elements are a block of `one` for each rank.
inline bool is_block_of(std::size_t one, std::size_t all, group const& ranks) noexcept {
  return checked_multiply(one, static_cast<std::size_t>(ranks.size())) == all;
}
/// Whether both are equal blocks, one for each rank.
inline bool are_blocks_of_all(std::size_t sent, std::size_t received, group const& ranks) noexcept {
  return sent == received && ranks.valid() && sent % static_cast<std::size_t>(ranks.size()) == 0;
}
/// The part of each rank in `all`, which are blocks for all ranks.
inline std::size_t block_of(std::size_t all, group const& ranks) noexcept {
  return all / static_cast<std::size_t>(std::max(ranks.size(), 1));  // refused later where invalid
}

/// The settings of a group; the usual ones where it is invalid, which is refused later.
inline settings settings_of(group const& ranks) {
  return ranks.valid() ? ranks.state()->settings() : settings{};
}

}  // namespace shm::inline v1::detail
