#pragma once
/// @file What a window really got from the system.

#include <cstddef>
#include <string>

#include "shm/os/shared_object.hpp"

namespace shm::inline v1 {

/// What a window's memory is.
struct residency {
  std::string backend;         ///< the name of the policy that made it
  std::size_t page_bytes = 0;  ///< size of its pages
  os::origin origin{};         ///< whether the object ever had a name
};

}  // namespace shm::inline v1
