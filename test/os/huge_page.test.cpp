#include "shm/os/huge_page.hpp"

#include <bit>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "shm/os/mapping.hpp"
#include "support/catch.hpp"
#include "support/directory.hpp"
#include "support/huge_pages.hpp"

namespace {

namespace os = shm::os;
using shm::errc;

/// A made-up directory of the kernel's settings of transparent huge pages.
class thp_settings {
 public:
  void write(std::string const& file, std::string const& content) {
    auto const path = directory_.path() + "/" + file;
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    std::ofstream(path) << content << '\n';
  }
  [[nodiscard]] bool allow(std::size_t page_bytes) const {
    return os::switch_against_huge_pages(page_bytes, directory_.path()).empty();
  }
  /// The file, in the directory, that does not allow them.
  [[nodiscard]] std::string denial(std::size_t page_bytes) const {
    auto const path = os::switch_against_huge_pages(page_bytes, directory_.path());
    return path.empty() ? path : path.substr(directory_.path().size());
  }

 private:
  shm_test::temporary_directory directory_;
};

constexpr std::size_t two_mib = std::size_t{2} << 20U;

TEST_CASE("the size of huge pages is a power of two, or there are none") {
  for (auto const bytes : {os::default_huge_page_bytes(), os::transparent_huge_page_bytes()}) {
    CHECK((bytes == 0 || (std::has_single_bit(bytes) && bytes > os::base_page_bytes())));
  }
}

TEST_CASE("transparent huge pages of shared memory are as the kernel's setting says") {
  struct {
    char const* text;
    bool is_allowed;
  } const table[] = {{"always within_size advise [never] deny force", false},
                     {"always within_size advise never [deny] force", false},
                     {"[always] within_size advise never deny force", true},
                     {"always [within_size] advise never deny force", true},
                     {"always within_size [advise] never deny force", true},
                     {"always within_size advise never deny [force]", true},
                     {"always", false},
                     {"", false}};
  for (auto const& row : table) {
    INFO(row.text);
    thp_settings settings;
    settings.write("shmem_enabled", row.text);
    CHECK(settings.allow(two_mib) == row.is_allowed);
    settings.write("hugepages-2048kB/shmem_enabled", "always [inherit] within_size advise never");
    CHECK(settings.allow(two_mib) == row.is_allowed);
    std::string_view const all = row.text;
    bool const is_denied = all.find("[deny]") != all.npos;
    bool const is_forced = all.find("[force]") != all.npos;
    settings.write("hugepages-2048kB/shmem_enabled", "always inherit within_size [advise] never");
    CHECK(settings.allow(two_mib) == !is_denied);
    settings.write("hugepages-2048kB/shmem_enabled", "always inherit within_size advise [never]");
    CHECK(settings.allow(two_mib) == is_forced);
  }
  CHECK_FALSE(thp_settings().allow(two_mib));
}

TEST_CASE("the switch that denies transparent huge pages is the one that is named") {
  constexpr std::size_t page = std::size_t{2} << 20U;
  std::string const general = "/shmem_enabled";
  std::string const of_size = "/hugepages-2048kB/shmem_enabled";
  auto const denial = [page](std::string const& all, std::string const& size) {
    thp_settings settings;
    settings.write("shmem_enabled", "x [" + all + "]");
    if (!size.empty()) settings.write("hugepages-2048kB/shmem_enabled", "x [" + size + "]");
    return settings.denial(page);
  };
  CHECK(denial("never", "") == general);
  CHECK(denial("never", "inherit") == general);
  CHECK(denial("deny", "always") == general);
  CHECK(denial("advise", "never") == of_size);
  CHECK(denial("never", "never") == of_size);
  CHECK(denial("never", "within_size").empty());
  CHECK(denial("force", "never").empty());
}

/// A made-up pool of huge pages of 2 MiB.
os::huge_page_pool pool_of(int total, int free, int reserved, int overcommit, int surplus) {
  shm_test::temporary_directory const root;
  auto const directory = root.path() + "/kernel/mm/hugepages/hugepages-2048kB/";
  std::filesystem::create_directories(directory);
  auto const write = [&](char const* file, int number) {
    std::ofstream(directory + file) << number << '\n';
  };
  write("nr_hugepages", total);
  write("free_hugepages", free);
  write("resv_hugepages", reserved);
  write("nr_overcommit_hugepages", overcommit);
  write("surplus_hugepages", surplus);
  return os::huge_page_pool::of(std::size_t{2} << 20U, root.path());
}

TEST_CASE("a pool has left what is neither used nor reserved, and what may be added") {
  CHECK(pool_of(8, 5, 2, 0, 0).left_in_words() == "3 are left of 8");
  CHECK(pool_of(8, 3, 2, 0, 0).left_in_words() == "1 is left of 8");
  CHECK(pool_of(0, 0, 0, 4, 1).left_in_words() == "3 are left of 0 and 3 that may be added");
  CHECK(pool_of(2, 1, 0, 4, 4).available == 1);
  CHECK(pool_of(2, 1, 0, 4, 1).addable == 3);
}

TEST_CASE("reserved huge pages beyond the pool are limit reached, with the command that helps") {
  auto const page = os::default_huge_page_bytes();
  if (page == 0) {
    WARN("skipped: no huge pages here");
    return;
  }
  auto const pool = os::huge_page_pool::of(page);
  auto const needed = pool.available + 3;
  auto const refused = shm_test::failure_of([&] { os::make_huge("test", needed * page, page); });
  CHECK(refused.cause == errc::limit_reached);
  CHECK(refused.subject.view().starts_with(std::to_string(needed) + " huge pages of "));
  CHECK(refused.remedy.view() ==
        "reserve more: sysctl -w vm.nr_hugepages=" + std::to_string(pool.total + 3));
  auto const either =
      shm_test::failure_of([&] { os::make_huge("test", needed * page, page, "do without"); });
  CHECK(either.remedy.view() == std::string(refused.remedy.view()) + ", or do without");
}

TEST_CASE("a machine without huge pages says so") {
  auto const refused = shm_test::failure_of(
      [] { os::make_huge("test", os::base_page_bytes(), os::base_page_bytes()); });
  CHECK(refused.cause == errc::unsupported);
}

TEST_CASE("an object of reserved huge pages is mapped in whole pages and counted from the pool") {
  auto const page = os::default_huge_page_bytes();
  shm_test::huge_page_reserve const reserve(4);
  if (!reserve.is_there()) {
    WARN("skipped: " << reserve.why_not());
    return;
  }
  auto const before = os::huge_page_pool::of(page);
  auto const object = os::make_huge("test", 2 * page, page);
  CHECK(object.page_bytes == page);
  CHECK(object.pages == os::page_kind::reserved);
  {
    os::mapping const map(object.descriptor.number(), 2 * page);
    CHECK(os::huge_page_pool::of(page).available == before.available - 2);  // before any touch
    os::populate(map.bytes(), map.bytes(), object.descriptor.number());
    CHECK(reinterpret_cast<std::uintptr_t>(map.bytes().data()) % page == 0);
    CHECK(map.bytes()[2 * page - 1] == std::byte{0});
  }
  CHECK(os::huge_page_pool::of(page).total == before.total);
}

TEST_CASE("transparent huge pages come where they are allowed, and are counted") {
  auto const page = os::transparent_huge_page_bytes();
  shm_test::transparent_setting const setting("advise");
  if (!setting.is_there() || page == 0) {
    WARN("skipped: " << setting.why_not());
    return;
  }
  auto const object = os::make_transparent("test", 4 * page, page);
  auto const map = os::mapping::aligned(object.descriptor.number(), 4 * page, page);
  CHECK(reinterpret_cast<std::uintptr_t>(map.bytes().data()) % page == 0);
  auto const part = map.bytes().subspan(page, 2 * page);
  os::prefer_huge_pages(part);
  CHECK(os::transparent_bytes_in(part) == 0);
  os::populate(map.bytes(), part, object.descriptor.number());
  CHECK(os::transparent_bytes_in(part) == 2 * page);
  CHECK(os::transparent_bytes_in(map.bytes()) == 2 * page);
  CHECK(os::transparent_bytes_in(map.bytes().first(page)) == 0);
  // Both ways to count, of which a kernel may have one only.
  auto const begin = reinterpret_cast<std::uintptr_t>(part.data());
  CHECK(os::detail::scan_huge_pages(begin, begin + page).value_or(page) == page);
  CHECK(os::detail::sum_huge_pages(begin, begin + 2 * page) == 2 * page);
}

TEST_CASE("an aligned mapping begins on its boundary, and unmaps all of itself") {
  auto const object = os::make_anonymous("test", 3 * os::base_page_bytes());
  std::uint64_t const before = os::mapping_count();
  for (std::size_t alignment = os::base_page_bytes(); alignment <= (64U << 20U); alignment *= 2) {
    auto const map =
        os::mapping::aligned(object.descriptor.number(), 3 * os::base_page_bytes(), alignment);
    CHECK(reinterpret_cast<std::uintptr_t>(map.bytes().data()) % alignment == 0);
    map.bytes()[3 * os::base_page_bytes() - 1] = std::byte{1};
    CHECK(os::mapping_count() <= before + 1);
  }
  CHECK(os::mapping_count() == before);
}

}  // namespace
