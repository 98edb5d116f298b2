#pragma once
/// @file What a process has mapped where, as the kernel lists it.

#include <sys/types.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "shm/base/size.hpp"
#include "shm/error.hpp"
#include "shm/os/call.hpp"
#include "shm/os/mapping.hpp"
#include "shm/os/process.hpp"

namespace shm::inline v1::os {

/// A range of addresses of a process that shows one part of one object.
struct memory_area {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
  std::uint64_t offset = 0;  ///< where in the object it begins, in bytes
  std::uint64_t inode = 0;
  std::string device{};
  std::string name{};  ///< tells apart what has one inode number, such as System V segments
  bool is_readable = false;
  bool is_writable = false;
  bool is_shared = false;
  /// The mapping in which it begins, which names it in /proc/<pid>/map_files.
  std::uintptr_t mapping_begin = 0;
  std::uintptr_t mapping_end = 0;

  [[nodiscard]] std::size_t bytes() const noexcept { return end - begin; }
};

/// Whether two areas show the same object.
inline bool is_same_object(memory_area const& a, memory_area const& b) noexcept {
  return a.inode == b.inode && a.device == b.device && a.name == b.name &&
         a.is_shared == b.is_shared;
}

/// Whether one list of areas shows the same memory as another one, which lies `distance` higher,
/// and whether it can be written there alike.
inline bool is_same_memory(std::vector<memory_area> const& here,
                           std::vector<memory_area> const& there, std::uintptr_t distance) {
  return std::ranges::equal(here, there, [distance](memory_area const& a, memory_area const& b) {
    return a.begin + distance == b.begin && a.end + distance == b.end && a.offset == b.offset &&
           a.is_writable == b.is_writable && is_same_object(a, b);
  });
}

namespace detail {

/// Takes the first word of a line off, with the blanks that follow it.
inline std::string_view take_word(std::string_view& line) noexcept {
  auto const word = line.substr(0, line.find(' '));
  line.remove_prefix(word.size());
  line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
  return word;
}

/// Returns a hexadecimal number that is all of a text.
inline std::optional<std::uint64_t> hexadecimal(std::string_view text) noexcept {
  std::uint64_t value = 0;
  auto const [stop, failed] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  if (failed != std::errc{} || stop != text.data() + text.size()) return std::nullopt;
  return value;
}

/// Reads one mapping; nothing where the line is another one of smaps.
///
/// Source: proc(5), /proc/pid/maps: "begin-end rwxs offset device inode name".
inline std::optional<memory_area> area_in_line(std::string_view line) {
  auto const range = take_word(line);
  auto const dash = range.find('-');
  if (dash == std::string_view::npos) return std::nullopt;
  auto const begin = hexadecimal(range.substr(0, dash));
  auto const end = hexadecimal(range.substr(dash + 1));
  auto const access = take_word(line);
  auto const offset = hexadecimal(take_word(line));
  auto const device = take_word(line);
  auto const inode = leading_number(take_word(line));
  if (!begin || !end || access.size() < 4 || !offset || !inode) return std::nullopt;
  return memory_area{.begin = *begin,
                     .end = *end,
                     .offset = *offset,
                     .inode = *inode,
                     .device = std::string(device),
                     .name = std::string(line),
                     .is_readable = access[0] == 'r',
                     .is_writable = access[1] == 'w',
                     .is_shared = access[3] == 's',
                     .mapping_begin = *begin,
                     .mapping_end = *end};
}

}  // namespace detail

/// Returns the areas of a text like /proc/pid/maps that lie in a range, as far as they lie in it.
/// What follows in one object without a gap is one area, in however many mappings: mprotect(2) and
/// madvise(2) split them, and the kernel joins them again.
inline std::vector<memory_area> areas_in(std::string_view maps, std::uintptr_t begin,
                                         std::uintptr_t end) {
  std::vector<memory_area> found;
  for_each_line(maps, [&](std::string_view line) {
    auto area = detail::area_in_line(line);
    if (!area || area->end <= begin || area->begin >= end) return;
    if (area->begin < begin) {
      area->offset += begin - area->begin;
      area->begin = begin;
    }
    area->end = std::min(area->end, end);
    if (!found.empty()) {
      auto& last = found.back();
      if (last.end == area->begin && is_same_object(last, *area) &&
          last.is_readable == area->is_readable && last.is_writable == area->is_writable &&
          last.offset + last.bytes() == area->offset) {
        last.end = area->end;
        return;
      }
    }
    found.push_back(*area);
  });
  return found;
}

/// Reads `maps` or `smaps` of a process.
///
/// Errors: errc::permission_denied for another user's or a non-dumpable process;
///         errc::invalid_argument where there is no such process.
inline std::string maps_of(pid_t process, std::string const& file = "maps") {
  std::string const path = "/proc/" + std::to_string(process) + "/" + file;
  errno = 0;
  auto text = read_kernel_file(path.c_str());
  if (!text.empty()) return text;
  int const number = errno;
  // One that is dead and not reaped has a file with nothing in it.
  if (number == 0 || number == ENOENT || number == ESRCH) {
    throw error({.cause = errc::invalid_argument,
                 .subject = "process " + std::to_string(process) + " does not exist",
                 .remedy = "pass the number that getpid() has returned there, as long as it lives; "
                           "both must be in one PID namespace"});
  }
  throw_refused(number, "the mappings of process " + std::to_string(process),
                "run both as the same user, and let that process be traced (PR_SET_DUMPABLE)");
}

/// Returns the size in bytes of the pages of a mapping of a process. Asking walks all pages of the
/// process, so it is only asked about a mapping that may have huge ones: that begins and ends on a
/// boundary of 16 base pages, the smallest that a machine has.
///
/// Source: proc(5), /proc/pid/smaps, KernelPageSize; the kernel's arm64/hugetlbpage.rst.
inline std::size_t page_bytes_of(pid_t process, memory_area const& area) {
  auto const base = base_page_bytes();
  if (area.mapping_begin % (16 * base) != 0 || area.mapping_end % (16 * base) != 0) return base;
  std::size_t bytes = base;
  bool is_inside = false;
  for_each_line(maps_of(process, "smaps"), [&](std::string_view line) {
    if (auto const other = detail::area_in_line(line)) {
      is_inside = other->begin == area.mapping_begin;
    } else if (is_inside && line.starts_with("KernelPageSize:")) {
      bytes = std::max<std::size_t>(base, number_after(line, "KernelPageSize:").value_or(0) * 1024);
    }
  });
  return bytes;
}

}  // namespace shm::inline v1::os
