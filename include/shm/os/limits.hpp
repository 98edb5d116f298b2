#pragma once
/// @file What the kernel lets this process have, asked before it would kill.

#include <sys/resource.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "shm/base/size.hpp"
#include "shm/error.hpp"
#include "shm/os/call.hpp"
#include "shm/os/process.hpp"

namespace shm::inline v1::os {

/// Returns how many bytes are free on the file system of an open object; `unlimited` where it sets
/// no bound or does not say.
inline std::uint64_t free_bytes(int descriptor) noexcept {
  struct statfs status{};
  if (::fstatfs(descriptor, &status) != 0 || status.f_blocks == 0) return unlimited;
  return static_cast<std::uint64_t>(status.f_bavail) * static_cast<std::uint64_t>(status.f_bsize);
}

/// Throws the error of the system call on an object that has just failed. No space in anonymous
/// memory, which no file system bounds, is a lack of memory (vm.overcommit_memory).
[[noreturn]] inline void throw_last_on(int descriptor, std::string_view subject) {
  int const number = errno;
  if (number == ENOSPC && free_bytes(descriptor) == unlimited) {
    throw error({.cause = errc::out_of_memory, .system = number, .subject = subject, .remedy = {}});
  }
  throw_refused(number, subject);
}

/// Returns the largest size in bytes that a file of this process may have. A larger one is not
/// refused but kills the process (SIGXFSZ), also for anonymous memory.
inline std::uint64_t file_size_limit() noexcept { return process_limit(RLIMIT_FSIZE); }

/// Returns how many bytes of address space this process uses; 0 where the kernel does not say.
///
/// Source: proc(5), the first number of /proc/self/statm, in pages.
inline std::uint64_t address_space_bytes() {
  std::uint64_t pages = 0;
  for_each_part("/proc/self/statm",
                [&](std::string_view part) { pages = leading_number(part).value_or(pages); });
  return pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

/// Returns how many mappings a process may have; `unlimited` where the kernel does not say.
///
/// Source: proc(5), /proc/sys/vm/max_map_count.
inline std::uint64_t mapping_count_limit() {
  return leading_number(read_kernel_file("/proc/sys/vm/max_map_count")).value_or(unlimited);
}

/// Returns how many mappings this process has; 0 where the kernel does not say. Allocates nothing:
/// it is asked where no mapping is left.
inline std::uint64_t mapping_count() {
  std::uint64_t lines = 0;
  bool has_gate = false;  // the last line, which the kernel shows but does not count
  for_each_part("/proc/self/maps", [&](std::string_view part) {
    lines += static_cast<std::uint64_t>(std::ranges::count(part, '\n'));
    has_gate = part.ends_with("[vsyscall]\n");
  });
  return lines - (has_gate ? 1 : 0);
}

/// Explains why the kernel has refused `bytes` bytes of address space, or one mapping more, with
/// ENOMEM. Asks only after the refusal, since asking costs more than a mapping.
inline failure no_room_for_mapping(std::size_t bytes, std::string_view what) {
  std::string const subject = std::string(what) + " " + bytes_in_words(bytes);
  // The kernel refuses from the limit on, and a mapping that is cut in two needs one more.
  if (auto const [now, most] = std::pair(mapping_count(), mapping_count_limit()); now + 2 > most) {
    return {.cause = errc::limit_reached,
            .subject = subject + "; this process has " + std::to_string(now) + " mappings of " +
                       std::to_string(most) + " (vm.max_map_count)",
            .remedy = "free windows, or raise the limit (sysctl -w vm.max_map_count=…)"};
  }
  auto const used = address_space_bytes();
  auto const limit = process_limit(RLIMIT_AS);
  if (limit != unlimited && (used >= limit || bytes > limit - used)) {
    return {.cause = errc::limit_reached,
            .subject = subject + "; this process uses " + bytes_in_words(used) +
                       " of address space of " + bytes_in_words(limit),
            .remedy = "raise the limit (ulimit -v), or ask for less"};
  }
  return {.cause = errc::out_of_memory,
          .system = ENOMEM,
          .subject = subject,
          .remedy =
              "ask for less: the addresses of a process, or what the kernel lets it commit "
              "(vm.overcommit_memory), do not suffice"};
}

/// Returns how many bytes the machine can still give without swapping; `unlimited` where the kernel
/// does not say.
///
/// Source: proc(5), /proc/meminfo, MemAvailable, in kB of 1024 bytes.
inline std::uint64_t available_memory() {
  auto const kilobytes = number_after(read_kernel_file("/proc/meminfo"), "MemAvailable:");
  return kilobytes ? *kilobytes * 1024 : unlimited;
}

/// Checks, before any page of an object is touched, that the system has room for `bytes` of it:
/// what follows could otherwise be killed instead of being refused.
///
/// Errors: errc::no_space for its file system, errc::out_of_memory for the machine.
inline void require_room(int descriptor, std::uint64_t bytes, std::string_view whose = {}) {
  auto const check = [bytes, whose](std::uint64_t room, errc cause, std::string_view what) {
    if (bytes <= room) return;
    throw error({.cause = cause,
                 .subject = bytes_in_words(bytes) + " are needed" + std::string(whose) + ", and " +
                            std::string(what) + " has " + bytes_in_words(room) + " left"});
  };
  check(free_bytes(descriptor), errc::no_space, "the file system of the backend");
  check(available_memory(), errc::out_of_memory, "this machine");
}

}  // namespace shm::inline v1::os
