#pragma once
/// @file The backend `sls`: anonymous memory, on huge pages and in high-bandwidth memory if asked.

#include <cstddef>
#include <cstdint>
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
/// Windows whose mean block is less than half a huge page take base pages at once, unless huge ones
/// are required.
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
    auto const bytes = kind_of(attempt) == os::page_kind::reserved ? os::default_huge_page_bytes()
                       : kind_of(attempt) == os::page_kind::transparent
                           ? os::transparent_huge_page_bytes()
                           : 0;
    return bytes == 0 ? os::base_page_bytes() : bytes;
  }

  /// Errors: those of memfd_create(2); errc::limit_reached where too few huge pages are reserved,
  /// or
  ///         where required high-bandwidth memory has no room; errc::unsupported where the machine
  ///         has neither.
  [[nodiscard]] os::shared_object create(segment_request const& request) const {
    constexpr char const* label = "shm window";
    if (memory == memory::require_on_package) require_room_on_package(request);
    switch (kind_of(request.attempt)) {
      case os::page_kind::reserved:
        return os::make_huge(label, request.bytes, request.page_bytes);
      case os::page_kind::transparent: {
        require_transparent_pages(request);
        auto object = os::make_transparent(label, request.bytes, request.page_bytes);
        object.must_be_huge = pages == pages::require_huge;
        return object;
      }
      case os::page_kind::base:
        break;
    }
    return os::make_anonymous(label, request.bytes);
  }

  /// Puts a block into high-bandwidth memory where that is asked for: on the node that is nearest
  /// to the calling rank's processor, or where the window asks for another.
  void place(block_request const& block) const {
    if (memory == memory::ordinary || block.place.number() >= 0) return place_block(block);
    auto const machine = machine_nodes(block.settings);
    auto const& fast = machine.high_bandwidth();
    if (fast.is_empty()) return place_block(block);
    if (memory == memory::require_on_package) {
      return os::set_memory_policy(block.mine, os::memory_policy::bound, fast, block.page_bytes);
    }
    auto const nearest = machine.nearest(os::current_node(), fast);
    auto const wanted = nearest && !block.place.is_interleaved() ? os::node_set{*nearest} : fast;
    auto const how = block.place.is_interleaved() ? os::memory_policy::interleaved
                                                  : os::memory_policy::preferred;
    os::set_memory_policy(block.mine, how, wanted, block.page_bytes);
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

  /// Returns why `memory` cannot be had as it is preferred, if it cannot.
  [[nodiscard]] failure shortfall(settings const& values) const {
    if (memory != memory::prefer_on_package) return {};
    auto const machine = machine_nodes(values);
    if (machine.high_bandwidth().is_empty()) return no_fast_memory(machine);
    return {};
  }

 private:
  [[nodiscard]] os::page_kind kind_of(int attempt) const noexcept {
    if (pages == pages::base || attempt == 2) return os::page_kind::base;
    return attempt == 0 ? os::page_kind::reserved : os::page_kind::transparent;
  }

  static failure no_fast_memory(os::memory_nodes const& machine) {
    return {.cause = errc::unsupported,
            .subject = machine.remark().empty() ? "this machine tells of no high-bandwidth memory"
                                                : machine.remark(),
            .remedy = "name its NUMA nodes in SHM_HBM_NODES (numactl --hardware shows all)"};
  }

  /// Errors: errc::unsupported where there is no such memory; errc::limit_reached where it has not
  ///         enough left: bound memory that runs out kills instead of failing.
  void require_room_on_package(segment_request const& request) const {
    auto const machine = machine_nodes(request.settings);
    auto const& fast = machine.high_bandwidth();
    if (fast.is_empty()) throw error(no_fast_memory(machine));
    bool const is_of_pool = kind_of(request.attempt) == os::page_kind::reserved;
    std::uint64_t left = 0;
    for (int const node : fast.members()) {
      left += is_of_pool ? machine.free_huge_pages(node, request.page_bytes) * request.page_bytes
                         : machine.free_bytes(node);
    }
    if (request.bytes <= left) return;
    std::string const where = "the NUMA nodes " + fast.in_words();
    throw error(
        {.cause = errc::limit_reached,
         .subject = bytes_in_words(request.bytes) + " are needed, and " + where + " have " +
                    bytes_in_words(left) + " left" + (is_of_pool ? " in reserved huge pages" : ""),
         .remedy = is_of_pool ? "reserve more there (/sys/devices/system/node/node…/hugepages)"
                              : "ask for less, or free memory there (numactl --hardware)"});
  }

  /// Errors: errc::unsupported.
  void require_transparent_pages(segment_request const& request) const {
    if (request.page_bytes > os::base_page_bytes() &&
        os::allows_transparent_huge_pages(request.page_bytes)) {
      return;
    }
    std::string remedy =
        "allow transparent ones (echo advise "
        ">/sys/kernel/mm/transparent_hugepage/shmem_enabled)";
    if (auto const huge = os::default_huge_page_bytes(); huge != 0) {
      remedy += ", or reserve " + std::to_string((request.bytes + huge - 1) / huge) +
                " (sysctl vm.nr_hugepages)";
    }
    throw error({.cause = errc::unsupported,
                 .subject = "shared memory gets no transparent huge pages here, and too few are "
                            "reserved",
                 .remedy = remedy});
  }
};

}  // namespace shm::inline v1
