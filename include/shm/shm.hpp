#pragma once
/// @file Everything except the bootstrap through MPI, which is "shm/oob/mpi.hpp".

#if __cplusplus < 202002L
#error "shm needs C++20: compile with -std=c++20"
#endif

#include "shm/base/settings.hpp"              // IWYU pragma: export
#include "shm/collective/allgather.hpp"       // IWYU pragma: export
#include "shm/collective/allreduce.hpp"       // IWYU pragma: export
#include "shm/collective/alltoall.hpp"        // IWYU pragma: export
#include "shm/collective/bcast.hpp"           // IWYU pragma: export
#include "shm/collective/operation.hpp"       // IWYU pragma: export
#include "shm/collective/reduce_scatter.hpp"  // IWYU pragma: export
#include "shm/communicator.hpp"               // IWYU pragma: export
#include "shm/error.hpp"                      // IWYU pragma: export
#include "shm/group.hpp"                      // IWYU pragma: export
#include "shm/launch.hpp"                     // IWYU pragma: export
#include "shm/oob/callback.hpp"               // IWYU pragma: export
#include "shm/oob/fork.hpp"                   // IWYU pragma: export
#include "shm/oob/out_of_band.hpp"            // IWYU pragma: export
#include "shm/oob/self.hpp"                   // IWYU pragma: export
#include "shm/options.hpp"                    // IWYU pragma: export
#include "shm/policy/posix.hpp"               // IWYU pragma: export
#include "shm/policy/runtime.hpp"             // IWYU pragma: export
#include "shm/policy/sls.hpp"                 // IWYU pragma: export
#include "shm/residency.hpp"                  // IWYU pragma: export
#include "shm/version.hpp"                    // IWYU pragma: export
#include "shm/window.hpp"                     // IWYU pragma: export
