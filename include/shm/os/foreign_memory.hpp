#pragma once
/// @file Memory of another process, mapped into this one.

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "shm/base/size.hpp"
#include "shm/error.hpp"
#include "shm/os/call.hpp"
#include "shm/os/file_descriptor.hpp"
#include "shm/os/huge_page.hpp"
#include "shm/os/limits.hpp"
#include "shm/os/mapping.hpp"
#include "shm/os/memory_area.hpp"
#include "shm/os/process.hpp"
#include "shm/os/zdax.hpp"

namespace shm::inline v1::os {

namespace detail {

inline std::string in_hexadecimal(std::uintptr_t value) {
  std::array<char, 2 * sizeof value> text{};
  auto const end = std::to_chars(text.data(), text.data() + text.size(), value, 16).ptr;
  return {text.data(), end};
}

inline std::string in_words(foreign_range const& range) {
  return bytes_in_words(range.bytes) + " at 0x" + in_hexadecimal(range.begin) + " of process " +
         std::to_string(range.process);
}

/// Throws the error of memory that is not there any more.
[[noreturn]] inline void refuse_changed(foreign_range const& source) {
  throw_refused(ESTALE, in_words(source) + " have changed while they were mapped",
                "keep them mapped there until they are attached");
}

constexpr int protection_of(memory_area const& area) noexcept {
  return area.is_writable ? PROT_READ | PROT_WRITE : PROT_READ;
}

/// Maps an area at `where` through a path in /proc that leads to its object. Returns 0 or errno.
/// Opens nothing but files: opening a device may have effects.
inline int map_through(std::string const& path, memory_area const& area, std::byte* where) {
  struct stat status{};
  if (::stat(path.c_str(), &status) != 0) return errno;
  if (!S_ISREG(status.st_mode)) return ENODEV;
  int const access = area.is_writable ? O_RDWR : O_RDONLY;
  file_descriptor const file{
      retry([&] { return ::open(path.c_str(), access | O_CLOEXEC | O_NOCTTY | O_NONBLOCK); })};
  if (!file.is_open()) return errno;
  void* const got = ::mmap(where, area.bytes(), protection_of(area), MAP_SHARED | MAP_FIXED,
                           file.number(), static_cast<off_t>(area.offset));
  return got == MAP_FAILED ? errno : 0;
}

/// Maps an area at `where` a second time where this process has its object mapped already, as it
/// has the windows that it shares. Needs no privileges and no descriptor. Returns whether it could.
///
/// Source: mremap(2), an old size of zero.
inline bool map_again(memory_area const& area, std::byte* where) {
  for (auto const& own : areas_in(maps_of(::getpid()), 0, static_cast<std::uintptr_t>(-1))) {
    if (!is_same_object(own, area) || own.offset > area.offset ||
        own.offset + own.bytes() <= area.offset) {
      continue;
    }
    auto* const from = reinterpret_cast<void*>(own.begin + (area.offset - own.offset));
    if (::mremap(from, 0, area.bytes(), MREMAP_MAYMOVE | MREMAP_FIXED, where) != MAP_FAILED &&
        ::mprotect(where, area.bytes(), protection_of(area)) == 0) {
      return true;
    }
  }
  return false;
}

/// Maps an area at `where` through a descriptor that its process still has open. Returns whether it
/// could.
inline bool map_open_file(pid_t process, memory_area const& area, std::byte* where) {
  std::string const directory = "/proc/" + std::to_string(process) + "/fd/";
  auto const close = [](DIR* list) { ::closedir(list); };
  std::unique_ptr<DIR, decltype(close)> const list(::opendir(directory.c_str()), close);
  while (dirent const* const entry = list ? ::readdir(list.get()) : nullptr) {
    std::string const path = directory + entry->d_name;
    struct stat status{};
    std::array<char, 4096> name;
    if (::stat(path.c_str(), &status) != 0 || status.st_ino != area.inode) continue;
    auto const length = ::readlink(path.c_str(), name.data(), name.size());
    if (length < 0 ||
        std::string_view(name.data(), static_cast<std::size_t>(length)) != area.name) {
      continue;
    }
    if (map_through(path, area, where) == 0) return true;
  }
  return false;
}

/// Maps an area of a process at `where`, in whichever way it can.
///
/// Source: proc(5), /proc/pid/map_files: reading it needs CAP_SYS_ADMIN or CAP_CHECKPOINT_RESTORE.
inline void map_area(foreign_range const& source, memory_area const& area, std::byte* where) {
  if (map_again(area, where)) return;
  int const number =
      map_through("/proc/" + std::to_string(source.process) + "/map_files/" +
                      in_hexadecimal(area.mapping_begin) + "-" + in_hexadecimal(area.mapping_end),
                  area, where);
  if (number == 0 || map_open_file(source.process, area, where)) return;
  if (number == ENOMEM) throw error(no_room_for_mapping(area.bytes(), "mapping"));
  if (number == ENOENT) refuse_changed(source);
  if (number != EPERM && number != EACCES) throw_refused(number, "mapping " + in_words(source));
  throw_refused(
      number, in_words(source) + ", which has no descriptor of them open, nor are they mapped here",
      "keep a descriptor of the memory open there, place it in a window of both, or give "
      "this program the capability CAP_CHECKPOINT_RESTORE");
}

/// Checks that areas are all of a range, and memory that can be shared.
inline void require_shareable(foreign_range const& source, std::vector<memory_area> const& areas,
                              std::uintptr_t begin, std::uintptr_t end) {
  auto const refuse = [&source](errc cause, std::string const& what, std::string_view remedy) {
    throw error({.cause = cause, .subject = in_words(source) + what, .remedy = remedy});
  };
  std::uintptr_t reached = begin;
  for (auto const& area : areas) {
    if (area.begin != reached) break;
    reached = area.end;
    if (!area.is_shared) {
      refuse(errc::unsupported, ": 0x" + in_hexadecimal(area.begin) + " is private memory there",
             "place it in a window or in a MAP_SHARED mapping of that process");
    }
    struct stat status{};
    bool const is_device = ::stat(area.name.c_str(), &status) == 0 && !S_ISREG(status.st_mode);
    if (!area.name.starts_with('/') || is_device) {
      refuse(errc::unsupported,
             ": 0x" + in_hexadecimal(area.begin) + " belongs to a device, " + area.name,
             "attach memory only");
    }
    if (!area.is_readable && !area.is_writable) {
      refuse(errc::permission_denied,
             ": 0x" + in_hexadecimal(area.begin) + " is not even readable there",
             "make it readable there first (mprotect)");
    }
  }
  if (reached != end) {
    refuse(errc::invalid_argument, ": nothing is mapped there at 0x" + in_hexadecimal(reached),
           "pass an address and a size that lie in one window or mapping of that process");
  }
}

/// Checks that what is mapped at `target` is what is mapped there now: between reading and mapping,
/// that process may have unmapped it and mapped something else.
inline void require_unchanged(foreign_range const& source, std::vector<memory_area> const& areas,
                              std::byte* target) {
  auto const begin = areas.front().begin;
  auto const end = areas.back().end;
  auto const here = reinterpret_cast<std::uintptr_t>(target);
  auto const now = areas_in(maps_of(source.process), begin, end);
  auto const mine = areas_in(maps_of(::getpid()), here, here + (end - begin));
  if (!is_same_memory(areas, now, 0) || !is_same_memory(areas, mine, here - begin)) {
    refuse_changed(source);
  }
}

}  // namespace detail

/// Owns memory of another process that is mapped into this one. Moved-from and default-constructed
/// objects own none.
class foreign_mapping {
 public:
  foreign_mapping() noexcept = default;

  /// Maps `source`: through the driver where the machine has it, else where it is shared memory.
  ///
  /// Effects: what either process writes there, the other one sees. What that process may only
  ///          read is read-only here. The memory lives on when that process ends.
  /// Errors:  errc::invalid_argument where nothing is mapped there, or for a process that does not
  ///          exist; errc::unsupported for private memory; errc::permission_denied, see map_area;
  ///          errc::system_failure (ESTALE) where that process has changed its mappings meanwhile.
  explicit foreign_mapping(foreign_range const& source) : foreign_mapping(source, zdax_device()) {}

  /// The same with another driver.
  template <class Device>
  foreign_mapping(foreign_range const& source, Device const& device) {
    if (source.process <= 0 || source.begin == 0 || source.bytes == 0 ||
        !checked_add(source.begin, source.bytes)) {
      throw error({.cause = errc::invalid_argument, .subject = detail::in_words(source)});
    }
    if (!device.is_there()) {
      map_shared(source);
      return;
    }
    auto result = attach_by_zdax(device, source);
    if (result.refusal == 0) {
      lead_ = static_cast<std::size_t>(result.address - result.range.bytes().data());
      range_ = std::move(result.range);
      return;
    }
    try {
      map_shared(source);
    } catch (error const& e) {
      auto details = e.details();
      details.subject.append(", and the driver zdax refused it: " +
                             std::generic_category().message(result.refusal));
      throw error(details);
    }
  }

  foreign_mapping(foreign_mapping&&) noexcept = default;
  foreign_mapping& operator=(foreign_mapping&&) noexcept = default;
  ~foreign_mapping() = default;

  /// Where the asked-for memory begins in this process; null where it is empty.
  [[nodiscard]] std::byte* address() const noexcept {
    return range_.bytes().empty() ? nullptr : range_.bytes().data() + lead_;
  }

 private:
  /// Maps the shared objects that lie in the range, each at its place in one range of this process:
  ///
  ///     there  |  ..source.begin.......source.end.. |       areas, in whole pages of theirs
  ///     here   | before |  ..address................ |      before: so that huge pages match
  void map_shared(foreign_range const& source) {
    auto const base = base_page_bytes();
    auto begin = round_down(source.begin, base);
    auto end = round_up(source.begin + source.bytes, base).value_or(source.begin + source.bytes);
    auto areas = areas_in(maps_of(source.process), begin, end);
    detail::require_shareable(source, areas, begin, end);

    std::size_t alignment = base;
    for (auto const& area : areas) {
      alignment = std::max(alignment, page_bytes_of(source.process, area));
    }
    auto const first_page = page_bytes_of(source.process, areas.front());
    auto const last_page = page_bytes_of(source.process, areas.back());
    begin = round_down(begin, first_page);
    end = round_up(end, last_page).value_or(end);
    areas = areas_in(maps_of(source.process), begin, end);
    detail::require_shareable(source, areas, begin, end);

    if (auto const huge = transparent_huge_page_bytes(); end - begin >= huge) {
      alignment = std::max(alignment, huge);
    }
    auto const before = begin % alignment;
    auto range = mapping::reserved(before + (end - begin), alignment);
    auto* const target = range.bytes().data() + before;
    for (auto const& area : areas) {
      detail::map_area(source, area, target + (area.begin - begin));
    }
    range.leave_out_of_dumps();
    detail::require_unchanged(source, areas, target);
    range_ = std::move(range);
    lead_ = before + (source.begin - begin);
  }

  mapping range_;
  std::size_t lead_ = 0;  ///< from the start of the range to the asked-for memory
};

}  // namespace shm::inline v1::os
