#pragma once
/// @file A word for each ordered pair of ranks, in plain memory that they share.

#include <cstddef>
#include <cstdint>

#include "shm/base/size.hpp"

namespace shm::inline v1::sync {

/// A square table of words. Row r, written by rank r alone, has a word for each rank; rows begin on
/// a line, so that no two ranks write to one.
///
///     byte   0                                  row of rank 0: a word to each rank
///            row_bytes(ranks)                   row of rank 1
///            row_bytes(ranks) * (ranks - 1)     row of the last rank
class pair_table {
 public:
  /// Returns the bytes from one row to the next.
  static constexpr std::size_t row_bytes(int ranks) noexcept {
    return *round_up(static_cast<std::size_t>(ranks) * sizeof(std::uint32_t), line_bytes);
  }
  /// Returns the bytes of a whole table.
  static constexpr std::size_t size_bytes(int ranks) noexcept {
    return static_cast<std::size_t>(ranks) * row_bytes(ranks);
  }

  pair_table() noexcept = default;
  pair_table(std::byte* table, int ranks) noexcept : table_(table), row_bytes_(row_bytes(ranks)) {}

  /// The words that `from` writes, one for each rank.
  [[nodiscard]] std::uint32_t* row(int from) const noexcept {
    return reinterpret_cast<std::uint32_t*>(table_ + static_cast<std::size_t>(from) * row_bytes_);
  }
  /// The word that `from` writes for `to`.
  [[nodiscard]] std::uint32_t& word(int from, int to) const noexcept { return row(from)[to]; }

 private:
  std::byte* table_ = nullptr;
  std::size_t row_bytes_ = 0;
};

}  // namespace shm::inline v1::sync
