#pragma once
/// @file Settings of a group, and how they are read from the environment.

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "shm/options.hpp"

namespace shm::inline v1 {

/// Settings of a group, the same on every rank: rank 0's, from its environment or from code.
struct settings {
  shm::backend backend = shm::backend::posix;
  fence_algorithm fence = fence_algorithm::automatic;
  /// The number that fences and agreements count on from. All of them wrap around at 2^32; another
  /// start than 0 serves to try that.
  std::uint32_t first_number = 0;

  friend bool operator==(settings const&, settings const&) = default;
};

/// Settings read from the environment, and what is to be said about values that have no meaning.
struct environment {
  shm::settings values;
  std::vector<std::string> remarks;  ///< one line each, naming variable, value and choices
};

namespace detail {

inline std::string_view variable(char const* name) noexcept {
  char const* const value = std::getenv(name);
  return value == nullptr ? std::string_view{} : std::string_view{value};
}

inline std::string unknown_value(std::string_view name, std::string_view value,
                                 std::string_view choices, std::string_view taken) {
  return std::string(name) + "=" + std::string(value) +
         " is not known; choices: " + std::string(choices) + "; taken: " + std::string(taken);
}

}  // namespace detail

/// Reads KUPL_SHM_TYPE and KUPL_SHM_FENCE_ALGORITHM. An unset or empty variable means its default;
/// an unknown value means the default and a remark.
inline environment read_environment() {
  environment result;
  auto const type = detail::variable("KUPL_SHM_TYPE");
  if (type == "sls") {
    result.values.backend = backend::sls;
  } else if (!type.empty() && type != "posix") {
    result.remarks.push_back(detail::unknown_value("KUPL_SHM_TYPE", type, "posix, sls", "posix"));
  }
  auto const fence = detail::variable("KUPL_SHM_FENCE_ALGORITHM");
  if (fence == "1") {
    result.values.fence = fence_algorithm::linear;
  } else if (fence == "2") {
    result.values.fence = fence_algorithm::dissemination;
  } else if (fence == "3") {
    result.values.fence = fence_algorithm::counter;
  } else if (!fence.empty() && fence != "0") {
    result.remarks.push_back(
        detail::unknown_value("KUPL_SHM_FENCE_ALGORITHM", fence,
                              "0 (automatic), 1 (linear), 2 (dissemination), 3 (counter)", "0"));
  }
  return result;
}

}  // namespace shm::inline v1
