#pragma once
/// @file Choices that users make for a window or a group.

#include <cstdint>

namespace shm::inline v1 {

/// How the ranks' blocks follow each other in a window.
enum class layout : std::uint32_t {
  page_aligned,  ///< each block starts on a page of its own, and can lie on its owner's NUMA node
  contiguous,    ///< block r + 1 starts where block r ends; `window::all()` is one span
};

/// Whether creating a window reserves its memory.
enum class prefault : std::uint32_t {
  populate,  ///< every page exists when the window does; a lack of memory is an error there
  none,      ///< pages come at first touch, for sparse use; a lack of memory is then a SIGBUS
};

/// Whether the memory of a window is written into core dumps.
enum class core_dump : std::uint32_t {
  leave_out,  ///< a dump has none of it; every rank would write all of it
  include,    ///< a dump has all of it, as far as /proc/self/coredump_filter says
};

/// What can be chosen for one window. The same on every rank.
struct window_options {
  shm::layout layout = shm::layout::page_aligned;
  shm::prefault prefault = shm::prefault::populate;
  shm::core_dump core_dump = shm::core_dump::leave_out;
};

/// How the ranks of a window wait for each other. The result never depends on it.
enum class fence_algorithm : std::uint32_t {
  automatic,      ///< by the number of ranks and cores
  linear,         ///< rank 0 gathers and releases
  dissemination,  ///< log2(n) rounds of pairwise signals; best with a core for each rank
  counter,        ///< one shared counter; best with more ranks than cores
};

/// Where a window's memory comes from.
enum class backend : std::uint32_t {
  posix,  ///< the POSIX shared-memory file system, /dev/shm
  sls,    ///< anonymous memory
};

}  // namespace shm::inline v1
