#pragma once
/// @file Opening a shared object of another process.

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <string>

#include "shm/os/call.hpp"
#include "shm/os/file_descriptor.hpp"
#include "shm/os/shared_object.hpp"

namespace shm::inline v1::os {

/// Where an object can be found, and how it is known to be the right one.
struct object_address {
  std::int32_t process = 0;      ///< pid of a process that has it open
  std::int32_t descriptor = -1;  ///< its descriptor there
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  std::uint64_t bytes = 0;
};

/// Returns the address of an object of this process.
inline object_address address_of(shared_object const& object) {
  struct stat status{};
  if (::fstat(object.descriptor.number(), &status) != 0) throw_last("status of a shared object");
  return {.process = ::getpid(),
          .descriptor = object.descriptor.number(),
          .device = status.st_dev,
          .inode = status.st_ino,
          .bytes = object.bytes};
}

/// Whether `descriptor` is the object at `address`, and not another one that has taken its number.
inline bool is_object(int descriptor, object_address const& address) noexcept {
  struct stat status{};
  return ::fstat(descriptor, &status) == 0 && status.st_dev == address.device &&
         status.st_ino == address.inode &&
         static_cast<std::uint64_t>(status.st_size) == address.bytes;
}

/// Opens what `path`, in /proc/…/fd, leads to, with an open file description of its own.
///
/// Source: proc(5), /proc/pid/fd.
inline file_descriptor open_in_proc(std::string const& path) {
  // Until it has been compared it may be anything, also a terminal or a pipe.
  constexpr int flags = O_RDWR | O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
  file_descriptor result{retry([&] { return ::open(path.c_str(), flags); })};
  if (!result.is_open()) {
    int const number = errno;
    throw_refused(number, "opening " + path);
  }
  return result;
}

/// Opens a descriptor of this process anew.
inline file_descriptor reopen(int descriptor) {
  return open_in_proc("/proc/self/fd/" + std::to_string(descriptor));
}

/// Opens the object at `address` through /proc.
///
/// Errors: errc::permission_denied for another user's or a non-dumpable process;
/// errc::system_failure
///         where /proc does not show the process (another PID namespace), or where the address
///         leads to another object.
inline file_descriptor attach(object_address const& address) {
  auto result = open_in_proc("/proc/" + std::to_string(address.process) + "/fd/" +
                             std::to_string(address.descriptor));
  if (!is_object(result.number(), address)) {
    throw_refused(ESTALE, "descriptor " + std::to_string(address.descriptor) + " of process " +
                              std::to_string(address.process) + " is another object");
  }
  return result;
}

}  // namespace shm::inline v1::os
