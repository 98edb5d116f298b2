#include "shm/os/call.hpp"

#include <cerrno>
#include <string>

#include "support/catch.hpp"
#include "support/ranks.hpp"

namespace {

using shm::errc;
namespace os = shm::os;

TEST_CASE("an interrupted call is repeated until it is not") {
  int calls = 0;
  auto const result = os::retry([&] {
    errno = EINTR;
    return ++calls < 4 ? -1 : 7;
  });
  CHECK(result == 7);
  CHECK(calls == 4);
}

TEST_CASE("a call that fails otherwise is not repeated") {
  int calls = 0;
  auto const result = os::retry([&] {
    ++calls;
    errno = EBADF;
    return -1;
  });
  CHECK(result == -1);
  CHECK(calls == 1);
  CHECK(errno == EBADF);
}

TEST_CASE("a call that succeeds is not repeated for an old errno") {
  int calls = 0;
  errno = EINTR;
  CHECK(os::retry([&] { return ++calls; }) == 1);
  CHECK(calls == 1);
}

TEST_CASE("each errno stands for the cause that a user can act on") {
  STATIC_REQUIRE(os::cause_of(ENOMEM) == errc::out_of_memory);
  STATIC_REQUIRE(os::cause_of(ENOSPC) == errc::no_space);
  STATIC_REQUIRE(os::cause_of(EDQUOT) == errc::no_space);
  STATIC_REQUIRE(os::cause_of(EMFILE) == errc::limit_reached);
  STATIC_REQUIRE(os::cause_of(ENFILE) == errc::limit_reached);
  STATIC_REQUIRE(os::cause_of(EFBIG) == errc::limit_reached);
  STATIC_REQUIRE(os::cause_of(EAGAIN) == errc::limit_reached);
  STATIC_REQUIRE(os::cause_of(EACCES) == errc::permission_denied);
  STATIC_REQUIRE(os::cause_of(EPERM) == errc::permission_denied);
  STATIC_REQUIRE(os::cause_of(EROFS) == errc::permission_denied);
  STATIC_REQUIRE(os::cause_of(ENOSYS) == errc::unsupported);
  STATIC_REQUIRE(os::cause_of(EOPNOTSUPP) == errc::unsupported);
  STATIC_REQUIRE(os::cause_of(EIO) == errc::system_failure);
}

TEST_CASE("a refused call is an error with its errno and the subject") {
  auto const refused = shm_test::failure_of([] { os::throw_refused(ENOSPC, "making room"); });
  CHECK(refused.cause == errc::no_space);
  CHECK(refused.system == ENOSPC);
  CHECK(refused.subject.view() == "making room");
}

TEST_CASE("a remedy that is given replaces the usual one") {
  auto const usual = shm_test::failure_of([] { os::throw_refused(EMFILE, "x"); });
  CHECK(usual.remedy.view().find("ulimit -n") != std::string_view::npos);
  auto const given = shm_test::failure_of([] { os::throw_refused(EMFILE, "x", "close some"); });
  CHECK(given.remedy.view() == "close some");
}

TEST_CASE("the limits that have one name are named") {
  CHECK(os::remedy_for(ENFILE).find("fs.file-max") != std::string_view::npos);
  CHECK(os::remedy_for(EFBIG).find("ulimit -f") != std::string_view::npos);
  CHECK(os::remedy_for(EIO).empty());
}

TEST_CASE("a call that is not permitted is a matter of sandboxes, not of users") {
  auto const refused = shm_test::failure_of([] { os::throw_refused(EPERM, "mapping 4 KiB"); });
  CHECK(refused.remedy.view().find("seccomp") != std::string_view::npos);
  CHECK(os::remedy_for(EACCES).empty());
}

TEST_CASE("the call that failed last gives its errno to the error") {
  auto const refused = shm_test::failure_of([] {
    errno = EACCES;
    os::throw_last("opening");
  });
  CHECK(refused.cause == errc::permission_denied);
  CHECK(refused.system == EACCES);
}

}  // namespace
