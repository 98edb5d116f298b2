#pragma once
/// @file A set of NUMA node numbers, as the kernel's lists and masks have it.

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstddef>
#include <initializer_list>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace shm::inline v1::os {

/// A set of NUMA node numbers, as large as its largest member asks for.
class node_set {
 public:
  /// The largest number that the kernel can be built for (CONFIG_NODES_SHIFT is 10 at most).
  static constexpr int largest = 1023;

  node_set() = default;
  node_set(std::initializer_list<int> numbers) {
    for (int const number : numbers) add(number);
  }

  /// Returns the set that a mask of the kernel stands for.
  static node_set of_words(std::span<unsigned long const> words) {
    node_set result;
    result.words_.assign(words.begin(), words.end());
    result.trim();
    return result;
  }

  /// Reads a list as the kernel writes it: "0,2-5", or nothing for the empty set, with or without a
  /// line feed at its end. Returns nothing for any other text.
  static std::optional<node_set> parse(std::string_view text) {
    if (text.ends_with('\n')) text.remove_suffix(1);
    node_set result;
    if (text.empty()) return result;
    for (;;) {
      auto const first = take_number(text);
      auto last = first;
      if (text.starts_with('-')) {
        text.remove_prefix(1);
        last = take_number(text);
      }
      if (!first || !last || *last < *first) return std::nullopt;
      for (int number = *first; number <= *last; ++number) result.add(number);
      if (text.empty()) return result;
      if (!text.starts_with(',')) return std::nullopt;
      text.remove_prefix(1);
    }
  }

  /// Requires: 0 <= number <= largest.
  void add(int number) {
    auto const [word, bit] = place_of(number);
    if (word >= words_.size()) words_.resize(word + 1, 0UL);
    words_[word] |= bit;
  }

  [[nodiscard]] bool contains(int number) const noexcept {
    if (number < 0) return false;
    auto const [word, bit] = place_of(number);
    return word < words_.size() && (words_[word] & bit) != 0;
  }
  [[nodiscard]] bool is_empty() const noexcept { return words_.empty(); }
  [[nodiscard]] int count() const noexcept {
    int sum = 0;
    for (auto const word : words_) sum += std::popcount(word);
    return sum;
  }

  /// The members, in ascending order.
  [[nodiscard]] std::vector<int> members() const {
    std::vector<int> result;
    for (std::size_t word = 0; word < words_.size(); ++word) {
      for (auto rest = words_[word]; rest != 0; rest &= rest - 1) {
        result.push_back(static_cast<int>(word * word_bits) + std::countr_zero(rest));
      }
    }
    return result;
  }

  /// The members for messages: "0, 2 to 5", or "none".
  [[nodiscard]] std::string in_words() const {
    std::string text;
    auto const numbers = members();
    for (std::size_t at = 0; at < numbers.size(); ++at) {
      auto last = at;
      while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
      if (!text.empty()) text += ", ";
      text += std::to_string(numbers[at]);
      if (last < at + 2) continue;
      text += " to " + std::to_string(numbers[last]);
      at = last;
    }
    return text.empty() ? "none" : text;
  }

  /// The set as the object of a sentence: "NUMA node 3", "NUMA nodes 0, 2 to 5".
  [[nodiscard]] std::string named() const {
    return (count() == 1 ? "NUMA node " : "NUMA nodes ") + in_words();
  }

  /// The set as a mask for system calls, bit b of word w for node w * bits of a word + b.
  [[nodiscard]] std::span<unsigned long const> words() const noexcept { return words_; }

  node_set& operator|=(node_set const& other) {
    words_.resize(std::max(words_.size(), other.words_.size()), 0UL);
    for (std::size_t w = 0; w < other.words_.size(); ++w) words_[w] |= other.words_[w];
    return *this;
  }
  node_set& operator&=(node_set const& other) noexcept {
    words_.resize(std::min(words_.size(), other.words_.size()));
    for (std::size_t w = 0; w < words_.size(); ++w) words_[w] &= other.words_[w];
    trim();
    return *this;
  }
  node_set& operator-=(node_set const& other) noexcept {
    for (std::size_t w = 0; w < std::min(words_.size(), other.words_.size()); ++w) {
      words_[w] &= ~other.words_[w];
    }
    trim();
    return *this;
  }
  friend node_set operator|(node_set a, node_set const& b) { return a |= b; }
  friend node_set operator&(node_set a, node_set const& b) { return a &= b; }
  friend node_set operator-(node_set a, node_set const& b) { return a -= b; }
  friend bool operator==(node_set const&, node_set const&) = default;

 private:
  static constexpr std::size_t word_bits = std::numeric_limits<unsigned long>::digits;

  static std::pair<std::size_t, unsigned long> place_of(int number) noexcept {
    auto const bit = static_cast<std::size_t>(number);
    return {bit / word_bits, 1UL << (bit % word_bits)};
  }

  static std::optional<int> take_number(std::string_view& text) noexcept {
    unsigned value = 0;  // unsigned: a sign is no digit
    auto const [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (failed != std::errc{} || value > static_cast<unsigned>(largest)) return std::nullopt;
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    return static_cast<int>(value);
  }

  /// Sees to it that the last word is not zero, so that equal sets have equal words.
  void trim() noexcept {
    while (!words_.empty() && words_.back() == 0) words_.pop_back();
  }

  std::vector<unsigned long> words_;
};

}  // namespace shm::inline v1::os
