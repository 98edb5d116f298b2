#pragma once
/// @file What a test throws that cannot have what it needs.

#include <string>

namespace shm_test {

/// Thrown in a child that cannot have what its test needs.
struct skipped {
  std::string why;
};

}  // namespace shm_test
