#pragma once
/// @file A number that stands for a sequence of words, so that ranks can compare what is long.

#include <cstdint>

namespace shm::inline v1 {

/// Hashes a sequence, word by word. Not against those who want two to be equal.
///
/// Source: the FNV-1a hash (Fowler, Noll, Vo), 64 bits, over words instead of bytes.
class sequence_hash {
 public:
  constexpr void add(std::uint64_t word) noexcept { value_ = (value_ ^ word) * 0x100000001b3U; }
  template <class Range>
  constexpr void add_each(Range const& words) noexcept {
    for (auto const word : words) add(static_cast<unsigned char>(word));
  }
  [[nodiscard]] constexpr std::uint64_t value() const noexcept { return value_; }

 private:
  std::uint64_t value_ = 0xcbf29ce484222325U;
};

}  // namespace shm::inline v1
