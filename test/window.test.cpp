// What windows do, on 1 to 4 forked ranks.

#include "shm/window.hpp"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <numeric>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/huge_pages.hpp"
#include "support/ranks.hpp"
#include "support/same.hpp"
#include "window/behaviours.hpp"

namespace {

using shm_test::failure_of;
using shm_test::findings;
using shm_test::on_all_rank_counts;
using shm_test::on_ranks;

template <class Policy>
void run_behaviours(shm::settings const& values = {}) {
  for (auto const& one : shm_test::window_behaviours<Policy>()) {
    SECTION(one.sentence) { on_all_rank_counts(one.body, values); }
  }
}

/// Runs the behaviours on huge pages only, those that a small pool has room for.
void run_behaviours_on_huge_pages() {
  constexpr shm::settings values{.backend = shm::backend::sls, .pages = shm::pages::require_huge};
  for (auto const& one : shm_test::window_behaviours<shm::runtime_policy>()) {
    std::string_view const sentence = one.sentence;
    bool const is_greedy = sentence.find("thousands") != sentence.npos ||
                           sentence.find("GiB") != sentence.npos ||
                           sentence.find("says what its memory is") != sentence.npos;
    if (is_greedy) continue;
    SECTION(one.sentence) {
      on_all_rank_counts(
          [&](shm::group& node, findings& found) {
            RANK_CHECK(found, shm::window<int>(node, 1).page_size() > shm_test::page);
            one.body(node, found);
          },
          values);
    }
  }
}

/// Whether a store of the byte that is there already kills a process with this one's memory.
bool is_store_a_fault(void const* address) {
  auto const child = ::fork();
  if (child == 0) {
    rlimit const no_core{};
    ::setrlimit(RLIMIT_CORE, &no_core);
    std::signal(SIGSEGV, SIG_DFL);
    auto& byte = *static_cast<unsigned char volatile*>(const_cast<void*>(address));
    byte = byte;
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV;
}

/// The flags that the kernel keeps of the mapping around `address`, as two letters each.
///
/// Source: proc(5), VmFlags of /proc/self/smaps.
std::string kernel_flags(void const* address) {
  auto const wanted = reinterpret_cast<std::uintptr_t>(address);
  std::ifstream maps("/proc/self/smaps");
  bool is_inside = false;
  for (std::string line; std::getline(maps, line);) {
    std::uintptr_t begin = 0;
    std::uintptr_t end = 0;
    char dash = 0;
    if (std::istringstream words(line); words >> std::hex >> begin >> dash >> end && dash == '-') {
      is_inside = begin <= wanted && wanted < end;
    } else if (is_inside && line.starts_with("VmFlags:")) {
      return line + " ";
    }
  }
  return {};
}

bool is_left_out_of_dumps(void const* address) {
  return kernel_flags(address).find(" dd ") != std::string::npos;
}

}  // namespace

TEST_CASE("every behaviour of windows holds with posix_policy") {
  run_behaviours<shm::posix_policy>();
}

TEST_CASE("every behaviour of windows holds with sls_policy") { run_behaviours<shm::sls_policy>(); }

TEST_CASE("every behaviour of windows holds with the backend sls chosen at run time") {
  run_behaviours<shm::runtime_policy>({.backend = shm::backend::sls});
}

TEST_CASE("what posts do holds when their counts wrap around") {
  for (auto const& one : shm_test::window_behaviours<shm::runtime_policy>()) {
    if (std::string_view(one.sentence).find("post") == std::string_view::npos) continue;
    SECTION(one.sentence) {
      for (auto const first : {0xffffffffU, 0xfffffffdU, 0x7fffffffU}) {
        on_all_rank_counts(one.body, shm::settings{.first_number = first});
      }
    }
  }
}

TEST_CASE("every behaviour of windows holds on reserved huge pages") {
  shm_test::huge_page_reserve const reserve(128);
  if (!reserve.is_there()) {
    WARN("skipped: " << reserve.why_not());
    return;
  }
  run_behaviours_on_huge_pages();
}

TEST_CASE("every behaviour of windows holds on transparent huge pages") {
  shm_test::transparent_setting const setting("advise");
  if (!setting.is_there()) {
    WARN("skipped: " << setting.why_not());
    return;
  }
  run_behaviours_on_huge_pages();
}

TEMPLATE_TEST_CASE("a frozen window is read, and a store into any block of it is a fault", "",
                   shm::posix_policy, shm::sls_policy) {
  on_all_rank_counts([](shm::group& node, findings& found) {
    for (std::size_t const count : {std::size_t{1}, std::size_t{5000}}) {
      shm::window<int, TestType> table(node, count);
      std::iota(table.local().begin(), table.local().end(), 100 * node.rank());
      table.fence();
      RANK_CHECK(found, !is_store_a_fault(table.local().data()));
      auto const frozen = std::move(table).freeze();
      RANK_CHECK(found, !table.valid() && frozen.valid());
      for (int r = 0; r < node.size(); ++r) {
        RANK_CHECK(found, frozen[r].size() == count);
        RANK_CHECK(found, frozen[r].front() == 100 * r);
        RANK_CHECK(found, is_store_a_fault(&frozen[r].front()));
        RANK_CHECK(found, is_store_a_fault(&frozen[r].back()));
      }
      node.barrier();
    }
  });
}

TEST_CASE("a frozen window still fences, sees the stores of others, and frees all of its memory") {
  on_all_rank_counts([](shm::group& node, findings& found) {
    shm::window<int> first(node, 1);  // what the group itself keeps is there now
    int const before = shm_test::mappings();
    {
      shm::window<int> table(node, 2000, {.layout = shm::layout::contiguous});
      shm::window<int const> reader;
      if (node.rank() != 0) reader = std::move(table).freeze();
      if (node.rank() == 0) std::ranges::fill(table.all(), 7);
      node.rank() == 0 ? table.fence() : reader.fence();
      if (node.rank() != 0) {
        RANK_CHECK(found, std::ranges::count(reader.all(), 7) == 2000 * node.size());
      }
      node.rank() == 0 ? table.fence(0) : reader.fence(node.rank());
    }
    RANK_CHECK(found, shm_test::mappings() == before);
    node.barrier();
  });
}

TEST_CASE("one rank writes a window that the others have made read-only") {
  on_ranks(3, [](shm::group& node, findings& found) {
    if (node.rank() == 1) {
      shm::window<double> owner(node, 10);
      std::ranges::fill(owner.local(), 2.5);
      owner.fence();
      RANK_CHECK(found, !is_store_a_fault(&owner[0].front()));
      owner.fence();
    } else {
      shm::window<double const> reader(node, 0);
      reader.fence();
      RANK_CHECK(found, reader[1].size() == 10 && reader[1][9] == 2.5);
      RANK_CHECK(found, is_store_a_fault(&reader[1].front()));
      reader.fence();
    }
  });
}

TEST_CASE("read-only windows post and wait like others") {
  on_all_rank_counts([](shm::group& node, findings& found) {
    int const n = node.size();
    int const before = (node.rank() + n - 1) % n;
    int const after = (node.rank() + 1) % n;
    auto const go_round = [&](auto& w) {
      for (int i = 0; i < 10; ++i) {
        w.post(after);
        w.wait(before);
        w.post(after);
        RANK_CHECK(found, w.wait_any({{before}}) == before);
        w.fence();
        RANK_CHECK(found, !w.try_wait(before));
        w.fence();
      }
    };
    shm::window<int const> reader(node, 3);
    go_round(reader);
    shm::window<int> table(node, 3);
    table.post(after);
    auto frozen = std::move(table).freeze();
    frozen.wait(before);  // posted, perhaps, before it was frozen
    go_round(frozen);
    RANK_CHECK(found, is_store_a_fault(frozen.local().data()));
  });
}

TEST_CASE("posts and what was consumed of them move with the window") {
  on_all_rank_counts([](shm::group& node, findings& found) {
    shm::window<int, shm::posix_policy> from(node, 3);
    int const peer = node.size() - 1 - node.rank();
    for (int i = 0; i < 3; ++i) from.post(peer);
    from.wait(peer);
    shm::window<int> to(std::move(from));
    to.wait(peer);
    shm::window<int> again;
    again = std::move(to);
    again.wait(peer);
    again.fence();
    RANK_CHECK(found, !again.try_wait(peer));
    again.fence();
  });
}

TEST_CASE("an empty window cannot be frozen, and freezing twice changes nothing") {
  on_ranks(1, [](shm::group& node, findings& found) {
    shm::window<int> none;
    auto const refused = failure_of([&] { (void)std::move(none).freeze(); });
    RANK_CHECK(found, refused.cause == shm::errc::empty);
    auto twice = shm::window<int>(node, 3).freeze().freeze();
    RANK_CHECK(found, twice.valid() && is_store_a_fault(twice.local().data()));
  });
}

TEST_CASE("a window is left out of core dumps unless it asks to be in them") {
  on_ranks(2, [](shm::group& node, findings& found) {
    shm::window<int> const out(node, 5000);
    shm::window<int> const in(node, 5000, {.core_dump = shm::core_dump::include});
    for (int r = 0; r < node.size(); ++r) {
      RANK_CHECK(found, is_left_out_of_dumps(&out[r].front()));
      RANK_CHECK(found, is_left_out_of_dumps(&out[r].back()));
      RANK_CHECK(found, !is_left_out_of_dumps(&in[r].front()));
    }
    auto const refused = failure_of([&] {
      auto const choice = node.rank() == 0 ? shm::core_dump::include : shm::core_dump::leave_out;
      shm::window<int>(node, 1, {.core_dump = choice});
    });
    RANK_CHECK(found, refused.cause == shm::errc::mismatch && refused.rank == 1);
  });
}

TEST_CASE("a window of one backend moves into a window of the default one") {
  on_all_rank_counts([](shm::group& node, findings& found) {
    shm::window<int, shm::posix_policy> from(node, 3);
    from.local()[2] = 5 + node.rank();
    auto const* const address = from.local().data();
    shm::window<int> to(std::move(from));
    RANK_CHECK(found, !from.valid() && to.local().data() == address);
    to.fence();
    RANK_CHECK(found, std::as_const(to)[node.size() - 1][2] == 4 + node.size());
    to.fence();
  });
}

TEST_CASE("windows of different backends on different ranks are a mismatch on all") {
  on_ranks(3, [](shm::group& node, findings& found) {
    auto const refused = failure_of([&] {
      if (node.rank() == 2) {
        shm::window<int, shm::posix_policy>(node, 1);
      } else {
        shm::window<int>(node, 1);
      }
    });
    RANK_CHECK(found, refused.cause == shm::errc::mismatch);
    RANK_CHECK(found, refused.rank == 2);
  });
}

TEST_CASE("a rank that unwinds past a window leaves peer_left to those in its fence") {
  on_ranks(4, [](shm::group& node, findings& found) {
    std::string text;
    try {
      shm::window<int> w(node, 1);
      if (node.rank() == 2) throw std::runtime_error("bad day");
      try {
        w.fence();
      } catch (shm::error const& e) {
        RANK_CHECK(found, e.code() == shm::errc::peer_left);
        RANK_CHECK(found, e.rank() == 2);
        throw;
      }
    } catch (std::exception const& e) {
      text = e.what();
    }
    RANK_CHECK(found, !text.empty());
    node.barrier();  // the group itself is whole
  });
}

TEST_CASE("a rank that waits for one peer which has left gets peer_left") {
  on_ranks(3, [](shm::group& node, findings& found) {
    shm::window<int> w(node, 1);
    if (node.rank() == 1) {
      w = {};
    } else {
      auto const refused = failure_of([&] { w.fence(1); });
      RANK_CHECK(found, refused.cause == shm::errc::peer_left);
      RANK_CHECK(found, refused.rank == 1);
    }
    node.barrier();
  });
}

TEST_CASE("in agree all learn which rank waited for a post of one that has left") {
  on_ranks(3, [](shm::group& node, findings& found) {
    shm::window<int> w(node, 1);
    if (node.rank() == 2) w = {};
    auto const text = shm_test::message_of([&] {
      node.agree([&] {
        if (node.rank() == 1) w.wait(2);
      });
    });
    RANK_CHECK(found, text.find("rank 1 waits for a post of rank 2") != std::string::npos);
    RANK_CHECK(found, shm_test::is_same_everywhere(node, text));
  });
}

TEST_CASE("a killed rank is heard until its last post, and then every wait tells of its death") {
  using namespace std::chrono_literals;
  constexpr int lost = 1;
  for (int const ranks : {2, 3, 4}) {
    shm_test::on_ranks_losing(lost, ranks, [](shm::group& node, findings& found) {
      shm::window<int> w(node, 1);
      if (node.rank() == lost) {
        w.local()[0] = 99;
        for (int to = 0; to < node.size(); ++to) {
          w.post(to);
          w.post(to);
        }
        std::raise(SIGKILL);
      }
      std::array const both{node.rank(), lost};
      std::this_thread::sleep_for(20ms);  // so that it is often dead by now
      w.wait(lost);
      RANK_CHECK(found, std::as_const(w)[lost][0] == 99);
      RANK_CHECK(found, w.wait_any(both) == lost);
      auto const must_be_lost = [&](auto wait) {
        auto const refused = failure_of(wait);
        RANK_CHECK(found, refused.cause == shm::errc::peer_lost && refused.rank == lost);
      };
      if (node.rank() == 0) {
        must_be_lost([&] {
          while (!w.try_wait(lost)) std::this_thread::yield();
        });
      } else if (node.rank() == 2) {
        must_be_lost([&] { w.wait(0); });  // which is alive, and never posts
      } else {
        must_be_lost([&] {
          while (!w.wait_for(lost, 1ms)) std::this_thread::yield();
        });
      }
      must_be_lost([&] { w.wait(node.rank()); });
      must_be_lost([&] { (void)w.try_wait(0); });
      must_be_lost([&] { (void)w.wait_any(both); });
      must_be_lost([&] { w.fence(); });
      must_be_lost([&] { node.barrier(); });
      w.post(lost);  // which nobody hears
      w.post(node.rank());
      w.wait(node.rank());  // a post that is there is consumed
    });
  }
}

TEST_CASE("a forked child of a rank harms nobody, however it ends") {
  on_ranks(2, [](shm::group& node, findings& found) {
    shm::window<int> w(node, 1);
    for (int how = 0; how < 5; ++how) {
      auto const child = ::fork();
      if (child == 0) {
        if (how == 0) w = {};  // a destructor in the child
        if (how == 1) ::_exit(0);
        if (how == 2) std::quick_exit(0);
        if (how == 3) ::execl("/bin/true", "true", nullptr);
        // A store that follows the fork is one to the same memory.
        if (how == 4) w.local()[0] = -1;
        ::_exit(0);
      }
      int status = 0;
      ::waitpid(child, &status, 0);
      RANK_CHECK(found, status == 0);
      if (how == 4) RANK_CHECK(found, w.local()[0] == -1);
      w.local()[0] = how + node.rank();
      w.fence();
      RANK_CHECK(found, std::as_const(w)[1][0] == how + 1);
      w.fence();
    }
    node.barrier();
  });
}

TEST_CASE("a rank killed before a fence is peer_lost on all others, the same for good") {
  for (auto const algorithm : {shm::fence_algorithm::linear, shm::fence_algorithm::dissemination,
                               shm::fence_algorithm::counter}) {
    std::vector<shm::rank_exit> exits;
    try {
      shm::fork_ranks(
          4,
          [](shm::group& node) {
            shm::window<int> w(node, 1);
            w.fence();
            if (node.rank() == 1) std::raise(SIGKILL);
            auto const first = shm_test::message_of([&] { w.fence(); });
            auto const again = failure_of([&] { node.barrier(); });
            auto const window = failure_of([&] { shm::window<int>(node, 1); });
            if (again.cause != shm::errc::peer_lost || window.cause != shm::errc::peer_lost ||
                again.rank != 1 || window.rank != 1) {
              throw std::runtime_error("a later call did not tell of the loss");
            }
            throw std::runtime_error(first);
          },
          shm::settings{.fence = algorithm});
    } catch (shm::ranks_failed const& e) {
      exits = e.exits();
    }
    REQUIRE(exits.size() == 4);
    CHECK(exits[1].how == shm::rank_exit::kind::killed);
    CHECK(exits[0].what.find("rank 1 of 4: fence: the rank died") != std::string::npos);
    CHECK(exits[2].what == exits[0].what);
    CHECK(exits[3].what == exits[0].what);
  }
}
