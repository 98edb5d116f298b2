#pragma once
/// @file What a window really got from the system.

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "shm/os/placement.hpp"
#include "shm/os/shared_object.hpp"
#include "shm/window/segment.hpp"

namespace shm::inline v1 {

/// What a window's memory is.
struct residency {
  static constexpr int unknown = -1;  ///< no page is there yet, or the system does not say
  static constexpr int mixed = -2;    ///< pages on several nodes

  std::string backend;         ///< the name of the policy that made it
  std::size_t page_bytes = 0;  ///< as of `window::page_size`
  os::origin origin{};         ///< whether the object ever had a name
  std::vector<int> nodes;      ///< [ranks] the NUMA node of each block, or `unknown`, or `mixed`
};

namespace detail {

/// Returns on which node a rank's block lies, as far as up to 1024 of its pages tell that are
/// there.
inline int node_of_block(segment const& made, int rank) {
  bool const is_reserved = made.object_page_bytes() > os::base_page_bytes();
  if (is_reserved && !made.header().is_populated) return residency::unknown;  // looking makes pages
  int found = residency::unknown;
  for (int const node : os::nodes_of(made.block(rank), 1024, made.object_page_bytes())) {
    if (node < 0) continue;
    if (found >= 0 && node != found) return residency::mixed;
    found = node;
  }
  return found;
}

}  // namespace detail

}  // namespace shm::inline v1
