#include "shm/os/memory_area.hpp"

#include <cstdint>
#include <string>
#include <string_view>

#include <sys/mman.h>
#include <unistd.h>

#include "support/catch.hpp"
#include "support/child.hpp"

namespace {

namespace os = shm::os;

constexpr std::uintptr_t everything = static_cast<std::uintptr_t>(-1);

constexpr std::string_view some_maps =
    "5000-7000 rw-s 00003000 00:01 42                       /memfd:a name (deleted)\n"
    "7000-8000 rw-s 00005000 00:01 42                       /memfd:a name (deleted)\n"
    "8000-9000 r--s 00006000 00:01 42                       /memfd:a name (deleted)\n"
    "b000-c000 rw-p 00000000 00:00 0 \n"
    "ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]\n";

TEST_CASE("a line of maps is read") {
  auto const areas = os::areas_in(some_maps, 0x5000, 0x7000);
  REQUIRE(areas.size() == 1);
  auto const& area = areas.front();
  CHECK(area.begin == 0x5000);
  CHECK(area.end == 0x7000);
  CHECK(area.bytes() == 0x2000);
  CHECK(area.offset == 0x3000);
  CHECK(area.device == "00:01");
  CHECK(area.inode == 42);
  CHECK(area.name == "/memfd:a name (deleted)");
  CHECK((area.is_readable && area.is_writable && area.is_shared));
}

TEST_CASE("memory without an object and without access is read too") {
  auto const areas = os::areas_in(some_maps, 0xb000, everything);
  REQUIRE(areas.size() == 2);
  CHECK(areas[0].name.empty());
  CHECK_FALSE(areas[0].is_shared);
  CHECK(areas[1].begin == 0xffffffffff600000);
  CHECK_FALSE(areas[1].is_readable);
  CHECK_FALSE(areas[1].is_writable);
}

TEST_CASE("mappings that continue each other are one area, and others are not") {
  auto const areas = os::areas_in(some_maps, 0, 0xa000);
  REQUIRE(areas.size() == 2);
  CHECK(areas[0].begin == 0x5000);
  CHECK(areas[0].end == 0x8000);
  CHECK(areas[1].begin == 0x8000);  // another access
}

TEST_CASE("an area is cut to the range, and knows the mapping in which it begins") {
  auto const areas = os::areas_in(some_maps, 0x6000, 0x7800);
  REQUIRE(areas.size() == 1);
  CHECK(areas[0].begin == 0x6000);
  CHECK(areas[0].end == 0x7800);
  CHECK(areas[0].offset == 0x4000);
  CHECK(areas[0].mapping_begin == 0x5000);
  CHECK(areas[0].mapping_end == 0x7000);
}

TEST_CASE("neighbours of other objects, or of other parts of one, are not joined") {
  auto const count = [](std::string const& second) {
    return os::areas_in("1000-2000 rw-s 00000000 00:01 7   /a\n" + second, 0, everything).size();
  };
  CHECK(count("2000-3000 rw-s 00001000 00:01 7   /a\n") == 1);
  CHECK(count("2000-3000 rw-s 00000000 00:01 7   /a\n") == 2);
  CHECK(count("2000-3000 rw-s 00001000 00:01 8   /a\n") == 2);
  CHECK(count("2000-3000 rw-s 00001000 00:02 7   /a\n") == 2);
  CHECK(count("2000-3000 rw-s 00001000 00:01 7   /b\n") == 2);
  CHECK(count("2000-3000 rw-p 00001000 00:01 7   /a\n") == 2);
  CHECK(count("2000-3000 r--s 00001000 00:01 7   /a\n") == 2);
  CHECK(count("3000-4000 rw-s 00001000 00:01 7   /a\n") == 2);
}

TEST_CASE("lines of another form are no mappings") {
  CHECK(os::areas_in("Size: 4 kB\n1000-x000 rw-s 0 0 0\n\n1000-2000\nVmFlags: rd-er wr\n", 0,
                     everything)
            .empty());
}

TEST_CASE("memory is the same where objects, places in them and access are") {
  auto const same = [](std::string_view a, std::string_view b, std::uintptr_t distance) {
    return os::is_same_memory(os::areas_in(a, 0, everything), os::areas_in(b, 0, everything),
                              distance);
  };
  constexpr std::string_view here = "1000-2000 rw-s 00001000 00:01 7   /a\n";
  CHECK(same(here, here, 0));
  CHECK(same(here, "6000-7000 rw-s 00001000 00:01 7   /a\n", 0x5000));
  CHECK_FALSE(same(here, "6000-7000 rw-s 00001000 00:01 7   /a\n", 0));
  CHECK_FALSE(same(here, "1000-3000 rw-s 00001000 00:01 7   /a\n", 0));
  CHECK_FALSE(same(here, "1000-2000 rw-s 00002000 00:01 7   /a\n", 0));
  CHECK_FALSE(same(here, "1000-2000 rw-s 00001000 00:01 8   /a\n", 0));
  CHECK_FALSE(same(here, "1000-2000 rw-s 00001000 00:02 7   /a\n", 0));
  CHECK_FALSE(same(here, "1000-2000 rw-s 00001000 00:01 7   /b\n", 0));
  CHECK_FALSE(same(here, "1000-2000 r--s 00001000 00:01 7   /a\n", 0));
  CHECK_FALSE(same(here, "1000-2000 rw-p 00001000 00:01 7   /a\n", 0));
  CHECK_FALSE(same(here, "", 0));
}

TEST_CASE("this process's own mappings are found, with the size of their pages") {
  auto const page = os::base_page_bytes();
  auto const own = os::mapping::shared_with_children(64 * page);
  auto const begin = reinterpret_cast<std::uintptr_t>(own.bytes().data());
  auto const areas = os::areas_in(os::maps_of(::getpid()), begin, begin + 64 * page);
  REQUIRE(areas.size() == 1);
  CHECK(areas[0].begin == begin);
  CHECK(areas[0].end == begin + 64 * page);
  CHECK(areas[0].is_shared);
  CHECK(os::page_bytes_of(::getpid(), areas[0]) == page);
}

TEST_CASE("a process that is dead and not reaped does not exist") {
  shm_test::child gone([] {});
  gone.await_death();
  CHECK(shm_test::failure_of([&] { os::maps_of(gone.pid()); }).cause ==
        shm::errc::invalid_argument);
}

}  // namespace
