#pragma once

/// @file
/// Owns descriptors and names failed system calls, for the launcher of failure tests and its ranks.

#include <cerrno>
#include <string>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

namespace shm_test {

/// Throws std::system_error for the errno of the call that has just failed.
[[noreturn]] inline void throw_errno(std::string const& call) {
  throw std::system_error{errno, std::generic_category(), call};
}

/// Returns the result of a system call, or throws std::system_error where it is negative.
template <typename Integer>
Integer checked(Integer result, std::string const& call) {
  if (result < 0) throw_errno(call);
  return result;
}

/// Repeats a system call for as long as a signal interrupts it.
template <typename Call>
auto uninterrupted(Call call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

/// Owns one file descriptor and closes it; moved-from is empty.
class descriptor {
 public:
  descriptor() noexcept = default;
  explicit descriptor(int number) noexcept : number_{number} {}
  descriptor(descriptor&& other) noexcept : number_{std::exchange(other.number_, -1)} {}
  descriptor& operator=(descriptor&& other) noexcept {
    if (this != &other) {
      close();
      number_ = std::exchange(other.number_, -1);
    }
    return *this;
  }
  ~descriptor() { close(); }

  /// The number, or -1, which poll() passes over.
  [[nodiscard]] int number() const noexcept { return number_; }
  [[nodiscard]] bool is_open() const noexcept { return number_ >= 0; }

  void close() noexcept {
    if (is_open()) ::close(std::exchange(number_, -1));
  }

 private:
  int number_ = -1;
};

/// Makes reads and writes of an open file return EAGAIN instead of waiting.
inline void make_nonblocking(descriptor const& file) {
  int const flags = checked(::fcntl(file.number(), F_GETFL), "fcntl(F_GETFL)");
  checked(::fcntl(file.number(), F_SETFL, flags | O_NONBLOCK), "fcntl(F_SETFL)");
}

}  // namespace shm_test
