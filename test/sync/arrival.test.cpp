#include "shm/sync/arrival.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <type_traits>
#include <vector>

#include "support/catch.hpp"
#include "support/threads.hpp"

using namespace shm;
using shm_test::datum;
using shm_test::fake_roll;
using shm_test::on_threads;
using sync::absence;
using sync::outlook;
using sync::standing;

TEST_CASE("an arrival line fills one line and holds nothing but words") {
  STATIC_REQUIRE(sizeof(sync::arrival_line) == shm::line_bytes);
  STATIC_REQUIRE(alignof(sync::arrival_line) == shm::line_bytes);
  STATIC_REQUIRE(std::is_trivially_copyable_v<sync::arrival_line>);
  STATIC_REQUIRE(sizeof(sync::verdict_word) == shm::line_bytes);
}

TEST_CASE("what is written before a store is visible after the load that sees it") {
  std::uint32_t told = 0;
  std::uint32_t heard = 0;
  std::uint32_t data = 0;
  int wrong = 0;
  on_threads(2, [&](int rank) {
    for (std::uint32_t round = 1; round <= 1000; ++round) {
      if (rank == 0) {
        data = round;
        sync::store(told, round);
        while (sync::load(heard) != round) std::this_thread::yield();
      } else {
        while (sync::load(told) != round) std::this_thread::yield();
        if (data != round) ++wrong;
        sync::store(heard, round);
      }
    }
  });
  CHECK(wrong == 0);
}

TEST_CASE("a look at ranks that have all arrived is complete and asks about none") {
  fake_roll roll(4);
  roll.set(2, standing::dead);
  auto const view = sync::look_at_all(4, [](int) { return true; }, roll);
  CHECK(view.is == outlook::state::complete);
  for (int rank = 0; rank < 4; ++rank) CHECK(roll.asked(rank) == 0);
}

TEST_CASE("a look asks only about ranks that have not arrived") {
  fake_roll roll(4);
  auto const view = sync::look_at_all(4, [](int rank) { return rank != 2; }, roll);
  CHECK(view.is == outlook::state::open);
  CHECK(roll.asked(0) == 0);
  CHECK(roll.asked(1) == 0);
  CHECK(roll.asked(2) == 1);
  CHECK(roll.asked(3) == 0);
}

TEST_CASE("a look at a living rank that has not arrived is open") {
  fake_roll roll(2);
  CHECK(sync::look_at_all(2, [](int rank) { return rank == 0; }, roll).is == outlook::state::open);
}

TEST_CASE("a look names the lowest rank that will never come, and why") {
  fake_roll roll(5);
  roll.set(2, standing::left);
  roll.set(4, standing::dead);
  auto const view = sync::look_at_all(5, [](int) { return false; }, roll);
  CHECK(view.is == outlook::state::hopeless);
  CHECK(view.missing == absence{standing::left, 2});
}

TEST_CASE("a living rank that has not arrived does not hide a higher one that never will") {
  fake_roll roll(3);
  roll.set(2, standing::dead);
  auto const view = sync::look_at_all(3, [](int rank) { return rank == 0; }, roll);
  CHECK(view.is == outlook::state::hopeless);
  CHECK(view.missing == absence{standing::dead, 2});
}

TEST_CASE("a rank that arrives while its standing is asked has arrived, though it is dead then") {
  fake_roll roll(3);
  bool arrived = false;
  roll.set(1, standing::dead);
  roll.when_asked([&](int) { arrived = true; });
  auto const view = sync::look_at_all(3, [&](int rank) { return rank != 1 || arrived; }, roll);
  CHECK(view.is == outlook::state::complete);
}

TEST_CASE("a verdict word settles nothing at first") {
  sync::verdict_word verdict;
  CHECK_FALSE(verdict.settled().has_value());
}

TEST_CASE("a verdict word keeps what was settled first") {
  sync::verdict_word verdict;
  CHECK(verdict.settle({standing::left, 3}) == absence{standing::left, 3});
  CHECK(verdict.settle({standing::dead, 1}) == absence{standing::left, 3});
  CHECK(verdict.settled() == absence{standing::left, 3});
}

TEST_CASE("a verdict about rank 0 is a verdict") {
  sync::verdict_word verdict;
  CHECK(verdict.settle({standing::dead, 0}) == absence{standing::dead, 0});
  CHECK(verdict.settled() == absence{standing::dead, 0});
}

TEST_CASE("threads that settle at once get the same verdict, and see its reporter's data") {
  constexpr int ranks = 8;
  struct round {
    sync::verdict_word verdict;
    std::array<datum, ranks> data;
    std::array<absence, ranks> got;
    std::array<int, ranks> seen;
  };
  std::vector<round> rounds(200);
  on_threads(ranks, [&](int rank) {
    auto const r = static_cast<std::size_t>(rank);
    for (auto& one : rounds) {
      one.data[r].value = 100 + rank;
      one.got[r] = one.verdict.settle({standing::dead, rank});
      one.seen[r] = one.data[static_cast<std::size_t>(one.got[r].rank)].value;
      std::this_thread::yield();
    }
  });
  for (auto const& one : rounds) {
    for (std::size_t r = 0; r < ranks; ++r) {
      CHECK(one.got[r] == one.got[0]);
      CHECK(one.seen[r] == 100 + one.got[0].rank);
    }
  }
}

TEST_CASE("what the reporter of a verdict wrote before is visible to whoever reads the verdict") {
  sync::verdict_word verdict;
  int data = 0;
  int seen = 0;
  on_threads(2, [&](int rank) {
    if (rank == 0) {
      data = 7;
      verdict.settle({standing::left, 1});
    } else {
      while (!verdict.settled()) {
      }
      seen = data;
    }
  });
  CHECK(seen == 7);
}
