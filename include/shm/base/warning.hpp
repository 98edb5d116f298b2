#pragma once
/// @file Warnings: one line each on standard error.

#include <algorithm>
#include <cstdio>
#include <string>
#include <string_view>

namespace shm::inline v1 {

/// Writes `shm: rank r of n: text` as one line to standard error, in one call, so that lines of
/// several ranks do not mix.
inline void warn(int rank, int size, std::string_view text) {
  std::string line = "shm: rank " + std::to_string(rank) + " of " + std::to_string(size) + ": ";
  line.append(text);
  std::ranges::replace_if(line, [](char c) { return c >= 0 && c < ' '; }, ' ');
  line.push_back('\n');
  std::fwrite(line.data(), 1, line.size(), stderr);
}

}  // namespace shm::inline v1
