#include "shm/os/zdax.hpp"

#include <cerrno>
#include <cstddef>
#include <string>

#include <fcntl.h>
#include <unistd.h>

#include "support/catch.hpp"
#include "support/directory.hpp"

namespace {

namespace os = shm::os;

TEST_CASE("there is a driver where its device is, and nowhere else") {
  shm_test::temporary_directory const directory;
  CHECK_FALSE(os::zdax_device((directory.path() + "/missing").c_str()).is_there());
  CHECK_FALSE(os::zdax_device(directory.path().c_str()).is_there());
  auto const file = directory.path() + "/file";
  ::close(::open(file.c_str(), O_CREAT | O_RDWR, 0600));
  CHECK_FALSE(os::zdax_device(file.c_str()).is_there());
  os::zdax_device const null("/dev/null");
  CHECK(null.is_there());
  os::zdax_request request{};
  CHECK(null(request) == ENOTTY);
}

TEST_CASE("a range whose units pass the end of the address space is not asked for") {
  int calls = 0;
  auto const device = [&calls](os::zdax_request&) { return ++calls; };
  auto const result =
      os::attach_by_zdax(device, {.process = 1, .begin = static_cast<std::size_t>(-3), .bytes = 1});
  CHECK(result.refusal == EINVAL);
  CHECK(result.range.bytes().empty());
  CHECK(calls == 0);
}

TEST_CASE("memory that ends with a unit takes no unit more") {
  os::zdax_request seen{};
  auto const device = [&seen](os::zdax_request& request) {
    seen = request;
    return 0;
  };
  auto const result = os::attach_by_zdax(
      device,
      {.process = 1, .begin = 3 * os::zdax_unit_bytes - 1, .bytes = 1 + os::zdax_unit_bytes});
  CHECK(seen.source == 2 * os::zdax_unit_bytes);
  CHECK(seen.bytes == 2 * os::zdax_unit_bytes);
  CHECK(result.range.bytes().size() == 2 * os::zdax_unit_bytes);
  CHECK(result.address == &result.range.bytes()[os::zdax_unit_bytes - 1]);
}

}  // namespace
