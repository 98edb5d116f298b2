#include "shm/sync/fence.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "support/catch.hpp"
#include "support/threads.hpp"

using namespace shm;
using shm::fence_algorithm;
using shm_test::datum;
using shm_test::fake_roll;
using shm_test::on_threads;
using sync::absence;
using sync::standing;

namespace {

constexpr fence_algorithm algorithms[] = {fence_algorithm::linear, fence_algorithm::dissemination,
                                          fence_algorithm::counter};
constexpr int thread_counts[] = {1, 2, 3, 4, 5, 8};

/// The shared words of one fence, as if `first` fences had happened.
struct shared_fence {
  explicit shared_fence(int ranks, std::uint32_t first = 0)
      : lines(static_cast<std::size_t>(ranks)) {
    for (auto& line : lines) {
      line.arrived = first;
      line.rounds.fill(first);
    }
    words.count.value = first * static_cast<std::uint32_t>(ranks);
    words.release.value = first;
  }
  sync::fence of(int rank, fence_algorithm algorithm) {
    return {lines, words, rank, algorithm, sync::patience::with_shared_processor()};
  }

  std::vector<sync::arrival_line> lines;
  sync::fence_words words;
};

/// Crosses 2 * `rounds` fences on every rank. In each round every rank writes its datum, and after
/// a fence reads all; returns how many values were wrong.
int count_wrong_data(shared_fence& shared, fence_algorithm algorithm, int rounds) {
  int const ranks = static_cast<int>(shared.lines.size());
  fake_roll const roll(ranks);
  std::vector<datum> data(shared.lines.size());
  std::atomic<int> wrong = 0;
  on_threads(ranks, [&](int rank) {
    auto fence = shared.of(rank, algorithm);
    int mistakes = 0;
    for (int round = 1; round <= rounds; ++round) {
      data[static_cast<std::size_t>(rank)].value = round * 100 + rank;
      if (fence.cross(roll)) ++mistakes;
      for (int other = 0; other < ranks; ++other) {
        if (data[static_cast<std::size_t>(other)].value != round * 100 + other) ++mistakes;
      }
      if (fence.cross(roll)) ++mistakes;
    }
    wrong.fetch_add(mistakes, std::memory_order_relaxed);
  });
  return wrong;
}

/// A fence that every rank but rank 0 has arrived at, without telling more than its arrival.
void arrive_all_but_first(shared_fence& shared) {
  for (std::size_t r = 1; r < shared.lines.size(); ++r) sync::store(shared.lines[r].arrived, 1);
}

}  // namespace

TEST_CASE("what any rank writes before a fence is seen by every rank after it") {
  for (auto const algorithm : algorithms) {
    for (int const ranks : thread_counts) {
      INFO("algorithm " << static_cast<int>(algorithm) << ", " << ranks << " ranks");
      shared_fence shared(ranks);
      CHECK(count_wrong_data(shared, algorithm, 300) == 0);
    }
  }
}

TEST_CASE("fences go on when their numbers wrap around") {
  for (auto const algorithm : algorithms) {
    for (int const ranks : thread_counts) {
      INFO("algorithm " << static_cast<int>(algorithm) << ", " << ranks << " ranks");
      shared_fence shared(ranks, 0xfffffffcU);
      CHECK(count_wrong_data(shared, algorithm, 10) == 0);
      for (auto const& line : shared.lines) CHECK(line.arrived == 0xfffffffcU + 20);
    }
  }
}

TEST_CASE("a rank whose last fence has the highest number has not arrived at fence 0") {
  for (auto const algorithm : algorithms) {
    INFO("algorithm " << static_cast<int>(algorithm));
    shared_fence shared(2, 0xffffffffU);
    fake_roll roll(2);
    roll.set(1, standing::dead);
    CHECK(shared.of(0, algorithm).cross(roll) == absence{standing::dead, 1});
  }
}

TEST_CASE("a fence says first that its rank has arrived") {
  for (auto const algorithm : algorithms) {
    INFO("algorithm " << static_cast<int>(algorithm));
    shared_fence shared(2);
    fake_roll roll(2);
    roll.set(1, standing::dead);
    shared.of(0, algorithm).cross(roll);
    CHECK(shared.lines[0].arrived == 1);
  }
}

TEST_CASE("ranks that never arrive make all others return the same one, the lowest") {
  for (auto const algorithm : algorithms) {
    for (int const first : {0, 1, 3}) {
      INFO("algorithm " << static_cast<int>(algorithm) << ", rank " << first << " is missing");
      constexpr int ranks = 8;
      shared_fence shared(ranks);
      fake_roll roll(ranks);
      auto const why = first == 1 ? standing::left : standing::dead;
      roll.set(first, why);
      roll.set(6, standing::dead);
      std::vector<std::optional<absence>> got(ranks);
      on_threads(ranks, [&](int rank) {
        if (rank == first || rank == 6) return;
        got[static_cast<std::size_t>(rank)] = shared.of(rank, algorithm).cross(roll);
      });
      for (int rank = 0; rank < ranks; ++rank) {
        if (rank == first || rank == 6) continue;
        CHECK(got[static_cast<std::size_t>(rank)] == absence{why, first});
      }
    }
  }
}

TEST_CASE("a rank that arrives and then dies without another word does not fail the fence") {
  for (auto const algorithm : algorithms) {
    for (int const ranks : {2, 3, 4, 8}) {
      INFO("algorithm " << static_cast<int>(algorithm) << ", " << ranks << " ranks");
      shared_fence shared(ranks);
      arrive_all_but_first(shared);
      fake_roll roll(ranks);
      for (int rank = 1; rank < ranks; ++rank) roll.set(rank, standing::dead);
      CHECK_FALSE(shared.of(0, algorithm).cross(roll).has_value());
    }
  }
}

TEST_CASE("a rank that is found dead but has arrived meanwhile does not fail the fence") {
  for (auto const algorithm : algorithms) {
    INFO("algorithm " << static_cast<int>(algorithm));
    shared_fence shared(3);
    sync::store(shared.lines[1].arrived, 1);
    fake_roll roll(3);
    roll.set(2, standing::dead);
    roll.when_asked(
        [&](int rank) { sync::store(shared.lines[static_cast<std::size_t>(rank)].arrived, 1); });
    CHECK_FALSE(shared.of(0, algorithm).cross(roll).has_value());
  }
}

TEST_CASE("a fence asks about no rank that has arrived") {
  for (auto const algorithm : algorithms) {
    INFO("algorithm " << static_cast<int>(algorithm));
    shared_fence shared(4);
    sync::store(shared.lines[1].arrived, 1);
    sync::store(shared.lines[2].arrived, 1);
    fake_roll roll(4);
    roll.set(3, standing::left);
    CHECK(shared.of(0, algorithm).cross(roll) == absence{standing::left, 3});
    CHECK(roll.asked(0) == 0);
    CHECK(roll.asked(1) == 0);
    CHECK(roll.asked(2) == 0);
    CHECK(roll.asked(3) > 0);
  }
}

TEST_CASE("a rank that learns by looking that all have arrived still signals its last rounds") {
  shared_fence shared(8);
  arrive_all_but_first(shared);
  fake_roll const roll(8);
  CHECK_FALSE(shared.of(0, fence_algorithm::dissemination).cross(roll).has_value());
  CHECK(shared.lines[0].rounds[0] == 1);
  CHECK(shared.lines[0].rounds[1] == 1);
}

TEST_CASE("rank 0 that learns by looking that all have arrived still releases the others") {
  shared_fence shared(4);
  fake_roll roll(4);
  roll.when_asked([&](int) { arrive_all_but_first(shared); });
  CHECK_FALSE(shared.of(0, fence_algorithm::linear).cross(roll).has_value());
  CHECK(shared.words.release.value == 1);
}

TEST_CASE("rank 0 does not release a fence that a rank never enters") {
  shared_fence shared(3);
  fake_roll roll(3);
  roll.set(1, standing::dead);
  CHECK(shared.of(0, fence_algorithm::linear).cross(roll).has_value());
  CHECK(shared.words.release.value == 0);
}

TEST_CASE("what a rank wrote before it arrived is seen by one that learns it by looking") {
  for (auto const algorithm : algorithms) {
    INFO("algorithm " << static_cast<int>(algorithm));
    constexpr int ranks = 4;
    shared_fence shared(ranks);
    fake_roll const roll(ranks);
    std::vector<datum> data(ranks);
    int sum = 0;
    on_threads(ranks, [&](int rank) {
      data[static_cast<std::size_t>(rank)].value = rank;
      if (rank < 3) {
        sync::store(shared.lines[static_cast<std::size_t>(rank)].arrived, 1);
        return;
      }
      shared.of(rank, algorithm).cross(roll);
      for (auto const& one : data) sum += one.value;
    });
    CHECK(sum == 0 + 1 + 2 + 3);
  }
}

TEST_CASE("a rank of a dissemination that has died after its arrival does not stop later looks") {
  // Ranks 1 to 3 run; rank 0 has arrived and died: each of them gets to the end of the fence.
  shared_fence shared(4);
  sync::store(shared.lines[0].arrived, 1);
  fake_roll roll(4);
  roll.set(0, standing::dead);
  std::vector<std::optional<absence>> got(4);
  on_threads(4, [&](int rank) {
    if (rank == 0) return;
    got[static_cast<std::size_t>(rank)] =
        shared.of(rank, fence_algorithm::dissemination).cross(roll);
  });
  for (auto const& one : got) CHECK_FALSE(one.has_value());
}

TEST_CASE("automatic means dissemination with a processor for each rank, else one counter") {
  STATIC_REQUIRE(shm::sync::choose_fence(fence_algorithm::automatic, 4, 4) ==
                 fence_algorithm::dissemination);
  STATIC_REQUIRE(shm::sync::choose_fence(fence_algorithm::automatic, 5, 4) ==
                 fence_algorithm::counter);
}

TEST_CASE("an algorithm that is asked for is taken whatever the number of processors") {
  for (auto const algorithm : algorithms) {
    CHECK(sync::choose_fence(algorithm, 2, 64) == algorithm);
    CHECK(sync::choose_fence(algorithm, 64, 2) == algorithm);
  }
}
