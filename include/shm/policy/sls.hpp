#pragma once
/// @file The backend `sls`: anonymous memory, on huge pages and in high-bandwidth memory if asked.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "shm/base/settings.hpp"
#include "shm/base/size.hpp"
#include "shm/error.hpp"
#include "shm/options.hpp"
#include "shm/os/huge_page.hpp"
#include "shm/os/memory_node.hpp"
#include "shm/os/placement.hpp"
#include "shm/os/shared_object.hpp"
#include "shm/policy/segment_policy.hpp"

namespace shm::inline v1 {

/// Takes anonymous memory, which has no name and is not bounded by the size of /dev/shm.
///
/// Huge pages are tried in this order: reserved ones (hugetlb), transparent ones, base pages.
/// Windows whose blocks would be padded with more than they have take base pages at once, unless
/// huge ones are required.
struct sls_policy {
  static constexpr std::string_view name = "sls";

  shm::pages pages = shm::pages::base;
  shm::memory memory = shm::memory::ordinary;

  [[nodiscard]] int attempts(settings const&) const noexcept {
    switch (pages) {
      case pages::base:
        return 1;
      case pages::prefer_huge:
        return 3;
      case pages::require_huge:
        break;
    }
    return 2;
  }

  [[nodiscard]] std::size_t page_bytes(int attempt, settings const&) const {
    auto const kind = kind_of(attempt);
    if (kind == os::page_kind::base) return os::base_page_bytes();
    auto const reserved = os::default_huge_page_bytes();
    auto const transparent = os::transparent_huge_page_bytes();
    // Where the kernel has one kind only, its size stands for the other, which `create` refuses.
    auto const bytes = (kind == os::page_kind::reserved && reserved != 0) || transparent == 0
                           ? reserved
                           : transparent;
    return bytes == 0 ? os::base_page_bytes() : bytes;
  }

  /// Errors: those of memfd_create(2); errc::limit_reached where too few huge pages are reserved
  ///         or required high-bandwidth memory has no room; errc::unsupported where the machine has
  ///         neither.
  [[nodiscard]] os::shared_object create(segment_request const& request) const {
    constexpr char const* label = "shm window";
    require_known_options();
    if (memory == memory::require_on_package) require_room_on_package(request);
    switch (kind_of(request.attempt)) {
      case os::page_kind::reserved:
        return os::make_huge(label, request.bytes, request.page_bytes, allowing_transparent());
      case os::page_kind::transparent: {
        require_transparent_pages();
        auto object = os::make_transparent(label, request.bytes, request.page_bytes);
        object.must_be_huge = pages == pages::require_huge;
        return object;
      }
      case os::page_kind::base:
        break;
    }
    return os::make_anonymous(label, request.bytes);
  }

  /// Puts a block into high-bandwidth memory where that is asked for: preferred on the node nearest
  /// to the calling rank's processor; required on all nodes with it, of which the kernel takes the
  /// nearest with room, or on the one that the window names.
  ///
  /// Required memory is not interleaved: the kernel would take other nodes than those as well where
  /// one of them is full.
  ///
  /// Errors: errc::invalid_argument for a node that has no such memory where it is required.
  void place(block_request const& block) const {
    if (memory == memory::ordinary) return place_block(block);
    auto const machine = machine_nodes(block.settings);
    auto const fast = usable_of(machine.high_bandwidth());
    if (memory == memory::require_on_package) {
      auto const& wanted = required_nodes(fast, block.place);
      // Whole pages, also where a neighbour's block shares one: all ranks require the same.
      auto const grown = whole_pages(block);
      return os::set_memory_policy(grown, os::memory_policy::bound, wanted, block.page_bytes);
    }
    if (fast.is_empty() || block.place.number() >= 0) return place_block(block);
    if (block.place.is_interleaved()) {
      return wish_for_nodes(block.mine, os::memory_policy::interleaved, fast, block.page_bytes);
    }
    auto const nearest = machine.nearest(os::current_node(), fast);
    wish_for_nodes(block.mine, os::memory_policy::preferred,
                   nearest ? os::node_set{*nearest} : fast, block.page_bytes);
  }

  /// Says what is asked for: "sls, huge pages preferred, on-package memory required".
  [[nodiscard]] std::string in_words(settings const&) const {
    std::string text(name);
    if (pages == pages::prefer_huge) text += ", huge pages preferred";
    if (pages == pages::require_huge) text += ", huge pages required";
    if (memory == memory::prefer_on_package) text += ", on-package memory preferred";
    if (memory == memory::require_on_package) text += ", on-package memory required";
    return text;
  }

  /// The nodes with high-bandwidth memory, where that is preferred, or why there are none.
  [[nodiscard]] node_preference preferred_nodes(settings const& values) const {
    if (memory != memory::prefer_on_package) return {};
    auto const machine = machine_nodes(values);
    node_preference result{.nodes = usable_of(machine.high_bandwidth()), .shortfall = {}};
    if (result.nodes.is_empty()) result.shortfall = no_fast_memory(machine);
    return result;
  }

 private:
  [[nodiscard]] os::page_kind kind_of(int attempt) const noexcept {
    if (pages == pages::base || attempt == 2) return os::page_kind::base;
    return attempt == 0 ? os::page_kind::reserved : os::page_kind::transparent;
  }

  /// Errors: errc::invalid_argument for a number that is none of an enumeration's.
  void require_known_options() const {
    auto const check = [](std::string_view option, auto value, auto last) {
      if (value <= last) return;
      throw error({.cause = errc::invalid_argument,
                   .subject = "sls_policy::" + std::string(option) + " is " +
                              std::to_string(static_cast<std::uint32_t>(value)) +
                              ", which has no name"});
    };
    check("pages", pages, pages::require_huge);
    check("memory", memory, memory::require_on_package);
  }

  /// Returns why there are no nodes with high-bandwidth memory to use.
  static failure no_fast_memory(os::memory_nodes const& machine) {
    if (!machine.high_bandwidth().is_empty()) {
      return {.cause = errc::permission_denied,
              .subject = "high-bandwidth memory is on " + machine.high_bandwidth().named() +
                         ", and this process may use " + os::usable_nodes().named() + " only",
              .remedy = os::remedy_for_unusable_nodes};
    }
    return {.cause = errc::unsupported,
            .subject = machine.remark().empty() ? "this machine tells of no high-bandwidth memory"
                                                : machine.remark(),
            .remedy =
                "name its NUMA nodes in SHM_HBM_NODES (ls /sys/devices/system/node and numactl "
                "--hardware show all)"};
  }

  /// The block, grown to whole pages: the mapping that it lies in begins and ends on pages.
  static std::span<std::byte> whole_pages(block_request const& block) {
    auto const first = reinterpret_cast<std::uintptr_t>(block.mine.data());
    auto const before = first - round_down(first, block.page_bytes);
    auto const bytes = round_up(before + block.mine.size(), block.page_bytes);
    return {block.mine.data() - before, bytes.value_or(block.mine.size())};
  }

  /// Returns on which nodes required memory may lie.
  ///
  /// Errors: errc::invalid_argument where the window names a node without such memory.
  static os::node_set required_nodes(os::node_set const& fast, shm::place where) {
    if (where.number() < 0) return fast;
    if (fast.contains(where.number())) return os::node_set{where.number()};
    throw error({.cause = errc::invalid_argument,
                 .subject = "window_options::place is node " + std::to_string(where.number()) +
                            ", and on-package memory is required, which is on " + fast.named(),
                 .remedy = "choose one of these, or prefer on-package memory"});
  }

  /// Errors: errc::unsupported where there is no such memory, errc::permission_denied where this
  ///         process may not use it; errc::limit_reached where it has not enough left: bound memory
  ///         that runs out kills instead of failing.
  void require_room_on_package(segment_request const& request) const {
    auto const machine = machine_nodes(request.settings);
    auto const fast = usable_of(machine.high_bandwidth());
    if (fast.is_empty()) throw error(no_fast_memory(machine));
    auto const nodes = required_nodes(fast, request.place);
    bool const is_of_pool = kind_of(request.attempt) == os::page_kind::reserved;
    std::uint64_t left = 0;
    std::uint64_t free = 0;
    for (int const node : nodes.members()) {
      free = checked_add(free, machine.free_bytes(node)).value_or(os::unlimited);
      left += machine.free_huge_pages(node, request.page_bytes) * request.page_bytes;
    }
    if (is_of_pool) {
      // What the kernel adds to the pool on demand comes out of the nodes' free memory.
      left +=
          std::min(os::huge_page_pool::of(request.page_bytes).addable * request.page_bytes, free);
    } else {
      left = free;
    }
    if (request.bytes <= left) return;
    throw error(
        {.cause = errc::limit_reached,
         .subject = bytes_in_words(request.bytes) + " are needed, and " + bytes_in_words(left) +
                    " are left" + (is_of_pool ? " in huge pages" : "") + " on " + nodes.named(),
         .remedy = is_of_pool ? "reserve more there (/sys/devices/system/node/node…/hugepages)"
                              : "ask for less, or free memory there (grep MemFree "
                                "/sys/devices/system/node/node*/meminfo)"});
  }

  /// Returns the command that lets shared memory have transparent huge pages; nothing where it may
  /// have them, or the kernel has none.
  static std::string allowing_transparent() {
    auto const bytes = os::transparent_huge_page_bytes();
    auto const path = bytes == 0 ? std::string{} : os::switch_against_huge_pages(bytes);
    return path.empty() ? path : "allow transparent ones: echo advise >" + path;
  }

  /// Errors: errc::unsupported.
  static void require_transparent_pages() {
    if (os::transparent_huge_page_bytes() == 0) {
      throw error({.cause = errc::unsupported,
                   .subject = "this kernel has no transparent huge pages",
                   .remedy = "reserve huge pages (sysctl -w vm.nr_hugepages=…)"});
    }
    if (auto const remedy = allowing_transparent(); !remedy.empty()) {
      throw error({.cause = errc::unsupported,
                   .subject = "shared memory gets no transparent huge pages here",
                   .remedy = remedy});
    }
  }
};

}  // namespace shm::inline v1
