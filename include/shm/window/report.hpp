#pragma once
/// @file What rank 0 tells the user of a window's memory: what was asked for, and what was
/// obtained.

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "shm/base/size.hpp"
#include "shm/base/warning.hpp"
#include "shm/error.hpp"
#include "shm/group/state.hpp"
#include "shm/options.hpp"
#include "shm/os/node_set.hpp"
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
/// than on `nodes`; nothing where that is not known.
inline std::optional<std::size_t> pages_elsewhere(segment const& made, os::node_set const& nodes) {
  if (!made.header().is_populated) return std::nullopt;
  std::optional<std::size_t> count;
  for (int r = 0; r < made.size(); ++r) {
    for (int const node : os::nodes_of(made.block(r), 64, made.object_page_bytes())) {
      if (node < 0) continue;
      count = count.value_or(0) + (nodes.contains(node) ? 0 : 1);
    }
  }
  return count;
}

/// Returns why memory does not lie on the nodes that it was wished on; no failure where it does, or
/// nothing speaks against it.
///
/// `usable`: the nodes that this process may use, empty where unknown. `refusal`: why it may not
/// choose among them, if so. `elsewhere`: how many pages lie on other nodes, where that is known.
inline failure misplacement(os::node_set const& wanted, os::node_set const& usable,
                            failure const& refusal, std::optional<std::size_t> elsewhere) {
  if (!usable.is_empty() && (wanted & usable).is_empty()) {
    return {.cause = errc::permission_denied,
            .subject = "this process may use " + usable.named() + " only, not " + wanted.named(),
            .remedy = os::remedy_for_unusable_nodes};
  }
  if (elsewhere == 0U) return {};
  if (refusal.is_failure()) return refusal;
  if (!elsewhere) return {};
  return {.cause = errc::limit_reached,
          .subject = "no memory is left on " + wanted.named(),
          .remedy =
              "ask for less, or free memory there (grep MemFree "
              "/sys/devices/system/node/node*/meminfo)"};
}

/// Warns, once for each group and kind, of a failure to give a window what it prefers.
inline void warn_once(group_state& state, lesser kind, std::string_view what, failure const& why) {
  if (!why.is_failure() || !state.is_first_warning(kind)) return;
  error const worded(why);
  std::string_view text = worded.what();
  text.remove_prefix(std::string_view("shm: ").size());
  warn(0, state.size(), std::string(what) + ": " + std::string(text));
}

/// Warns of pages that are smaller than those that were tried first. `tried` tells why better
/// memory was not to be had, where that is known.
inline void warn_of_smaller_pages(group_state& state, segment const& made, fallback const& tried) {
  auto const wanted = tried.largest_page_bytes();
  if (made.smallest_pages() >= wanted) return;
  warn_once(state, lesser::pages, "a window gets smaller pages than were asked for",
            tried.why().is_failure()
                ? tried.why()
                : failure{.cause = errc::unsupported,
                          .subject = "the kernel found no free memory in pieces of " +
                                     bytes_in_words(wanted),
                          .remedy = "reserve huge pages (sysctl -w vm.nr_hugepages=…)"});
}

/// Warns of memory on other nodes than the policy prefers, or the window's own place names.
inline void warn_of_other_nodes(group_state& state, segment const& made,
                                segment_policy_ref const& policy, shm::place where) {
  auto const wish = policy.preferred_nodes();
  warn_once(state, lesser::memory, "a window gets ordinary memory", wish.shortfall);
  bool const is_preferred = !wish.nodes.is_empty() && where.number() < 0;
  auto const wanted = where.number() >= 0      ? os::node_set{where.number()}
                      : is_preferred           ? wish.nodes
                      : where.is_interleaved() ? nodes_to_interleave(state.settings())
                                               : os::node_set{};
  // To lie on them is not all that interleaved memory wants, and where it is required to lie on
  // others it is not wanted at all.
  bool const is_spread = where.is_interleaved() && (wanted.count() > 1 || !is_preferred);
  if (wanted.is_empty()) return;
  auto const why = misplacement(wanted, os::usable_nodes(), os::placement_refusal(wanted),
                                is_spread ? std::nullopt : pages_elsewhere(made, wanted));
  warn_once(state, is_preferred ? lesser::memory : lesser::place,
            is_preferred ? "a window gets ordinary memory, at least in part"
                         : "a window does not lie where it was asked to, at least in part",
            why);
}

}  // namespace shm::inline v1::detail
