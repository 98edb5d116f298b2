#include "shm/policy/runtime.hpp"

#include <type_traits>

#include <sys/stat.h>

#include "support/catch.hpp"

namespace {

static_assert(shm::segment_policy<shm::runtime_policy>);
static_assert(std::is_empty_v<shm::runtime_policy>);
static_assert(noexcept(shm::runtime_policy{}.name_in({})));

TEST_CASE("the default backend is named after what the settings choose") {
  shm::runtime_policy const policy;
  CHECK(shm::segment_policy_ref(policy, {.backend = shm::backend::posix}).name() == "posix");
  CHECK(shm::segment_policy_ref(policy, {.backend = shm::backend::sls}).name() == "sls");
}

TEST_CASE("the default backend makes anonymous memory where the settings choose sls") {
  auto const object =
      shm::runtime_policy{}.create({.bytes = 8192, .settings = {.backend = shm::backend::sls}});
  CHECK(object.origin == shm::os::origin::memfd);
  CHECK(object.bytes == 8192);
}

TEST_CASE("the default backend makes what the chosen one makes") {
  auto const object =
      shm::runtime_policy{}.create({.bytes = 8192, .settings = {.backend = shm::backend::posix}});
  struct stat status{};
  struct stat where{};
  REQUIRE(::fstat(object.descriptor.number(), &status) == 0);
  REQUIRE(::stat("/dev/shm", &where) == 0);
  CHECK(status.st_dev == where.st_dev);
  CHECK(status.st_nlink == 0);
  CHECK(object.bytes == 8192);
}

TEST_CASE("the default backend and posix are told apart, since ranks must choose the same") {
  shm::runtime_policy const runtime;
  shm::posix_policy const posix;
  CHECK(shm::segment_policy_ref(runtime, {}).signature() !=
        shm::segment_policy_ref(posix, {}).signature());
}

}  // namespace
