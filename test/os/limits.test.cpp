#include "shm/os/limits.hpp"

#include <string>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "shm/os/file_descriptor.hpp"
#include "support/catch.hpp"
#include "support/child.hpp"
#include "support/directory.hpp"

namespace {

namespace os = shm::os;
using shm::errc;

constexpr std::size_t mib = std::size_t{1} << 20U;

os::file_descriptor anonymous() {
  return os::file_descriptor(::memfd_create("limits test", MFD_CLOEXEC));
}

/// A new file of a private file system of 1 MiB.
os::file_descriptor file_on_small_tmpfs(shm_test::temporary_directory const& directory) {
  shm_test::mount_private_tmpfs(directory.path(), mib);
  auto const path = directory.path() + "/file";
  return os::file_descriptor(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
}

bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

TEST_CASE("anonymous memory has no bound of a file system") {
  CHECK(os::free_bytes(anonymous().number()) == os::unlimited);
}

TEST_CASE("a descriptor that is not open sets no bound") {
  CHECK(os::free_bytes(-1) == os::unlimited);
}

TEST_CASE("the free bytes of a small file system are its own") {
  shm_test::temporary_directory const directory;
  shm_test::in_child([&](shm_test::findings& found) {
    auto const file = file_on_small_tmpfs(directory);
    RANK_CHECK(found, os::free_bytes(file.number()) == mib);
    RANK_CHECK(found, ::fallocate(file.number(), 0, 0, mib / 4) == 0);
    RANK_CHECK(found, os::free_bytes(file.number()) == mib - mib / 4);
    RANK_CHECK(found, ::fallocate(file.number(), 0, 0, mib) == 0);
    RANK_CHECK(found, os::free_bytes(file.number()) == 0);
  });
}

TEST_CASE("the file-size limit is the soft one that was set") {
  shm_test::in_child([](shm_test::findings& found) {
    rlimit limit{};
    ::getrlimit(RLIMIT_FSIZE, &limit);
    limit.rlim_cur = 4 * mib;
    RANK_CHECK(found, ::setrlimit(RLIMIT_FSIZE, &limit) == 0);
    RANK_CHECK(found, os::file_size_limit() == 4 * mib);
  });
}

TEST_CASE("no file-size limit is unlimited") {
  rlimit limit{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &limit) == 0);
  if (limit.rlim_cur != RLIM_INFINITY) {
    WARN("skipped: this process has a file-size limit");
    return;
  }
  CHECK(os::file_size_limit() == os::unlimited);
}

TEST_CASE("the available memory is less than all and more than a mebibyte") {
  auto const pages = static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES));
  auto const all = pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  CHECK(os::available_memory() <= all);
  CHECK(os::available_memory() > mib);
}

TEST_CASE("what there is room for is not refused") {
  CHECK_NOTHROW(os::require_room(anonymous().number(), 0));
  CHECK_NOTHROW(os::require_room(anonymous().number(), 4096));
}

TEST_CASE("more than the machine has is refused as out of memory, with both numbers") {
  auto const refused =
      shm_test::failure_of([] { os::require_room(anonymous().number(), 1ULL << 50U); });
  CHECK(refused.cause == errc::out_of_memory);
  CHECK(has(refused.subject.view(), "1 PiB are needed"));
  CHECK(has(refused.subject.view(), "this machine has "));
  CHECK(has(refused.subject.view(), " left"));
}

TEST_CASE("more than the file system has is refused as no space, with both numbers") {
  shm_test::temporary_directory const directory;
  shm_test::in_child([&](shm_test::findings& found) {
    auto const file = file_on_small_tmpfs(directory);
    auto const refused = shm_test::failure_of([&] { os::require_room(file.number(), 2 * mib); });
    RANK_CHECK(found, refused.cause == errc::no_space);
    RANK_CHECK(found, has(refused.subject.view(), "2 MiB are needed"));
    RANK_CHECK(found, has(refused.subject.view(), "has 1 MiB left"));
  });
}

TEST_CASE("exactly what the file system has left is not refused") {
  shm_test::temporary_directory const directory;
  shm_test::in_child([&](shm_test::findings& found) {
    auto const file = file_on_small_tmpfs(directory);
    os::require_room(file.number(), mib);
    auto const refused = shm_test::failure_of([&] { os::require_room(file.number(), mib + 1); });
    RANK_CHECK(found, refused.cause == errc::no_space);
  });
}

}  // namespace
