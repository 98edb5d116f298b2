#pragma once
/// @file What rank 0 tells the user of a window's memory: what was asked for, and what was
/// obtained.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "shm/base/size.hpp"
#include "shm/base/warning.hpp"
#include "shm/error.hpp"
#include "shm/group/state.hpp"
#include "shm/os/placement.hpp"
#include "shm/policy/segment_policy.hpp"
#include "shm/residency.hpp"
#include "shm/window/fallback.hpp"
#include "shm/window/segment.hpp"

namespace shm::inline v1::detail {

/// Writes one line of what a window is, once all blocks are there.
inline void tell_of(segment const& made, std::string const& asked) {
  std::uint64_t bytes = 0;
  std::map<int, int> blocks_on;
  for (int r = 0; r < made.size(); ++r) {
    bytes += made.block(r).size();
    if (!made.block(r).empty()) ++blocks_on[node_of_block(made, r)];
  }
  std::string text = "window of " + bytes_in_words(bytes) + ": asked for " + asked + "; got " +
                     std::string(made.header().backend.view()) + ", pages of " +
                     bytes_in_words(made.smallest_pages());
  for (auto const& [node, count] : blocks_on) {
    text += ", " + std::to_string(count) + (count == 1 ? " block" : " blocks");
    text += node == residency::unknown && !made.header().is_populated ? " not there yet"
            : node == residency::unknown                              ? " on unknown NUMA nodes"
            : node == residency::mixed                                ? " on several NUMA nodes"
                                       : " on NUMA node " + std::to_string(node);
  }
  warn(made.rank(), made.size(), text);
}

/// Returns how many of the pages of all blocks that are looked at, up to 64 of each, lie elsewhere
/// than on `nodes`.
inline std::size_t pages_elsewhere(segment const& made, os::node_set const& nodes) {
  std::size_t count = 0;
  for (int r = 0; r < made.size(); ++r) {
    auto const found = os::nodes_of(made.block(r), 64, made.object_page_bytes());
    count += static_cast<std::size_t>(
        std::ranges::count_if(found, [&](int node) { return node >= 0 && !nodes.contains(node); }));
  }
  return count;
}

/// Warns, once for each group, of pages that are smaller than those that were tried first, and once
/// of memory on other nodes than preferred. `tried` tells why better memory was not to be had,
/// where that is known.
inline void warn_of_lesser_memory(group_state& state, segment const& made,
                                  segment_policy_ref const& policy, fallback const& tried) {
  auto const wanted_page_bytes = tried.largest_page_bytes();
  auto const tell = [&](std::string_view what, failure const& reason) {
    error const worded(reason);
    std::string_view text = worded.what();
    text.remove_prefix(std::string_view("shm: ").size());
    warn(0, state.size(), std::string(what) + ": " + std::string(text));
  };
  if (made.smallest_pages() < wanted_page_bytes && state.is_first_warning(lesser::pages)) {
    tell("a window gets smaller pages than were asked for",
         tried.why().is_failure()
             ? tried.why()
             : failure{.cause = errc::unsupported,
                       .subject = "the kernel found no free memory in pieces of " +
                                  bytes_in_words(wanted_page_bytes),
                       .remedy = "reserve huge pages (sysctl -w vm.nr_hugepages=…)"});
  }
  auto const wish = policy.preferred_nodes();
  if (wish.shortfall.is_failure()) {
    if (state.is_first_warning(lesser::memory)) {
      tell("a window gets ordinary memory", wish.shortfall);
    }
  } else if (!wish.nodes.is_empty() && made.header().is_populated) {
    auto const elsewhere = pages_elsewhere(made, wish.nodes);
    if (elsewhere > 0 && state.is_first_warning(lesser::memory)) {
      tell("a window gets ordinary memory in part",
           {.cause = errc::limit_reached,
            .subject = "the NUMA nodes " + wish.nodes.in_words() + " are full",
            .remedy = "ask for less, or free memory there (numactl --hardware)"});
    }
  }
}

}  // namespace shm::inline v1::detail
