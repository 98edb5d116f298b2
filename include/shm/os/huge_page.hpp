#pragma once
/// @file Huge pages: what the machine has of them, objects made of them, and whether one got them.

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "shm/base/size.hpp"
#include "shm/error.hpp"
#include "shm/os/call.hpp"
#include "shm/os/process.hpp"
#include "shm/os/shared_object.hpp"

namespace shm::inline v1::os {

namespace detail {

/// Returns the number that a file of the kernel begins with; 0 where there is none.
inline std::uint64_t number_in_file(std::string const& path) {
  std::string const text = read_kernel_file(path.c_str());
  std::uint64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

/// Returns the number after `label` in a text of lines "label   number"; 0 where there is none.
inline std::uint64_t number_after(std::string_view label, std::string_view text) {
  auto const at = text.find(label);
  if (at == std::string_view::npos) return 0;
  text.remove_prefix(at + label.size());
  text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  std::uint64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

}  // namespace detail

/// Returns the size in bytes of the machine's reserved huge pages where none is named; 0 where it
/// has none.
///
/// Source: proc(5), /proc/meminfo, Hugepagesize, in kB of 1024 bytes.
inline std::size_t default_huge_page_bytes() {
  static std::size_t const bytes =
      detail::number_after("\nHugepagesize:", read_kernel_file("/proc/meminfo")) * 1024;
  return bytes;
}

/// The reserved huge pages of one size, for the whole machine.
///
/// Source: the kernel's admin-guide, mm/hugetlbpage.rst.
struct huge_page_pool {
  std::uint64_t total = 0;      ///< pages in the pool
  std::uint64_t available = 0;  ///< pages that a new object can have, with those that may be added

  static huge_page_pool of(std::size_t page_bytes) {
    std::string const directory =
        "/sys/kernel/mm/hugepages/hugepages-" + std::to_string(page_bytes / 1024) + "kB/";
    auto const number = [&](char const* name) { return detail::number_in_file(directory + name); };
    huge_page_pool pool{.total = number("nr_hugepages")};
    auto const free = number("free_hugepages");
    auto const more = number("nr_overcommit_hugepages");
    pool.available = free - std::min(free, number("resv_hugepages")) + more -
                     std::min(more, number("surplus_hugepages"));
    return pool;
  }
};

/// Returns the size in bytes of transparent huge pages; 0 where the kernel has none.
///
/// Source: the kernel's admin-guide, mm/transhuge.rst, hpage_pmd_size.
inline std::size_t transparent_huge_page_bytes() {
  static std::size_t const bytes =
      detail::number_in_file("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size");
  return bytes;
}

/// Whether anonymous shared memory that asks for transparent huge pages of `page_bytes` may get
/// some.
///
/// Source: the kernel's admin-guide, mm/transhuge.rst, shmem_enabled: also for each size since
///         Linux 6.9, where `inherit` stands for the setting of all.
inline bool allows_transparent_huge_pages(
    std::size_t page_bytes, std::string const& directory = "/sys/kernel/mm/transparent_hugepage") {
  auto const chosen = [](std::string const& path) {
    std::string const text = read_kernel_file(path.c_str());
    auto const begin = text.find('[');
    auto const end = text.find(']', begin == std::string::npos ? 0 : begin);
    return end == std::string::npos ? std::string{} : text.substr(begin + 1, end - begin - 1);
  };
  auto const all = chosen(directory + "/shmem_enabled");
  if (all == "deny" || all == "force") return all == "force";  // whatever a size has
  auto setting =
      chosen(directory + "/hugepages-" + std::to_string(page_bytes / 1024) + "kB/shmem_enabled");
  if (setting.empty() || setting == "inherit") setting = all;
  return setting == "always" || setting == "within_size" || setting == "advise";
}

/// Makes an object of anonymous memory in reserved huge pages of `page_bytes`.
///
/// Requires: bytes is a multiple of page_bytes.
/// Errors:   errc::unsupported where the machine has no such pages; errc::limit_reached where the
///           pool has too few, with how many. Mapping it reserves all of them, or fails.
/// Source:   memfd_create(2), MFD_HUGETLB and MFD_HUGE_2MB (the binary logarithm at bit 26).
inline shared_object make_huge(char const* label, std::size_t bytes, std::size_t page_bytes) {
  auto const name = bytes_in_words(page_bytes);
  if (page_bytes <= base_page_bytes()) {
    throw error({.cause = errc::unsupported,
                 .subject = "this machine has no reserved huge pages",
                 .remedy = "use a kernel with CONFIG_HUGETLBFS, or transparent huge pages"});
  }
  auto const needed = bytes / page_bytes;
  auto const pool = huge_page_pool::of(page_bytes);
  if (needed > pool.available) {
    throw error({.cause = errc::limit_reached,
                 .subject = std::to_string(needed) + " huge pages of " + name +
                            " are needed, and of " + std::to_string(pool.total) + " there are " +
                            std::to_string(pool.available) + " left",
                 .remedy = "reserve more: sysctl -w vm.nr_hugepages=" +
                           std::to_string(pool.total + needed - pool.available)});
  }
  auto const size_flag = static_cast<unsigned>(std::countr_zero(page_bytes)) << 26U;
  return detail::make_memfd(label, bytes, page_bytes, page_kind::reserved, MFD_HUGETLB | size_flag);
}

/// Asks for transparent huge pages where `pages` are populated from now on. A refusal shows in what
/// they then come in.
///
/// Source: madvise(2), MADV_HUGEPAGE.
inline void prefer_huge_pages(std::span<std::byte> pages) noexcept {
  ::madvise(pages.data(), pages.size(), MADV_HUGEPAGE);
}

/// Returns how many bytes of `pages` this process has mapped in transparent huge pages of shared
/// memory, as far as the kernel counts them apart: in mappings that lie in `pages` altogether.
///
/// Source: proc(5), /proc/pid/smaps, ShmemPmdMapped; KernelPageSize is that of base pages there.
inline std::size_t transparent_bytes_in(std::span<std::byte const> pages) {
  auto const begin = reinterpret_cast<std::uintptr_t>(pages.data());
  std::string const text = read_kernel_file("/proc/self/smaps");
  std::string_view rest = text;
  std::size_t sum = 0;
  bool is_inside = false;
  while (!rest.empty()) {
    auto const line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    auto const* const line_end = line.data() + line.size();
    std::uintptr_t from = 0;
    std::uintptr_t to = 0;
    auto const first = std::from_chars(line.data(), line_end, from, 16);
    if (first.ec == std::errc{} && first.ptr != line_end && *first.ptr == '-' &&
        std::from_chars(first.ptr + 1, line_end, to, 16).ec == std::errc{}) {
      is_inside = begin <= from && to <= begin + pages.size();
    } else if (is_inside && line.starts_with("ShmemPmdMapped:")) {
      sum += detail::number_after("ShmemPmdMapped:", line) * 1024;
    }
  }
  return sum;
}

}  // namespace shm::inline v1::os
