#pragma once
/// @file What a rank asks for when it creates a window, checked where that needs no other rank.

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "shm/base/size.hpp"
#include "shm/error.hpp"
#include "shm/options.hpp"

namespace shm::inline v1::detail {

class segment;

/// What one rank asks for. Everything but the block's own size is the same on every rank.
struct segment_wish {
  operation where = operation::create_window;
  std::uint64_t element_bytes = 1;
  std::uint64_t block_bytes = 0;
  window_options options{};
  bool has_equal_blocks = false;  ///< whether blocks must be equal on all ranks
  /// Whether the other ranks give rank 0 time to go first, even where it loses its processor at
  /// that moment, rather than yielding once.
  bool has_head_start = false;
  /// Whether this rank, on its own, protects the blocks from its stores.
  bool is_read_only = false;
  /// Whether it is no window of the user's, but memory that the library works with.
  bool is_internal = false;
  /// What each rank runs on its own block before the others see it; null: nothing.
  void (*initialize)(segment const&) = nullptr;
  failure cause{};  ///< where the arguments of this rank are no good
};

/// Returns what is wrong with options, if anything: a number that is none of an enumeration's.
inline failure failure_of(window_options const& options) {
  failure found;
  auto const check = [&found](std::string_view name, bool is_known, long value) {
    if (is_known) return;
    found.cause = errc::invalid_argument;
    found.subject = "window_options::" + std::string(name) + " is " + std::to_string(value) +
                    ", which has no name";
  };
  auto const check_choice = [&check](std::string_view name, auto choice, auto last) {
    check(name, choice <= last, static_cast<long>(choice));
  };
  check_choice("layout", options.layout, layout::contiguous);
  check_choice("prefault", options.prefault, prefault::none);
  check_choice("core_dump", options.core_dump, core_dump::include);
  check("place", options.place.is_known(), options.place.given());
  return found;
}

/// Returns the wish for `count` elements of `element_bytes` bytes. A count that cannot be is told
/// to all ranks by the vote, not thrown early: the others would wait.
template <std::integral Count>
segment_wish wish_for(Count count, std::size_t element_bytes, window_options const& options) {
  segment_wish wish{.element_bytes = element_bytes, .options = options};
  if constexpr (std::signed_integral<Count>) {
    if (count < 0) {
      wish.cause = {.cause = errc::invalid_argument,
                    .rank = -1,
                    .subject = "a count of " + std::to_string(count) + " elements",
                    .remedy = "ask for 0 or more"};
      return wish;
    }
  }
  auto const bytes = checked_multiply(static_cast<std::size_t>(count), element_bytes);
  if (!bytes) {
    wish.cause = {
        .cause = errc::size_overflow,
        .rank = -1,
        .subject = std::to_string(count) + " elements of " + bytes_in_words(element_bytes),
        .remedy = {}};
  }
  wish.block_bytes = bytes.value_or(0);
  return wish;
}

}  // namespace shm::inline v1::detail
