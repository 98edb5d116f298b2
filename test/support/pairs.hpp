#pragma once
/// @file Memory for a word of each ordered pair of ranks.

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "shm/base/size.hpp"
#include "shm/sync/pair_table.hpp"

namespace shm_test {

/// A table of words with its memory.
class shared_pairs {
 public:
  /// Makes a table in which every word is `first`.
  explicit shared_pairs(int ranks_wanted, std::uint32_t first = 0)
      : ranks(ranks_wanted), lines_(shm::sync::pair_table::size_bytes(ranks) / shm::line_bytes) {
    for (int from = 0; from < ranks; ++from) {
      for (int to = 0; to < ranks; ++to) table().word(from, to) = first;
    }
  }

  [[nodiscard]] shm::sync::pair_table table() noexcept {
    return {reinterpret_cast<std::byte*>(lines_.data()), ranks};
  }

  int const ranks;

 private:
  struct alignas(shm::line_bytes) line {
    std::array<std::byte, shm::line_bytes> bytes{};
  };
  std::vector<line> lines_;
};

}  // namespace shm_test
