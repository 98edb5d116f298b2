#pragma once
/// @file Choices that users make for a window or a group.

#include <algorithm>
#include <cstdint>
#include <limits>

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

/// On which NUMA nodes the memory of a window lies. A wish: where a node is full, pages come from
/// others, and `window::residency` tells.
class place {
 public:
  static place const owner;  ///< each block on the node of the rank that owns it
  /// Pages of each block in turn on all nodes of its kind of memory. On-package memory that is
  /// required is not interleaved.
  static place const interleave;
  /// Everything on one node, which must exist and have memory.
  static constexpr place node(int number) noexcept { return place(number); }

  constexpr place() noexcept = default;

  [[nodiscard]] constexpr bool is_interleaved() const noexcept { return number_ == all_nodes; }
  /// The node, or -1 where it is not one for all.
  [[nodiscard]] constexpr int number() const noexcept { return number_ < 0 ? -1 : number_; }
  friend constexpr bool operator==(place, place) noexcept = default;
  /// Whether it names anything: negative nodes do not exist.
  [[nodiscard]] constexpr bool is_known() const noexcept { return number_ >= all_nodes; }
  /// A number that tells it from every other.
  [[nodiscard]] constexpr int code() const noexcept { return number_; }
  /// The node that was given, also where it is none.
  [[nodiscard]] constexpr int given() const noexcept {
    return is_known() ? number() : number_ - all_nodes;
  }

 private:
  static constexpr int owners_node = -1;
  static constexpr int all_nodes = -2;

  /// Negative numbers stay apart from those with a meaning, and from each other.
  constexpr explicit place(int number) noexcept
      : number_(number < 0
                    ? std::max(number, std::numeric_limits<int>::min() - all_nodes) + all_nodes
                    : number) {}
  struct interleaved {};
  constexpr explicit place(interleaved) noexcept : number_(all_nodes) {}

  int number_ = owners_node;
};
inline constexpr place place::owner{};
inline constexpr place place::interleave{place::interleaved{}};

/// Which pages anonymous memory comes in.
enum class pages : std::uint32_t {
  base,          ///< the machine's base pages
  prefer_huge,   ///< reserved huge pages, else transparent ones, else base pages, with a warning
  require_huge,  ///< huge pages of either kind, or an error
};

/// Which memory anonymous memory lies in.
enum class memory : std::uint32_t {
  ordinary,            ///< what processes get without asking
  prefer_on_package,   ///< high-bandwidth memory, else ordinary memory, with a warning
  require_on_package,  ///< high-bandwidth memory, or an error
};

/// What can be chosen for one window. The same on every rank.
struct window_options {
  shm::layout layout = shm::layout::page_aligned;
  shm::prefault prefault = shm::prefault::populate;
  shm::core_dump core_dump = shm::core_dump::leave_out;
  shm::place place{};
};

/// Parts of a machine whose processors share something.
enum class domain : std::uint32_t {
  numa,     ///< a NUMA node: the nearest memory
  package,  ///< a processor package: a socket
  l3,       ///< a level 3 cache
};

/// How the ranks of a window wait for each other. The result never depends on it.
enum class fence_algorithm : std::uint32_t {
  automatic,      ///< by the number of ranks and cores
  linear,         ///< rank 0 gathers and releases
  dissemination,  ///< log2(n) rounds of pairwise signals; best with a core for each rank
  counter,        ///< one shared counter; best with more ranks than cores
};

/// How the ranks of a collective plan hand their data over. The result never depends on it.
enum class collective_algorithm : std::uint32_t {
  automatic,  ///< by the amount of data, and whether ranks share processors
  staged,     ///< copied beside the flag that announces it: one hand-over; up to 1 MiB
  direct,     ///< read and written where it lies: two hand-overs, nothing copied twice
};

/// Where a window's memory comes from.
enum class backend : std::uint32_t {
  posix,  ///< the POSIX shared-memory file system, /dev/shm
  sls,    ///< anonymous memory
};

}  // namespace shm::inline v1
