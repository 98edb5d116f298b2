// What windows do, on 1 to 4 forked ranks.

#include "shm/window.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "support/same.hpp"
#include "window/behaviours.hpp"

namespace {

using shm_test::failure_of;
using shm_test::findings;
using shm_test::on_all_rank_counts;
using shm_test::on_ranks;

template <class Policy>
void run_behaviours() {
  for (auto const& one : shm_test::window_behaviours<Policy>()) {
    SECTION(one.sentence) { on_all_rank_counts(one.body); }
  }
}

}  // namespace

TEST_CASE("every behaviour of windows holds with posix_policy") {
  run_behaviours<shm::posix_policy>();
}

TEST_CASE("every behaviour of windows holds with the backend chosen at run time") {
  run_behaviours<shm::runtime_policy>();
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

TEST_CASE("a forked child of a rank harms nobody, however it ends") {
  on_ranks(2, [](shm::group& node, findings& found) {
    shm::window<int> w(node, 1);
    for (int how = 0; how < 2; ++how) {
      auto const child = ::fork();
      if (child == 0) {
        if (how == 0) w = {};  // a destructor in the child
        ::_exit(0);
      }
      int status = 0;
      ::waitpid(child, &status, 0);
      RANK_CHECK(found, status == 0);
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
