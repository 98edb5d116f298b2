#pragma once
/// @file Ranks of which some are meant to die or to throw, and what all of them leave behind.

#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "shm/shm.hpp"
#include "support/catch.hpp"
#include "support/ranks.hpp"

namespace shm_test {

/// Runs `body` on `ranks` forked ranks, and returns how each ended. A failed check on a rank makes
/// it throw in the end.
inline std::vector<shm::rank_exit> exits_of(int ranks, rank_body const& body,
                                            std::optional<shm::settings> given = {}) {
  try {
    shm::fork_ranks(
        ranks,
        [&](shm::group& node) {
          findings found;
          body(node, found);
          if (!found.all().empty()) throw std::runtime_error(found.all());
        },
        given);
  } catch (shm::ranks_failed const& e) {
    return e.exits();
  }
  return std::vector<shm::rank_exit>(static_cast<std::size_t>(ranks));
}

/// Runs `body` on forked ranks of which `lost` is to be killed; fails the test case where another
/// one does not finish.
inline void on_ranks_losing(int lost, int ranks, rank_body const& body,
                            std::optional<shm::settings> given = {}) {
  auto const exits = exits_of(ranks, body, given);
  std::string failures;
  for (int rank = 0; rank < ranks; ++rank) {
    auto const& exit = exits[static_cast<std::size_t>(rank)];
    auto const expected =
        rank == lost ? shm::rank_exit::kind::killed : shm::rank_exit::kind::finished;
    if (exit.how != expected) {
      failures += "rank " + std::to_string(rank) + ": " + exit.in_words() + "\n";
    }
  }
  INFO(ranks << " ranks, of which " << lost << " is lost\n" << failures);
  CHECK(failures.empty());
}

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
