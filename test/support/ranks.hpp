#pragma once
/// @file Tests whose body runs on every rank of a group.
///
/// A rank never stops at a failed check, since the others would wait for it; it notes the failure
/// and goes on. All that its ranks have noted fails the test case in the parent.

#include <functional>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shm/shm.hpp"
#include "support/catch.hpp"

namespace shm_test {

/// What one rank has found wrong.
class findings {
 public:
  void note(bool holds, std::string_view what, std::string_view file, int line) {
    if (holds) return;
    std::ostringstream text;
    text << file.substr(file.rfind('/') + 1) << ':' << line << ": " << what << "; ";
    all_ += text.str();
  }
  [[nodiscard]] std::string const& all() const noexcept { return all_; }

 private:
  std::string all_;
};

using rank_body = std::function<void(shm::group&, findings&)>;

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

/// Runs `body` on forked ranks of which `lost` is to be killed, -1 for none; fails the test case
/// where another one does not finish.
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
  INFO(ranks << " ranks, lost is " << lost << "\n" << failures);
  CHECK(failures.empty());
}

/// Runs `body` on `ranks` forked ranks; a failed check, an exception or a death on any of them
/// fails the current test case.
inline void on_ranks(int ranks, rank_body const& body, std::optional<shm::settings> given = {}) {
  on_ranks_losing(-1, ranks, body, given);
}

/// The numbers of ranks that every behaviour is tested with.
inline constexpr int rank_counts[] = {1, 2, 3, 4};

/// Runs `body` with each of `rank_counts`.
inline void on_all_rank_counts(rank_body const& body, std::optional<shm::settings> given = {}) {
  for (int const ranks : rank_counts) on_ranks(ranks, body, given);
}

/// Returns the error that `f` throws; an error without a cause where it throws none.
template <class F>
shm::failure failure_of(F&& f) {
  try {
    std::invoke(std::forward<F>(f));
  } catch (shm::error const& e) {
    return e.details();
  }
  return {};
}

/// Returns what() of the `shm::error` that `f` throws; empty where it throws none.
template <class F>
std::string message_of(F&& f) {
  try {
    std::invoke(std::forward<F>(f));
  } catch (shm::error const& e) {
    return e.what();
  }
  return {};
}

}  // namespace shm_test

/// Notes in `found` where `...` does not hold, and goes on.
#define RANK_CHECK(found, ...) \
  (found).note(static_cast<bool>(__VA_ARGS__), #__VA_ARGS__, __FILE__, __LINE__)
