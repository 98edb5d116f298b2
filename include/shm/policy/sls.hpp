#pragma once
/// @file The backend `sls`: anonymous memory.

#include <string_view>

#include "shm/os/shared_object.hpp"
#include "shm/policy/segment_policy.hpp"

namespace shm::inline v1 {

/// Takes anonymous memory, which has no name and is not bounded by the size of /dev/shm.
struct sls_policy {
  static constexpr std::string_view name = "sls";

  /// Errors: those of `os::make_anonymous`.
  [[nodiscard]] os::shared_object create(segment_request const& request) const {
    return os::make_anonymous("shm window", request.bytes);
  }
};

}  // namespace shm::inline v1
