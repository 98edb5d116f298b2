#pragma once
/// @file Directories for tests: temporary ones, and small file systems.

#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>

#include <sched.h>
#include <sys/mount.h>

#include "support/child.hpp"

namespace shm_test {

/// A new directory in /dev/shm with a name of its own, removed with all that is in it.
class temporary_directory {
 public:
  temporary_directory() {
    if (::mkdtemp(path_.data()) == nullptr) throw std::runtime_error("mkdtemp");
  }
  temporary_directory(temporary_directory const&) = delete;
  temporary_directory& operator=(temporary_directory const&) = delete;
  ~temporary_directory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  [[nodiscard]] std::string const& path() const noexcept { return path_; }
  [[nodiscard]] bool is_empty() const { return std::filesystem::is_empty(path_); }

 private:
  std::string path_ = "/dev/shm/shm-test-XXXXXX";
};

/// Mounts a tmpfs of `bytes` bytes on `path`, seen by this process alone. Only in a child. Skips
/// where this is not allowed.
inline void mount_private_tmpfs(std::string const& path, std::size_t bytes) {
  std::string const options = "size=" + std::to_string(bytes);
  if (::unshare(CLONE_NEWNS) != 0 ||
      ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
      ::mount("tmpfs", path.c_str(), "tmpfs", 0, options.c_str()) != 0) {
    throw skipped{"mounting a tmpfs needs root"};
  }
}

/// Returns how many descriptors this process has open.
inline long open_descriptors() {
  long count = 0;
  for ([[maybe_unused]] auto const& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    ++count;
  }
  return count - 1;  // without the iterator's own
}

}  // namespace shm_test
