#include "shm/os/shared_object.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "support/catch.hpp"
#include "support/child.hpp"
#include "support/directory.hpp"
#include "support/system_call_filter.hpp"

namespace {

namespace os = shm::os;
using shm::errc;

static_assert(!std::is_copy_constructible_v<os::shared_object>);
static_assert(std::is_nothrow_move_constructible_v<os::shared_object>);

constexpr std::size_t mib = std::size_t{1} << 20U;

struct stat status_of(int descriptor) {
  struct stat status{};
  ::fstat(descriptor, &status);
  return status;
}

bool is_close_on_exec(int descriptor) { return (::fcntl(descriptor, F_GETFD) & FD_CLOEXEC) != 0; }

bool is_zero(os::shared_object const& object) {
  os::mapping const map(object.descriptor.number(), object.bytes);
  return std::ranges::all_of(map.bytes(), [](auto byte) { return byte == std::byte{0}; });
}

bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

void limit_files_to(std::size_t bytes) {
  rlimit limit{};
  ::getrlimit(RLIMIT_FSIZE, &limit);
  limit.rlim_cur = bytes;
  ::setrlimit(RLIMIT_FSIZE, &limit);
}

/// From here on no file system of this process has O_TMPFILE.
void be_without_nameless_files() {
  constexpr auto flag = static_cast<std::uint32_t>(O_TMPFILE & ~O_DIRECTORY);
  shm_test::answer({.number = SYS_openat, .argument = 2, .mask = flag, .value = flag}, EOPNOTSUPP);
}

TEST_CASE("anonymous memory has the size that was asked for and is zero") {
  auto const object = os::make_anonymous("test", 3 * mib);
  CHECK(object.bytes == 3 * mib);
  CHECK(status_of(object.descriptor.number()).st_size == static_cast<off_t>(3 * mib));
  CHECK(object.page_bytes == os::base_page_bytes());
  CHECK(object.origin == os::origin::memfd);
  CHECK(is_zero(object));
}

TEST_CASE("anonymous memory can neither shrink nor grow") {
  auto const object = os::make_anonymous("test", mib);
  CHECK(::ftruncate(object.descriptor.number(), 4096) == -1);
  CHECK(errno == EPERM);
  CHECK(::ftruncate(object.descriptor.number(), 2 * mib) == -1);
  CHECK(status_of(object.descriptor.number()).st_size == static_cast<off_t>(mib));
}

TEST_CASE("anonymous memory takes no further seal") {
  auto const object = os::make_anonymous("test", mib);
  CHECK(::fcntl(object.descriptor.number(), F_ADD_SEALS, F_SEAL_WRITE) == -1);
  CHECK(errno == EPERM);
}

TEST_CASE("anonymous memory is closed on exec") {
  CHECK(is_close_on_exec(os::make_anonymous("test", mib).descriptor.number()));
}

TEST_CASE("the label of anonymous memory is seen in /proc") {
  auto const object = os::make_anonymous("a label", 4096);
  auto const link =
      std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(object.descriptor.number()));
  CHECK(has(link.string(), "memfd:a label"));
}

TEST_CASE("anonymous memory is made and sealed on a kernel that does not know the newest flag") {
  shm_test::in_child([](shm_test::findings& found) {
    shm_test::answer({.number = SYS_memfd_create, .argument = 1, .mask = 8, .value = 8}, EINVAL);
    auto const object = os::make_anonymous("test", mib);
    RANK_CHECK(found, object.descriptor.is_open());
    RANK_CHECK(found, ::ftruncate(object.descriptor.number(), 4096) == -1);
    RANK_CHECK(found, is_close_on_exec(object.descriptor.number()));
  });
}

TEST_CASE("anonymous memory that the system refuses is an error that names the call") {
  shm_test::in_child([](shm_test::findings& found) {
    shm_test::answer({.number = SYS_memfd_create}, EPERM);
    auto const refused = shm_test::failure_of([] { os::make_anonymous("test", mib); });
    RANK_CHECK(found, refused.cause == errc::permission_denied);
    RANK_CHECK(found, has(refused.subject.view(), "memfd_create"));
  });
}

TEST_CASE("an unnamed file has the size that was asked for and is zero") {
  shm_test::temporary_directory const directory;
  auto const object = os::make_unnamed(directory.path(), 3 * mib);
  CHECK(object.bytes == 3 * mib);
  CHECK(status_of(object.descriptor.number()).st_size == static_cast<off_t>(3 * mib));
  CHECK(object.page_bytes == os::base_page_bytes());
  CHECK(is_zero(object));
}

TEST_CASE("an unnamed file leaves no name in its directory") {
  shm_test::temporary_directory const directory;
  auto const object = os::make_unnamed(directory.path(), mib);
  CHECK(directory.is_empty());
  CHECK(status_of(object.descriptor.number()).st_nlink == 0);
  CHECK(object.origin == os::origin::unnamed_file);
}

TEST_CASE("an unnamed file is the user's own and closed on exec") {
  shm_test::temporary_directory const directory;
  auto const object = os::make_unnamed(directory.path(), mib);
  CHECK((status_of(object.descriptor.number()).st_mode & 0777U) == 0600U);
  CHECK(is_close_on_exec(object.descriptor.number()));
}

TEST_CASE("an unnamed file lies in the directory that was asked for") {
  shm_test::temporary_directory const directory;
  auto const object = os::make_unnamed(directory.path(), mib);
  struct stat where{};
  REQUIRE(::stat(directory.path().c_str(), &where) == 0);
  CHECK(status_of(object.descriptor.number()).st_dev == where.st_dev);
}

TEST_CASE("a removed file leaves no name in its directory") {
  shm_test::temporary_directory const directory;
  auto const file = os::detail::open_removed(directory.path());
  REQUIRE(file.is_open());
  CHECK(directory.is_empty());
  CHECK(status_of(file.number()).st_nlink == 0);
}

TEST_CASE("a removed file is the user's own and closed on exec") {
  shm_test::temporary_directory const directory;
  auto const file = os::detail::open_removed(directory.path());
  CHECK((status_of(file.number()).st_mode & 0777U) == 0600U);
  CHECK(is_close_on_exec(file.number()));
}

TEST_CASE("a directory without nameless files gives a removed one, and says so") {
  shm_test::temporary_directory const directory;
  shm_test::in_child([&](shm_test::findings& found) {
    be_without_nameless_files();
    auto const object = os::make_unnamed(directory.path(), mib);
    RANK_CHECK(found, object.origin == os::origin::removed_file);
    RANK_CHECK(found, object.bytes == mib);
    RANK_CHECK(found, directory.is_empty());
    RANK_CHECK(found, is_zero(object));
  });
}

TEST_CASE("an absent directory is named, with what can be done") {
  auto const refused =
      shm_test::failure_of([] { os::make_unnamed("/dev/shm/shm-test-is-not-there", mib); });
  CHECK(refused.cause == errc::system_failure);
  CHECK(refused.system == ENOENT);
  CHECK(has(refused.subject.view(), "/dev/shm/shm-test-is-not-there"));
  CHECK(has(refused.remedy.view(), "tmpfs"));
}

TEST_CASE("a directory that takes no files at all is named") {
  auto const refused = shm_test::failure_of([] { os::make_unnamed("/proc", mib); });
  CHECK(refused.is_failure());
  CHECK(has(refused.subject.view(), "/proc"));
}

TEST_CASE("a directory of another user is permission denied") {
  shm_test::temporary_directory const directory;
  shm_test::in_child([&](shm_test::findings& found) {
    if (::seteuid(65534) != 0) throw shm_test::skipped{"becoming another user needs root"};
    auto const refused = shm_test::failure_of([&] { os::make_unnamed(directory.path(), mib); });
    RANK_CHECK(found, refused.cause == errc::permission_denied);
    RANK_CHECK(found, has(refused.subject.view(), directory.path()));
  });
}

TEST_CASE("a size above what a file can have is a size overflow") {
  constexpr auto too_large = static_cast<std::size_t>(std::numeric_limits<off_t>::max()) + 1;
  shm_test::temporary_directory const directory;
  for (auto const bytes : {too_large, std::numeric_limits<std::size_t>::max()}) {
    CHECK(shm_test::failure_of([&] { os::make_anonymous("test", bytes); }).cause ==
          errc::size_overflow);
    CHECK(shm_test::failure_of([&] { os::make_unnamed(directory.path(), bytes); }).cause ==
          errc::size_overflow);
  }
}

TEST_CASE("a refused size leaves no descriptor open") {
  auto const before = shm_test::open_descriptors();
  CHECK_THROWS_AS(os::make_anonymous("test", std::numeric_limits<std::size_t>::max()), shm::error);
  CHECK(shm_test::open_descriptors() == before);
}

TEST_CASE("a size above the file-size limit is limit reached and kills nobody") {
  shm_test::temporary_directory const directory;
  shm_test::in_child([&](shm_test::findings& found) {
    limit_files_to(mib);
    auto const check = [&](shm::failure const& refused) {
      RANK_CHECK(found, refused.cause == errc::limit_reached);
      RANK_CHECK(found, has(refused.subject.view(), "2 MiB in "));
      RANK_CHECK(found, has(refused.subject.view(), "may have 1 MiB"));
      RANK_CHECK(found, has(refused.remedy.view(), "ulimit -f"));
    };
    check(shm_test::failure_of([] { os::make_anonymous("test", 2 * mib); }));
    check(shm_test::failure_of([&] { os::make_unnamed(directory.path(), 2 * mib); }));
  });
}

TEST_CASE("a size of exactly the file-size limit is made") {
  shm_test::in_child([](shm_test::findings& found) {
    limit_files_to(mib);
    RANK_CHECK(found, os::make_anonymous("test", mib).bytes == mib);
  });
}

TEST_CASE("no space for anonymous memory is a lack of memory, not of a file system") {
  shm_test::temporary_directory const directory;
  shm_test::in_child([&](shm_test::findings& found) {
    shm_test::answer({.number = SYS_ftruncate}, ENOSPC);
    auto const anonymous = shm_test::failure_of([] { os::make_anonymous("test", mib); });
    RANK_CHECK(found, anonymous.cause == errc::out_of_memory);
    auto const file = shm_test::failure_of([&] { os::make_unnamed(directory.path(), mib); });
    RANK_CHECK(found, file.cause == errc::no_space);
  });
}

}  // namespace
