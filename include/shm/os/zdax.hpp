#pragma once
/// @file The driver that shows one process the memory of another one, where a machine has it.

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "shm/base/size.hpp"
#include "shm/os/call.hpp"
#include "shm/os/file_descriptor.hpp"
#include "shm/os/mapping.hpp"

namespace shm::inline v1::os {

/// Memory of another process.
struct foreign_range {
  pid_t process = 0;
  std::uintptr_t begin = 0;  ///< an address there, on any boundary
  std::size_t bytes = 0;
};

/// What the driver is asked for, in its own layout.
///
///     0        8        16              20              24     32
///     | source | target | source_process | target_process | bytes |
struct zdax_request {
  unsigned long source = 0;
  unsigned long target = 0;
  int source_process = 0;
  int target_process = 0;
  unsigned long bytes = 0;
};
static_assert(sizeof(zdax_request) == 32 && offsetof(zdax_request, bytes) == 24);

/// The unit, in bytes, in which the driver takes addresses and sizes.
inline constexpr std::size_t zdax_unit_bytes = std::size_t{2} << 20U;

/// The driver itself.
class zdax_device {
 public:
  zdax_device() noexcept : zdax_device("/dev/zdax") {}
  /// Opens `path`; there is no driver where that is no character device or cannot be opened.
  explicit zdax_device(char const* path) noexcept {
    struct stat status{};
    if (::stat(path, &status) != 0 || !S_ISCHR(status.st_mode)) return;
    descriptor_ = file_descriptor{retry([&] { return ::open(path, O_RDWR | O_CLOEXEC); })};
  }

  [[nodiscard]] bool is_there() const noexcept { return descriptor_.is_open(); }

  /// Asks for memory. Returns 0, or the errno of the refusal.
  int operator()(zdax_request& request) const noexcept {
    constexpr unsigned long attach = 1;
    return retry([&] { return ::ioctl(descriptor_.number(), attach, &request); }) == 0 ? 0 : errno;
  }

 private:
  file_descriptor descriptor_;
};

/// What came of asking the driver.
struct zdax_result {
  mapping range;         ///< what to unmap at the end; empty where it refused
  std::byte* address{};  ///< where the asked-for memory begins
  int refusal = 0;       ///< errno
};

/// Attaches `source` through a driver.
///
/// Effects: asks for whole units around it, at addresses that this process has taken and never
///          touched; once more at others where the driver finds something there (EAGAIN).
/// Errors:  those of taking addresses; a refusal of the driver is a result.
template <class Device>
zdax_result attach_by_zdax(Device const& device, foreign_range const& source) {
  constexpr int most_tries = 16;
  auto const begin = round_down(source.begin, zdax_unit_bytes);
  auto const end = round_up(source.begin + source.bytes, zdax_unit_bytes);
  if (!end) return {.range = {}, .refusal = EINVAL};
  auto const bytes = *end - begin;
  std::vector<mapping> taken;  // kept, so that the next one lies elsewhere
  for (int tries = 0; tries < most_tries; ++tries) {
    auto range = mapping::reserved(bytes, zdax_unit_bytes, PROT_READ | PROT_WRITE);
    zdax_request request{.source = begin,
                         .target = reinterpret_cast<std::uintptr_t>(range.bytes().data()),
                         .source_process = source.process,
                         .target_process = ::getpid(),
                         .bytes = bytes};
    int const refusal = device(request);
    if (refusal == 0) {
      auto* const address = range.bytes().data() + (source.begin - begin);
      return {.range = std::move(range), .address = address};
    }
    if (refusal != EAGAIN) return {.range = {}, .refusal = refusal};
    taken.push_back(std::move(range));
  }
  return {.range = {}, .refusal = EAGAIN};
}

}  // namespace shm::inline v1::os
