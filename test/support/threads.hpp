#pragma once
/// @file Ranks that are threads of this process, for what works over plain memory. Under
/// ThreadSanitizer, data that a fence does not order is a reported race.

#include <atomic>
#include <cstddef>
#include <functional>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "shm/sync/arrival.hpp"

namespace shm_test {

/// Runs `body(rank)` on a thread for each rank.
template <class Body>
void on_threads(int ranks, Body const& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) threads.emplace_back([&body, rank] { body(rank); });
  for (auto& thread : threads) thread.join();
}

/// Says of each rank what the test has set, and counts how often it was asked.
///
/// relaxed throughout: the roll must not order what the code under test is to order.
class fake_roll {
 public:
  explicit fake_roll(int ranks)
      : standings_(static_cast<std::size_t>(ranks)), asked_(static_cast<std::size_t>(ranks)) {}

  /// Makes `rank` absent from the start.
  void set(int rank, shm::sync::standing why) {
    standings_[static_cast<std::size_t>(rank)].store(why, std::memory_order_relaxed);
  }
  /// Runs `then(rank)` whenever the standing of a rank is asked, before it is answered.
  void when_asked(std::function<void(int)> then) { then_ = std::move(then); }
  /// Runs `then()` whenever the verdict is asked, before it is answered.
  void when_asked_for_verdict(std::function<void()> then) { then_verdict_ = std::move(then); }
  void set_verdict(shm::sync::absence settled) { verdict_ = settled; }

  [[nodiscard]] int asked(int rank) const {
    return asked_[static_cast<std::size_t>(rank)].load(std::memory_order_relaxed);
  }

  shm::sync::standing operator()(int rank) const {
    auto const at = static_cast<std::size_t>(rank);
    asked_[at].fetch_add(1, std::memory_order_relaxed);
    if (then_) then_(rank);
    return standings_[at].load(std::memory_order_relaxed);
  }
  [[nodiscard]] std::optional<shm::sync::absence> verdict() const {
    if (then_verdict_) then_verdict_();
    return verdict_;
  }

 private:
  std::vector<std::atomic<shm::sync::standing>> standings_;
  mutable std::vector<std::atomic<int>> asked_;
  std::function<void(int)> then_;
  std::function<void()> then_verdict_;
  std::optional<shm::sync::absence> verdict_;
};

/// Plain data of one rank, on a line of its own.
struct alignas(shm::line_bytes) datum {
  int value = 0;
};

}  // namespace shm_test
