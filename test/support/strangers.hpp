#pragma once
/// @file Ranks that cannot open each other's descriptors.

#include <sys/prctl.h>
#include <unistd.h>

#include "shm/group.hpp"

namespace shm_test {

/// Keeps rank 0's descriptors from the other ranks, as another user's would be. Collective.
inline void make_strangers(shm::group& node) {
  node.barrier();
  if (::geteuid() == 0) {
    constexpr uid_t nobody = 65534;
    if (node.rank() != 0) [[maybe_unused]]
      auto const done = ::setresuid(nobody, nobody, nobody);
  } else if (node.rank() == 0) {
    ::prctl(PR_SET_DUMPABLE, 0);
  }
  node.barrier();
}

}  // namespace shm_test
