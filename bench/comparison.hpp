#pragma once
/// @file One operation against its rival and its limit, and the table of them. For the benches.

#include <array>
#include <cmath>
#include <cstdio>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "shm/group.hpp"
#include "statistics.hpp"

namespace bench {

/// What is to be measured. The limit's name is empty where there is none.
struct comparison {
  std::string operation;
  lane ours;
  lane rival;
  lane limit = {};
};

/// What was measured, in µs an operation.
struct row {
  std::string operation;
  int ranks;
  double ours_us;
  std::string rival;
  double rival_us;
  std::string limit;
  double limit_us;
};

/// Collective: all ranks of the group.
inline row measure(shm::group& node, comparison const& what, pace const& how) {
  std::array const lanes{what.ours, what.rival, what.limit};
  auto const us = interleave(node, lanes, how);
  return {what.operation, node.size(), us[0], what.rival.name, us[1], what.limit.name, us[2]};
}

/// Returns a number in the form that tables print: a dash where there is none.
inline std::string in_us(double us) {
  if (std::isnan(us)) return "-";
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), us < 100 ? "%.3f" : "%.1f", us);
  return text.data();
}

/// Prints the titles of the columns that `print` fills.
inline void print_head() {
  // A micro sign has two bytes, and printf counts bytes.
  std::printf("%-26s%6s%13s  %-32s%13s%8s  %-34s%13s\n", "operation", "ranks", "ours [µs]", "rival",
              "rival [µs]", "ratio", "limit", "limit [µs]");
}

inline void print(row const& one) {
  std::printf("%-26s%6d%12s  %-32s%12s%8.2f  %-34s%12s\n", one.operation.c_str(), one.ranks,
              in_us(one.ours_us).c_str(), one.rival.c_str(), in_us(one.rival_us).c_str(),
              one.rival_us / one.ours_us, one.limit.empty() ? "-" : one.limit.c_str(),
              in_us(one.limit_us).c_str());
  std::fflush(stdout);
}

/// Writes the rows as tab-separated values, with the units in the first line; `nan` where there is
/// no number.
inline void write_tsv(std::string const& path, std::span<row const> rows) {
  std::FILE* const file = std::fopen(path.c_str(), "w");
  if (file == nullptr) throw std::runtime_error("cannot write " + path);
  std::fprintf(
      file, "operation\tranks\tours [µs]\trival\trival [µs]\trival/ours [1]\tlimit\tlimit [µs]\n");
  for (auto const& one : rows) {
    std::fprintf(file, "%s\t%d\t%.6g\t%s\t%.6g\t%.6g\t%s\t%.6g\n", one.operation.c_str(), one.ranks,
                 one.ours_us, one.rival.c_str(), one.rival_us, one.rival_us / one.ours_us,
                 one.limit.c_str(), one.limit_us);
  }
  if (std::fclose(file) != 0) throw std::runtime_error("cannot write " + path);
}

}  // namespace bench
