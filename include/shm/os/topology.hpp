#pragma once
/// @file The processors that this process may run on, and what they share.

#include <sched.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shm/error.hpp"
#include "shm/options.hpp"
#include "shm/os/node_set.hpp"
#include "shm/os/process.hpp"

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

namespace detail {

/// Returns the number that a file of the kernel begins with, where it is one that an int holds.
inline std::optional<int> small_number_in(std::string const& path) {
  auto const number = leading_number(read_kernel_file(path.c_str()));
  if (!number || *number > std::numeric_limits<int>::max()) return std::nullopt;
  return static_cast<int>(*number);
}

/// Returns the lowest processor that shares the level 3 cache of `processor`.
inline std::optional<int> first_beside_cache(std::string const& processor) {
  for (int index = 0;; ++index) {
    auto const cache = processor + "/cache/index" + std::to_string(index);
    auto const level = small_number_in(cache + "/level");
    if (!level) return std::nullopt;
    if (*level == 3) return small_number_in(cache + "/shared_cpu_list");
  }
}

inline std::optional<int> node_of(int processor, std::string const& system) {
  auto const list = read_kernel_file((system + "node/online").c_str());
  for (int const node : node_set::parse(list).value_or(node_set{}).members()) {
    auto const link =
        system + "node/node" + std::to_string(node) + "/cpu" + std::to_string(processor);
    if (::access(link.c_str(), F_OK) == 0) return node;
  }
  return std::nullopt;
}

}  // namespace detail

/// Returns the processor that the calling thread runs on now; -1 where the kernel does not say.
inline int current_processor() noexcept { return ::sched_getcpu(); }

/// Returns a number that the processors of one such part of the machine have in common, and those
/// of no other part of its kind; nothing where `sysfs` does not say.
///
/// Errors: errc::invalid_argument for another value than the enumerators.
/// Source: the kernel's ABI/stable/sysfs-devices-system-cpu and ABI/stable/sysfs-devices-node.
inline std::optional<int> domain_of(domain part, int processor, std::string_view sysfs = "/sys") {
  auto const system = std::string(sysfs) + "/devices/system/";
  auto const directory = system + "cpu/cpu" + std::to_string(processor);
  switch (part) {
    case domain::numa:
      return detail::node_of(processor, system);
    case domain::package:
      return detail::small_number_in(directory + "/topology/physical_package_id");
    case domain::l3:
      return detail::first_beside_cache(directory);
  }
  throw error({.cause = errc::invalid_argument,
               .subject = "domain number " + std::to_string(static_cast<std::uint32_t>(part)),
               .remedy = "name one of the enumerators of shm::domain"});
}

}  // namespace shm::inline v1::os
