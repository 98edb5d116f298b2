#pragma once
/// @file What ranks that die or throw leave behind for the process that forked them.

#include <optional>
#include <string>
#include <string_view>

#include "shm/shm.hpp"
#include "support/ranks.hpp"

namespace shm_test {

/// Whether `part` stands somewhere in `text`.
inline bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

/// A line of text from every rank to the process that forked them. Made before they are forked.
class notes {
 public:
  explicit notes(int ranks) : ranks_(ranks), lines_(static_cast<std::size_t>(ranks)) {}

  void write(int rank, std::string_view text) { lines_[rank] = text; }
  [[nodiscard]] std::string of(int rank) { return std::string(lines_[rank].view()); }
  /// Whether all ranks but `except` have written the same, and have written something.
  [[nodiscard]] bool are_equal(int except = -1) {
    std::optional<std::string> first;
    for (int rank = 0; rank < ranks_; ++rank) {
      if (rank == except) continue;
      if (!first) first = of(rank);
      if (first->empty() || of(rank) != *first) return false;
    }
    return true;
  }
  /// All of them, for messages of failed checks.
  [[nodiscard]] std::string all() {
    std::string text;
    for (int rank = 0; rank < ranks_; ++rank) text += std::to_string(rank) + ": " + of(rank) + "\n";
    return text;
  }

 private:
  int ranks_;
  shm::detail::forked_array<shm::fixed_text<800>> lines_;
};

}  // namespace shm_test
