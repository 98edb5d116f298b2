#pragma once

/// @file
/// Holds what the launcher of failure tests and its ranks agree on: environment, limits, frames.

#include <cstdint>

namespace shm_test {

inline constexpr char rank_variable[] = "SHM_LAUNCH_RANK";
inline constexpr char size_variable[] = "SHM_LAUNCH_SIZE";
inline constexpr char socket_variable[] = "SHM_LAUNCH_SOCKET";

inline constexpr std::uint32_t max_ranks = 256;

/// Longest block of an allgather; a longer announcement means that something else wrote the frame.
inline constexpr std::uint64_t max_block_bytes = std::uint64_t{16} << 20;

enum class frame_kind : std::uint32_t {
  hello,      ///< rank to launcher, with SCM_CREDENTIALS: the rank runs
  go,         ///< launcher to rank: all ranks run, or one was lost
  block,      ///< rank to launcher: its block of the present allgather
  all,        ///< launcher to rank: the blocks of all ranks, in rank order
  rank_lost,  ///< launcher to rank: `rank` was lost before it sent its block
  unequal,    ///< launcher to rank: the block of `rank` is not as long as that of rank 0
  ask,        ///< rank to launcher: go on with the ranks that are left
  survivors,  ///< launcher to rank, after every rank has asked or is lost: those left, 4 bytes each
};

/// Heads every frame on the socket, in the byte order of the machine.
///
///     offset  0        4        8             16
///             | kind   | rank   | size_bytes  | payload [size_bytes]
struct frame_header {
  frame_kind kind;
  std::uint32_t rank;
  std::uint64_t size_bytes;
};
static_assert(sizeof(frame_header) == 16);

}  // namespace shm_test
