#pragma once
/// @file What a window really got from the system.

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "shm/os/placement.hpp"
#include "shm/os/shared_object.hpp"

namespace shm::inline v1 {

/// What a window's memory is.
struct residency {
  static constexpr int unknown = -1;  ///< no page is there yet, or the system does not say
  static constexpr int mixed = -2;    ///< pages on several nodes

  std::string backend;         ///< the name of the policy that made it
  std::size_t page_bytes = 0;  ///< size of the smallest pages that any block came in
  os::origin origin{};         ///< whether the object ever had a name
  std::vector<int> nodes;      ///< [ranks] the NUMA node of each block, or `unknown`, or `mixed`
};

namespace detail {

/// Returns on which node a block lies, as far as up to 1024 of its pages tell.
inline int node_of(std::span<std::byte const> block, std::size_t page_bytes) {
  auto const nodes = os::nodes_of(block, 1024, page_bytes);
  if (nodes.empty()) return residency::unknown;
  bool const is_one = std::ranges::all_of(nodes, [&](int node) { return node == nodes.front(); });
  return is_one ? nodes.front() : residency::mixed;
}

}  // namespace detail

}  // namespace shm::inline v1
