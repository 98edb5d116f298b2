#pragma once
/// @file The machine's NUMA nodes: which have memory, which are high-bandwidth, what is free on
/// them.

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "shm/os/limits.hpp"
#include "shm/os/mapping.hpp"
#include "shm/os/node_set.hpp"
#include "shm/os/process.hpp"

namespace shm::inline v1::os {

/// One NUMA node, as the system describes it.
struct memory_node {
  int number = 0;
  bool has_memory = false;
  bool has_processors = false;
  std::vector<int> distances;          ///< to each node, in ascending order; empty: unknown
  std::uint64_t read_megabytes_s = 0;  ///< bandwidth from the nearest processors; 0: unknown
};

/// The NUMA nodes of the machine. What they are is read once; what is free on them, anew each time.
/// A kernel without NUMA shows none.
///
/// Source: the kernel's ABI/stable/sysfs-devices-node and admin-guide/mm/numaperf.rst.
class memory_nodes {
 public:
  /// Reads the nodes below `sysfs`; `proc` has what the kernel keeps of them. `high_bandwidth_list`
  /// says which of them are high-bandwidth (the text of SHM_HBM_NODES); where it is empty, or no
  /// list, the machine is asked.
  explicit memory_nodes(std::string_view sysfs = "/sys", std::string_view high_bandwidth_list = {},
                        std::string_view proc = "/proc")
      : directory_(std::string(sysfs) + "/devices/system/node/"),
        zoneinfo_(std::string(proc) + "/zoneinfo") {
    read_nodes();
    if (!take_list(high_bandwidth_list)) high_bandwidth_ = detect(sysfs);
  }

  [[nodiscard]] std::span<memory_node const> all() const noexcept { return nodes_; }
  [[nodiscard]] bool exists(int number) const noexcept { return find(number) != nullptr; }
  [[nodiscard]] node_set with_memory() const { return those(&memory_node::has_memory); }
  /// The nodes with memory that is not high-bandwidth.
  [[nodiscard]] node_set ordinary() const { return with_memory() - high_bandwidth_; }
  /// The nodes with high-bandwidth memory. The first of these that names any decides:
  /// 1. the list given to the constructor;
  /// 2. the firmware: a read bandwidth of at least twice that of the nearest node with processors;
  /// 3. openEuler's driver for such memory, which lists its nodes;
  /// 4. the numbering of Kunpeng 920F: n + 16 is the memory on the package of node n. Only where
  ///    that node has memory, no processors, and no such node is nearer to n; and not where the
  ///    firmware has given the bandwidths of both, and so denied it.
  [[nodiscard]] node_set const& high_bandwidth() const noexcept { return high_bandwidth_; }
  /// What is to be said about the list given to the constructor, in one line; empty: nothing.
  [[nodiscard]] std::string const& remark() const noexcept { return remark_; }

  /// Returns the distance between two nodes; the kernel's own default where it does not say.
  ///
  /// Source: include/linux/topology.h, LOCAL_DISTANCE and REMOTE_DISTANCE.
  [[nodiscard]] int distance(int from, int to) const noexcept {
    auto const* const node = find(from);
    auto const* const other = find(to);
    if (node != nullptr && other != nullptr && !node->distances.empty()) {
      return node->distances[static_cast<std::size_t>(other - nodes_.data())];
    }
    return from == to ? 10 : 20;
  }

  /// Returns the node of `among` at the smallest distance from `from`, of several the one with the
  /// lowest number; nothing where none of them exists.
  [[nodiscard]] std::optional<int> nearest(int from, node_set const& among) const {
    std::optional<int> best;
    for (auto const& node : nodes_) {
      if (!among.contains(node.number)) continue;
      if (!best || distance(from, node.number) < distance(from, *best)) best = node.number;
    }
    return best;
  }

  /// Returns how many bytes memory that is bound to a node can still take before the kernel kills
  /// for it: what is free, with the file cache that it can drop, less what it keeps for itself and
  /// 2 % of the node for its lists and tables; `unlimited` where it does not say.
  ///
  /// Cost:   reads /proc/zoneinfo, whose length grows with processors times zones: 0.05 ms on two
  ///         processors.
  /// Source: drivers/base/node.c, node_read_meminfo; Documentation/mm/physical_memory.rst.
  [[nodiscard]] std::uint64_t free_bytes(int number) const {
    std::string const text = read(number, "/meminfo");
    auto const free = bytes_in(text, "MemFree:");
    if (!free) return unlimited;
    auto const total = bytes_in(text, "MemTotal:").value_or(0);
    auto const sum = *free + bytes_in(text, "Active(file):").value_or(0) +
                     bytes_in(text, "Inactive(file):").value_or(0);
    // Where it is not told: 5 %, the most that transparent huge pages make the kernel keep.
    auto const kept = kept_bytes(number).value_or(total / 20) + total / 50;
    return sum - std::min(sum, kept);
  }

  /// Returns how many huge pages of this size are free in a node's pool. Windows of others may have
  /// reserved some of them: a pool does not tell by node. Pages that the kernel would add on demand
  /// are not among them.
  ///
  /// Source: the kernel's admin-guide/mm/hugetlbpage.rst.
  [[nodiscard]] std::uint64_t free_huge_pages(int number, std::size_t page_bytes) const {
    return number_in(read(
        number, "/hugepages/hugepages-" + std::to_string(page_bytes / 1024) + "kB/free_hugepages"));
  }

 private:
  [[nodiscard]] memory_node const* find(int number) const noexcept {
    auto const found = std::ranges::lower_bound(nodes_, number, {}, &memory_node::number);
    return found != nodes_.end() && found->number == number ? &*found : nullptr;
  }

  [[nodiscard]] node_set those(bool memory_node::* has) const {
    node_set result;
    for (auto const& node : nodes_) {
      if (node.*has) result.add(node.number);
    }
    return result;
  }

  [[nodiscard]] std::string read(int number, std::string const& file) const {
    return read_kernel_file((directory_ + "node" + std::to_string(number) + file).c_str());
  }

  static std::uint64_t number_in(std::string_view text) noexcept {
    return leading_number(text).value_or(0);
  }

  /// Returns what follows `label` in a node's meminfo, whose unit is 1024 bytes.
  static std::optional<std::uint64_t> bytes_in(std::string_view meminfo, std::string_view label) {
    auto const at = meminfo.find(label);
    if (at == std::string_view::npos) return std::nullopt;
    return number_after(meminfo.substr(at), label).value_or(0) * 1024;
  }

  /// Returns how much of a node's free memory the kernel gives to no process: in each zone its low
  /// watermark "min" (vm.min_free_kbytes), and what is kept for uses that need that zone.
  ///
  /// Source: mm/vmstat.c, zoneinfo_show_print, in pages; mm/page_alloc.c, __zone_watermark_ok;
  ///         mm/khugepaged.c, set_recommended_min_free_kbytes, which raises "min" to up to 5 %.
  [[nodiscard]] std::optional<std::uint64_t> kept_bytes(int number) const {
    std::string const text = read_kernel_file(zoneinfo_.c_str());
    std::string const node = "Node " + std::to_string(number) + ", zone";
    std::optional<std::uint64_t> pages;
    bool is_of_node = false;
    std::uint64_t free = 0;
    std::uint64_t least = 0;
    for_each_line(text, [&](std::string_view line) {
      if (line.starts_with("Node ")) is_of_node = line.starts_with(node);
      if (!is_of_node) return;
      if (auto const value = number_after(line, "pages free")) free = *value;
      if (auto const value = number_after(line, "min ")) least = *value;
      if (!number_after(line, "protection:")) return;  // a list; the last is for users' pages
      auto const last = number_in(line.substr(line.find_last_of(" (") + 1));
      pages = pages.value_or(0) + std::min(free, least + last);
    });
    if (!pages) return std::nullopt;
    return *pages * base_page_bytes();
  }

  /// Returns the number that follows `label` at the beginning of a line, after blanks and brackets.
  static std::optional<std::uint64_t> number_after(std::string_view line, std::string_view label) {
    auto const skip = [&line](std::string_view what) {
      line.remove_prefix(std::min(line.find_first_not_of(what), line.size()));
    };
    skip(" ");
    if (!line.starts_with(label)) return std::nullopt;
    line.remove_prefix(label.size());
    skip(" (");
    return number_in(line);
  }

  void read_nodes() {
    auto const online = node_set::parse(read_kernel_file((directory_ + "online").c_str()));
    if (!online) return;
    // Kernels before 3.13 lack the file; one that has it always names a node.
    auto const list =
        node_set::parse(read_kernel_file((directory_ + "has_memory").c_str())).value_or(node_set{});
    for (int const number : online->members()) {
      memory_node node;
      node.number = number;
      node.has_memory = list.is_empty()
                            ? bytes_in(read(number, "/meminfo"), "MemTotal:").value_or(0) > 0
                            : list.contains(number);
      node.has_processors =
          read(number, "/cpulist").find_first_of("0123456789") != std::string::npos;
      node.distances = distances_in(read(number, "/distance"));
      if (node.distances.size() != static_cast<std::size_t>(online->count())) {
        node.distances.clear();
      }
      // access0 may count from an accelerator, access1 never does; kernels before 5.10 lack it.
      for (char const* const from : {"/access1", "/access0"}) {
        if (node.read_megabytes_s != 0) break;
        node.read_megabytes_s =
            number_in(read(number, std::string(from) + "/initiators/read_bandwidth"));
      }
      nodes_.push_back(std::move(node));
    }
  }

  static std::vector<int> distances_in(std::string_view text) {
    std::vector<int> result;
    for (char const* at = text.data();;) {
      while (at != text.data() + text.size() && *at == ' ') ++at;
      int value = 0;
      auto const [end, failed] = std::from_chars(at, text.data() + text.size(), value);
      if (failed != std::errc{}) return result;
      result.push_back(value);
      at = end;
    }
  }

  /// Takes the user's list; false where there is none.
  bool take_list(std::string_view text) {
    if (text.empty()) return false;
    std::string const name = "SHM_HBM_NODES=" + std::string(text);
    auto const list = node_set::parse(text);
    if (!list) {
      remark_ = name + " is not a list of nodes up to " + std::to_string(node_set::largest) +
                ", such as 2,16-31; taken: what the machine says";
      return false;
    }
    if (auto const without = *list - with_memory(); !without.is_empty()) {
      remark_ = name + " names nodes without memory, which are left out: " + without.in_words();
    }
    high_bandwidth_ = *list & with_memory();
    return true;
  }

  [[nodiscard]] node_set detect(std::string_view sysfs) const {
    auto found = by_bandwidth();
    if (found.is_empty()) found = by_driver(sysfs) & with_memory();
    if (found.is_empty()) found = by_numbering();
    return found;
  }

  [[nodiscard]] node_set by_bandwidth() const {
    node_set local;
    for (auto const& node : nodes_) {
      if (node.has_processors && node.read_megabytes_s > 0) local.add(node.number);
    }
    node_set result;
    for (auto const& node : nodes_) {
      auto const near = nearest(node.number, local);
      if (near && node.has_memory && node.read_megabytes_s / 2 >= find(*near)->read_megabytes_s) {
        result.add(node.number);
      }
    }
    return result;
  }

  /// Source: openEuler's drivers/soc/hisilicon/hisi_hbmdev.c: a line for each node of such memory,
  ///         its number and the list of the nodes with the processors near it.
  static node_set by_driver(std::string_view sysfs) {
    std::string const text = read_kernel_file(
        (std::string(sysfs) + "/kernel/hbm_memory/memory_topo/memory_locality").c_str());
    node_set result;
    for_each_line(text, [&](std::string_view line) {
      if (auto const node = node_set::parse(line.substr(0, line.find(' ')))) result |= *node;
    });
    return result;
  }

  [[nodiscard]] node_set by_numbering() const {
    auto const candidates = with_memory() - those(&memory_node::has_processors);
    node_set result;
    for (auto const& node : nodes_) {
      int const other = node.number + 16;
      if (!node.has_processors || !candidates.contains(other)) continue;
      if (node.read_megabytes_s > 0 && find(other)->read_megabytes_s > 0) continue;
      auto const near = nearest(node.number, candidates);
      if (distance(node.number, other) == distance(node.number, *near)) result.add(other);
    }
    return result;
  }

  std::string directory_;
  std::string zoneinfo_;
  std::vector<memory_node> nodes_;
  node_set high_bandwidth_;
  std::string remark_;
};

}  // namespace shm::inline v1::os
