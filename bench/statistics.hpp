#pragma once
/// @file Timing of rivals in turn, over the ranks of a group. For the benches.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <functional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "shm/group.hpp"

namespace bench {

/// How long and how often is measured.
struct pace {
  double batch_us = 50e3;  ///< what one batch should take
  int batches = 11;
  int least = 3;  ///< iterations of a batch, however long they take
};

/// One rival: something that all ranks do together. A lane without a name takes no part.
struct lane {
  std::string name = {};
  std::function<void(int)> run = {};    ///< does it so many times; timed
  std::function<bool()> is_right = {};  ///< does it once more and looks at the result; not timed
};

/// Returns the middle of the sorted values, or the mean of the two in the middle. Not for none.
inline double median(std::vector<double> values) {
  std::ranges::sort(values);
  auto const half = values.size() / 2;
  return values.size() % 2 != 0 ? values[half] : (values[half - 1] + values[half]) / 2;
}

/// Returns the largest of the ranks' values, on every rank.
inline double largest(shm::group& node, double mine) {
  std::vector<double> all(static_cast<std::size_t>(node.size()));
  node.allgather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)));
  return std::ranges::max(all);
}

/// Returns the time in µs that `iterations` take on the slowest rank, the same on every rank.
///
/// The ranks start and compare through shared memory, for every rival: with more ranks than
/// processors a start by MPI_Barrier is spread over milliseconds, longer than what is measured.
inline double timed_us(shm::group& node, lane const& one, int iterations) {
  using clock = std::chrono::steady_clock;
  node.barrier();
  auto const start = clock::now();
  one.run(iterations);
  std::chrono::duration<double, std::micro> const taken = clock::now() - start;
  return largest(node, taken.count());
}

/// Returns how many iterations make a batch of the length that is wanted; warms up on the way.
inline int calibrated(shm::group& node, lane const& one, pace const& how) {
  constexpr double most = 10e6;
  double iterations = 1;
  double taken_us = timed_us(node, one, 1);
  while (taken_us < how.batch_us / 4 && iterations < most) {
    iterations *= std::clamp(how.batch_us / (2 * taken_us), 2.0, 16.0);
    taken_us = timed_us(node, one, static_cast<int>(iterations));
  }
  auto const wanted = std::floor(iterations) * how.batch_us / taken_us;
  return static_cast<int>(std::clamp(wanted, static_cast<double>(how.least), most));
}

/// Times the lanes in turn, batch by batch, and verifies each after each batch.
///
/// Returns:    for each lane the median over the batches of the slowest rank's µs an iteration; not
///             a number for a lane without a name.
/// Collective: all ranks of the group.
/// Errors:     on all ranks, the name of the lane whose result is wrong on any.
inline std::vector<double> interleave(shm::group& node, std::span<lane const> lanes,
                                      pace const& how) {
  std::vector<int> iterations;
  std::vector<std::vector<double>> samples(lanes.size());
  for (auto const& one : lanes) {
    iterations.push_back(one.name.empty() ? 0 : calibrated(node, one, how));
  }
  for (int batch = 0; batch < how.batches; ++batch) {
    for (std::size_t i = 0; i < lanes.size(); ++i) {
      if (iterations[i] == 0) continue;
      samples[i].push_back(timed_us(node, lanes[i], iterations[i]) / iterations[i]);
      bool const is_right = !lanes[i].is_right || lanes[i].is_right();
      node.agree([&] {
        if (!is_right) throw std::runtime_error("the result of " + lanes[i].name + " is wrong");
      });
    }
  }
  std::vector<double> medians;
  for (auto& of_lane : samples) medians.push_back(of_lane.empty() ? NAN : median(of_lane));
  return medians;
}

}  // namespace bench
