#pragma once
/// @file One line for the user about a window: what was asked for, and what was obtained.

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "shm/base/size.hpp"
#include "shm/base/warning.hpp"
#include "shm/os/shared_object.hpp"
#include "shm/residency.hpp"
#include "shm/window/segment.hpp"

namespace shm::inline v1::detail {

/// Writes, on standard error, what the window of `made` is. `asked` says in words what was asked
/// for. Rank 0, once all blocks are there.
inline void tell_of(segment const& made, std::string const& asked) {
  std::uint64_t bytes = 0;
  std::map<int, int> blocks_on;
  for (int r = 0; r < made.size(); ++r) {
    bytes += made.block(r).size();
    if (!made.block(r).empty()) ++blocks_on[node_of(made.block(r), made.object_page_bytes())];
  }
  std::string text = "window of " + bytes_in_words(bytes) + ": asked for " + asked + "; got " +
                     std::string(made.header().backend.view()) + ", pages of " +
                     bytes_in_words(made.smallest_pages());
  for (auto const& [node, count] : blocks_on) {
    text += ", " + std::to_string(count) + (count == 1 ? " block" : " blocks");
    text += node == residency::unknown ? " not there yet"
            : node == residency::mixed ? " on several NUMA nodes"
                                       : " on NUMA node " + std::to_string(node);
  }
  warn(made.rank(), made.size(), text);
}

}  // namespace shm::inline v1::detail
