#pragma once
/// @file A mapping of shared memory that unmaps itself, and the populating of its pages.

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "shm/base/size.hpp"
#include "shm/os/call.hpp"
#include "shm/os/limits.hpp"

namespace shm::inline v1::os {

/// Returns the size in bytes of the machine's base pages.
inline std::size_t base_page_bytes() noexcept {
  static std::size_t const bytes = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  return bytes;
}

/// Owns one shared mapping of a whole object. Moved-from and default-constructed objects
/// own none.
class mapping {
 public:
  mapping() noexcept = default;

  /// Maps new memory, zero everywhere, that this process shares with the children that it forks
  /// from now on.
  ///
  /// Errors: as for a descriptor.
  static mapping shared_with_children(std::size_t bytes) {
    return mapping(map(nullptr, bytes, MAP_SHARED | MAP_ANONYMOUS, -1), bytes);
  }

  /// Maps the first `bytes` bytes of the object behind `descriptor`.
  ///
  /// Errors: errc::limit_reached where address space or mappings run out; errc::out_of_memory; else
  ///         as mmap(2) says.
  mapping(int descriptor, std::size_t bytes)
      : mapping(map(nullptr, bytes, MAP_SHARED, descriptor), bytes) {}

  /// Takes address space at a multiple of `alignment`, a power of two: private memory of which no
  /// page exists yet, and without access unless `protection` gives some.
  ///
  /// Errors: errc::size_overflow; errc::limit_reached and errc::out_of_memory as for a descriptor.
  static mapping reserved(std::size_t bytes, std::size_t alignment, int protection = PROT_NONE) {
    auto const room = checked_add(bytes, alignment);
    if (!room) throw error({.cause = errc::size_overflow, .subject = bytes_in_words(bytes)});
    constexpr int nothing = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    auto* const all = map(nullptr, *room, nothing, -1, protection);
    auto const first = reinterpret_cast<std::uintptr_t>(all);
    auto const before = *round_up(first, alignment) - first;
    // What lies around it goes; the address range is this object's own now.
    if (before > 0) ::munmap(all, before);
    auto const end = *round_up(before + bytes, base_page_bytes());
    if (end < *room) ::munmap(all + end, *room - end);
    return {all + before, bytes};
  }

  /// Maps the first `bytes` bytes of an object at an address that is a multiple of `alignment`, a
  /// power of two. The kernel puts transparent huge pages only where address and offset agree so.
  static mapping aligned(int descriptor, std::size_t bytes, std::size_t alignment) {
    if (alignment <= base_page_bytes()) return {descriptor, bytes};
    auto result = reserved(bytes, alignment);
    map(result.bytes_.data(), bytes, MAP_SHARED | MAP_FIXED, descriptor);
    return result;
  }

  mapping(mapping&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}
  mapping& operator=(mapping&& other) noexcept {
    if (this != &other) {
      reset();
      bytes_ = std::exchange(other.bytes_, {});
    }
    return *this;
  }
  ~mapping() { reset(); }

  [[nodiscard]] std::span<std::byte> bytes() const noexcept { return bytes_; }

  /// Leaves the memory out of core dumps, where every process would write all of it. A refusal is
  /// of no consequence but to their size.
  ///
  /// Source: madvise(2), MADV_DONTDUMP.
  void leave_out_of_dumps() const noexcept {
    ::madvise(bytes_.data(), bytes_.size(), MADV_DONTDUMP);
  }

  /// Makes this process's view of all from `offset` on, which begins a page, read-only: a store
  /// there is a segmentation fault. It counts as one mapping more.
  ///
  /// Errors: errc::limit_reached where mappings run out, errc::out_of_memory.
  void make_read_only(std::size_t offset) {
    auto const part = bytes_.subspan(offset);
    if (part.empty() || ::mprotect(part.data(), part.size(), PROT_READ) == 0) return;
    int const number = errno;
    if (number == ENOMEM) throw error(no_room_for_mapping(part.size(), "protecting"));
    throw_refused(number, "protecting " + bytes_in_words(part.size()));
  }

  void reset() noexcept {
    if (!bytes_.empty()) ::munmap(bytes_.data(), bytes_.size());
    bytes_ = {};
  }

 private:
  mapping(std::byte* address, std::size_t bytes) noexcept : bytes_(address, bytes) {}

  static std::byte* map(std::byte* where, std::size_t bytes, int flags, int descriptor,
                        int protection = PROT_READ | PROT_WRITE) {
    void* const address = ::mmap(where, bytes, protection, flags, descriptor, 0);
    if (address == MAP_FAILED) {
      int const number = errno;
      if (number == ENOMEM) throw error(no_room_for_mapping(bytes, "mapping"));
      throw_refused(number, "mapping " + bytes_in_words(bytes));
    }
    return static_cast<std::byte*>(address);
  }

  std::span<std::byte> bytes_;
};

namespace detail {

/// Advice number of MADV_POPULATE_WRITE, which older C library headers lack.
///
/// Source: madvise(2), since Linux 5.14; include/uapi/asm-generic/mman-common.h.
inline constexpr int populate_write_advice = 23;

/// Whether populate_write_advice can be believed on this machine: some emulators answer success to
/// any advice and do nothing.
inline bool has_populate_write(std::span<std::byte> page) noexcept {
  static bool const honest = ::madvise(page.data(), page.size(), -1) != 0 && errno == EINVAL;
  return honest;
}

/// Touches every page without changing a byte.
inline void touch(std::span<std::byte> bytes) noexcept {
  for (std::size_t at = 0; at < bytes.size(); at += base_page_bytes()) {
    // relaxed: nobody else uses these bytes before the creation is agreed, which orders them
    std::atomic_ref(*reinterpret_cast<unsigned char*>(&bytes[at]))
        .fetch_or(0, std::memory_order_relaxed);
  }
}

}  // namespace detail

/// Makes every page of `part` exist, so that no later access can fail for want of memory.
///
/// Requires: part lies in `whole`, the mapping of all of the object behind `descriptor`. Without a
///           descriptor (-1) a kernel before 5.14 cannot reserve, and pages are only touched.
/// Effects:  contents do not change; pages are placed by the caller's memory policy; this
///           process's page tables are filled.
/// Errors:   errc::no_space or errc::out_of_memory; nothing is killed.
/// Source:   madvise(2), MADV_POPULATE_WRITE: EFAULT stands for an access that would raise SIGBUS.
inline void populate(std::span<std::byte> whole, std::span<std::byte> part, int descriptor) {
  if (part.empty()) return;
  std::size_t const page = base_page_bytes();
  auto const begin = round_down(static_cast<std::size_t>(part.data() - whole.data()), page);
  auto const end = static_cast<std::size_t>(part.data() - whole.data()) + part.size();
  auto const pages = whole.subspan(begin, end - begin);
  std::string const subject = "reserving " + bytes_in_words(part.size());
  if (detail::has_populate_write(pages.first(1))) {
    if (retry([&] {
          return ::madvise(pages.data(), pages.size(), detail::populate_write_advice);
        }) == 0) {
      return;
    }
    int const number = errno;
    if (number == EFAULT) {
      auto const free = free_bytes(descriptor);
      throw error({.cause = free == unlimited ? errc::out_of_memory : errc::no_space,
                   .subject = subject + (free == unlimited ? std::string{}
                                                           : ", of which " + bytes_in_words(free) +
                                                                 " are free")});
    }
    if (number != EINVAL) throw_refused(number, subject);
  }
  // A kernel before 5.14: reserve the space in the object first, then touching cannot fail.
  if (descriptor >= 0 && retry([&] {
                           return ::fallocate(descriptor, 0, static_cast<off_t>(begin),
                                              static_cast<off_t>(pages.size()));
                         }) != 0) {
    throw_last_on(descriptor, subject);
  }
  detail::touch(pages);
}

}  // namespace shm::inline v1::os
