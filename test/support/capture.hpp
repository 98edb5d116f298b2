#pragma once
/// @file What ranks print.

#include <cstdio>
#include <memory>
#include <string>

#include <unistd.h>

namespace shm_test {

/// A file without a name, to which all ranks append.
class capture {
 public:
  capture() : file_(std::tmpfile(), &std::fclose) {}

  /// Makes it the standard error of this process for as long as `f` runs.
  template <class F>
  void standard_error_of(F const& f) const {
    int const saved = ::dup(STDERR_FILENO);
    ::dup2(::fileno(file_.get()), STDERR_FILENO);
    f();
    ::dup2(saved, STDERR_FILENO);
    ::close(saved);
  }

  [[nodiscard]] std::string text() const {
    std::rewind(file_.get());
    std::string all;
    for (int c = 0; (c = std::fgetc(file_.get())) != EOF;) all.push_back(static_cast<char>(c));
    return all;
  }

 private:
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
};

}  // namespace shm_test
