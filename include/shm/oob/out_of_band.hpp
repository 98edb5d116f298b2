#pragma once
/// @file What a bootstrap must offer: a rank, a size, and an allgather.

#include <concepts>
#include <cstddef>
#include <span>
#include <string>

#include "shm/error.hpp"

namespace shm::inline v1 {

/// A bootstrap through which the ranks of a group find each other. Used only while a communicator
/// is constructed, from the constructing thread, in the same order on every rank.
///
/// `rank()` is 0 .. size() - 1, each on exactly one rank; `size()` is the same on all.
/// `allgather(mine, all)` gathers blocks of equal length: mine [n] bytes, all [size() * n] bytes in
/// rank order; the two do not overlap. It throws where it fails, having taken its turn or not.
template <class Oob>
concept out_of_band =
    requires(Oob& oob, std::span<std::byte const> mine, std::span<std::byte> all) {
      { oob.rank() } -> std::convertible_to<int>;
      { oob.size() } -> std::convertible_to<int>;
      oob.allgather(mine, all);
    };

/// Refers to a bootstrap of any type. Does not own it.
class out_of_band_ref {
 public:
  /// Errors: errc::invalid_argument where its numbers cannot be.
  template <out_of_band Oob>
    requires(!std::same_as<Oob, out_of_band_ref>)
  explicit out_of_band_ref(Oob& oob)
      : rank_(oob.rank()), size_(oob.size()), oob_(&oob), allgather_(&forward<Oob>) {
    if (size_ >= 1 && rank_ >= 0 && rank_ < size_) return;
    throw error({.cause = errc::invalid_argument,
                 .subject = "rank " + std::to_string(rank_) + " of " + std::to_string(size_),
                 .remedy = "let the bootstrap have at least one rank, and number them from 0"});
  }

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return size_; }
  void allgather(std::span<std::byte const> mine, std::span<std::byte> all) const {
    allgather_(oob_, mine, all);
  }

 private:
  template <class Oob>
  static void forward(void* oob, std::span<std::byte const> mine, std::span<std::byte> all) {
    static_cast<Oob*>(oob)->allgather(mine, all);
  }

  int rank_;
  int size_;
  void* oob_;
  void (*allgather_)(void*, std::span<std::byte const>, std::span<std::byte>);
};

}  // namespace shm::inline v1
