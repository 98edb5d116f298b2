#pragma once
/// @file The processors that this process may run on.

#include <sched.h>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace shm::inline v1::os {

/// A set of logical processors, bit p of word p / 64 for processor p. Processors past the capacity
/// are folded onto it: the set is only ever used to count.
class processor_set {
 public:
  static constexpr std::size_t capacity = 2048;

  /// Returns the processors that the calling thread may run on; empty where the kernel does not
  /// say.
  ///
  /// Source: sched_setaffinity(2), which asks for a mask as large as the kernel's own.
  static processor_set usable() {
    processor_set result;
    for (std::size_t words = capacity / 64; words <= 4096; words *= 2) {
      std::vector<unsigned long> mask(words, 0UL);
      auto* const set = reinterpret_cast<cpu_set_t*>(mask.data());
      if (::sched_getaffinity(0, words * sizeof(unsigned long), set) != 0) continue;
      for (std::size_t w = 0; w < words; ++w) result.words_[w % result.words_.size()] |= mask[w];
      break;
    }
    return result;
  }

  processor_set& operator|=(processor_set const& other) noexcept {
    for (std::size_t w = 0; w < words_.size(); ++w) words_[w] |= other.words_[w];
    return *this;
  }

  [[nodiscard]] int count() const noexcept {
    int sum = 0;
    for (auto const word : words_) sum += std::popcount(word);
    return sum;
  }

 private:
  std::array<std::uint64_t, capacity / 64> words_{};
};

}  // namespace shm::inline v1::os
