#pragma once
/// @file The gate to the kernel: repeats interrupted calls, turns errno into `shm::error`.

#include <sys/resource.h>

#include <cerrno>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "shm/error.hpp"

namespace shm::inline v1::os {

/// Calls `f` again as long as it returns -1 with EINTR.
template <class F>
auto retry(F f) {
  for (;;) {
    auto const result = f();
    if (result != -1 || errno != EINTR) return result;
  }
}

/// Returns the cause that an errno stands for.
constexpr errc cause_of(int number) noexcept {
  switch (number) {
    case ENOMEM:
      return errc::out_of_memory;
    case ENOSPC:
    case EDQUOT:
      return errc::no_space;
    case EMFILE:
    case ENFILE:
    case EFBIG:
    case EAGAIN:
      return errc::limit_reached;
    case EACCES:
    case EPERM:
    case EROFS:
      return errc::permission_denied;
    case ENOSYS:
    case EOPNOTSUPP:
      return errc::unsupported;
    default:
      return errc::system_failure;
  }
}

/// Returns what can be done about an errno that has one usual reason; else nothing.
constexpr std::string_view remedy_for(int number) noexcept {
  switch (number) {
    case EMFILE:
      return "raise the number of open files of a process (ulimit -n)";
    case ENFILE:
      return "raise the number of open files of the machine (sysctl fs.file-max)";
    case EFBIG:
      return "raise the file-size limit (ulimit -f), or ask for less";
    case EPERM:
      return "allow the call to this process (the seccomp profile of a container, a security "
             "module)";
    default:
      return {};
  }
}

/// Stands for a quantity without a bound.
inline constexpr std::uint64_t unlimited = std::numeric_limits<std::uint64_t>::max();

/// Returns the soft limit of this process for a resource of getrlimit(2).
inline std::uint64_t process_limit(int resource) noexcept {
  rlimit limit{};
  if (::getrlimit(static_cast<__rlimit_resource>(resource), &limit) != 0) return unlimited;
  return limit.rlim_cur == RLIM_INFINITY ? unlimited : limit.rlim_cur;
}

/// Throws the error of a refused system call. `number` is its errno.
[[noreturn]] inline void throw_refused(int number, std::string_view subject,
                                       std::string_view remedy = {}) {
  std::string text(subject);
  if (number == EMFILE) {
    text += ", where this process may have " + std::to_string(process_limit(RLIMIT_NOFILE)) +
            " files open";
  }
  throw error({.cause = cause_of(number),
               .system = number,
               .subject = text,
               .remedy = remedy.empty() ? remedy_for(number) : remedy});
}

/// Throws the error of the system call that has just failed.
[[noreturn]] inline void throw_last(std::string_view subject, std::string_view remedy = {}) {
  throw_refused(errno, subject, remedy);
}

}  // namespace shm::inline v1::os
