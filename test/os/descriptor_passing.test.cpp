#include "shm/os/descriptor_passing.hpp"

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstring>
#include <stdexcept>
#include <type_traits>

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "shm/os/shared_object.hpp"
#include "support/catch.hpp"
#include "support/child.hpp"
#include "support/directory.hpp"

namespace {

namespace os = shm::os;
using shm::errc;
using std::chrono::milliseconds;

static_assert(std::is_trivially_copyable_v<os::parcel>);
static_assert(std::has_unique_object_representations_v<os::parcel>);

/// Two connected sockets of the kind that parcels travel over.
struct connection {
  os::file_descriptor here;
  os::file_descriptor there;
};

connection connected() {
  int ends[2] = {-1, -1};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    throw std::runtime_error("socketpair");
  }
  return {os::file_descriptor(ends[0]), os::file_descriptor(ends[1])};
}

bool is_close_on_exec(int descriptor) { return (::fcntl(descriptor, F_GETFD) & FD_CLOEXEC) != 0; }

ino_t inode_of(int descriptor) {
  struct stat status{};
  ::fstat(descriptor, &status);
  return status.st_ino;
}

TEST_CASE("a parcel arrives as it was sent") {
  auto const [here, there] = connected();
  os::send_parcel(here.number(), {.nonce = {11, 22}, .number = 33});
  auto const got = os::receive_parcel(there.number());
  REQUIRE(got.has_value());
  CHECK(got->what.nonce == os::identifier{11, 22});
  CHECK(got->what.number == 33);
}

TEST_CASE("a parcel without a descriptor brings none") {
  auto const [here, there] = connected();
  os::send_parcel(here.number(), {});
  auto const got = os::receive_parcel(there.number());
  REQUIRE(got.has_value());
  CHECK_FALSE(got->descriptor.is_open());
}

TEST_CASE("a descriptor that is sent arrives as the same object under another number") {
  auto const [here, there] = connected();
  auto const object = os::make_anonymous("passing test", 4096);
  os::send_parcel(here.number(), {}, object.descriptor.number());
  auto const got = os::receive_parcel(there.number());
  REQUIRE(got.has_value());
  REQUIRE(got->descriptor.is_open());
  CHECK(got->descriptor.number() != object.descriptor.number());
  CHECK(inode_of(got->descriptor.number()) == inode_of(object.descriptor.number()));
}

TEST_CASE("descriptor 0 is sent like any other") {
  auto const [here, there] = connected();
  os::send_parcel(here.number(), {}, 0);
  auto const got = os::receive_parcel(there.number());
  REQUIRE(got.has_value());
  CHECK(got->descriptor.is_open());
}

TEST_CASE("a received descriptor is closed on exec") {
  auto const [here, there] = connected();
  auto const object = os::make_anonymous("passing test", 4096);
  os::send_parcel(here.number(), {}, object.descriptor.number());
  auto const got = os::receive_parcel(there.number());
  REQUIRE(got.has_value());
  CHECK(is_close_on_exec(got->descriptor.number()));
}

TEST_CASE("a descriptor reaches another process") {
  auto const [here, there] = connected();
  auto const object = os::make_anonymous("passing test", 4096);
  auto const inode = inode_of(object.descriptor.number());
  os::send_parcel(here.number(), {.number = 4}, object.descriptor.number());
  shm_test::in_child([&, socket = there.number()](shm_test::findings& found) {
    auto const got = os::receive_parcel(socket);
    RANK_CHECK(found, got.has_value() && got->what.number == 4);
    RANK_CHECK(found, got.has_value() && inode_of(got->descriptor.number()) == inode);
  });
}

TEST_CASE("two parcels sent at once are received one by one") {
  auto const [here, there] = connected();
  os::send_parcel(here.number(), {.number = 1});
  os::send_parcel(here.number(), {.number = 2});
  CHECK(os::receive_parcel(there.number())->what.number == 1);
  CHECK(os::receive_parcel(there.number())->what.number == 2);
}

TEST_CASE("the end of a connection is nothing") {
  auto [here, there] = connected();
  here.reset();
  CHECK_FALSE(os::receive_parcel(there.number()).has_value());
}

TEST_CASE("a process that cannot receive is told why, and not that the other end is closed") {
  try {
    os::receive_parcel(-1);
    FAIL("no error");
  } catch (shm::error const& e) {
    CHECK(e.details().system == EBADF);
  }
}

TEST_CASE("a message that is too short is nothing") {
  auto const [here, there] = connected();
  REQUIRE(::send(here.number(), "short", 5, 0) == 5);
  CHECK_FALSE(os::receive_parcel(there.number()).has_value());
}

TEST_CASE("a descriptor that comes with a message that is too short is closed") {
  auto const [here, there] = connected();
  auto const object = os::make_anonymous("passing test", 4096);
  char text[] = "short";
  iovec part{text, sizeof text};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  auto* const head = CMSG_FIRSTHDR(&message);
  head->cmsg_level = SOL_SOCKET;
  head->cmsg_type = SCM_RIGHTS;
  head->cmsg_len = CMSG_LEN(sizeof(int));
  int const number = object.descriptor.number();
  std::memcpy(CMSG_DATA(head), &number, sizeof number);
  auto const before = shm_test::open_descriptors();
  REQUIRE(::sendmsg(here.number(), &message, 0) > 0);
  CHECK_FALSE(os::receive_parcel(there.number()).has_value());
  CHECK(shm_test::open_descriptors() == before);
}

TEST_CASE("sending to a closed connection is an error and not a signal") {
  shm_test::in_child([](shm_test::findings& found) {
    // The kernel raises SIGPIPE for streams alone; a parcel can travel over one.
    std::signal(SIGPIPE, SIG_DFL);
    int ends[2] = {-1, -1};
    RANK_CHECK(found, ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    os::file_descriptor const here(ends[0]);
    ::close(ends[1]);
    auto const refused = shm_test::failure_of([&] { os::send_parcel(here.number(), {}); });
    RANK_CHECK(found, refused.cause == errc::system_failure);
    RANK_CHECK(found, refused.system == EPIPE);
    RANK_CHECK(found, refused.subject.view() == "sending a descriptor");
  });
}

TEST_CASE("a descriptor for which there is no number left is missing from its parcel") {
  shm_test::in_child([](shm_test::findings& found) {
    auto const pair = connected();
    os::send_parcel(pair.here.number(), {}, 2);
    // Sanitizers open descriptors for what they meet first, here the throwing of an error.
    static_cast<void>(shm_test::failure_of([] { os::throw_refused(EMFILE, "first"); }));
    rlimit limit{};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    int const next = ::dup(2);
    limit.rlim_cur = static_cast<rlim_t>(next);
    ::close(next);
    RANK_CHECK(found, ::setrlimit(RLIMIT_NOFILE, &limit) == 0);
    auto const got = os::receive_parcel(pair.there.number());
    RANK_CHECK(found, got.has_value() && !got->descriptor.is_open());
  });
}

TEST_CASE("a rank that asks is accepted with its nonce and its number") {
  auto const name = os::random_identifier();
  auto const nonce = os::random_identifier();
  auto const listener = os::listen_at(name);
  auto const asking = os::ask_for_descriptors(name, nonce, 7);
  auto const accepted = os::accept_one(listener.number(), milliseconds(60000));
  REQUIRE(accepted.has_value());
  auto const hello = os::receive_parcel(accepted->number());
  REQUIRE(hello.has_value());
  CHECK(hello->what.nonce == nonce);
  CHECK(hello->what.number == 7);
}

TEST_CASE("an accepted connection carries descriptors back to the rank that asked") {
  auto const name = os::random_identifier();
  auto const nonce = os::random_identifier();
  auto const listener = os::listen_at(name);
  auto const asking = os::ask_for_descriptors(name, nonce, 7);
  auto const accepted = os::accept_one(listener.number(), milliseconds(60000));
  auto const object = os::make_anonymous("passing test", 4096);
  os::send_parcel(accepted->number(), {.nonce = nonce}, object.descriptor.number());
  auto const got = os::receive_parcel(asking.number());
  REQUIRE(got.has_value());
  CHECK(inode_of(got->descriptor.number()) == inode_of(object.descriptor.number()));
}

TEST_CASE("a wrong name connects nowhere") {
  auto const name = os::random_identifier();
  auto const listener = os::listen_at(name);
  for (std::size_t word : {0U, 1U}) {
    auto wrong = name;
    wrong[word] ^= 1U;
    auto const refused = shm_test::failure_of([&] { os::ask_for_descriptors(wrong, wrong, 1); });
    CHECK(refused.system == ECONNREFUSED);
    CHECK(refused.subject.view() == "connecting to rank 0");
  }
  CHECK_FALSE(os::accept_one(listener.number(), milliseconds(0)).has_value());
}

TEST_CASE("a closed listener is reached by nobody") {
  auto const name = os::random_identifier();
  auto const nonce = os::random_identifier();
  auto listener = os::listen_at(name);
  listener.reset();
  CHECK_THROWS_AS(os::ask_for_descriptors(name, nonce, 1), shm::error);
}

TEST_CASE("nobody can listen at a name that is taken") {
  auto const name = os::random_identifier();
  auto const listener = os::listen_at(name);
  auto const refused = shm_test::failure_of([&] { os::listen_at(name); });
  CHECK(refused.system == EADDRINUSE);
}

TEST_CASE("a listener's address leaves nothing in a directory") {
  auto const listener = os::listen_at(os::random_identifier());
  sockaddr_un address{};
  socklen_t length = sizeof address;
  REQUIRE(::getsockname(listener.number(), reinterpret_cast<sockaddr*>(&address), &length) == 0);
  CHECK(length > offsetof(sockaddr_un, sun_path) + 1);
  CHECK(address.sun_path[0] == '\0');
}

TEST_CASE("sockets are closed on exec") {
  auto const name = os::random_identifier();
  auto const nonce = os::random_identifier();
  auto const listener = os::listen_at(name);
  auto const asking = os::ask_for_descriptors(name, nonce, 7);
  auto const accepted = os::accept_one(listener.number(), milliseconds(60000));
  CHECK(is_close_on_exec(listener.number()));
  CHECK(is_close_on_exec(asking.number()));
  CHECK(is_close_on_exec(accepted->number()));
}

TEST_CASE("a socket is readable with a parcel in it, and without one it is not") {
  auto const [here, there] = connected();
  CHECK_FALSE(os::is_readable(there.number(), milliseconds(0)));
  os::send_parcel(here.number(), {});
  CHECK(os::is_readable(there.number(), milliseconds(60000)));
}

TEST_CASE("a socket whose other end is closed is readable") {
  auto [here, there] = connected();
  here.reset();
  CHECK(os::is_readable(there.number(), milliseconds(60000)));
}

TEST_CASE("a message that is too long is nothing") {
  auto const [here, there] = connected();
  char const big[100] = {};
  REQUIRE(::send(here.number(), big, sizeof big, 0) == sizeof big);
  CHECK_FALSE(os::receive_parcel(there.number()).has_value());
}

TEST_CASE("a second descriptor in a message is not left open") {
  auto const [here, there] = connected();
  os::parcel const what{};
  iovec part{const_cast<os::parcel*>(&what), sizeof what};
  alignas(cmsghdr) char control[CMSG_SPACE(2 * sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  auto* const head = CMSG_FIRSTHDR(&message);
  head->cmsg_level = SOL_SOCKET;
  head->cmsg_type = SCM_RIGHTS;
  head->cmsg_len = CMSG_LEN(2 * sizeof(int));
  int const two[2] = {1, 2};
  std::memcpy(CMSG_DATA(head), two, sizeof two);
  REQUIRE(::sendmsg(here.number(), &message, 0) > 0);
  auto const before = shm_test::open_descriptors();
  auto const got = os::receive_parcel(there.number());
  CHECK((got.has_value() && !got->descriptor.is_open()));
  CHECK(shm_test::open_descriptors() == before);
}

}  // namespace
