#pragma once
/// @file The default backend: the one that the group's settings name.

#include <string_view>

#include "shm/base/settings.hpp"
#include "shm/options.hpp"
#include "shm/os/shared_object.hpp"
#include "shm/policy/posix.hpp"
#include "shm/policy/segment_policy.hpp"
#include "shm/policy/sls.hpp"

namespace shm::inline v1 {

/// Takes the backend of the group's settings: KUPL_SHM_TYPE of rank 0, or what the code has given.
struct runtime_policy {
  static constexpr std::string_view name = "runtime";

  [[nodiscard]] std::string_view name_in(shm::settings const& values) const noexcept {
    return values.backend == backend::sls ? sls_policy::name : posix_policy::name;
  }

  /// Errors: those of the backend.
  [[nodiscard]] os::shared_object create(segment_request const& request) const {
    return request.settings.backend == backend::sls ? sls_policy{}.create(request)
                                                    : posix_policy{}.create(request);
  }
};

}  // namespace shm::inline v1
