#pragma once
/// @file The backend `posix`: memory of the POSIX shared-memory file system.

#include <string_view>

#include "shm/os/shared_object.hpp"
#include "shm/policy/segment_policy.hpp"

namespace shm::inline v1 {

/// Takes memory from /dev/shm, whose size bounds it, as a file that never has a name.
struct posix_policy {
  static constexpr std::string_view name = "posix";

  /// Errors: those of `os::make_unnamed`.
  [[nodiscard]] os::shared_object create(segment_request const& request) const {
    return os::make_unnamed("/dev/shm", request.bytes);
  }
};

}  // namespace shm::inline v1
