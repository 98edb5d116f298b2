#pragma once
/// @file Text of limited length that can lie in shared memory.

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <string_view>

namespace shm::inline v1 {

/// Holds up to `Capacity - 1` bytes without allocating; longer text is cut and ends in "…". Always
/// terminated.
template <std::size_t Capacity>
class fixed_text {
 public:
  constexpr fixed_text() noexcept = default;
  template <std::convertible_to<std::string_view> Text>
  constexpr fixed_text(Text const& text) noexcept {
    append(text);
  }

  /// Adds what there is room for.
  constexpr void append(std::string_view text) noexcept {
    std::size_t const used = view().size();
    if (used + ellipsis.size() > Capacity - 1 && view().ends_with(ellipsis)) return;  // cut before
    std::size_t const taken = std::min(text.size(), Capacity - 1 - used);
    std::copy_n(text.data(), taken, characters_.data() + used);
    characters_[used + taken] = '\0';
    if (taken < text.size()) mark_cut();
  }

  /// Turns line breaks and other control characters into blanks.
  constexpr void make_one_line() noexcept {
    std::ranges::replace_if(
        characters_, [](char c) { return (c > 0 && c < ' ') || c == 0x7f; }, ' ');
  }

  /// The text up to its first zero, or up to the capacity: safe on memory that others can write.
  [[nodiscard]] constexpr std::string_view view() const noexcept {
    auto const end = std::find(characters_.begin(), characters_.end() - 1, '\0');
    return {characters_.data(), static_cast<std::size_t>(end - characters_.begin())};
  }
  [[nodiscard]] constexpr char const* c_str() const noexcept { return characters_.data(); }
  [[nodiscard]] constexpr bool is_empty() const noexcept { return characters_.front() == '\0'; }

 private:
  static constexpr std::string_view ellipsis = "…";

  /// Ends a full text in an ellipsis, between two characters of UTF-8.
  constexpr void mark_cut() noexcept {
    if (Capacity <= ellipsis.size()) return;
    auto at = Capacity - 1 - ellipsis.size();
    auto const is_inside = [&] {
      return (static_cast<unsigned char>(characters_[at]) & 0xc0U) == 0x80U;
    };
    while (at > 0 && is_inside()) --at;
    std::ranges::copy(ellipsis, characters_.data() + at);
    characters_[at + ellipsis.size()] = '\0';
  }

  std::array<char, Capacity> characters_{};
};

}  // namespace shm::inline v1
