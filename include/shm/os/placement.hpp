#pragma once
/// @file On which NUMA node this thread runs, and on which ones memory lies or is to lie.

#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shm/base/size.hpp"
#include "shm/error.hpp"
#include "shm/os/call.hpp"
#include "shm/os/limits.hpp"
#include "shm/os/mapping.hpp"
#include "shm/os/node_set.hpp"
#include "shm/os/process.hpp"

namespace shm::inline v1::os {

/// Where the pages of a range are to lie.
enum class memory_policy {
  preferred,    ///< on these nodes, and on others where they are full
  bound,        ///< on these nodes only: a page that they have no memory for kills the process
  interleaved,  ///< on these nodes in turn, and on others where they are full
};

/// Returns the node of the processor that the calling thread runs on; -1 where unknown.
///
/// Source: getcpu(2).
inline int current_node() noexcept {
  unsigned node = 0;
  return ::syscall(SYS_getcpu, nullptr, &node, nullptr) == 0 ? static_cast<int>(node) : -1;
}

/// What can be done about nodes that exist and are kept from this process.
inline constexpr std::string_view remedy_for_unusable_nodes =
    "allow them to the job (cpuset.mems of its control group, numactl --membind; "
    "Mems_allowed_list in /proc/self/status)";

namespace detail {

// Numbers of linux/mempolicy.h, which comes with the kernel's headers and is not everywhere.
inline constexpr int policy_preferred = 1;
inline constexpr int policy_bind = 2;
inline constexpr int policy_interleave = 3;
inline constexpr int policy_preferred_many = 5;  // since Linux 5.15
inline constexpr unsigned long policy_of_allowed_nodes = 4;

/// The kernel takes one from the number of bits in a node mask before it uses it.
///
/// Source: mm/mempolicy.c, get_nodes and copy_nodes_to_user.
constexpr unsigned long bits_of(std::span<unsigned long const> mask) noexcept {
  return mask.size() * std::numeric_limits<unsigned long>::digits + 1;
}

constexpr std::string_view remedy_for_placement(int number) noexcept {
  switch (number) {
    case EINVAL:
      return "name nodes that have memory and that this process may use (Mems_allowed_list in "
             "/proc/self/status)";
    case EPERM:
      return "allow mbind(2) to this process: a container needs CAP_SYS_NICE or another seccomp "
             "profile";
    case ENOSYS:
      return "run on a kernel with NUMA support (CONFIG_NUMA)";
    default:
      return {};
  }
}

}  // namespace detail

/// Returns the nodes that this thread may take memory from; empty where the kernel does not say.
///
/// Source: get_mempolicy(2), MPOL_F_MEMS_ALLOWED. Containers may refuse it, and show the same as
///         Mems_allowed_list of proc_pid_status(5).
inline node_set usable_nodes() {
  std::array<unsigned long, (node_set::largest + 1) / std::numeric_limits<unsigned long>::digits>
      mask{};
  if (::syscall(SYS_get_mempolicy, nullptr, mask.data(), detail::bits_of(mask), nullptr,
                detail::policy_of_allowed_nodes) == 0) {
    return node_set::of_words(mask);
  }
  std::string const status = read_kernel_file("/proc/self/status");
  constexpr std::string_view label = "\nMems_allowed_list:\t";
  auto const at = status.find(label);
  if (at == std::string::npos) return {};
  std::string_view line = std::string_view(status).substr(at + label.size());
  return node_set::parse(line.substr(0, line.find('\n'))).value_or(node_set{});
}

/// Says where the pages of a range are to lie once they exist. Those that exist already stay.
///
/// A page that the range covers in part counts where its first byte lies in the range: of ranges
/// that follow each other without padding, each page belongs to one.
///
/// Requires: `pages` is mapped; `page_bytes` is the size of its pages where it is hugetlb memory.
/// Effects:  on shared memory the policy belongs to the object: it holds for every process, and the
///           last call wins. The thread's own policy is not touched. Nodes that do not exist, or
///           that this process may not use, are left out unless none would remain. Nothing where
///           memory could not lie elsewhere anyway. A kernel before 5.15 prefers only the first
///           of several nodes.
/// Errors:   errc::invalid_argument where none of the nodes can be had; errc::permission_denied
///           (containers) and errc::unsupported, after which the memory is as usable as before;
///           errc::limit_reached where mappings run out.
/// Source:   mbind(2).
inline void set_memory_policy(std::span<std::byte> pages, memory_policy policy,
                              node_set const& nodes, std::size_t page_bytes = base_page_bytes()) {
  auto const begin = reinterpret_cast<std::uintptr_t>(pages.data());
  auto const first = round_up(begin, page_bytes).value_or(begin);
  auto const last = round_up(begin + pages.size(), page_bytes).value_or(first);
  if (first >= last) return;
  bool const is_preferred = policy == memory_policy::preferred;
  if (is_preferred && nodes.count() == 1 && usable_nodes() == nodes) return;

  int number = nodes.is_empty() ? EINVAL : 0;
  auto const bind = [&](int mode, node_set const& on) {
    auto const mask = on.words();
    number = ::syscall(SYS_mbind, first, last - first, mode, mask.data(), detail::bits_of(mask),
                       0UL) == 0
                 ? 0
                 : errno;
  };
  if (number == 0) {
    bind(is_preferred
             ? nodes.count() == 1 ? detail::policy_preferred : detail::policy_preferred_many
         : policy == memory_policy::bound ? detail::policy_bind
                                          : detail::policy_interleave,
         nodes);
    if (number == EINVAL && is_preferred && nodes.count() > 1) {
      bind(detail::policy_preferred, {nodes.members().front()});
    }
  }
  if (number == 0) return;
  if (number == ENOMEM) throw error(no_room_for_mapping(last - first, "placing"));
  std::string const subject =
      "placing " + bytes_in_words(last - first) + " on NUMA nodes: " + nodes.in_words();
  auto const remedy = detail::remedy_for_placement(number);
  if (number == EINVAL) {
    throw error(
        {.cause = errc::invalid_argument, .system = number, .subject = subject, .remedy = remedy});
  }
  throw_refused(number, subject, remedy);
}

/// Returns why this process may not say that memory is to lie on these nodes, tried on a page of
/// its own; no failure where it may.
inline failure placement_refusal(node_set const& nodes) {
  try {
    auto const page = mapping::shared_with_children(base_page_bytes());
    set_memory_policy(page.bytes(), memory_policy::preferred, nodes);
  } catch (error const& refused) {
    auto why = refused.details();
    why.subject = "placing memory on " + nodes.named();
    return why;
  }
  return {};
}

/// Returns the nodes on which up to `most` evenly spread pages of a range lie, -1 for a page that
/// is not there; nothing where the system cannot say. No memory is needed for it: a page that no
/// process has touched is not made.
///
/// Requires: `page_bytes` is the size of the pages where they are hugetlb memory. There the kernel
///           does not tell whether a page exists, and looking makes it, out of what is reserved.
/// Source:   move_pages(2), which knows a page only once this process has touched it, and
///           mincore(2). Pages are touched by process_vm_readv(2): it fails where a load would
///           kill, and does not race with the stores of others.
inline std::vector<int> nodes_of(std::span<std::byte const> memory, std::size_t most,
                                 std::size_t page_bytes = base_page_bytes()) {
  if (memory.empty() || most == 0) return {};
  auto const begin = reinterpret_cast<std::uintptr_t>(memory.data());
  auto const first = round_down(begin, page_bytes);
  auto const count = (begin + memory.size() - 1 - first) / page_bytes + 1;
  auto const looked_at = std::min(count, most);
  std::vector<void*> pages(looked_at);
  std::vector<int> nodes(looked_at, -1);
  for (std::size_t i = 0; i < looked_at; ++i) {
    auto const page = count / looked_at * i + count % looked_at * i / looked_at;
    pages[i] = reinterpret_cast<void*>(first + page * page_bytes);
    unsigned char residency = 0;
    bool const is_known = ::mincore(pages[i], base_page_bytes(), &residency) == 0;
    if (is_known && ((residency & 1U) != 0 || page_bytes > base_page_bytes())) {
      std::byte value{};
      iovec const to{.iov_base = &value, .iov_len = 1};
      iovec const from{.iov_base = pages[i], .iov_len = 1};
      static_cast<void>(::process_vm_readv(::getpid(), &to, 1, &from, 1, 0));
    }
  }
  if (::syscall(SYS_move_pages, 0, looked_at, pages.data(), nullptr, nodes.data(), 0) != 0) {
    return {};
  }
  std::ranges::replace_if(nodes, [](int node) { return node < 0; }, -1);
  return nodes;
}

}  // namespace shm::inline v1::os
