#pragma once

/// @file
/// Gives the launcher of failure tests and its ranks a /dev/shm of their own.

#include <algorithm>
#include <memory>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include <dirent.h>
#include <sched.h>
#include <sys/mount.h>

#include "launch_os.hpp"

namespace shm_test {

/// An empty tmpfs on /dev/shm that only this process and its children see, in a mount namespace.
class private_shm {
 public:
  /// Mounts it with comma-separated options as mount(8) takes them; throws std::system_error.
  explicit private_shm(std::string const& mount_options) {
    unsigned long flags = 0;
    std::string data;
    std::istringstream words{mount_options};
    for (std::string word; std::getline(words, word, ',');) {
      unsigned long const flag = flag_of(word);
      flags |= flag;
      if (flag == 0 && word != "rw") data += (data.empty() ? "" : ",") + word;
    }
    checked(::unshare(CLONE_NEWNS), "unshare(CLONE_NEWNS)");
    checked(::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr), "mount private /");
    checked(::mount("tmpfs", path, "tmpfs", flags, data.c_str()),
            "mount tmpfs on /dev/shm with '" + mount_options + "'");
    root_ = descriptor{checked(::open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), path)};
  }

  /// The names in it, sorted, even where a rank has mounted something over it.
  [[nodiscard]] std::vector<std::string> entries() const {
    int const again = checked(::openat(root_.number(), ".", O_RDONLY | O_CLOEXEC), path);
    std::unique_ptr<DIR, int (*)(DIR*)> const directory{::fdopendir(again), ::closedir};
    if (!directory) throw_errno("fdopendir");
    std::vector<std::string> names;
    while (dirent const* const entry = ::readdir(directory.get())) {
      std::string_view const name = entry->d_name;
      if (name != "." && name != "..") names.emplace_back(name);
    }
    std::ranges::sort(names);
    return names;
  }

 private:
  static constexpr char path[] = "/dev/shm";

  /// The mount flag that a word stands for; tmpfs itself takes the words without one.
  static unsigned long flag_of(std::string_view word) noexcept {
    if (word == "ro") return MS_RDONLY;
    if (word == "nosuid") return MS_NOSUID;
    if (word == "nodev") return MS_NODEV;
    if (word == "noexec") return MS_NOEXEC;
    return 0;
  }

  descriptor root_;
};

}  // namespace shm_test
