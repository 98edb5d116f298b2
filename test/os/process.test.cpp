#include "shm/os/process.hpp"

#include <grp.h>

#include <cstdio>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "support/catch.hpp"
#include "support/child.hpp"
#include "support/directory.hpp"

namespace {

namespace os = shm::os;

TEST_CASE("random identifiers differ and are not zero") {
  auto const first = os::random_identifier();
  CHECK(first != os::random_identifier());
  CHECK(first[0] != 0);
  CHECK(first[1] != 0);
}

TEST_CASE("a forked child draws other random identifiers than its parent") {
  os::identifier const parents = os::random_identifier();
  shm_test::in_child(
      [&](shm_test::findings& found) { RANK_CHECK(found, os::random_identifier() != parents); });
}

TEST_CASE("a kernel file that is not there reads as empty") {
  CHECK(os::read_kernel_file("/proc/self/there is no such file").empty());
}

TEST_CASE("a kernel file reads as the text that it holds") {
  std::ifstream stream("/proc/sys/kernel/ostype");
  std::string expected;
  std::getline(stream, expected);
  CHECK(os::read_kernel_file("/proc/sys/kernel/ostype") == expected + "\n");
}

TEST_CASE("a kernel file that is longer than a page is read to its end") {
  auto const text = os::read_kernel_file("/proc/kallsyms");
  CHECK(text.size() > 100000);
  CHECK(text.back() == '\n');
}

TEST_CASE("reading a kernel file leaves no descriptor open") {
  auto const before = shm_test::open_descriptors();
  CHECK_FALSE(os::read_kernel_file("/proc/self/status").empty());
  CHECK(shm_test::open_descriptors() == before);
}

TEST_CASE("the boot identifier is not zero and the same each time") {
  auto const id = os::boot_identifier();
  CHECK(id[0] != 0);
  CHECK(id[1] != 0);
  CHECK(id == os::boot_identifier());
}

TEST_CASE("the boot identifier is the same in another process") {
  os::identifier const parents = os::boot_identifier();
  shm_test::in_child(
      [&](shm_test::findings& found) { RANK_CHECK(found, os::boot_identifier() == parents); });
}

TEST_CASE("the boot identifier has all the digits of the kernel's") {
  std::ifstream stream("/proc/sys/kernel/random/boot_id");
  std::string expected;
  std::getline(stream, expected);
  std::erase(expected, '-');
  char digits[33];
  auto const id = os::boot_identifier();
  std::snprintf(digits, sizeof digits, "%016llx%016llx", static_cast<unsigned long long>(id[0]),
                static_cast<unsigned long long>(id[1]));
  CHECK(expected == digits);
}

TEST_CASE("a thread more is counted as one more") {
  int const before = os::thread_count();
  CHECK(before >= 1);
  int during = 0;
  std::thread([&] { during = os::thread_count(); }).join();
  CHECK(during == before + 1);
}

TEST_CASE("a forked child has one thread whatever its parent has") {
  shm_test::gate done;
  std::thread other([&] { static_cast<void>(done.pass()); });
  shm_test::in_child([](shm_test::findings& found) { RANK_CHECK(found, os::thread_count() == 1); });
  done.open();
  other.join();
}

TEST_CASE("a program without MPI has no initialised MPI") { CHECK_FALSE(os::is_mpi_initialized()); }

TEST_CASE("threads are counted whatever the number of groups of the user") {
  shm_test::in_child([](shm_test::findings& found) {
    std::vector<gid_t> groups;
    for (gid_t group = 100000; group < 102000; ++group) groups.push_back(group);
    if (::setgroups(groups.size(), groups.data()) != 0) throw shm_test::skipped{"needs root"};
    RANK_CHECK(found, os::thread_count() == 1);
  });
}

}  // namespace
