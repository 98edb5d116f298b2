#pragma once
/// @file Version of the library, and of what it writes into shared memory.

#if __cplusplus < 202002L
#error "shm needs C++20: compile with -std=c++20"
#endif

#include <cstdint>

namespace shm::inline v1 {

/// Version of the library.
inline constexpr int version_major = 0;
inline constexpr int version_minor = 1;
inline constexpr int version_patch = 0;

/// Version of every layout in shared memory, counted from the first release; processes that differ
/// in it refuse each other. The inline namespace carries the same number, so that two versions can
/// be linked into one program.
inline constexpr std::uint32_t layout_version = 1;

}  // namespace shm::inline v1
