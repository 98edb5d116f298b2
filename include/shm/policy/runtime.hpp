#pragma once
/// @file The default backend: the one that the group's settings name.

#include <cstddef>
#include <string>
#include <string_view>

#include "shm/base/settings.hpp"
#include "shm/error.hpp"
#include "shm/options.hpp"
#include "shm/os/shared_object.hpp"
#include "shm/policy/posix.hpp"
#include "shm/policy/segment_policy.hpp"
#include "shm/policy/sls.hpp"

namespace shm::inline v1 {

/// Takes the backend of the group's settings, with their pages and memory: rank 0's environment, or
/// what the code has given.
struct runtime_policy {
  static constexpr std::string_view name = "runtime";

  [[nodiscard]] std::string_view name_in(settings const& values) const noexcept {
    return is_sls(values) ? sls_policy::name : posix_policy::name;
  }
  [[nodiscard]] int attempts(settings const& values) const noexcept {
    return is_sls(values) ? sls(values).attempts(values) : 1;
  }
  [[nodiscard]] std::size_t page_bytes(int attempt, settings const& values) const {
    return is_sls(values) ? sls(values).page_bytes(attempt, values) : os::base_page_bytes();
  }
  /// Errors: those of the backend.
  [[nodiscard]] os::shared_object create(segment_request const& request) const {
    return is_sls(request.settings) ? sls(request.settings).create(request)
                                    : posix_policy{}.create(request);
  }
  void place(block_request const& block) const {
    is_sls(block.settings) ? sls(block.settings).place(block) : place_block(block);
  }
  [[nodiscard]] std::string in_words(settings const& values) const {
    return is_sls(values) ? sls(values).in_words(values) : std::string(posix_policy::name);
  }
  [[nodiscard]] node_preference preferred_nodes(settings const& values) const {
    return is_sls(values) ? sls(values).preferred_nodes(values) : node_preference{};
  }

 private:
  static bool is_sls(settings const& values) noexcept { return values.backend == backend::sls; }
  static sls_policy sls(settings const& values) noexcept {
    return {.pages = values.pages, .memory = values.memory};
  }
};

}  // namespace shm::inline v1
