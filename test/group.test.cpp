#include "shm/group.hpp"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "shm/shm.hpp"
#include "support/catch.hpp"
#include "support/exits.hpp"
#include "support/ranks.hpp"

using shm::errc;
using shm::fence_algorithm;
using shm::group;
using shm_test::contains;
using shm_test::exits_of;
using shm_test::failure_of;
using shm_test::findings;
using shm_test::message_of;
using shm_test::notes;
using shm_test::on_all_rank_counts;
using shm_test::on_ranks;
using shm_test::on_ranks_losing;

namespace {

constexpr fence_algorithm algorithms[] = {fence_algorithm::linear, fence_algorithm::dissemination,
                                          fence_algorithm::counter};

std::byte pattern(int rank, std::size_t at, int round) {
  return static_cast<std::byte>(
      (static_cast<std::size_t>(rank) * 31 + at * 7 + static_cast<std::size_t>(round) * 13) &
      0xffU);
}

/// Gathers blocks of `n` bytes with a pattern; returns whether all have come.
bool gathers(group& node, std::size_t n, int round) {
  std::vector<std::byte> mine(n);
  for (std::size_t i = 0; i < n; ++i) mine[i] = pattern(node.rank(), i, round);
  std::vector<std::byte> all(n * static_cast<std::size_t>(node.size()));
  node.allgather(mine, all);
  for (int rank = 0; rank < node.size(); ++rank) {
    for (std::size_t i = 0; i < n; ++i) {
      if (all[static_cast<std::size_t>(rank) * n + i] != pattern(rank, i, round)) return false;
    }
  }
  return true;
}

/// One round of everything that a group and its windows can do together.
void do_everything(group& node, findings& found, int round) {
  node.barrier();
  RANK_CHECK(found, node.agree([&] { return node.rank() + round; }) == node.rank() + round);
  RANK_CHECK(found, gathers(node, 1500, round));
  shm::window<int> window(node, 1);
  window.local()[0] = round * 100 + node.rank();
  window.fence();
  int const before = (node.rank() + node.size() - 1) % node.size();
  int const after = (node.rank() + 1) % node.size();
  RANK_CHECK(found, window[before][0] == round * 100 + before);
  int const ring[] = {before, after};
  window.fence(ring);
  window.local()[0] = -node.rank();
  window.fence(ring);
  RANK_CHECK(found, window[after][0] == -after);
  window.fence();
}

std::ptrdiff_t count_descriptors() {
  namespace fs = std::filesystem;
  return std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator());
}

}  // namespace

TEST_CASE("a group is moved, not copied, and moving does not throw") {
  STATIC_REQUIRE_FALSE(std::is_copy_constructible_v<group>);
  STATIC_REQUIRE_FALSE(std::is_copy_assignable_v<group>);
  STATIC_REQUIRE(std::is_nothrow_move_constructible_v<group>);
  STATIC_REQUIRE(std::is_nothrow_default_constructible_v<group>);
  STATIC_REQUIRE(std::is_nothrow_destructible_v<group>);
  STATIC_REQUIRE(shm::out_of_band<group>);
}

TEST_CASE("a default-constructed group has no rank and no size, and refuses collective calls") {
  group none;
  CHECK(none.rank() == -1);
  CHECK(none.size() == 0);
  CHECK_FALSE(none.valid());
  CHECK(failure_of([&] { none.barrier(); }).cause == errc::empty);
  CHECK(failure_of([&] { none.agree([] {}); }).cause == errc::empty);
  CHECK(failure_of([&] { none.allgather({}, {}); }).cause == errc::empty);
  CHECK(failure_of([&] { shm::window<int> window(none, 1); }).cause == errc::empty);
}

TEST_CASE("an invalid group does not run the function that it is to agree on") {
  group none;
  bool ran = false;
  CHECK(failure_of([&] { none.agree([&] { ran = true; }); }).cause == errc::empty);
  CHECK_FALSE(ran);
}

TEST_CASE("a group that was moved from is empty, and the one moved to goes on") {
  on_all_rank_counts([](group& node, findings& found) {
    auto const rank = node.rank();
    group moved(std::move(node));
    RANK_CHECK(found, node.rank() == -1);
    RANK_CHECK(found, node.size() == 0);
    RANK_CHECK(found, !node.valid());
    RANK_CHECK(found, failure_of([&] { node.barrier(); }).cause == errc::empty);
    RANK_CHECK(found, moved.rank() == rank);
    moved.barrier();
    node = std::move(moved);
    RANK_CHECK(found, node.rank() == rank);
    node.barrier();
  });
}

TEST_CASE("what a rank writes before a barrier is seen by all after it") {
  for (int const ranks : {1, 2, 3, 4, 8}) {
    on_ranks(ranks, [](group& node, findings& found) {
      shm::window<int> window(node, 1);
      for (int round = 1; round <= 100; ++round) {
        window.local()[0] = round * 100 + node.rank();
        node.barrier();
        for (int rank = 0; rank < node.size(); ++rank) {
          RANK_CHECK(found, window[rank][0] == round * 100 + rank);
        }
        node.barrier();
      }
    });
  }
}

TEST_CASE("blocks of any length are gathered in rank order, also between barriers") {
  on_all_rank_counts([](group& node, findings& found) {
    int round = 0;
    for (std::size_t const n : {0U, 1U, 255U, 256U, 1023U, 1024U, 1025U, 2048U, 5000U}) {
      for (int barriers = 0; barriers < 3; ++barriers) {
        RANK_CHECK(found, gathers(node, n, ++round));
        for (int i = 0; i < barriers; ++i) node.barrier();
        RANK_CHECK(found, gathers(node, n, ++round));
      }
    }
  });
}

TEST_CASE("eight ranks gather many times in a row") {
  on_ranks(8, [](group& node, findings& found) {
    for (int round = 0; round < 50; ++round) RANK_CHECK(found, gathers(node, 3000, round));
  });
}

TEST_CASE("a result of the wrong length on one rank is an error of all, and the group goes on") {
  on_all_rank_counts([](group& node, findings& found) {
    int const last = node.size() - 1;
    std::vector<std::byte> const mine(4);
    for (std::size_t const wrong : {1U, 2U}) {
      std::vector<std::byte> all(4 * static_cast<std::size_t>(node.size()));
      if (node.rank() == last) all.resize(all.size() + 3 - 2 * wrong);
      auto const failed = failure_of([&] { node.allgather(mine, all); });
      RANK_CHECK(found, failed.cause == errc::invalid_argument);
      RANK_CHECK(found, failed.rank == last);
      RANK_CHECK(found, gathers(node, 10, 1));
    }
  });
}

TEST_CASE("blocks of different lengths are a mismatch on all ranks, and the group goes on") {
  on_ranks(3, [](group& node, findings& found) {
    std::vector<std::byte> const mine(node.rank() == 1 ? 5 : 4);
    std::vector<std::byte> all(3 * mine.size());
    auto const failed = failure_of([&] { node.allgather(mine, all); });
    RANK_CHECK(found, failed.cause == errc::mismatch);
    RANK_CHECK(found, failed.rank == 1);
    RANK_CHECK(found, gathers(node, 10, 1));
  });
}

TEST_CASE("a barrier of one rank is not taken for its part in a gathering") {
  on_ranks(3, [](group& node, findings& found) {
    std::vector<std::byte> const mine(4);
    std::vector<std::byte> all(12);
    node.barrier();
    if (node.rank() == 1) {
      node.barrier();
    } else {
      auto const failed = failure_of([&] { node.allgather(mine, all); });
      RANK_CHECK(found, failed.cause == errc::mismatch);
      RANK_CHECK(found, failed.rank == 1);
    }
  });
}

TEST_CASE("ranks in a barrier and in an agreement find that they wait for each other") {
  on_ranks(3, [](group& node, findings& found) {
    ::alarm(15);
    auto const failed = failure_of([&] {
      if (node.rank() == 1) {
        node.barrier();
      } else {
        node.agree([] {});
      }
    });
    RANK_CHECK(found, failed.cause == errc::mismatch || failed.cause == errc::peer_left);
    RANK_CHECK(found, failed.is_failure());
  });
}

TEST_CASE("a rank that fails before a collective call in agree is an error on all ranks") {
  on_all_rank_counts([](group& node, findings& found) {
    ::alarm(15);
    int const last = node.size() - 1;
    for (int round = 0; round < 3; ++round) {
      auto const text = shm_test::message_of([&] {
        node.agree([&] {
          if (node.rank() == last) throw std::runtime_error("cannot load");
          shm::window<int>(node, 5);
        });
      });
      RANK_CHECK(found, contains(text, "rank " + std::to_string(last)));
      RANK_CHECK(found, contains(text, "agreeing: a rank's function failed: cannot load"));
      RANK_CHECK(found, gathers(node, 10, round));
    }
  });
}

TEST_CASE("an error that all ranks got from a call in agree is their error of agree") {
  on_all_rank_counts([](group& node, findings& found) {
    auto const failed = failure_of([&] {
      node.agree([&] { shm::window<int>(node, node.rank() == node.size() - 1 ? -1 : 1); });
    });
    RANK_CHECK(found, failed.cause == errc::invalid_argument);
    RANK_CHECK(found, failed.rank == node.size() - 1);
    RANK_CHECK(found, gathers(node, 10, 1));
  });
}

TEST_CASE("an error without a cause that a rank throws in agree is an error all the same") {
  on_ranks(2, [](group& node, findings& found) {
    auto const failed = failure_of([&] {
      node.agree([&] {
        if (node.rank() == 1) throw shm::error(shm::failure{});
      });
    });
    RANK_CHECK(found, failed.cause == errc::rank_failed);
    RANK_CHECK(found, failed.rank == 1);
  });
}

TEST_CASE("agree returns what each rank's own function returns") {
  on_all_rank_counts([](group& node, findings& found) {
    RANK_CHECK(found, node.agree([&] {
      return std::string(3, static_cast<char>('a' + node.rank()));
    }) == std::string(3, static_cast<char>('a' + node.rank())));
    auto const owned = node.agree([&] { return std::make_unique<int>(node.rank()); });
    RANK_CHECK(found, *owned == node.rank());
    bool ran = false;
    node.agree([&] { ran = true; });
    RANK_CHECK(found, ran);
  });
}

TEST_CASE("what any rank writes in agree is seen by all after it") {
  on_all_rank_counts([](group& node, findings& found) {
    shm::window<int> window(node, 1);
    for (int round = 1; round <= 50; ++round) {
      node.agree([&] { window.local()[0] = round * 100 + node.rank(); });
      for (int rank = 0; rank < node.size(); ++rank) {
        RANK_CHECK(found, window[rank][0] == round * 100 + rank);
      }
      node.agree([] {});
    }
  });
}

TEST_CASE("where any rank throws in agree all throw the same text, and the group goes on") {
  for (int const ranks : {1, 2, 3, 4, 8}) {
    for (int const failing : {0, ranks - 1}) {
      notes texts(ranks);
      on_ranks(ranks, [&](group& node, findings& found) {
        auto const text = message_of([&] {
          node.agree([&] {
            if (node.rank() == failing) throw std::runtime_error("the disk is on fire");
            return 1;
          });
        });
        texts.write(node.rank(), text);
        do_everything(node, found, 1);
      });
      INFO(texts.all());
      CHECK(texts.are_equal());
      CHECK(contains(texts.of(0), "the disk is on fire"));
      CHECK(contains(texts.of(0), "rank " + std::to_string(failing)));
    }
  }
}

TEST_CASE("an exception of the standard library becomes rank_failed of its rank on all") {
  on_all_rank_counts([](group& node, findings& found) {
    int const last = node.size() - 1;
    try {
      node.agree([&] {
        if (node.rank() == last) throw std::out_of_range("far out");
      });
      bool const throws = false;
      RANK_CHECK(found, throws);
    } catch (shm::error const& e) {
      RANK_CHECK(found, e.details().cause == errc::rank_failed);
      RANK_CHECK(found, e.rank() == last);
      RANK_CHECK(found, e.is_agreed());
      RANK_CHECK(found, e.details().subject.view() == "far out");
    }
  });
}

TEST_CASE("an error of the library keeps its cause, errno and words on all ranks") {
  on_all_rank_counts([](group& node, findings& found) {
    int const last = node.size() - 1;
    auto const failed = failure_of([&] {
      node.agree([&] {
        if (node.rank() != last) return;
        throw shm::error({.cause = errc::no_space,
                          .system = ENOSPC,
                          .subject = "4 GiB",
                          .remedy = "buy a disk"});
      });
    });
    RANK_CHECK(found, failed.cause == errc::no_space);
    RANK_CHECK(found, failed.system == ENOSPC);
    RANK_CHECK(found, failed.rank == last);
    RANK_CHECK(found, failed.subject.view() == "4 GiB");
    RANK_CHECK(found, failed.remedy.view() == "buy a disk");
  });
}

TEST_CASE("an error that names a rank of another group names the rank that threw it") {
  on_ranks(3, [](group& node, findings& found) {
    auto const failed = failure_of([&] {
      node.agree([&] {
        if (node.rank() == 1) throw shm::error({.cause = errc::peer_lost, .rank = 2});
      });
    });
    RANK_CHECK(found, failed.cause == errc::peer_lost);
    RANK_CHECK(found, failed.rank == 1);
  });
}

TEST_CASE("a thrown number is an error on all ranks like any other exception") {
  on_all_rank_counts([](group& node, findings& found) {
    auto const failed = failure_of([&] {
      node.agree([&] {
        if (node.rank() == 0) throw 42;
      });
    });
    RANK_CHECK(found, failed.cause == errc::rank_failed);
    RANK_CHECK(found, failed.rank == 0);
    RANK_CHECK(found, !failed.subject.is_empty());
    node.barrier();
  });
}

TEST_CASE("of two ranks that throw in agree the lower is named") {
  on_ranks(4, [](group& node, findings& found) {
    for (int round = 0; round < 20; ++round) {
      auto const failed = failure_of([&] {
        node.agree([&] {
          if (node.rank() == 1 || node.rank() == 3) {
            throw std::runtime_error("rank " + std::to_string(node.rank()));
          }
        });
      });
      RANK_CHECK(found, failed.rank == 1);
      RANK_CHECK(found, failed.subject.view() == "rank 1");
    }
  });
}

TEST_CASE("an agreement after a failed one knows nothing of it") {
  on_all_rank_counts([](group& node, findings& found) {
    for (int round = 0; round < 10; ++round) {
      bool const fails = round % 3 == 1;
      auto const failed = failure_of([&] {
        node.agree([&] {
          if (fails) throw std::runtime_error("once");
        });
      });
      RANK_CHECK(found, failed.is_failure() == fails);
    }
  });
}

TEST_CASE("a rank that throws between two collective calls is named to those that wait for it") {
  constexpr int ranks = 4;
  for (int const leaving : {0, 2}) {
    notes texts(ranks);
    auto const exits = exits_of(ranks, [&](group& node, findings& found) {
      node.barrier();
      if (node.rank() == leaving) throw std::runtime_error("gone fishing");
      auto const text = message_of([&] { node.barrier(); });
      texts.write(node.rank(), text);
      auto const again = failure_of([&] { node.agree([] {}); });
      RANK_CHECK(found, again.cause == errc::peer_left);
      RANK_CHECK(found, again.rank == leaving);
    });
    INFO(texts.all());
    CHECK(texts.are_equal(leaving));
    CHECK(contains(texts.of(1), "rank " + std::to_string(leaving) + " of 4"));
    CHECK(contains(texts.of(1), "has destroyed its end"));
    for (int rank = 0; rank < ranks; ++rank) {
      auto const& exit = exits[static_cast<std::size_t>(rank)];
      INFO(exit.in_words());
      CHECK(exit.how ==
            (rank == leaving ? shm::rank_exit::kind::threw : shm::rank_exit::kind::finished));
    }
  }
}

TEST_CASE("a rank that leaves before it votes is named by agree") {
  notes texts(3);
  exits_of(3, [&](group& node, findings&) {
    node.barrier();
    if (node.rank() == 1) throw std::runtime_error("gone fishing");
    texts.write(node.rank(), message_of([&] { node.agree([] {}); }));
  });
  INFO(texts.all());
  CHECK(texts.are_equal(1));
  CHECK(contains(texts.of(0), "rank 1 of 3: agreeing"));
}

TEST_CASE("ranks that leave after the last collective call harm nobody") {
  for (int round = 0; round < 10; ++round) {
    on_all_rank_counts([](group& node, findings& found) {
      node.barrier();
      RANK_CHECK(found, gathers(node, 100, 1));
      node.agree([] {});
    });
  }
}

TEST_CASE("all survivors of a killed rank get peer_lost naming it, then and in later calls") {
  for (auto const algorithm : algorithms) {
    for (int const ranks : {2, 3, 4, 8}) {
      for (int const lost : {0, ranks - 1}) {
        notes texts(ranks);
        on_ranks_losing(
            lost, ranks,
            [&](group& node, findings& found) {
              shm::window<int> window(node, 1);
              node.barrier();
              if (node.rank() == lost) ::raise(SIGKILL);
              texts.write(node.rank(), message_of([&] { node.barrier(); }));
              auto const is_lost = [&](shm::failure const& failed) {
                return failed.cause == errc::peer_lost && failed.rank == lost;
              };
              std::byte const mine[1] = {};
              std::vector<std::byte> all(static_cast<std::size_t>(ranks));
              RANK_CHECK(found, is_lost(failure_of([&] { node.barrier(); })));
              RANK_CHECK(found, is_lost(failure_of([&] { node.allgather(mine, all); })));
              RANK_CHECK(found, is_lost(failure_of([&] { shm::window<int> more(node, 1); })));
              RANK_CHECK(found, is_lost(failure_of([&] { window.fence(); })));
              RANK_CHECK(found, is_lost(failure_of([&] { window.fence(node.rank()); })));
              bool ran = false;
              RANK_CHECK(found, is_lost(failure_of([&] { node.agree([&] { ran = true; }); })));
              RANK_CHECK(found, !ran);
            },
            shm::settings{.fence = algorithm});
        INFO(texts.all());
        CHECK(texts.are_equal(lost));
        CHECK(contains(texts.of(lost == 0 ? 1 : 0), "the rank died"));
      }
    }
  }
}

TEST_CASE("all survivors of a rank that is killed before it votes get peer_lost naming it") {
  for (int const ranks : {2, 3, 4, 8}) {
    for (int const lost : {0, ranks - 1}) {
      notes texts(ranks);
      on_ranks_losing(lost, ranks, [&](group& node, findings& found) {
        node.barrier();
        texts.write(node.rank(), message_of([&] {
                      node.agree([&] {
                        if (node.rank() == lost) ::raise(SIGKILL);
                      });
                    }));
        auto const later = failure_of([&] { node.barrier(); });
        RANK_CHECK(found, later.cause == errc::peer_lost);
        RANK_CHECK(found, later.rank == lost);
      });
      INFO(texts.all());
      CHECK(texts.are_equal(lost));
      CHECK(contains(texts.of(lost == 0 ? 1 : 0), "the rank died"));
    }
  }
}

TEST_CASE("a rank that is killed after a barrier does not fail that barrier") {
  on_ranks_losing(1, 3, [](group& node, findings& found) {
    for (int round = 0; round < 20; ++round) node.barrier();
    if (node.rank() == 1) ::raise(SIGKILL);
    RANK_CHECK(found, failure_of([&] { node.barrier(); }).rank == 1);
  });
}

TEST_CASE("everything goes on when all counters wrap around, with every fence algorithm") {
  for (auto const algorithm : algorithms) {
    on_all_rank_counts(
        [](group& node, findings& found) {
          for (int round = 1; round <= 10; ++round) do_everything(node, found, round);
        },
        shm::settings{.fence = algorithm, .first_number = 0xfffffffdU});
  }
}

TEST_CASE("a window that is made before the counters wrap around goes on after it") {
  for (auto const algorithm : algorithms) {
    on_all_rank_counts(
        [](group& node, findings& found) {
          shm::window<int> window(node, 1);
          int const before = (node.rank() + node.size() - 1) % node.size();
          int const after = (node.rank() + 1) % node.size();
          int const ring[] = {before, after};
          for (int round = 1; round <= 10; ++round) {
            window.local()[0] = round * 100 + node.rank();
            window.fence();
            for (int rank = 0; rank < node.size(); ++rank) {
              RANK_CHECK(found, window[rank][0] == round * 100 + rank);
            }
            window.fence();
            window.local()[0] = -round * 100 - node.rank();
            window.fence(ring);
            RANK_CHECK(found, window[before][0] == -round * 100 - before);
            window.fence(ring);
          }
        },
        shm::settings{.fence = algorithm, .first_number = 0xfffffffdU});
  }
}

TEST_CASE("ranks that make different collective calls all get mismatch, and the group goes on") {
  for (int const ranks : {2, 3, 4}) {
    for (int const odd : {0, ranks - 1}) {
      notes texts(ranks);
      on_ranks(ranks, [&](group& node, findings& found) {
        auto const text = message_of([&] {
          if (node.rank() == odd) {
            node.agree([] {});
          } else {
            shm::window<int> window(node, 1);
          }
        });
        texts.write(node.rank(), text.substr(text.find("the ranks' arguments")));
        do_everything(node, found, 1);
      });
      INFO(texts.all());
      CHECK(texts.are_equal());
      CHECK(contains(texts.of(0), "agreeing"));
      CHECK(contains(texts.of(0), "creating a window"));
    }
  }
}

TEST_CASE("a forked child of a rank that ends in any way harms nobody") {
  on_all_rank_counts([](group& node, findings& found) {
    shm::window<int> window(node, 1);
    for (int how = 0; how < 3; ++how) {
      auto const child = ::fork();
      if (child == 0) {
        if (how == 0) ::_exit(0);
        if (how == 1) std::exit(0);
        {
          group const own(std::move(node));
          shm::window<int> const own_window(std::move(window));
        }
        ::_exit(0);
      }
      ::waitpid(child, nullptr, 0);
      node.barrier();
      for (int rank = 0; rank < node.size(); ++rank) {
        RANK_CHECK(found,
                   shm::detail::control_roll{*node.state()}(rank) == shm::sync::standing::present);
      }
      window.fence();
    }
    do_everything(node, found, 1);
  });
}

TEST_CASE("a forked child that outlives its rank does not hide the rank's death") {
  for (int const lost : {0, 1}) {
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    on_ranks_losing(lost, 3, [&](group& node, findings& found) {
      ::alarm(15);  // ends a rank that would wait for ever
      if (node.rank() == lost) {
        if (::fork() == 0) {
          ::close(ends[1]);
          char byte = 0;
          [[maybe_unused]] auto const got = ::read(ends[0], &byte, 1);  // until the test is over
          ::_exit(0);
        }
        ::raise(SIGKILL);
      }
      auto const failed = failure_of([&] { node.barrier(); });
      RANK_CHECK(found, failed.cause == errc::peer_lost);
      RANK_CHECK(found, failed.rank == lost);
    });
    ::close(ends[0]);
    ::close(ends[1]);
  }
}

TEST_CASE("two hundred groups, made and destroyed, leave no descriptor") {
  on_ranks(2, [](group& node, findings& found) {
    {
      shm::communicator const first(node);
    }
    auto const before = count_descriptors();
    for (int i = 0; i < 200; ++i) {
      shm::communicator again(node);
      shm::window<int> window(again, 1);
      window.fence();
    }
    RANK_CHECK(found, count_descriptors() == before);
    node.barrier();
  });
}

TEST_CASE("groups and windows have no names in the shared-memory file system") {
  namespace fs = std::filesystem;
  auto const count_names = [] {
    return std::count_if(
        fs::directory_iterator("/dev/shm"), fs::directory_iterator(),
        [](auto const& entry) { return entry.path().filename().string().starts_with("shm"); });
  };
  auto const before = count_names();
  on_ranks(4, [&](group& node, findings& found) {
    shm::communicator again(node);
    shm::window<int> window(again, 100);
    RANK_CHECK(found, count_names() == before);
    window.fence();
  });
  on_ranks_losing(0, 2, [&](group& node, findings&) {
    shm::window<int> window(node, 100);
    if (node.rank() == 0) ::raise(SIGKILL);
    failure_of([&] { window.fence(); });
  });
  CHECK(count_names() == before);
}

TEST_CASE("a group outlived by its window can be destroyed by all ranks at any time") {
  on_all_rank_counts([](group& node, findings& found) {
    shm::window<int> window;
    {
      shm::communicator inner(node);
      window = shm::window<int>(inner, 1);
    }
    window.local()[0] = node.rank();
    window.fence();
    for (int rank = 0; rank < node.size(); ++rank) RANK_CHECK(found, window[rank][0] == rank);
    window.fence();
  });
}
