#pragma once
/// @file Huge pages: what the machine has of them, objects made of them, and whether one got them.

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "shm/base/size.hpp"
#include "shm/error.hpp"
#include "shm/os/call.hpp"
#include "shm/os/file_descriptor.hpp"
#include "shm/os/process.hpp"
#include "shm/os/shared_object.hpp"

namespace shm::inline v1::os {

namespace detail {

/// Returns the number that a file of the kernel begins with; 0 where there is none.
inline std::uint64_t number_in_file(std::string const& path) {
  return leading_number(read_kernel_file(path.c_str())).value_or(0);
}

}  // namespace detail

/// Returns the size in bytes of the machine's reserved huge pages where none is named; 0 where it
/// has none.
///
/// Source: proc(5), /proc/meminfo, Hugepagesize, in kB of 1024 bytes.
inline std::size_t default_huge_page_bytes() {
  static std::size_t const bytes =
      number_after(read_kernel_file("/proc/meminfo"), "\nHugepagesize:").value_or(0) * 1024;
  return bytes;
}

/// The reserved huge pages of one size, for the whole machine.
///
/// Source: the kernel's admin-guide, mm/hugetlbpage.rst.
struct huge_page_pool {
  std::uint64_t total = 0;      ///< pages in the pool
  std::uint64_t available = 0;  ///< pages that a new object can have, with those that may be added

  std::uint64_t addable = 0;  ///< how many of these the kernel would add to the pool on demand

  static huge_page_pool of(std::size_t page_bytes, std::string const& sysfs = "/sys") {
    std::string const directory =
        sysfs + "/kernel/mm/hugepages/hugepages-" + std::to_string(page_bytes / 1024) + "kB/";
    auto const number = [&](char const* name) { return detail::number_in_file(directory + name); };
    huge_page_pool pool{.total = number("nr_hugepages")};
    auto const free = number("free_hugepages");
    auto const more = number("nr_overcommit_hugepages");
    pool.addable = more - std::min(more, number("surplus_hugepages"));
    pool.available = free - std::min(free, number("resv_hugepages")) + pool.addable;
    return pool;
  }

  /// "3 are left of 8", for messages.
  [[nodiscard]] std::string left_in_words() const {
    return std::to_string(available) + (available == 1 ? " is left of " : " are left of ") +
           std::to_string(total) +
           (addable > 0 ? " and " + std::to_string(addable) + " that may be added" : "");
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

/// Returns the path of the switch that denies transparent huge pages of `page_bytes` to anonymous
/// shared memory that asks for them; nothing where it may get some.
///
/// Source: the kernel's admin-guide, mm/transhuge.rst, shmem_enabled: also for each size since
///         Linux 6.9, where `inherit` stands for the setting of all.
inline std::string switch_against_huge_pages(
    std::size_t page_bytes, std::string const& directory = "/sys/kernel/mm/transparent_hugepage") {
  auto const chosen = [](std::string const& path) {
    std::string const text = read_kernel_file(path.c_str());
    auto const begin = text.find('[');
    auto const end = text.find(']', begin == std::string::npos ? 0 : begin);
    return end == std::string::npos ? std::string{} : text.substr(begin + 1, end - begin - 1);
  };
  std::string const general = directory + "/shmem_enabled";
  auto const all = chosen(general);
  if (all == "force") return {};  // whatever a size has
  if (all == "deny") return general;
  auto path = directory + "/hugepages-" + std::to_string(page_bytes / 1024) + "kB/shmem_enabled";
  auto setting = chosen(path);
  if (setting.empty() || setting == "inherit") {
    path = general;
    setting = all;
  }
  bool const is_allowed = setting == "always" || setting == "within_size" || setting == "advise";
  return is_allowed ? std::string{} : path;
}

/// Makes an object of anonymous memory in reserved huge pages of `page_bytes`.
///
/// Requires: bytes is a multiple of page_bytes.
/// Errors:   errc::unsupported where the machine has no such pages; errc::limit_reached where the
///           pool has too few, with how many and, besides the command that helps, with what to do
///           `instead`. Mapping it reserves all of them, or fails.
/// Source:   memfd_create(2), MFD_HUGETLB and MFD_HUGE_2MB (the binary logarithm at bit 26).
inline shared_object make_huge(char const* label, std::size_t bytes, std::size_t page_bytes,
                               std::string_view instead = {}) {
  auto const name = bytes_in_words(page_bytes);
  if (page_bytes <= base_page_bytes()) {
    throw error({.cause = errc::unsupported,
                 .subject = "this machine has no reserved huge pages",
                 .remedy = "use a kernel with CONFIG_HUGETLBFS, or transparent huge pages"});
  }
  auto const needed = bytes / page_bytes;
  auto const pool = huge_page_pool::of(page_bytes);
  if (needed > pool.available) {
    std::string remedy = "reserve more: sysctl -w vm.nr_hugepages=" +
                         std::to_string(pool.total + needed - pool.available);
    if (!instead.empty()) remedy.append(", or ").append(instead);
    throw error({.cause = errc::limit_reached,
                 .subject = std::to_string(needed) +
                            (needed == 1 ? " huge page of " + name + " is"
                                         : " huge pages of " + name + " are") +
                            " needed, and " + pool.left_in_words(),
                 .remedy = remedy});
  }
  auto const size_flag = static_cast<unsigned>(std::countr_zero(page_bytes)) << 26U;
  return detail::make_memfd(label, bytes, page_bytes, page_kind::reserved, MFD_HUGETLB | size_flag);
}

/// Asks for transparent huge pages where `pages` are populated from now on; returns whether the
/// kernel has listened. Whether it finds any shows in what they then come in.
///
/// Source: madvise(2), MADV_HUGEPAGE.
inline bool prefer_huge_pages(std::span<std::byte> pages) noexcept {
  return ::madvise(pages.data(), pages.size(), MADV_HUGEPAGE) == 0;
}

/// Whether this process, or one that has started it, has done without transparent huge pages.
///
/// Source: prctl(2), PR_GET_THP_DISABLE.
inline bool has_huge_pages_disabled() noexcept {
  return ::prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0) > 0;
}

namespace detail {

/// Argument of the ioctl PAGEMAP_SCAN, and what it finds, which older headers lack.
///
/// Source: the kernel's include/uapi/linux/fs.h, since Linux 6.7; admin-guide, mm/pagemap.rst.
struct page_scan {
  std::uint64_t size = sizeof(page_scan);
  std::uint64_t flags = 0;
  std::uint64_t start = 0;
  std::uint64_t end = 0;
  std::uint64_t walk_end = 0;
  std::uint64_t regions = 0;
  std::uint64_t region_count = 0;
  std::uint64_t most_pages = 0;
  std::uint64_t inverted = 0;
  std::uint64_t all_of = 0;
  std::uint64_t any_of = 0;
  std::uint64_t returned = 0;
};
struct page_region {
  std::uint64_t start = 0;
  std::uint64_t end = 0;
  std::uint64_t categories = 0;
};

/// Counts what of a range is mapped in huge pages; nothing where the kernel cannot scan.
inline std::optional<std::size_t> scan_huge_pages(std::uintptr_t begin, std::uintptr_t end) {
  constexpr std::uint64_t is_huge = 1U << 6U;
  file_descriptor const file{
      retry([] { return ::open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC); })};
  std::array<page_region, 64> regions;
  std::size_t sum = 0;
  while (file.is_open()) {
    page_scan scan{.start = begin,
                   .end = end,
                   .regions = reinterpret_cast<std::uintptr_t>(regions.data()),
                   .region_count = regions.size(),
                   .all_of = is_huge,
                   .returned = is_huge};
    auto const found =
        retry([&] { return ::ioctl(file.number(), _IOWR('f', 16, page_scan), &scan); });
    if (found < 0) break;
    for (auto const& one : std::span(regions).first(static_cast<std::size_t>(found))) {
      sum += one.end - one.start;
    }
    if (scan.walk_end >= end) return sum;
    begin = scan.walk_end;
  }
  return std::nullopt;
}

/// The same from the counts of the mappings that lie in the range altogether. It walks all pages of
/// the process.
///
/// Source: proc(5), /proc/pid/smaps, ShmemPmdMapped; KernelPageSize is that of base pages there.
inline std::size_t sum_huge_pages(std::uintptr_t begin, std::uintptr_t end) {
  std::string const text = read_kernel_file("/proc/self/smaps");
  std::size_t sum = 0;
  bool is_inside = false;
  for_each_line(text, [&](std::string_view line) {
    auto const* const line_end = line.data() + line.size();
    std::uintptr_t from = 0;
    std::uintptr_t to = 0;
    auto const first = std::from_chars(line.data(), line_end, from, 16);
    if (first.ec == std::errc{} && first.ptr != line_end && *first.ptr == '-' &&
        std::from_chars(first.ptr + 1, line_end, to, 16).ec == std::errc{}) {
      is_inside = begin <= from && to <= end;
    } else if (is_inside && line.starts_with("ShmemPmdMapped:")) {
      sum += number_after(line, "ShmemPmdMapped:").value_or(0) * 1024;
    }
  });
  return sum;
}

}  // namespace detail

/// Returns how many bytes of `pages`, transparent huge pages of shared memory or none, this process
/// has mapped as such. A kernel before 6.7 counts only in mappings that lie in `pages` altogether.
inline std::size_t transparent_bytes_in(std::span<std::byte const> pages) {
  auto const begin = reinterpret_cast<std::uintptr_t>(pages.data());
  auto const end = begin + pages.size();
  if (auto const scanned = detail::scan_huge_pages(begin, end)) return *scanned;
  return detail::sum_huge_pages(begin, end);
}

}  // namespace shm::inline v1::os
