#pragma once
/// @file How a rank makes its block of a window: places it, populates it, and finds in which pages.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "shm/base/size.hpp"
#include "shm/error.hpp"
#include "shm/group/control_block.hpp"
#include "shm/os/huge_page.hpp"
#include "shm/os/mapping.hpp"
#include "shm/os/shared_object.hpp"
#include "shm/window/segment.hpp"

namespace shm::inline v1::detail {

/// Returns this rank's block, grown to whole pages of the layout, as far as the segment goes.
inline std::span<std::byte> pages_of_own_block(segment const& made) {
  auto const whole = made.mapping().bytes();
  auto const block = made.block(made.rank());
  if (block.empty()) return {};
  auto const page_bytes = made.header().page_bytes;
  auto const offset = static_cast<std::size_t>(block.data() - whole.data());
  auto const begin = round_down(offset, page_bytes);
  auto const end = round_up(offset + block.size(), page_bytes).value_or(whole.size());
  return whole.subspan(begin, end - begin);
}

/// Maps all of an object.
///
/// Errors: errc::limit_reached where another program has taken reserved huge pages in between; as
///         `os::mapping`.
inline os::mapping map_whole(int descriptor, std::size_t bytes, std::size_t page_bytes,
                             os::page_kind pages) {
  // Only transparent huge pages need it; the kernel aligns reserved ones itself.
  if (pages == os::page_kind::transparent) {
    return os::mapping::aligned(descriptor, bytes, page_bytes);
  }
  try {
    return {descriptor, bytes};
  } catch (error const& refused) {
    // Where a limit of this process is the reason, that is what has been thrown.
    if (pages != os::page_kind::reserved || refused.code() != errc::out_of_memory) throw;
    throw error({.cause = errc::limit_reached,
                 .system = refused.details().system,
                 .subject = std::to_string(bytes / page_bytes) + " huge pages of " +
                            bytes_in_words(page_bytes) + " cannot be reserved",
                 .remedy = "reserve more (sysctl -w vm.nr_hugepages=…; grep Huge /proc/meminfo)"});
  }
}

/// Populates this rank's block, of an object behind `descriptor`.
///
/// Errors: errc::no_space, errc::out_of_memory; errc::limit_reached where huge pages that are
///         reserved cannot be had all the same.
inline void populate_own_block(segment const& made, int descriptor, os::page_kind pages) {
  auto const whole = made.mapping().bytes();
  auto const block = made.block(made.rank());
  if (pages == os::page_kind::transparent) {
    // Asked for on these pages alone, they are a mapping of their own, in which the kernel counts.
    os::prefer_huge_pages(pages_of_own_block(made));
  }
  try {
    os::populate(whole, block, descriptor);
  } catch (error const& refused) {
    if (pages != os::page_kind::reserved) throw;
    throw error({.cause = errc::limit_reached,
                 .system = refused.details().system,
                 .subject = "reserved huge pages for " + bytes_in_words(block.size()) +
                            " are refused to this process",
                 .remedy = "raise its hugetlb limit (hugetlb.….max of its control group), or "
                           "reserve them on its NUMA nodes"});
  }
}

/// Writes down in which pages this rank's block has come, or will come as far as is known.
///
/// Errors: where it must have huge pages and has not got them, errc::out_of_memory,
///         errc::permission_denied where they are disabled for this process, errc::unsupported
///         where they do not come before they are touched.
inline void note_pages(segment const& made, object_notice const& notice, bool is_populated) {
  auto& own = made.blocks()[static_cast<std::size_t>(made.rank())];
  own.page_bytes = notice.page_bytes;
  if (notice.pages != os::page_kind::transparent || own.bytes == 0) return;
  if (!is_populated) {
    bool const is_asked = os::prefer_huge_pages(made.mapping().bytes());
    if (!notice.must_be_huge) {
      // What the pages will come in is not known yet; only a refusal is.
      if (!is_asked) own.page_bytes = os::base_page_bytes();
      return;
    }
    throw error(
        {.cause = errc::unsupported,
         .subject = "transparent huge pages are not known to come before they are populated",
         .remedy = "reserve huge pages (sysctl -w vm.nr_hugepages=…), or populate"});
  }
  auto const pages = pages_of_own_block(made);
  auto const came = os::transparent_bytes_in(pages);
  bool const is_asked = os::prefer_huge_pages(made.mapping().bytes());  // for others' blocks too
  if (came >= pages.size()) return;
  own.page_bytes = os::base_page_bytes();
  if (!notice.must_be_huge) return;
  if (!is_asked || os::has_huge_pages_disabled()) {
    throw error({.cause = errc::permission_denied,
                 .subject = "this process gets no transparent huge pages: they are disabled for it",
                 .remedy =
                     "start it with them (PR_SET_THP_DISABLE of prctl(2), madvise(2) in its "
                     "seccomp profile), or reserve huge pages (sysctl -w vm.nr_hugepages=…)"});
  }
  throw error({.cause = errc::out_of_memory,
               .subject = "the kernel found transparent huge pages for " + bytes_in_words(came) +
                          " of " + bytes_in_words(pages.size()),
               .remedy = "reserve huge pages (sysctl -w vm.nr_hugepages=…), or gather free memory "
                         "first (echo 1 >/proc/sys/vm/compact_memory)"});
}

}  // namespace shm::inline v1::detail
