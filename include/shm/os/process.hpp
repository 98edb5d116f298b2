#pragma once
/// @file Who this process is, and on which machine.

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

#include "shm/os/call.hpp"
#include "shm/os/file_descriptor.hpp"

namespace shm::inline v1::os {

/// 128 bits that tell one object, or one machine, from every other.
using identifier = std::array<std::uint64_t, 2>;

/// Returns what can be done where a file of /proc is not there.
constexpr std::string_view remedy_without_proc(int number) noexcept {
  return number == ENOENT ? "mount /proc, for every rank" : "";
}

/// Returns a new random identifier.
inline identifier random_identifier() {
  identifier id{};
  auto const got = retry([&] { return ::getrandom(id.data(), sizeof id, 0); });
  if (got != static_cast<ssize_t>(sizeof id)) throw_last("getrandom of 16 bytes");
  return id;
}

/// Calls `take` with the parts of a file of the kernel; not at all where it cannot be read.
template <class Take>
void for_each_part(char const* path, Take const& take) {
  file_descriptor const file{retry([&] { return ::open(path, O_RDONLY | O_CLOEXEC); })};
  std::array<char, 4096> part;
  while (file.is_open()) {
    auto const got = retry([&] { return ::read(file.number(), part.data(), part.size()); });
    if (got <= 0) break;
    take(std::string_view(part.data(), static_cast<std::size_t>(got)));
  }
}

/// Reads a file of the kernel; empty where it cannot be read.
inline std::string read_kernel_file(char const* path) {
  std::string text;
  for_each_part(path, [&](std::string_view part) { text += part; });
  return text;
}

/// Calls `f` with each line of a text, without its line feed.
template <class F>
void for_each_line(std::string_view text, F const& f) {
  while (!text.empty()) {
    auto const line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    f(line);
  }
}

/// Returns the number that a text begins with; nothing where it does not begin with one.
inline std::optional<std::uint64_t> leading_number(std::string_view text) noexcept {
  std::uint64_t value = 0;
  auto const [stop, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failed != std::errc{}) return std::nullopt;
  return value;
}

/// Returns the number that follows `label` and blanks in a text, 0 where another thing does;
/// nothing where there is no such label.
inline std::optional<std::uint64_t> number_after(std::string_view text,
                                                 std::string_view label) noexcept {
  auto const at = text.find(label);
  if (at == std::string_view::npos) return std::nullopt;
  text.remove_prefix(at + label.size());
  text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  return leading_number(text).value_or(0);
}

/// Returns the identifier of this boot of this machine; zero where it has another form.
///
/// Errors: those of open(2) where /proc is not there.
/// Source: random(4), /proc/sys/kernel/random/boot_id: a UUID in hexadecimal.
inline identifier boot_identifier() {
  constexpr char const* path = "/proc/sys/kernel/random/boot_id";
  std::string const text_of_kernel = read_kernel_file(path);
  if (text_of_kernel.empty()) throw_last(path, remedy_without_proc(errno));
  std::string hexadecimal;
  for (char const c : text_of_kernel) {
    if (c != '-' && c != '\n') hexadecimal.push_back(c);
  }
  identifier id{};
  if (hexadecimal.size() != 32) return id;
  char const* const text = hexadecimal.data();
  std::from_chars(text, text + 16, id[0], 16);
  std::from_chars(text + 16, text + 32, id[1], 16);
  return id;
}

/// Whether the program runs with ThreadSanitizer, whose runtime has a thread of its own.
#if defined(__has_feature)
inline constexpr bool has_sanitizer_thread = __has_feature(thread_sanitizer);
#elif defined(__SANITIZE_THREAD__)
inline constexpr bool has_sanitizer_thread = true;
#else
inline constexpr bool has_sanitizer_thread = false;
#endif

/// Returns the number of threads of this process; 0 where /proc cannot be read.
///
/// Source: proc(5), the line "Threads:" of /proc/self/status.
inline int thread_count() {
  std::string const status = read_kernel_file("/proc/self/status");
  constexpr std::string_view label = "Threads:\t";
  auto const at = status.find(label);
  int count = 0;
  if (at != std::string::npos) {
    std::from_chars(status.data() + at + label.size(), status.data() + status.size(), count);
  }
  return count;
}

/// Whether this program has an MPI library that is initialised. Looks it up by name, so that
/// nothing needs to be linked.
inline bool is_mpi_initialized() {
  using query = int (*)(int*);
  auto const ask = reinterpret_cast<query>(::dlsym(RTLD_DEFAULT, "MPI_Initialized"));
  int flag = 0;
  return ask != nullptr && ask(&flag) == 0 && flag != 0;
}

}  // namespace shm::inline v1::os
