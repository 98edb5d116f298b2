#include "shm/policy/posix.hpp"

#include <cstddef>
#include <type_traits>

#include <sys/stat.h>

#include "support/catch.hpp"
#include "support/ranks.hpp"

namespace {

static_assert(shm::segment_policy<shm::posix_policy>);
static_assert(std::is_empty_v<shm::posix_policy>);

constexpr std::size_t mib = std::size_t{1} << 20U;

TEST_CASE("the backend posix makes an object of /dev/shm with the size that was asked for") {
  auto const object = shm::posix_policy{}.create({.bytes = mib, .settings = {}});
  struct stat status{};
  struct stat where{};
  REQUIRE(::fstat(object.descriptor.number(), &status) == 0);
  REQUIRE(::stat("/dev/shm", &where) == 0);
  CHECK(status.st_dev == where.st_dev);
  CHECK(status.st_size == static_cast<off_t>(mib));
  CHECK(object.bytes == mib);
}

TEST_CASE("the backend posix makes an object without a name") {
  auto const object = shm::posix_policy{}.create({.bytes = mib, .settings = {}});
  struct stat status{};
  REQUIRE(::fstat(object.descriptor.number(), &status) == 0);
  CHECK(status.st_nlink == 0);
  CHECK(object.origin != shm::os::origin::memfd);
}

TEST_CASE("the backend posix makes a new object each time") {
  auto const first = shm::posix_policy{}.create({.bytes = mib, .settings = {}});
  auto const second = shm::posix_policy{}.create({.bytes = mib, .settings = {}});
  struct stat one{};
  struct stat two{};
  REQUIRE(::fstat(first.descriptor.number(), &one) == 0);
  REQUIRE(::fstat(second.descriptor.number(), &two) == 0);
  CHECK(one.st_ino != two.st_ino);
}

TEST_CASE("the backend posix is called posix, in one base-page attempt") {
  shm::posix_policy const policy;
  shm::segment_policy_ref const ref(policy, {});
  CHECK(ref.name() == "posix");
  CHECK(ref.attempts() == 1);
  CHECK(ref.page_bytes(0) == shm::os::base_page_bytes());
}

TEST_CASE("the backend posix refuses what no file can hold") {
  auto const refused = shm_test::failure_of([] {
    static_cast<void>(shm::posix_policy{}.create({.bytes = ~std::size_t{0}, .settings = {}}));
  });
  CHECK(refused.cause == shm::errc::size_overflow);
}

}  // namespace
