#include "shm/policy/sls.hpp"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "shm/shm.hpp"
#include "support/catch.hpp"
#include "support/child.hpp"
#include "support/directory.hpp"
#include "support/huge_pages.hpp"
#include "support/ranks.hpp"
#include "support/same.hpp"
#include "support/skipped.hpp"
#include "support/system_call_filter.hpp"

namespace {

using shm_test::failure_of;

static_assert(shm::segment_policy<shm::sls_policy>);

constexpr std::size_t mib = std::size_t{1} << 20U;

TEST_CASE("the backend sls makes anonymous memory of the size that was asked for") {
  auto const object = shm::sls_policy{}.create({.bytes = mib, .settings = {}});
  struct stat status{};
  REQUIRE(::fstat(object.descriptor.number(), &status) == 0);
  CHECK(status.st_nlink == 0);
  CHECK(status.st_size == static_cast<off_t>(mib));
  CHECK(object.origin == shm::os::origin::memfd);
}

TEST_CASE("memory of the backend sls keeps its size, and is closed on exec") {
  auto const object = shm::sls_policy{}.create({.bytes = mib, .settings = {}});
  CHECK(::ftruncate(object.descriptor.number(), mib / 2) != 0);
  CHECK(::ftruncate(object.descriptor.number(), 2 * mib) != 0);
  CHECK((::fcntl(object.descriptor.number(), F_GETFD) & FD_CLOEXEC) != 0);
}

TEST_CASE("the backend sls is not bounded by the size of /dev/shm") {
  shm_test::in_child([](shm_test::findings& found) {
    shm_test::mount_private_tmpfs("/dev/shm", mib);
    auto const object = shm::sls_policy{}.create({.bytes = 8 * mib, .settings = {}});
    shm::os::mapping const map(object.descriptor.number(), 8 * mib);
    shm::os::populate(map.bytes(), map.bytes(), object.descriptor.number());
    RANK_CHECK(found, map.bytes()[8 * mib - 1] == std::byte{0});
  });
}

using shm_test::findings;
using shm_test::huge_page_reserve;
using shm_test::on_all_rank_counts;
using shm_test::on_ranks;
using shm_test::transparent_setting;

constexpr std::size_t four_mib = 4 * mib;
constexpr shm::sls_policy prefers_huge{.pages = shm::pages::prefer_huge};
constexpr shm::sls_policy requires_huge{.pages = shm::pages::require_huge};

std::size_t base_page() { return shm::os::base_page_bytes(); }

/// Runs `body` on forked ranks that have no huge pages to hope for.
void without_huge_pages(shm_test::rank_body const& body) {
  transparent_setting const never("never");
  if (shm::os::huge_page_pool::of(shm::os::default_huge_page_bytes()).available > 0 ||
      shm::os::switch_against_huge_pages(shm::os::transparent_huge_page_bytes()).empty()) {
    WARN("skipped: this machine has huge pages");
    return;
  }
  on_ranks(3, body);
}

/// Whether a window is zeroed, and shows to all what each rank writes.
bool is_right(shm::window<int, shm::sls_policy>& w) {
  bool right = std::ranges::all_of(w.local(), [](int value) { return value == 0; });
  std::ranges::fill(w.local(), w.rank() + 1);
  w.fence();
  for (int r = 0; r < w.size(); ++r) {
    right = right && std::ranges::all_of(std::as_const(w)[r], [r](int v) { return v == r + 1; });
  }
  w.fence();
  return right;
}

TEST_CASE("windows come in reserved huge pages where there are enough, and give them back") {
  auto const page = shm::os::default_huge_page_bytes();
  huge_page_reserve const reserve(24);
  if (!reserve.is_there() || page != 2 * mib) {
    WARN("skipped: " << reserve.why_not());
    return;
  }
  auto const before = shm::os::huge_page_pool::of(page).available;
  for (auto const& policy : {prefers_huge, requires_huge}) {
    on_all_rank_counts([&](shm::group& node, findings& found) {
      {
        // Rank 1 has an odd size, and the last one nothing.
        auto const count = four_mib / sizeof(int) + (node.rank() == 1 ? 3 : 0);
        bool const is_empty = node.size() > 2 && node.rank() == node.size() - 1;
        shm::window<int, shm::sls_policy> w(node, is_empty ? 0 : count, policy);
        RANK_CHECK(found, w.page_size() == page);
        RANK_CHECK(found, w.residency().page_bytes == page);
        RANK_CHECK(found, w.residency().nodes.front() >= 0);
        RANK_CHECK(found, is_right(w));
        node.barrier();
      }
      {
        shm::window<int, shm::sls_policy> odd(node, 3 * mib / sizeof(int) + 3, policy,
                                              {.layout = shm::layout::contiguous});
        RANK_CHECK(found, odd.page_size() == page);
        RANK_CHECK(found, is_right(odd));
        auto const frozen = std::move(odd).freeze();
        RANK_CHECK(found, frozen[node.size() - 1][1] == node.size());
        node.barrier();
      }
      node.barrier();
      RANK_CHECK(found, shm::os::huge_page_pool::of(page).available == before);
      node.barrier();
    });
  }
}

TEST_CASE("windows come in transparent huge pages where none are reserved but they are allowed") {
  auto const page = shm::os::transparent_huge_page_bytes();
  transparent_setting const setting("advise");
  if (!setting.is_there() || page != 2 * mib ||
      shm::os::huge_page_pool::of(shm::os::default_huge_page_bytes()).available > 0) {
    WARN("skipped: " << setting.why_not());
    return;
  }
  for (auto const& policy : {prefers_huge, requires_huge}) {
    on_all_rank_counts([&](shm::group& node, findings& found) {
      shm::window<int, shm::sls_policy> w(node, four_mib / sizeof(int), policy);
      RANK_CHECK(found, w.page_size() == page);
      RANK_CHECK(found, is_right(w));
      // Blocks that end within a huge page, with and without placement, which cuts mappings.
      for (auto const where : {shm::place::owner, shm::place::interleave, shm::place::node(0)}) {
        for (auto const how : {shm::layout::page_aligned, shm::layout::contiguous}) {
          shm::window<int, shm::sls_policy> odd(node, 3 * mib / sizeof(int) + 3, policy,
                                                {.layout = how, .place = where});
          RANK_CHECK(found, odd.page_size() == page);
          RANK_CHECK(found, is_right(odd));
        }
      }
      auto const frozen = std::move(w).freeze();
      RANK_CHECK(found, frozen[0][1] == 1);
    });
  }
}

TEST_CASE("pages that are not there yet are not taken for smaller ones") {
  auto const page = shm::os::transparent_huge_page_bytes();
  transparent_setting const setting("advise");
  if (!setting.is_there() || page != 2 * mib ||
      shm::os::huge_page_pool::of(shm::os::default_huge_page_bytes()).available > 0) {
    WARN("skipped: " << setting.why_not());
    return;
  }
  on_ranks(2, [&](shm::group& node, findings& found) {
    constexpr shm::window_options sparse{.prefault = shm::prefault::none};
    shm::window<int, shm::sls_policy> w(node, four_mib / sizeof(int), prefers_huge, sparse);
    RANK_CHECK(found, w.page_size() == page);
    RANK_CHECK(found, is_right(w));
    RANK_CHECK(found, shm::os::transparent_bytes_in(std::as_bytes(w.local())) > 0);
  });
}

TEST_CASE("a process that has done without transparent huge pages is told so") {
  transparent_setting const setting("advise");
  if (!setting.is_there() ||
      shm::os::huge_page_pool::of(shm::os::default_huge_page_bytes()).available > 0) {
    WARN("skipped: " << setting.why_not());
    return;
  }
  for (bool const is_by_prctl : {true, false}) {
    on_ranks(2, [&](shm::group& node, findings& found) {
      if (node.rank() == 1 && is_by_prctl) ::prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
      if (node.rank() == 1 && !is_by_prctl) {
        shm_test::answer({SYS_madvise, 2, ~0U, MADV_HUGEPAGE}, EPERM);
      }
      auto const refused = failure_of(
          [&] { shm::window<int, shm::sls_policy>(node, four_mib / sizeof(int), requires_huge); });
      RANK_CHECK(found, refused.rank == 1);
      RANK_CHECK(found, refused.subject.view().find("disabled") != std::string_view::npos);
      RANK_CHECK(found, refused.remedy.view().find("prctl") != std::string_view::npos);
    });
  }
}

TEST_CASE("a small window has huge pages where they are required") {
  auto const page = shm::os::default_huge_page_bytes();
  huge_page_reserve const reserve(6);
  if (!reserve.is_there() || page == 0) {
    WARN("skipped: " << reserve.why_not());
    return;
  }
  on_ranks(2, [&](shm::group& node, findings& found) {
    shm::window<int, shm::sls_policy> w(node, 16, requires_huge);
    RANK_CHECK(found, w.page_size() == page);
    RANK_CHECK(found, is_right(w));
  });
}

TEST_CASE("a window that is not populated is placed like any other") {
  on_ranks(2, [](shm::group& node, findings& found) {
    constexpr auto sparse = shm::prefault::none;
    auto const refused = failure_of([&] {
      shm::window<int>(node, 5000, {.prefault = sparse, .place = shm::place::node(999)});
    });
    RANK_CHECK(found, refused.cause == shm::errc::invalid_argument);
    shm::window<char> w(node, 40 * base_page(), {.prefault = sparse, .place = shm::place::node(0)});
    RANK_CHECK(found, w.residency().nodes[0] == shm::residency::unknown);
    w.fence();
    w.local()[base_page()] = 1;
    w.fence();
    RANK_CHECK(found, w.residency().nodes[0] == 0 && w.residency().nodes[1] == 0);
    w.fence();
  });
}

TEST_CASE("preferred huge pages that nobody has become base pages, and the window is right") {
  without_huge_pages([](shm::group& node, findings& found) {
    shm::window<int, shm::sls_policy> w(node, four_mib / sizeof(int), prefers_huge);
    RANK_CHECK(found, w.page_size() == base_page());
    RANK_CHECK(found, is_right(w));
  });
}

TEST_CASE("required huge pages that nobody has are one error that says how to get them") {
  without_huge_pages([](shm::group& node, findings& found) {
    auto const text = shm_test::message_of(
        [&] { shm::window<int, shm::sls_policy>(node, four_mib / sizeof(int), requires_huge); });
    RANK_CHECK(found, shm_test::is_same_everywhere(node, text));
    RANK_CHECK(found, text.find("rank 0 of 3: creating a window: ") != std::string::npos);
    RANK_CHECK(found, text.find("nr_hugepages") != std::string::npos);
    RANK_CHECK(found, text.find("shmem_enabled") != std::string::npos);
    shm::window<int, shm::sls_policy>(node, 5, shm::sls_policy{}).fence();
  });
}

/// Lets this process have so many bytes of a resource, or so many more than it uses.
void limit(int resource, std::uint64_t bytes) {
  rlimit const to{.rlim_cur = bytes, .rlim_max = RLIM_INFINITY};
  ::setrlimit(static_cast<__rlimit_resource>(resource), &to);
}

/// Creates a window that reserved huge pages are enough for on two ranks, of which one, `victim`,
/// has done `harm` to itself. Transparent ones are not allowed.
void with_harm(int victim, std::function<void()> const& harm,
               std::function<void(shm::group&, findings&, std::string const&)> const& judge) {
  huge_page_reserve const reserve(16);
  transparent_setting const never("never");
  if (!reserve.is_there() || !never.is_there() || shm::os::default_huge_page_bytes() != 2 * mib) {
    WARN("skipped: " << reserve.why_not() << ", or " << never.why_not());
    return;
  }
  on_ranks(2, [&](shm::group& node, findings& found) {
    shm::window<int>(node, 5).fence();
    if (node.rank() == victim) harm();
    auto const text = shm_test::message_of(
        [&] { shm::window<int, shm::sls_policy>(node, four_mib / sizeof(int), requires_huge); });
    RANK_CHECK(found, shm_test::is_same_everywhere(node, text));
    RANK_CHECK(found, text.find("rank " + std::to_string(victim) + " of 2") != std::string::npos);
    RANK_CHECK(found, text.find("are left") == std::string::npos);
    judge(node, found, text);
  });
}

TEST_CASE("why enough reserved huge pages did not come is told where no others are allowed") {
  with_harm(
      0, [] { limit(RLIMIT_FSIZE, mib); },
      [](shm::group&, findings& found, std::string const& text) {
        RANK_CHECK(found, text.find("ulimit -f") != std::string::npos);
      });
  with_harm(
      1, [] { shm_test::answer({SYS_madvise, 2, ~0U, 23}, EFAULT); },
      [](shm::group&, findings& found, std::string const& text) {
        RANK_CHECK(found, text.find("are refused to this process") != std::string::npos);
      });
}

TEST_CASE("a limit of address space is no lack of reserved huge pages") {
  with_harm(
      1, [] { limit(RLIMIT_AS, shm::os::address_space_bytes() + 2 * mib); },
      [](shm::group&, findings& found, std::string const& text) {
        RANK_CHECK(found, text.find("ulimit -v") != std::string::npos);
      });
}

TEST_CASE("windows that are small against a huge page take base pages") {
  huge_page_reserve const reserve(8);
  on_ranks(2, [](shm::group& node, findings& found) {
    shm::window<int, shm::sls_policy> w(node, 16, prefers_huge);
    RANK_CHECK(found, w.page_size() == base_page());
    RANK_CHECK(found, is_right(w));
  });
}

TEST_CASE("a block may be asked for on a node that is there, and on no other") {
  on_ranks(2, [](shm::group& node, findings& found) {
    for (auto const where : {shm::place::owner, shm::place::interleave, shm::place::node(0)}) {
      shm::window<int> posix(node, 5000, {.place = where});
      shm::window<int, shm::sls_policy> sls(node, 5000, {.place = where});
      RANK_CHECK(found, is_right(sls));
      for (int const at : posix.residency().nodes) RANK_CHECK(found, at >= 0 || at == -2);
    }
    auto const refused =
        failure_of([&] { shm::window<int>(node, 5000, {.place = shm::place::node(999)}); });
    RANK_CHECK(found, refused.cause == shm::errc::invalid_argument);
    RANK_CHECK(found, refused.subject.view().find("node 999") != std::string_view::npos);
    auto const differ = failure_of([&] {
      auto const where = node.rank() == 0 ? shm::place::owner : shm::place::interleave;
      shm::window<int>(node, 5000, {.place = where});
    });
    RANK_CHECK(found, differ.cause == shm::errc::mismatch);
    shm::window<int>(node, 1).fence();
  });
}

TEST_CASE("required on-package memory is an error where there is none, and taken where named") {
  constexpr shm::sls_policy wanted{.memory = shm::memory::require_on_package};
  if (!shm::os::memory_nodes().high_bandwidth().is_empty()) {
    WARN("skipped: this machine has high-bandwidth memory");
    return;
  }
  on_ranks(2, [&](shm::group& node, findings& found) {
    auto const refused = failure_of([&] { shm::window<int, shm::sls_policy>(node, 5000, wanted); });
    RANK_CHECK(found, refused.cause == shm::errc::unsupported);
    RANK_CHECK(found, refused.remedy.view().find("SHM_HBM_NODES") != std::string_view::npos);
    shm::window<int, shm::sls_policy> w(node, 5000, {.memory = shm::memory::prefer_on_package});
    RANK_CHECK(found, is_right(w));
  });
  shm::settings named{.backend = shm::backend::sls};
  named.high_bandwidth_nodes = "0";
  on_ranks(
      2,
      [&](shm::group& node, findings& found) {
        shm::window<int, shm::sls_policy> w(node, 5000, wanted);
        RANK_CHECK(found, is_right(w));
        for (int const at : w.residency().nodes) RANK_CHECK(found, at == 0);
        auto const refused = failure_of(
            [&] { shm::window<char, shm::sls_policy>(node, std::size_t{1} << 40U, wanted); });
        RANK_CHECK(found, refused.cause == shm::errc::limit_reached);
        RANK_CHECK(found, refused.subject.view().ends_with(" are left on NUMA node 0"));
      },
      named);
}

TEST_CASE("required on-package memory comes in huge pages that the pool adds on demand") {
  auto const page = shm::os::default_huge_page_bytes();
  auto const pool = shm::os::huge_page_pool::of(page);
  char const* const path = "/proc/sys/vm/nr_overcommit_hugepages";
  shm_test::kernel_setting const overcommit(path, std::to_string(pool.addable + 16),
                                            shm::os::read_kernel_file(path));
  if (!overcommit.is_there() || page != 2 * mib || shm::os::memory_nodes().all().size() != 1) {
    WARN("skipped: " << overcommit.why_not() << ", or several NUMA nodes");
    return;
  }
  transparent_setting const never("never");
  constexpr shm::sls_policy wanted{.pages = shm::pages::require_huge,
                                   .memory = shm::memory::require_on_package};
  shm::settings named{.backend = shm::backend::sls};
  named.high_bandwidth_nodes = "0";
  on_ranks(
      2,
      [&](shm::group& node, findings& found) {
        shm::window<int, shm::sls_policy> w(node, four_mib / sizeof(int), wanted);
        RANK_CHECK(found, w.page_size() == page);
        RANK_CHECK(found, is_right(w));
      },
      named);
}

/// Shows this process, and those that it forks, a machine with NUMA nodes 0 and 1, of which the
/// kernel lets it use node 0 only. Only in a child.
void pretend_second_node() {
  shm_test::temporary_directory const root;
  auto const write = [&](std::string const& file, std::string_view text) {
    auto const path = std::filesystem::path(root.path()) / file;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text << '\n';
  };
  write("online", "0-1");
  write("has_memory", "0-1");
  write("node0/cpulist", "0-1");
  write("node1/cpulist", "");
  if (::unshare(CLONE_NEWNS) != 0 ||
      ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
      ::mount("none", "/sys/devices/system/node", "tmpfs", 0, nullptr) != 0) {
    throw shm_test::skipped{"mounting needs root"};
  }
  std::filesystem::copy(root.path(), "/sys/devices/system/node",
                        std::filesystem::copy_options::recursive);
}

TEST_CASE("on-package memory that a process may not use is told apart from none") {
  if (shm::os::usable_nodes() != shm::os::node_set{0}) {
    WARN("skipped: several NUMA nodes");
    return;
  }
  shm_test::in_child([](findings&) {
    pretend_second_node();
    shm::settings named{.backend = shm::backend::sls};
    named.high_bandwidth_nodes = "1";
    shm::fork_ranks(
        2,
        [](shm::group& node) {
          findings found;
          auto const refused = failure_of([&] {
            shm::window<int, shm::sls_policy>(node, 5000,
                                              {.memory = shm::memory::require_on_package});
          });
          RANK_CHECK(found, refused.cause == shm::errc::permission_denied);
          RANK_CHECK(found, refused.subject.view() ==
                                "high-bandwidth memory is on NUMA node 1, and this process may use "
                                "NUMA node 0 only");
          shm::window<int, shm::sls_policy> w(node, 5000, {}, {.place = shm::place::node(1)});
          RANK_CHECK(found, w.residency().nodes[0] == 0);
          if (!found.all().empty()) throw std::runtime_error(found.all());
        },
        named);
  });
}

TEST_CASE("options of the backend sls that have no name are refused on all ranks") {
  on_ranks(2, [](shm::group& node, findings& found) {
    auto const message = [&](shm::sls_policy const& policy) {
      return shm_test::message_of([&] { shm::window<int, shm::sls_policy>(node, 5, policy); });
    };
    auto const text = message({.pages = static_cast<shm::pages>(7)});
    RANK_CHECK(found, text.find("sls_policy::pages is 7, which has no name") != std::string::npos);
    RANK_CHECK(found, message({.memory = static_cast<shm::memory>(9)}).find("memory is 9") !=
                          std::string::npos);
    shm::window<int>(node, 5).fence();
  });
}

TEST_CASE("a node that is not there is refused also where all blocks are empty") {
  on_ranks(2, [](shm::group& node, findings& found) {
    auto const refused =
        failure_of([&] { shm::window<int>(node, 0, {.place = shm::place::node(99)}); });
    RANK_CHECK(found, refused.cause == shm::errc::invalid_argument);
  });
}

}  // namespace
