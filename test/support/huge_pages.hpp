#pragma once
/// @file Settings of the machine that tests of huge pages need, put back at the end of a scope.

#include <cstdint>
#include <fstream>
#include <string>
#include <utility>

#include "shm/os/huge_page.hpp"
#include "shm/os/process.hpp"

namespace shm_test {

/// A file of the kernel that has another content for the length of a scope.
class kernel_setting {
 public:
  /// `old` is what to write at the end.
  kernel_setting(std::string path, std::string const& value, std::string old)
      : path_(std::move(path)), old_(std::move(old)), is_written_(write(value)) {}
  kernel_setting(kernel_setting const&) = delete;
  kernel_setting& operator=(kernel_setting const&) = delete;
  ~kernel_setting() {
    if (is_written_) write(old_);
  }

  [[nodiscard]] bool is_there() const noexcept { return is_written_; }
  [[nodiscard]] std::string why_not() const { return path_ + " cannot be set"; }

 private:
  bool write(std::string const& value) const {
    std::ofstream file(path_);
    file << value << std::flush;
    return file.good();
  }

  std::string path_;
  std::string old_;
  bool is_written_;
};

/// So many more reserved huge pages of the default size, where the machine can give them.
class huge_page_reserve {
 public:
  explicit huge_page_reserve(std::uint64_t more)
      : pool_(pool()),
        setting_("/proc/sys/vm/nr_hugepages", std::to_string(pool_.total + more),
                 std::to_string(pool_.total)),
        has_all_(pool().available >= more) {}

  [[nodiscard]] bool is_there() const noexcept { return setting_.is_there() && has_all_; }
  [[nodiscard]] std::string why_not() const {
    return setting_.is_there() ? "the machine cannot reserve huge pages" : setting_.why_not();
  }

 private:
  static shm::os::huge_page_pool pool() {
    return shm::os::huge_page_pool::of(shm::os::default_huge_page_bytes());
  }

  shm::os::huge_page_pool pool_;
  kernel_setting setting_;
  bool has_all_;
};

/// Another setting of transparent huge pages for shared memory.
class transparent_setting {
 public:
  explicit transparent_setting(std::string const& value) : setting_(path, value, chosen()) {}

  [[nodiscard]] bool is_there() const noexcept { return setting_.is_there(); }
  [[nodiscard]] std::string why_not() const { return setting_.why_not(); }

 private:
  static constexpr char const* path = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";

  static std::string chosen() {
    std::string const text = shm::os::read_kernel_file(path);
    auto const begin = text.find('[') + 1;
    return text.substr(begin, text.find(']') - begin);
  }

  kernel_setting setting_;
};

}  // namespace shm_test
