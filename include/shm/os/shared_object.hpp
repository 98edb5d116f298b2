#pragma once
/// @file A shared memory object without a name.

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "shm/base/size.hpp"
#include "shm/os/call.hpp"
#include "shm/os/file_descriptor.hpp"
#include "shm/os/limits.hpp"
#include "shm/os/mapping.hpp"
#include "shm/os/process.hpp"

namespace shm::inline v1::os {

/// How a shared object came about.
enum class origin : std::uint32_t {
  memfd,         ///< anonymous memory; never had a name
  unnamed_file,  ///< a file of a file system that never had a name
  removed_file,  ///< a file that had a name for the moment between two system calls
};

/// What pages an object's memory comes in.
enum class page_kind : std::uint32_t {
  base,
  transparent,  ///< huge where the kernel finds some, when they are populated
  reserved,     ///< huge, from a pool that is no part of the memory of the rest
};

/// One shared memory object, of a fixed size, zero everywhere. The memory lives until the last
/// descriptor and mapping of any process is gone.
struct shared_object {
  file_descriptor descriptor;
  std::size_t bytes = 0;
  std::size_t page_bytes = 0;  ///< the page size that the object's memory comes in
  os::origin origin = os::origin::memfd;
  os::page_kind pages = os::page_kind::base;
  bool must_be_huge = false;  ///< whether transparent pages are an error where they are not huge
};

namespace detail {

/// Gives a new object its size.
///
/// Errors: errc::limit_reached for a size above RLIMIT_FSIZE, which would kill the process
///         (SIGXFSZ) if it were tried; errc::size_overflow above what a file can have.
inline void resize(int descriptor, std::size_t bytes, std::string_view where) {
  std::string const subject = bytes_in_words(bytes) + " in " + std::string(where);
  if (bytes > static_cast<std::size_t>(std::numeric_limits<off_t>::max())) {
    throw error({.cause = errc::size_overflow, .subject = subject});
  }
  if (auto const limit = file_size_limit(); bytes > limit) {
    throw error(
        {.cause = errc::limit_reached,
         .system = EFBIG,
         .subject = subject + ", but files of this process may have " + bytes_in_words(limit),
         .remedy = remedy_for(EFBIG)});
  }
  if (retry([&] { return ::ftruncate(descriptor, static_cast<off_t>(bytes)); }) != 0) {
    throw_last_on(descriptor, subject);
  }
}

/// Returns what can be done where a directory takes no file.
constexpr std::string_view remedy_for_directory(int number) noexcept {
  switch (number) {
    case ENOENT:
      return "mount a tmpfs there, for every rank, or take anonymous memory instead "
             "(KUPL_SHM_TYPE=sls)";
    case EROFS:
      return "mount it writable (mount -o remount,rw), for every rank, or take anonymous memory "
             "instead (KUPL_SHM_TYPE=sls)";
    case EACCES:
    case EPERM:
      return "let this user create files there, or take anonymous memory instead "
             "(KUPL_SHM_TYPE=sls)";
    default:
      return {};
  }
}

/// Throws the error of a directory that takes no file.
[[noreturn]] inline void refuse_file(int number, std::string const& directory) {
  if (number == ENOSPC) {  // the file would be empty yet: what is used up is not space
    throw error({.cause = errc::no_space,
                 .subject = directory + " has no inode left for another file",
                 .remedy = "raise their number (mount -o remount,nr_inodes=…), remove files, or "
                           "take anonymous memory instead (KUPL_SHM_TYPE=sls)"});
  }
  throw_refused(number, "a file in " + directory, remedy_for_directory(number));
}

/// Makes anonymous memory of one kind of pages, sealed against resizing.
///
/// Source: memfd_create(2); MFD_NOEXEC_SEAL (8, since Linux 6.3) is tried first, since
///         vm.memfd_noexec may demand it.
inline shared_object make_memfd(char const* label, std::size_t bytes, std::size_t page_bytes,
                                page_kind pages, unsigned more_flags = 0) {
  constexpr unsigned noexec_seal = 8U;
  unsigned const flags = MFD_CLOEXEC | MFD_ALLOW_SEALING | more_flags;
  int number = ::memfd_create(label, flags | noexec_seal);
  if (number < 0 && errno == EINVAL) number = ::memfd_create(label, flags);
  shared_object object{.descriptor = file_descriptor{number},
                       .bytes = bytes,
                       .page_bytes = page_bytes,
                       .origin = origin::memfd,
                       .pages = pages};
  if (!object.descriptor.is_open()) throw_last("anonymous memory (memfd_create)");
  resize(number, bytes, "anonymous memory");
  // A refused seal costs a protection against mistakes, nothing else.
  ::fcntl(number, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  return object;
}

/// Opens a file in `directory` that has no name afterwards, on file systems without O_TMPFILE. A
/// name that is there already, be it a link that somebody has laid, is neither opened nor followed.
inline file_descriptor open_removed(std::string const& directory) {
  constexpr int most_names = 16;  // one is enough unless somebody can foresee random numbers
  for (int tried = 1;; ++tried) {
    auto const id = random_identifier();
    std::string const path =
        directory + "/shm." + std::to_string(id[0]) + "." + std::to_string(id[1]);
    file_descriptor file{retry([&] {
      return ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    })};
    if (file.is_open()) {
      if (::unlink(path.c_str()) != 0) throw_last("removing the name " + path);
      return file;
    }
    int const number = errno;
    if (number != EEXIST || tried == most_names) {
      refuse_file(number, directory);
    }
  }
}

}  // namespace detail

/// Returns the size in bytes of an open object; 0 where there is none.
inline std::size_t size_of(int descriptor) noexcept {
  struct stat status{};
  return ::fstat(descriptor, &status) == 0 ? static_cast<std::size_t>(status.st_size) : 0;
}

/// Makes an object of anonymous memory, sealed against resizing. `label` is seen in /proc only.
inline shared_object make_anonymous(char const* label, std::size_t bytes) {
  return detail::make_memfd(label, bytes, base_page_bytes(), page_kind::base);
}

/// Makes an object of anonymous memory that is to be populated in transparent huge pages of
/// `page_bytes`, as far as the kernel finds any.
inline shared_object make_transparent(char const* label, std::size_t bytes,
                                      std::size_t page_bytes) {
  return detail::make_memfd(label, bytes, page_bytes, page_kind::transparent);
}

/// Makes an object that is a nameless file in `directory`.
///
/// Errors: errc::permission_denied, errc::system_failure with the directory's name; as `resize`.
/// Source: open(2), O_TMPFILE; EOPNOTSUPP and EISDIR stand for a system without it.
inline shared_object make_unnamed(std::string const& directory, std::size_t bytes) {
  shared_object object{.descriptor = file_descriptor{retry([&] {
                         return ::open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
                       })},
                       .bytes = bytes,
                       .page_bytes = base_page_bytes(),
                       .origin = origin::unnamed_file};
  if (!object.descriptor.is_open()) {
    if (errno != EOPNOTSUPP && errno != EISDIR) {
      detail::refuse_file(errno, directory);
    }
    object.descriptor = detail::open_removed(directory);
    object.origin = origin::removed_file;
  }
  detail::resize(object.descriptor.number(), bytes, directory);
  return object;
}

}  // namespace shm::inline v1::os
