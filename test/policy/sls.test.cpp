#include "shm/policy/sls.hpp"

#include <type_traits>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/catch.hpp"
#include "support/child.hpp"
#include "support/directory.hpp"

namespace {

static_assert(shm::segment_policy<shm::sls_policy>);

constexpr std::size_t mib = std::size_t{1} << 20U;

TEST_CASE("the backend sls makes anonymous memory of the size that was asked for") {
  auto const object = shm::sls_policy{}.create({.bytes = mib, .settings = {}});
  struct stat status{};
  REQUIRE(::fstat(object.descriptor.number(), &status) == 0);
  CHECK(status.st_nlink == 0);
  CHECK(status.st_size == static_cast<off_t>(mib));
  CHECK(object.origin == shm::os::origin::memfd);
}

TEST_CASE("memory of the backend sls keeps its size, and is closed on exec") {
  auto const object = shm::sls_policy{}.create({.bytes = mib, .settings = {}});
  CHECK(::ftruncate(object.descriptor.number(), mib / 2) != 0);
  CHECK(::ftruncate(object.descriptor.number(), 2 * mib) != 0);
  CHECK((::fcntl(object.descriptor.number(), F_GETFD) & FD_CLOEXEC) != 0);
}

TEST_CASE("the backend sls is not bounded by the size of /dev/shm") {
  shm_test::in_child([](shm_test::findings& found) {
    shm_test::mount_private_tmpfs("/dev/shm", mib);
    auto const object = shm::sls_policy{}.create({.bytes = 8 * mib, .settings = {}});
    shm::os::mapping const map(object.descriptor.number(), 8 * mib);
    shm::os::populate(map.bytes(), map.bytes(), object.descriptor.number());
    RANK_CHECK(found, map.bytes()[8 * mib - 1] == std::byte{0});
  });
}

}  // namespace
