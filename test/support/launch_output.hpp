#pragma once

/// @file
/// Prints what ranks write, line by line, inside the launcher of failure tests.

#include <cerrno>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include <unistd.h>

#include "launch_os.hpp"

namespace shm_test {

/// Writes a text to standard output at once; a reader that has gone away is not an error.
inline void print(std::string_view text) {
  while (!text.empty()) {
    ssize_t const written =
        uninterrupted([&] { return ::write(STDOUT_FILENO, text.data(), text.size()); });
    if (written <= 0) return;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

/// Prints the whole lines that come through a pipe, each with a mark in front.
class line_printer {
 public:
  line_printer() = default;
  line_printer(descriptor pipe, std::string mark) : pipe_{std::move(pipe)}, mark_{std::move(mark)} {
    make_nonblocking(pipe_);
  }

  [[nodiscard]] descriptor const& pipe() const noexcept { return pipe_; }

  /// Prints the lines that one read completes; false where there was nothing to read.
  bool read() {
    char buffer[65536];
    ssize_t const got =
        uninterrupted([&] { return ::read(pipe_.number(), buffer, sizeof buffer); });
    if (got < 0 && errno == EAGAIN) return false;
    if (got <= 0) {
      finish();
      return false;
    }
    pending_.append(buffer, static_cast<std::size_t>(got));
    print_lines();
    return true;
  }

  /// Prints what is still in the pipe and an unfinished last line, then closes the pipe.
  void drain() {
    for (int reads = 0; reads < most_reads && pipe_.is_open() && read(); ++reads) {
    }
    finish();
  }

 private:
  static constexpr std::size_t longest_line = 65536;  ///< a longer one is printed in parts
  static constexpr int most_reads = 64;               ///< bound against a writer that cannot die

  void print_lines() {
    std::string text;
    std::string_view rest = pending_;
    for (;;) {
      std::size_t const length = rest.find('\n');
      if (length == std::string_view::npos) break;
      text.append(mark_).append(rest.substr(0, length + 1));
      rest.remove_prefix(length + 1);
    }
    if (rest.size() > longest_line) text.append(mark_).append(std::exchange(rest, {})) += '\n';
    print(text);
    pending_.erase(0, pending_.size() - rest.size());
  }

  void finish() {
    if (!pending_.empty()) print(mark_ + std::exchange(pending_, {}) + '\n');
    pipe_.close();
  }

  descriptor pipe_;
  std::string mark_;
  std::string pending_;
};

}  // namespace shm_test
