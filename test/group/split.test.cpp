#include "shm/group/split.hpp"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <limits>
#include <new>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "shm/shm.hpp"
#include "support/capture.hpp"
#include "support/catch.hpp"
#include "support/directory.hpp"
#include "support/exits.hpp"
#include "support/ranks.hpp"
#include "support/strangers.hpp"

using shm::communicator;
using shm::domain;
using shm::errc;
using shm::group;
using shm::window;
using shm_test::contains;
using shm_test::exits_of;
using shm_test::failure_of;
using shm_test::findings;
using shm_test::make_strangers;
using shm_test::message_of;
using shm_test::notes;
using shm_test::on_ranks;
using shm_test::on_ranks_losing;

namespace {

constexpr unsigned hang_seconds = 30;  // ends a rank that would wait for ever
constexpr int rank_counts[] = {1, 2, 3, 4, 5, 8};

/// Gathers one number of each rank.
std::vector<int> gathered(group& node, int mine) {
  std::vector<int> all(static_cast<std::size_t>(node.size()));
  node.allgather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)));
  return all;
}

/// Does a little of everything that a group can do; returns whether it was done right.
bool works(group& node, int round = 1) {
  window<int> field(node, 1);
  field.local()[0] = round * 100 + node.rank();
  field.fence();
  bool is_right = true;
  for (int rank = 0; rank < node.size(); ++rank) {
    is_right = is_right && field[rank][0] == round * 100 + rank;
  }
  field.fence();
  node.barrier();
  auto const mine = node.agree([&] { return node.rank(); });
  auto const all = gathered(node, node.rank() + round);
  for (int rank = 0; rank < node.size(); ++rank) {
    is_right = is_right && all[static_cast<std::size_t>(rank)] == rank + round;
  }
  return is_right && mine == node.rank();
}

/// Splits `node`, and checks who is together and in which order. `color` and `key` are functions of
/// the rank.
template <class Color, class Key>
group check_split(group& node, findings& found, Color color, Key key) {
  std::vector<std::pair<int, int>> expected;
  int const mine = color(node.rank());
  for (int rank = 0; rank < node.size(); ++rank) {
    if (mine >= 0 && color(rank) == mine) expected.emplace_back(key(rank), rank);
  }
  std::ranges::sort(expected);
  group made = node.split(mine, key(node.rank()));
  RANK_CHECK(found, made.valid() == (mine >= 0));
  RANK_CHECK(found, made.size() == static_cast<int>(expected.size()));
  if (!made.valid()) return made;
  auto const ranks = gathered(made, node.rank());
  for (std::size_t at = 0; at < std::min(ranks.size(), expected.size()); ++at) {
    RANK_CHECK(found, ranks[at] == expected[at].second);
    RANK_CHECK(found, (ranks[at] == node.rank()) == (made.rank() == static_cast<int>(at)));
  }
  return made;
}

int zero(int) { return 0; }

/// Lets this process open `more` further descriptors, -1: as many as before.
void allow_descriptors(int more) {
  static rlimit const usual = [] {
    rlimit limit{};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    return limit;
  }();
  rlimit limit = usual;
  if (more >= 0) {
    rlim_t lowest = 0;  // a descriptor with this number or a higher one is refused
    int free = -1;
    while (free < more) free += ::fcntl(static_cast<int>(lowest++), F_GETFD) == -1 ? 1 : 0;
    limit.rlim_cur = lowest - 1;
  }
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

long shared_mappings() {
  std::ifstream maps("/proc/self/maps");
  long count = 0;
  for (std::string line; std::getline(maps, line);) {
    if (contains(line, "/memfd:") || contains(line, "/dev/shm/")) ++count;
  }
  return count;
}

}  // namespace

TEST_CASE("ranks of one color make a group in the order of their ranks") {
  for (int const ranks : rank_counts) {
    on_ranks(ranks, [](group& node, findings& found) {
      ::alarm(hang_seconds);
      auto same = check_split(node, found, zero, zero);
      auto alone = check_split(node, found, [](int rank) { return rank; }, zero);
      auto halves = check_split(node, found, [](int rank) { return rank % 2; }, zero);
      auto uneven = check_split(node, found, [](int rank) { return rank < 5 ? 7 : rank; }, zero);
      auto large = std::numeric_limits<int>::max();
      auto ends = check_split(node, found, [=](int rank) { return rank < 2 ? large : 0; }, zero);
      for (auto* const each : {&same, &alone, &halves, &uneven, &ends, &node}) {
        RANK_CHECK(found, works(*each));
      }
    });
  }
}

TEST_CASE("keys order a group, and equal keys leave the order of the parent") {
  for (int const ranks : rank_counts) {
    on_ranks(ranks, [](group& node, findings& found) {
      ::alarm(hang_seconds);
      auto reversed = check_split(node, found, zero, [](int rank) { return -rank; });
      RANK_CHECK(found, reversed.rank() == node.size() - 1 - node.rank());
      RANK_CHECK(found, works(reversed));
      check_split(node, found, zero, [](int rank) { return rank % 3; });
      check_split(
          node, found, [](int rank) { return rank / 2; },
          [](int rank) { return rank % 2 == 0 ? std::numeric_limits<int>::max() : -5; });
    });
  }
}

TEST_CASE("a rank with a negative color gets an invalid group, and the others get theirs") {
  for (int const ranks : rank_counts) {
    on_ranks(ranks, [](group& node, findings& found) {
      ::alarm(hang_seconds);
      auto some = check_split(node, found, [](int rank) { return rank == 0 ? -1 : 3; }, zero);
      auto none = check_split(node, found, [](int rank) { return -1 - rank; }, zero);
      auto first = check_split(node, found, [](int rank) { return -rank; }, zero);
      RANK_CHECK(found, !none.valid());
      if (some.valid()) RANK_CHECK(found, works(some));
      if (first.valid()) RANK_CHECK(found, works(first));
      RANK_CHECK(found, works(node));
    });
  }
}

TEST_CASE("a group and those it was split into work at the same time") {
  for (int const ranks : {2, 3, 4, 8}) {
    on_ranks(ranks, [](group& node, findings& found) {
      ::alarm(hang_seconds);
      auto half = node.split(node.rank() % 2);
      window<int> of_all(node, 1);
      window<int> of_half(half, 1);
      for (int round = 1; round <= 50; ++round) {
        of_half.local()[0] = round * 100 + node.rank();
        of_half.fence();
        of_all.local()[0] = 0;
        for (int rank = 0; rank < half.size(); ++rank) of_all.local()[0] += of_half[rank][0];
        of_all.fence();
        for (int rank = 0; rank < node.size(); ++rank) {
          int expected = 0;
          for (int other = rank % 2; other < node.size(); other += 2) {
            expected += round * 100 + other;
          }
          RANK_CHECK(found, of_all[rank][0] == expected);
        }
        if (node.rank() % 2 == 0) half.barrier();  // one half has more to do than the other
        of_all.fence();
      }
    });
  }
}

TEST_CASE("a group that comes of a split can be split") {
  on_ranks(8, [](group& node, findings& found) {
    ::alarm(hang_seconds);
    auto half = node.split(node.rank() / 4);
    auto quarter = check_split(half, found, [](int rank) { return rank / 2; }, zero);
    auto one = check_split(quarter, found, [](int rank) { return rank; }, zero);
    auto odd = node.rank() < 4 ? check_split(
                                     half, found, [](int rank) { return rank == 3 ? -1 : 0; }, zero)
                               : group();
    for (auto* const each : {&half, &quarter, &one, &odd, &node}) {
      if (each->valid()) RANK_CHECK(found, works(*each));
    }
  });
}

TEST_CASE("a group outlives the one it was split from") {
  for (int const ranks : {1, 2, 3, 4}) {
    on_ranks(ranks, [](group& node, findings& found) {
      ::alarm(hang_seconds);
      group child;
      {
        communicator parent(node);
        child = parent.split(node.rank() % 2, -node.rank());
      }
      for (int round = 0; round < 10; ++round) RANK_CHECK(found, works(child, round));
      auto grandchild = child.split(0);
      child = {};
      RANK_CHECK(found, works(grandchild));
    });
  }
}

TEST_CASE("a group has the settings of the one it was split from, as they were given") {
  shm::settings const given{
      .backend = shm::backend::sls, .first_number = 12345, .pages = shm::pages::prefer_huge};
  on_ranks(
      5,
      [&](group& node, findings& found) {
        ::alarm(hang_seconds);
        int const processors = shm::os::processor_set::usable().count();
        for (int const color : {0, node.rank() % 2, node.rank()}) {
          auto part = node.split(color);
          RANK_CHECK(found, part.state()->settings() == given);
          RANK_CHECK(found, part.state()->fence_in_use() ==
                                shm::sync::choose_fence(given.fence, part.size(), processors));
          auto again = part.split(0);
          RANK_CHECK(found, again.state()->settings() == given);
        }
      },
      given);
}

TEST_CASE("a remark about the settings is made for the first group alone") {
  shm_test::capture const output;
  on_ranks(3, [&](group& node, findings& found) {
    ::alarm(hang_seconds);
    output.standard_error_of([&] {
      communicator parent(node, shm::settings{.high_bandwidth_nodes = "many"});
      auto half = parent.split(node.rank() % 2);
      RANK_CHECK(found, works(half));
    });
  });
  INFO(output.text());
  CHECK(std::ranges::count(output.text(), '\n') == 1);
  CHECK(contains(output.text(), "SHM_HBM_NODES=many"));
}

TEST_CASE("splits go on when all counters wrap around, with every fence algorithm") {
  for (auto const algorithm :
       {shm::fence_algorithm::automatic, shm::fence_algorithm::linear,
        shm::fence_algorithm::dissemination, shm::fence_algorithm::counter}) {
    for (std::uint32_t const first : {0xfffffff0U, 0xfffffffaU, 0xfffffffeU}) {
      on_ranks(
          4,
          [](group& node, findings& found) {
            ::alarm(hang_seconds);
            for (int round = 0; round < 5; ++round) {
              auto part = check_split(node, found, [](int rank) { return rank % 3; }, zero);
              for (int times = 0; times < 5; ++times) RANK_CHECK(found, works(part, times));
            }
          },
          shm::settings{.fence = algorithm, .first_number = first});
    }
  }
}

TEST_CASE("a rank that is refused any descriptor makes the split fail alike on all ranks") {
  for (int const ranks : {1, 2, 3, 4, 5}) {
    for (int const failing : {0, ranks - 1}) {
      int allowed = 0;
      for (bool is_enough = false; !is_enough && allowed < 20; ++allowed) {
        notes texts(ranks);
        on_ranks(ranks, [&](group& node, findings& found) {
          ::alarm(hang_seconds);
          auto const descriptors = shm_test::open_descriptors();
          auto const mappings = shared_mappings();
          if (node.rank() == failing) allow_descriptors(allowed);
          group part;
          auto const text = message_of([&] { part = node.split(node.rank() % 2); });
          if (node.rank() == failing) allow_descriptors(-1);
          texts.write(node.rank(), text.empty() ? "none" : text);
          RANK_CHECK(found, part.valid() == text.empty());
          if (!part.valid()) {
            RANK_CHECK(found, shm_test::open_descriptors() == descriptors);
            RANK_CHECK(found, shared_mappings() == mappings);
          }
          RANK_CHECK(found, works(node));
          auto second = check_split(node, found, [](int rank) { return rank % 2; }, zero);
          RANK_CHECK(found, works(second));
        });
        INFO(ranks << " ranks, rank " << failing << " may open " << allowed << '\n' << texts.all());
        CHECK(texts.are_equal());
        is_enough = texts.of(0) == "none";
        if (is_enough) continue;
        CHECK(contains(texts.of(0), "rank " + std::to_string(failing) + " of " +
                                        std::to_string(ranks) +
                                        ": splitting a group: limit reached: "));
        CHECK(contains(texts.of(0), "ulimit -n"));
      }
      CHECK(allowed > 2);
      CHECK(allowed < 20);
    }
  }
}

TEST_CASE("of failures in several groups of a split that of the lowest rank is the error of all") {
  notes texts(5);
  on_ranks(5, [&](group& node, findings& found) {
    ::alarm(hang_seconds);
    if (node.rank() >= 2) allow_descriptors(0);
    texts.write(node.rank(), message_of([&] { node.split(node.rank() % 2); }));
    allow_descriptors(-1);
    RANK_CHECK(found, works(node));
  });
  INFO(texts.all());
  CHECK(texts.are_equal());
  CHECK(contains(texts.of(0), "rank 2 of 5: splitting a group: limit reached"));
}

TEST_CASE("ranks that cannot open each other's descriptors are split like others") {
  on_ranks(5, [](group& node, findings& found) {
    ::alarm(hang_seconds);
    make_strangers(node);
    communicator all(node);
    auto alone = check_split(all, found, [](int rank) { return rank == 0 ? 0 : 1; }, zero);
    auto halves =
        check_split(all, found, [](int rank) { return rank % 2; }, [](int rank) { return -rank; });
    auto some = check_split(all, found, [](int rank) { return rank < 3 ? -1 : 0; }, zero);
    auto quarter = check_split(halves, found, [](int rank) { return rank % 2; }, zero);
    for (auto* const each : {&alone, &halves, &some, &quarter, static_cast<group*>(&all)}) {
      if (each->valid()) RANK_CHECK(found, works(*each));
    }
  });
}

TEST_CASE("a stranger that is refused any descriptor makes the split fail alike on all ranks") {
  for (int const failing : {0, 2, 4}) {
    int allowed = 0;
    for (bool is_enough = false; !is_enough && allowed < 20; ++allowed) {
      notes texts(5);
      on_ranks(5, [&](group& node, findings& found) {
        ::alarm(hang_seconds);
        make_strangers(node);
        communicator all(node);
        auto const descriptors = shm_test::open_descriptors();
        if (node.rank() == failing) allow_descriptors(allowed);
        auto const text = message_of([&] { all.split(all.rank() % 2); });
        if (node.rank() == failing) allow_descriptors(-1);
        texts.write(node.rank(), text.empty() ? "none" : text);
        RANK_CHECK(found, shm_test::open_descriptors() == descriptors);
        auto second = check_split(all, found, [](int rank) { return rank % 2; }, zero);
        RANK_CHECK(found, works(second));
      });
      INFO("rank " << failing << " may open " << allowed << '\n' << texts.all());
      CHECK(texts.are_equal());
      is_enough = texts.of(0) == "none";
      CHECK((is_enough || contains(texts.of(0), "limit reached")));
    }
    CHECK(allowed > 2);
    CHECK(allowed < 20);
  }
}

TEST_CASE("a color that cannot be found on one rank is an error on all") {
  for (int const ranks : {1, 2, 3, 4}) {
    on_ranks(ranks, [](group& node, findings& found) {
      ::alarm(hang_seconds);
      int const last = node.size() - 1;
      auto const failed = failure_of([&] {
        shm::detail::split(*node.state(), 0, 0, [&]() -> int {
          if (node.rank() == last) throw std::bad_alloc();
          return 0;
        });
      });
      RANK_CHECK(found, failed.cause == errc::out_of_memory);
      RANK_CHECK(found, failed.rank == last);
      RANK_CHECK(found, works(node));
    });
  }
}

TEST_CASE("a rank that ends before its group is made ends that for the ranks of its color") {
  for (int const exchanges : {0, 1}) {
    for (int const failing : {0, 2, 4}) {
      on_ranks(5, [&](group& node, findings& found) {
        ::alarm(hang_seconds);
        shm::detail::split_rounds rounds(*node.state());
        rounds.reserve();
        rounds.join(node.rank() % 2, 0);
        shm::failure mine;
        if (node.rank() == failing) {
          std::byte const greeting[1] = {};
          std::vector<std::byte> all(static_cast<std::size_t>(rounds.size()));
          for (int i = 0; i < exchanges; ++i) rounds.allgather(greeting, all);
          mine = {.cause = errc::out_of_memory, .rank = failing, .subject = "no heap"};
        } else {
          mine = rounds.in_parent(failure_of([&] { communicator const made(rounds); }));
        }
        rounds.end(mine);
        RANK_CHECK(found, mine.is_failure() == (node.rank() % 2 == failing % 2));
        if (mine.is_failure() && exchanges == 0) {
          RANK_CHECK(found, mine.cause == errc::out_of_memory);
          RANK_CHECK(found, mine.rank == failing);
        }
        RANK_CHECK(found, works(node));
      });
    }
  }
}

TEST_CASE("a split is an error that all ranks have agreed on, also inside agree") {
  on_ranks(3, [](group& node, findings& found) {
    ::alarm(hang_seconds);
    group part;
    auto const make = [&] {
      if (node.rank() == 1) allow_descriptors(0);
      part = node.agree([&] { return node.split(0); });
    };
    auto const failed = failure_of(make);
    RANK_CHECK(found, failed.cause == errc::limit_reached);
    RANK_CHECK(found, failed.rank == 1);
    allow_descriptors(-1);
    part = node.agree([&] { return node.split(0, -node.rank()); });
    RANK_CHECK(found, part.rank() == 2 - node.rank());
    RANK_CHECK(found, works(part));
  });
}

TEST_CASE("an error in one group of a split is none in the others") {
  on_ranks(4, [](group& node, findings& found) {
    ::alarm(hang_seconds);
    auto half = node.split(node.rank() % 2);
    auto const failed = failure_of([&] {
      half.agree([&] {
        if (node.rank() == 3) throw std::runtime_error("no data");
      });
    });
    RANK_CHECK(found, failed.is_failure() == (node.rank() % 2 == 1));
    if (failed.is_failure()) RANK_CHECK(found, failed.rank == 1);
    RANK_CHECK(found, works(half));
    RANK_CHECK(found, works(node));
  });
}

TEST_CASE("ranks that make another call instead of a split are a mismatch, and the group goes on") {
  for (int const odd : {0, 2}) {
    notes texts(3);
    on_ranks(3, [&](group& node, findings& found) {
      ::alarm(hang_seconds);
      auto const text = message_of([&] {
        if (node.rank() == odd) {
          gathered(node, 1);
        } else {
          node.split(0);
        }
      });
      texts.write(node.rank(), text);
      RANK_CHECK(found, works(node));
      auto const domains = failure_of([&] {
        node.rank() == odd ? node.split_by(domain::package) : node.split_by(domain::numa);
      });
      RANK_CHECK(found, domains.cause == errc::mismatch);
      RANK_CHECK(found, contains(domains.subject.view(), "what the group is split by"));
      RANK_CHECK(found, works(node));
    });
    INFO(texts.all());
    CHECK(texts.are_equal());
    CHECK(contains(texts.of(0), "gathering from all"));
  }
}

TEST_CASE("an invalid group cannot be split") {
  group none;
  CHECK(failure_of([&] { none.split(0); }).cause == errc::empty);
  CHECK(failure_of([&] { none.split_by(domain::numa); }).cause == errc::empty);
}

TEST_CASE("a rank that leaves instead of splitting is named to the others") {
  notes texts(3);
  exits_of(3, [&](group& node, findings&) {
    ::alarm(hang_seconds);
    node.barrier();
    if (node.rank() == 1) throw std::runtime_error("gone fishing");
    texts.write(node.rank(), message_of([&] { node.split(0); }));
  });
  INFO(texts.all());
  CHECK(texts.are_equal(1));
  CHECK(contains(texts.of(0), "rank 1 of 3: splitting a group: the rank has destroyed its end"));
}

TEST_CASE("all survivors of a rank that is killed before its color is known get peer_lost") {
  for (int const ranks : {2, 3, 5}) {
    for (int const lost : {0, ranks - 1}) {
      notes texts(ranks);
      on_ranks_losing(lost, ranks, [&](group& node, findings& found) {
        ::alarm(hang_seconds);
        texts.write(node.rank(), message_of([&] {
                      shm::detail::split(*node.state(), 0, 0, [&] {
                        if (node.rank() == lost) ::raise(SIGKILL);
                        return node.rank() % 2;
                      });
                    }));
        RANK_CHECK(found, failure_of([&] { node.split(0); }).cause == errc::peer_lost);
      });
      INFO(texts.all());
      CHECK(texts.are_equal(lost));
      CHECK(contains(texts.of(lost == 0 ? 1 : 0), "splitting a group: the rank died"));
    }
  }
}

TEST_CASE("all survivors of a rank that is killed at any moment of a split get peer_lost") {
  for (bool const are_strangers : {false, true}) {
    for (int round = 0; round < 60; ++round) {
      int const lost = round % 5;
      notes texts(5);
      on_ranks_losing(lost, 5, [&](group& node, findings& found) {
        ::alarm(hang_seconds);
        if (are_strangers) make_strangers(node);
        node.barrier();
        if (node.rank() == lost) {
          itimerval const soon{.it_interval = {},
                               .it_value = {.tv_sec = 0, .tv_usec = 1 + round * 57}};
          ::setitimer(ITIMER_REAL, &soon, nullptr);
        }
        std::string text;
        while (text.empty()) {
          text =
              message_of([&] { auto const part = node.split(node.rank() % 3 - 1, -node.rank()); });
        }
        texts.write(node.rank(), text);
        RANK_CHECK(found, failure_of([&] { node.split(0); }).cause == errc::peer_lost);
        RANK_CHECK(found, shared_mappings() <= 1);
      });
      INFO(round << '\n' << texts.all());
      CHECK(texts.are_equal(lost));
      CHECK(contains(texts.of(lost == 0 ? 1 : 0),
                     "rank " + std::to_string(lost) + " of 5: splitting a group: the rank died"));
    }
  }
}

TEST_CASE("a rank that dies in one group is found by the parent's next call") {
  on_ranks_losing(3, 4, [](group& node, findings& found) {
    ::alarm(hang_seconds);
    auto half = node.split(node.rank() % 2);
    if (node.rank() == 3) ::raise(SIGKILL);
    if (node.rank() == 1) RANK_CHECK(found, failure_of([&] { half.barrier(); }).rank == 1);
    if (node.rank() % 2 == 0) RANK_CHECK(found, works(half));
    auto const failed = failure_of([&] { node.barrier(); });
    RANK_CHECK(found, failed.cause == errc::peer_lost);
    RANK_CHECK(found, failed.rank == 3);
    if (node.rank() % 2 == 0) RANK_CHECK(found, works(half));
  });
}

TEST_CASE("two hundred splits leave no descriptor and no mapping") {
  for (bool const are_strangers : {false, true}) {
    on_ranks(3, [&](group& node, findings& found) {
      ::alarm(hang_seconds);
      if (are_strangers) make_strangers(node);
      {
        auto const first = node.split(node.rank() % 2);
      }
      auto const descriptors = shm_test::open_descriptors();
      auto const mappings = shared_mappings();
      for (int i = 0; i < 200; ++i) {
        auto part = node.split((node.rank() + i) % 3 - 1);
        if (part.valid()) window<int>(part, 1).fence();
      }
      RANK_CHECK(found, shm_test::open_descriptors() == descriptors);
      RANK_CHECK(found, shared_mappings() == mappings);
      node.barrier();
    });
  }
}

TEST_CASE("ranks that run on one part of the machine are split off together") {
  std::vector<int> processors;
  cpu_set_t usable;
  CPU_ZERO(&usable);
  REQUIRE(::sched_getaffinity(0, sizeof usable, &usable) == 0);
  for (int p = 0; p < CPU_SETSIZE; ++p) {
    if (CPU_ISSET(p, &usable)) processors.push_back(p);
  }
  for (int const ranks : {1, 2, 4, 5}) {
    on_ranks(ranks, [&](group& node, findings& found) {
      ::alarm(hang_seconds);
      auto const processor = processors[static_cast<std::size_t>(node.rank()) % processors.size()];
      cpu_set_t one;
      CPU_ZERO(&one);
      CPU_SET(processor, &one);
      RANK_CHECK(found, ::sched_setaffinity(0, sizeof one, &one) == 0);
      for (auto const part : {domain::numa, domain::package, domain::l3}) {
        auto const mine = shm::os::domain_of(part, processor).value_or(-1);
        auto const all = gathered(node, mine);
        auto together = node.split_by(part);
        RANK_CHECK(found, together.size() == std::ranges::count(all, mine));
        RANK_CHECK(found,
                   together.rank() == std::count(all.begin(), all.begin() + node.rank(), mine));
        RANK_CHECK(found, works(together));
      }
    });
  }
}

TEST_CASE("a part of the machine that does not exist is refused alike on all ranks") {
  for (int const ranks : {1, 2, 3}) {
    on_ranks(ranks, [](group& node, findings& found) {
      ::alarm(hang_seconds);
      auto const failed = failure_of([&] {
        node.split_by(node.rank() == node.size() - 1 ? static_cast<domain>(7) : domain::l3);
      });
      RANK_CHECK(found, failed.cause == errc::invalid_argument);
      RANK_CHECK(found, failed.rank == node.size() - 1);
      RANK_CHECK(found, contains(failed.subject.view(), "7"));
      RANK_CHECK(found, works(node));
    });
  }
}

TEST_CASE("ranks for which the machine does not say are in one group together") {
  for (int const first_blind : {0, 1}) {
    on_ranks(3, [&](group& node, findings& found) {
      ::alarm(hang_seconds);
      bool const is_blind = node.rank() >= first_blind;
      bool hides = true;
      try {
        if (is_blind) shm_test::mount_private_tmpfs("/sys", 4096);
      } catch (shm_test::skipped const&) {
        hides = false;
      }
      if (std::ranges::count(gathered(node, hides ? 1 : 0), 0) > 0) return;
      for (auto const part : {domain::numa, domain::package, domain::l3}) {
        auto together = node.split_by(part);
        bool const is_known =
            !is_blind && shm::os::domain_of(part, shm::os::current_processor()).has_value();
        auto const all = gathered(node, is_known ? 1 : 0);  // some machines tell nobody of a cache
        RANK_CHECK(found, together.size() == std::ranges::count(all, is_known ? 1 : 0));
        RANK_CHECK(found, works(together));
      }
    });
  }
}
