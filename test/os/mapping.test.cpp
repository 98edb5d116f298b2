#include "shm/os/mapping.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shm/os/file_descriptor.hpp"
#include "support/catch.hpp"
#include "support/child.hpp"
#include "support/directory.hpp"
#include "support/system_call_filter.hpp"

namespace {

namespace os = shm::os;
using os::mapping;
using shm::errc;

static_assert(!std::is_copy_constructible_v<mapping>);
static_assert(!std::is_copy_assignable_v<mapping>);
static_assert(std::is_nothrow_move_constructible_v<mapping>);
static_assert(std::is_nothrow_move_assignable_v<mapping>);

std::size_t const page = os::base_page_bytes();

os::file_descriptor anonymous(std::size_t bytes) {
  os::file_descriptor file(::memfd_create("mapping test", MFD_CLOEXEC));
  if (::ftruncate(file.number(), static_cast<off_t>(bytes)) != 0) throw std::runtime_error("size");
  return file;
}

/// A file of a private file system of `room` bytes.
os::file_descriptor file_on_small_tmpfs(shm_test::temporary_directory const& directory,
                                        std::size_t room, std::size_t bytes) {
  shm_test::mount_private_tmpfs(directory.path(), room);
  auto const path = directory.path() + "/file";
  os::file_descriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (::ftruncate(file.number(), static_cast<off_t>(bytes)) != 0) throw std::runtime_error("size");
  return file;
}

/// Whether something is mapped at `address`. Source: mincore(2), ENOMEM.
bool is_mapped(std::byte* address) {
  unsigned char resident = 0;
  return ::mincore(address, page, &resident) == 0;
}

/// Returns how many pages of `bytes`, which begin on a page, exist.
long resident_pages(std::span<std::byte> bytes) {
  std::vector<unsigned char> resident((bytes.size() + page - 1) / page);
  if (::mincore(bytes.data(), bytes.size(), resident.data()) != 0) return -1;
  return std::count_if(resident.begin(), resident.end(), [](auto r) { return (r & 1U) != 0; });
}

/// From here on this process behaves as on a kernel before 5.14.
void be_an_old_kernel() {
  shm_test::answer({.number = SYS_madvise,
                    .argument = 2,
                    .mask = 0xffffffffU,
                    .value = static_cast<std::uint32_t>(os::detail::populate_write_advice)},
                   EINVAL);
}

TEST_CASE("a default mapping is empty") { CHECK(mapping{}.bytes().empty()); }

TEST_CASE("a mapping has the size that was asked for and can be written") {
  mapping const map(anonymous(3 * page).number(), 3 * page);
  REQUIRE(map.bytes().size() == 3 * page);
  map.bytes().back() = std::byte{7};
  CHECK(map.bytes().front() == std::byte{0});
  CHECK(map.bytes().back() == std::byte{7});
}

TEST_CASE("two mappings of one object show the same bytes") {
  auto const file = anonymous(page);
  mapping const first(file.number(), page);
  mapping const second(file.number(), page);
  first.bytes()[5] = std::byte{9};
  CHECK(second.bytes()[5] == std::byte{9});
}

TEST_CASE("a child and its parent see each other's bytes in a mapping") {
  mapping const map(anonymous(page).number(), page);
  shm_test::in_child([&](shm_test::findings&) { map.bytes()[0] = std::byte{3}; });
  CHECK(map.bytes()[0] == std::byte{3});
}

TEST_CASE("a mapping is unmapped at the end of its scope and not before") {
  shm_test::in_child([](shm_test::findings& found) {
    std::byte* address = nullptr;
    {
      mapping const map(anonymous(page).number(), page);
      address = map.bytes().data();
      RANK_CHECK(found, is_mapped(address));
    }
    RANK_CHECK(found, !is_mapped(address));
  });
}

TEST_CASE("all of a mapping is unmapped") {
  shm_test::in_child([](shm_test::findings& found) {
    mapping map(anonymous(8 * page).number(), 8 * page);
    auto* const last = &map.bytes()[7 * page];
    map.reset();
    RANK_CHECK(found, !is_mapped(last));
    RANK_CHECK(found, map.bytes().empty());
  });
}

TEST_CASE("a moved mapping stays mapped and leaves nothing behind") {
  mapping first(anonymous(page).number(), page);
  auto* const address = first.bytes().data();
  mapping const second(std::move(first));
  CHECK(first.bytes().empty());  // NOLINT(bugprone-use-after-move)
  CHECK(second.bytes().data() == address);
  CHECK(is_mapped(address));
}

TEST_CASE("assigning to a mapping unmaps what it had once both are gone") {
  shm_test::in_child([](shm_test::findings& found) {
    mapping target(anonymous(page).number(), page);
    auto* const old_address = target.bytes().data();
    std::byte* new_address = nullptr;
    {
      mapping source(anonymous(page).number(), page);
      new_address = source.bytes().data();
      target = std::move(source);
    }
    RANK_CHECK(found, !is_mapped(old_address));
    RANK_CHECK(found, target.bytes().data() == new_address);
    RANK_CHECK(found, is_mapped(new_address));
  });
}

TEST_CASE("reserved address space is aligned, has no page, and gives all back") {
  shm_test::in_child([](shm_test::findings& found) {
    auto const alignment = 64 * page;
    auto const before = os::mapping_count();
    {
      auto const range = mapping::reserved(3 * page, alignment, PROT_READ | PROT_WRITE);
      RANK_CHECK(found, reinterpret_cast<std::uintptr_t>(range.bytes().data()) % alignment == 0);
      RANK_CHECK(found, range.bytes().size() == 3 * page);
      RANK_CHECK(found, resident_pages(range.bytes()) == 0);
      RANK_CHECK(found, !is_mapped(range.bytes().data() + 3 * page));
      range.bytes().back() = std::byte{1};
    }
    RANK_CHECK(found, os::mapping_count() == before);
  });
}

TEST_CASE("more than the address space is out of memory, with the size and a remedy") {
  auto const file = anonymous(page);
  auto const refused = shm_test::failure_of([&] { mapping(file.number(), std::size_t{1} << 61U); });
  CHECK(refused.cause == errc::out_of_memory);
  CHECK(refused.system == ENOMEM);
  CHECK(refused.subject.view() == "mapping 2 EiB");
  CHECK(refused.remedy.view().starts_with("ask for less: "));
}

TEST_CASE("more than the limit of address space is limit reached, with the limit") {
  shm_test::in_child([](shm_test::findings& found) {
    auto const most = os::address_space_bytes() + (std::size_t{1} << 40U);
    rlimit const limit{.rlim_cur = most, .rlim_max = most};
    RANK_CHECK(found, ::setrlimit(RLIMIT_AS, &limit) == 0);
    auto const file = anonymous(page);
    auto const refused =
        shm_test::failure_of([&] { mapping(file.number(), std::size_t{1} << 41U); });
    RANK_CHECK(found, refused.cause == errc::limit_reached);
    auto const text = refused.subject.view();
    RANK_CHECK(found, text.starts_with("mapping 2 TiB; this process uses "));
    RANK_CHECK(found, text.find(" of address space of ") != text.npos);
    RANK_CHECK(found, refused.remedy.view().find("ulimit -v") != std::string_view::npos);
  });
}

TEST_CASE("a read-only part keeps its bytes and faults, and the rest can be written") {
  shm_test::in_child([](shm_test::findings& found) {
    auto const file = anonymous(3 * page);
    mapping whole(file.number(), 3 * page);
    whole.bytes()[2 * page] = std::byte{7};
    whole.make_read_only(page);
    whole.bytes()[page - 1] = std::byte{8};
    RANK_CHECK(found, whole.bytes()[2 * page] == std::byte{7});
    for (std::size_t const at : {page, 3 * page - 1}) {
      shm_test::child victim([&] {
        std::signal(SIGSEGV, SIG_DFL);
        whole.bytes()[at] = std::byte{9};
      });
      int const status = victim.wait();
      RANK_CHECK(found, WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
    }
    whole.make_read_only(3 * page);  // nothing: no error
  });
}

TEST_CASE("a closed descriptor cannot be mapped, and the remedy is not about memory") {
  auto const refused = shm_test::failure_of([] { mapping(-1, page); });
  CHECK(refused.cause == errc::system_failure);
  CHECK(refused.system == EBADF);
  CHECK(refused.remedy.is_empty());
}

TEST_CASE("populating makes every page of a part exist and no other") {
  shm_test::in_child([](shm_test::findings& found) {
    auto const file = anonymous(16 * page);
    mapping const map(file.number(), 16 * page);
    os::populate(map.bytes(), map.bytes().subspan(4 * page, 4 * page), file.number());
    RANK_CHECK(found, resident_pages(map.bytes().subspan(4 * page, 4 * page)) == 4);
    RANK_CHECK(found, resident_pages(map.bytes()) == 4);
  });
}

TEST_CASE("populating a part that begins and ends inside pages makes those pages exist") {
  shm_test::in_child([](shm_test::findings& found) {
    auto const file = anonymous(8 * page);
    mapping const map(file.number(), 8 * page);
    os::populate(map.bytes(), map.bytes().subspan(2 * page - 1, page + 2), file.number());
    RANK_CHECK(found, resident_pages(map.bytes().subspan(page, 3 * page)) == 3);
    RANK_CHECK(found, resident_pages(map.bytes()) == 3);
  });
}

TEST_CASE("populating changes no byte") {
  shm_test::in_child([](shm_test::findings& found) {
    auto const file = anonymous(2 * page);
    mapping const map(file.number(), 2 * page);
    std::ranges::fill(map.bytes().first(page), std::byte{0xa5});
    os::populate(map.bytes(), map.bytes(), file.number());
    RANK_CHECK(found, std::ranges::count(map.bytes(), std::byte{0xa5}) ==
                          static_cast<std::ptrdiff_t>(page));
    RANK_CHECK(found,
               std::ranges::count(map.bytes(), std::byte{0}) == static_cast<std::ptrdiff_t>(page));
  });
}

TEST_CASE("populating an empty part does nothing") {
  shm_test::in_child([](shm_test::findings& found) {
    auto const file = anonymous(page);
    mapping const map(file.number(), page);
    os::populate(map.bytes(), map.bytes().first(0), file.number());
    RANK_CHECK(found, resident_pages(map.bytes()) == 0);
  });
}

TEST_CASE("populating on a full file system is no space and kills nobody") {
  shm_test::temporary_directory const directory;
  shm_test::in_child([&](shm_test::findings& found) {
    auto const file = file_on_small_tmpfs(directory, 16 * page, 64 * page);
    mapping const map(file.number(), 64 * page);
    auto const refused =
        shm_test::failure_of([&] { os::populate(map.bytes(), map.bytes(), file.number()); });
    RANK_CHECK(found, refused.cause == errc::no_space);
    RANK_CHECK(found, refused.subject.view().starts_with("reserving "));
  });
}

TEST_CASE("what fits is populated on a file system that is smaller than the object") {
  shm_test::temporary_directory const directory;
  shm_test::in_child([&](shm_test::findings& found) {
    auto const file = file_on_small_tmpfs(directory, 16 * page, 64 * page);
    mapping const map(file.number(), 64 * page);
    auto const part = map.bytes().subspan(40 * page, 8 * page);
    os::populate(map.bytes(), part, file.number());
    RANK_CHECK(found, resident_pages(part) == 8);
  });
}

TEST_CASE("a kernel that cannot populate makes the same pages exist, unchanged") {
  shm_test::in_child([](shm_test::findings& found) {
    be_an_old_kernel();
    auto const file = anonymous(8 * page);
    mapping const map(file.number(), 8 * page);
    map.bytes()[2 * page] = std::byte{0xa4};
    os::populate(map.bytes(), map.bytes().subspan(2 * page - 1, page + 2), file.number());
    RANK_CHECK(found, resident_pages(map.bytes()) == 3);
    RANK_CHECK(found, map.bytes()[2 * page] == std::byte{0xa4});
    RANK_CHECK(found, std::ranges::count(map.bytes(), std::byte{0}) ==
                          static_cast<std::ptrdiff_t>(8 * page - 1));
  });
}

TEST_CASE("a full file system is no space on a kernel that cannot populate") {
  shm_test::temporary_directory const directory;
  shm_test::in_child([&](shm_test::findings& found) {
    auto const file = file_on_small_tmpfs(directory, 16 * page, 64 * page);
    be_an_old_kernel();
    mapping const map(file.number(), 64 * page);
    auto const refused =
        shm_test::failure_of([&] { os::populate(map.bytes(), map.bytes(), file.number()); });
    RANK_CHECK(found, refused.cause == errc::no_space);
    RANK_CHECK(found, refused.system == ENOSPC);
  });
}

TEST_CASE("a kernel that answers success to any advice is not believed") {
  shm_test::in_child([](shm_test::findings& found) {
    auto const file = anonymous(8 * page);
    mapping const map(file.number(), 8 * page);
    shm_test::answer({.number = SYS_madvise}, 0);
    os::populate(map.bytes(), map.bytes(), file.number());
    RANK_CHECK(found, resident_pages(map.bytes()) == 8);
  });
}

TEST_CASE("a refusal that is not for lack of memory keeps its cause") {
  shm_test::in_child([](shm_test::findings& found) {
    auto const file = anonymous(page);
    mapping const map(file.number(), page);
    shm_test::answer({.number = SYS_madvise,
                      .argument = 2,
                      .mask = 0xffffffffU,
                      .value = static_cast<std::uint32_t>(os::detail::populate_write_advice)},
                     EPERM);
    auto const refused =
        shm_test::failure_of([&] { os::populate(map.bytes(), map.bytes(), file.number()); });
    RANK_CHECK(found, refused.cause == errc::permission_denied);
  });
}

TEST_CASE("a mapping that was assigned from is empty") {
  auto const object = shm::os::make_anonymous("mapping test", 4096);
  shm::os::mapping a(object.descriptor.number(), 4096);
  shm::os::mapping b(object.descriptor.number(), 4096);
  auto const* const address = b.bytes().data();
  a = std::move(b);
  CHECK(b.bytes().empty());
  CHECK(a.bytes().data() == address);
}

}  // namespace
