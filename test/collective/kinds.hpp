#pragma once
/// @file Every kind of collective, planned and on private memory, against what it should bring.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include "support/ranks.hpp"

namespace shm_test {

/// Counts that lie around lines, pages, slots, and the ends of the staged way.
inline constexpr std::size_t counts[] = {0,    1,    2,    3,    13,    14,     15,     16,
                                         17,   31,   63,   511,  512,   513,    1000,   1024,
                                         4097, 8191, 8192, 8193, 16383, 20'000, 100'000};

/// The element that a rank sends. Of floating-point numbers their sums are not exact, so that the
/// order shows.
template <class T>
T element(int rank, std::size_t at, int round) {
  auto const n = static_cast<std::int64_t>(at % 1009) * 7 + rank * 13 + round * 31;
  if constexpr (std::is_floating_point_v<T>) {
    return static_cast<T>(n) / static_cast<T>(3) * (rank % 2 == 0 ? T{1} : T{-1000});
  } else {
    return static_cast<T>(n);
  }
}

/// Fills what a rank sends.
template <class T>
void fill(std::span<T> send, int rank, int round) {
  for (std::size_t at = 0; at < send.size(); ++at) send[at] = element<T>(rank, at, round);
}

/// What all ranks send at one place, combined in their order.
template <class T, class Op>
T combined(int ranks, std::size_t at, int round, Op const& op) {
  T result = element<T>(0, at, round);
  for (int rank = 1; rank < ranks; ++rank) result = op(result, element<T>(rank, at, round));
  return result;
}

/// Whether `result`, beginning at `first` of the whole, is that combination, bit for bit.
template <class T, class Op>
bool is_combined(std::span<T const> result, std::size_t first, int ranks, int round, Op const& op) {
  for (std::size_t at = 0; at < result.size(); ++at) {
    if (result[at] != combined<T>(ranks, first + at, round, op)) return false;
  }
  return true;
}

}  // namespace shm_test
