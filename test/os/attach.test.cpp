#include "shm/os/attach.hpp"

#include <cerrno>
#include <string>
#include <string_view>
#include <type_traits>

#include <fcntl.h>
#include <unistd.h>

#include "support/catch.hpp"
#include "support/child.hpp"
#include "support/directory.hpp"

namespace {

namespace os = shm::os;
using shm::errc;

static_assert(std::is_trivially_copyable_v<os::object_address>);

bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

TEST_CASE("an address names this process, the descriptor and the size") {
  auto const object = os::make_anonymous("attach test", 4096);
  auto const address = os::address_of(object);
  CHECK(address.process == ::getpid());
  CHECK(address.descriptor == object.descriptor.number());
  CHECK(address.bytes == 4096);
}

TEST_CASE("an empty object has no address") {
  auto const refused = shm_test::failure_of([] { os::address_of(os::shared_object{}); });
  CHECK(refused.system == EBADF);
}

TEST_CASE("another process's object is attached through its address") {
  auto const object = os::make_anonymous("attach test", 4096);
  os::mapping const map(object.descriptor.number(), object.bytes);
  auto const address = os::address_of(object);
  shm_test::in_child([&](shm_test::findings& found) {
    ::close(object.descriptor.number());
    auto const own = os::attach(address);
    os::mapping const theirs(own.number(), 4096);
    theirs.bytes()[7] = std::byte{9};
    RANK_CHECK(found, os::is_object(own.number(), address));
  });
  CHECK(map.bytes()[7] == std::byte{9});
}

TEST_CASE("an object without a name can be attached") {
  shm_test::temporary_directory const directory;
  auto const object = os::make_unnamed(directory.path(), 4096);
  auto const own = os::attach(os::address_of(object));
  CHECK(os::is_object(own.number(), os::address_of(object)));
}

TEST_CASE("attaching gives an open file description of its own") {
  auto const object = os::make_anonymous("attach test", 4096);
  auto const own = os::attach(os::address_of(object));
  REQUIRE(::lseek(own.number(), 100, SEEK_SET) == 100);
  CHECK(::lseek(object.descriptor.number(), 0, SEEK_CUR) == 0);
}

TEST_CASE("an attached descriptor is closed on exec") {
  auto const object = os::make_anonymous("attach test", 4096);
  auto const own = os::attach(os::address_of(object));
  CHECK((::fcntl(own.number(), F_GETFD) & FD_CLOEXEC) != 0);
}

TEST_CASE("a descriptor number that another object has taken is refused") {
  auto const object = os::make_anonymous("attach test", 4096);
  auto const address = os::address_of(object);
  auto const other = os::make_anonymous("attach test", 4096);
  REQUIRE(::dup2(other.descriptor.number(), object.descriptor.number()) >= 0);
  auto const refused = shm_test::failure_of([&] { os::attach(address); });
  CHECK(refused.cause == errc::system_failure);
  CHECK(refused.system == ESTALE);
  CHECK(has(refused.subject.view(), "descriptor " + std::to_string(address.descriptor) + " of "));
  CHECK(has(refused.subject.view(), std::to_string(::getpid())));
}

TEST_CASE("a refused attachment leaves no descriptor open") {
  auto const object = os::make_anonymous("attach test", 4096);
  auto address = os::address_of(object);
  ++address.inode;
  auto const before = shm_test::open_descriptors();
  CHECK_THROWS_AS(os::attach(address), shm::error);
  CHECK(shm_test::open_descriptors() == before);
}

TEST_CASE("a change of size is noticed") {
  shm_test::temporary_directory const directory;
  auto const object = os::make_unnamed(directory.path(), 8192);
  auto const address = os::address_of(object);
  REQUIRE(::ftruncate(object.descriptor.number(), 4096) == 0);
  CHECK_FALSE(os::is_object(object.descriptor.number(), address));
  CHECK(shm_test::failure_of([&] { os::attach(address); }).system == ESTALE);
}

TEST_CASE("an object is known by its device, its inode and its size") {
  auto const object = os::make_anonymous("attach test", 4096);
  auto const number = object.descriptor.number();
  auto address = os::address_of(object);
  CHECK(os::is_object(number, address));
  ++address.device;
  CHECK_FALSE(os::is_object(number, address));
  address = os::address_of(object);
  ++address.inode;
  CHECK_FALSE(os::is_object(number, address));
  address = os::address_of(object);
  ++address.bytes;
  CHECK_FALSE(os::is_object(number, address));
}

TEST_CASE("a closed descriptor is no object") {
  auto const object = os::make_anonymous("attach test", 4096);
  CHECK_FALSE(os::is_object(-1, os::address_of(object)));
}

TEST_CASE("a process that has gone is an error that names the path") {
  auto const object = os::make_anonymous("attach test", 4096);
  auto address = os::address_of(object);
  shm_test::child gone([] {});
  address.process = gone.pid();
  gone.await_death();  // a zombie: its number cannot be taken by another process
  auto const refused = shm_test::failure_of([&] { os::attach(address); });
  CHECK(refused.is_failure());
  CHECK(has(refused.subject.view(), "/proc/" + std::to_string(address.process) + "/fd/"));
}

TEST_CASE("a descriptor that its process has closed is an error") {
  auto const address = [] {
    auto const object = os::make_anonymous("attach test", 4096);
    return os::address_of(object);
  }();
  auto const refused = shm_test::failure_of([&] { os::attach(address); });
  CHECK(refused.system == ENOENT);
}

}  // namespace
