#pragma once
/// @file A bootstrap over a group that works already, which counts its calls and fails one of them.

#include <algorithm>
#include <cstddef>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "shm/group.hpp"

namespace shm_test {

/// Whether the failing call has taken its turn among the ranks when it fails.
enum class fault { none, before, after };

/// Bootstraps through the allgather of `through`; call number `at` (from 1) throws.
class faulty_oob {
 public:
  explicit faulty_oob(shm::group& through, fault how = fault::none, int at = 0)
      : through_(&through), how_(how), at_(at) {}

  [[nodiscard]] int rank() const noexcept { return through_->rank(); }
  [[nodiscard]] int size() const noexcept { return through_->size(); }
  [[nodiscard]] int calls() const noexcept { return calls_; }

  void allgather(std::span<std::byte const> mine, std::span<std::byte> all) {
    bool const fails = ++calls_ == at_;
    if (fails && how_ == fault::before) fail();
    std::vector<std::byte> result(all.size());
    through_->allgather(mine, result);
    if (fails && how_ == fault::after) fail();
    std::ranges::copy(result, all.begin());
  }

 private:
  [[noreturn]] void fail() const {
    throw std::runtime_error("call " + std::to_string(calls_) + " of the bootstrap fails on rank " +
                             std::to_string(rank()));
  }

  shm::group* through_;
  fault how_;
  int at_;
  int calls_ = 0;
};

/// Bootstraps through the allgather of `through`, but claims another rank and size.
class lying_oob {
 public:
  lying_oob(shm::group& through, int rank, int size)
      : through_(&through), rank_(rank), size_(size) {}

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return size_; }

  void allgather(std::span<std::byte const> mine, std::span<std::byte> all) {
    std::vector<std::byte> result(mine.size() * static_cast<std::size_t>(through_->size()));
    through_->allgather(mine, result);
    auto const n = std::min(result.size(), all.size());
    std::copy_n(result.begin(), n, all.begin());
  }

 private:
  shm::group* through_;
  int rank_;
  int size_;
};

}  // namespace shm_test
