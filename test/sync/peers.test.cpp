#include "shm/sync/peers.hpp"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "support/catch.hpp"
#include "support/pairs.hpp"
#include "support/threads.hpp"

using namespace shm;
using shm_test::datum;
using shm_test::fake_roll;
using shm_test::on_threads;
using sync::absence;
using sync::meetings;
using sync::standing;

namespace {

/// The shared words of the meetings of all pairs, as if every pair had met `first` times.
struct shared_table : shm_test::shared_pairs {
  using shared_pairs::shared_pairs;
  meetings of(int rank) { return {table(), rank, sync::patience::with_shared_processor()}; }
};

using peer_list = std::vector<int>;

/// Writes, meets both neighbours in a ring, reads theirs, meets them again; returns the mistakes.
int count_wrong_in_ring(shared_table& shared, int rounds) {
  int const ranks = shared.ranks;
  fake_roll const roll(ranks);
  std::vector<datum> data(static_cast<std::size_t>(ranks));
  std::atomic<int> wrong = 0;
  on_threads(ranks, [&](int rank) {
    auto mine = shared.of(rank);
    int const before = (rank + ranks - 1) % ranks;
    int const after = (rank + 1) % ranks;
    peer_list const peers{before, after};
    int mistakes = 0;
    for (int round = 1; round <= rounds; ++round) {
      data[static_cast<std::size_t>(rank)].value = round * 100 + rank;
      if (mine.meet(peers, roll)) ++mistakes;
      for (int const peer : peers) {
        if (data[static_cast<std::size_t>(peer)].value != round * 100 + peer) ++mistakes;
      }
      if (mine.meet(peers, roll)) ++mistakes;
    }
    wrong.fetch_add(mistakes, std::memory_order_relaxed);
  });
  return wrong;
}

}  // namespace

TEST_CASE("ranks in a ring see what their neighbours wrote before they met") {
  for (int const ranks : {1, 2, 3, 4, 5, 8}) {
    INFO(ranks << " ranks");
    shared_table shared(ranks);
    CHECK(count_wrong_in_ring(shared, 300) == 0);
  }
}

TEST_CASE("ranks go on meeting when their counts wrap around") {
  for (int const ranks : {2, 3, 4, 8}) {
    INFO(ranks << " ranks");
    shared_table shared(ranks, 0xfffffffcU);
    CHECK(count_wrong_in_ring(shared, 10) == 0);
    CHECK(shared.table().word(0, 1) == 0xfffffffcU + 20);
  }
}

TEST_CASE("a peer whose count is the highest number has not come to meeting 0") {
  shared_table shared(2, 0xffffffffU);
  fake_roll roll(2);
  roll.set(1, standing::dead);
  CHECK(shared.of(0).meet(peer_list{1}, roll) == absence{standing::dead, 1});
}

TEST_CASE("repeated peers and the rank itself count once") {
  shared_table shared(3);
  shared.table().word(1, 0) = 1;
  shared.table().word(2, 0) = 1;
  fake_roll const roll(3);
  auto mine = shared.of(0);
  CHECK_FALSE(mine.meet(peer_list{1, 0, 2, 1, 0, 1}, roll).has_value());
  CHECK(shared.table().word(0, 0) == 0);
  CHECK(shared.table().word(0, 1) == 1);
  CHECK(shared.table().word(0, 2) == 1);
}

TEST_CASE("a rank that meets nobody but itself does not wait") {
  shared_table shared(2);
  fake_roll roll(2);
  roll.set(1, standing::dead);
  CHECK_FALSE(shared.of(0).meet(peer_list{}, roll).has_value());
  CHECK_FALSE(shared.of(0).meet(peer_list{0}, roll).has_value());
}

TEST_CASE("a rank posts to all its peers before it waits for the first") {
  shared_table shared(3);
  fake_roll roll(3);
  roll.set(1, standing::dead);
  CHECK(shared.of(0).meet(peer_list{1, 2}, roll).has_value());
  CHECK(shared.table().word(0, 2) == 1);
}

TEST_CASE("pairs meet in any interleaving with other pairs") {
  // A tournament: in turn t, rank r meets rank r ^ t. Ranks run apart by as much as the pairs
  // allow.
  constexpr int ranks = 8;
  shared_table shared(ranks);
  fake_roll const roll(ranks);
  std::vector<std::array<datum, ranks>> mail(ranks);  // mail[from][to]
  std::atomic<int> wrong = 0;
  on_threads(ranks, [&](int rank) {
    auto const r = static_cast<std::size_t>(rank);
    auto mine = shared.of(rank);
    int mistakes = 0;
    for (int round = 0; round < 50; ++round) {
      for (int turn = 1; turn < ranks; ++turn) {
        int const peer = rank ^ turn;
        auto const p = static_cast<std::size_t>(peer);
        mail[r][p].value = round * 1000 + rank * 10 + peer;
        if (mine.meet(peer_list{peer}, roll)) ++mistakes;
        if (mail[p][r].value != round * 1000 + peer * 10 + rank) ++mistakes;
        if (mine.meet(peer_list{peer}, roll)) ++mistakes;
      }
    }
    wrong.fetch_add(mistakes, std::memory_order_relaxed);
  });
  CHECK(wrong == 0);
}

TEST_CASE("a peer that will never come is named, with the reason") {
  for (auto const why : {standing::dead, standing::left}) {
    shared_table shared(3);
    shared.table().word(1, 0) = 1;
    fake_roll roll(3);
    roll.set(2, why);
    CHECK(shared.of(0).meet(peer_list{1, 2}, roll) == absence{why, 2});
  }
}

TEST_CASE("a rank that is no peer of the call may be dead") {
  shared_table shared(3);
  fake_roll roll(3);
  roll.set(2, standing::dead);
  std::vector<std::optional<absence>> got(3);
  on_threads(2, [&](int rank) {
    got[static_cast<std::size_t>(rank)] = shared.of(rank).meet(peer_list{1 - rank}, roll);
  });
  CHECK_FALSE(got[0].has_value());
  CHECK_FALSE(got[1].has_value());
  CHECK(roll.asked(2) == 0);
}

TEST_CASE("a peer that has posted and then died has been met") {
  shared_table shared(2);
  sync::store(shared.table().word(1, 0), 1);
  fake_roll roll(2);
  roll.set(1, standing::dead);
  CHECK_FALSE(shared.of(0).meet(peer_list{1}, roll).has_value());
}

TEST_CASE("a peer that posts while its standing is asked has been met, though it is dead then") {
  shared_table shared(2);
  fake_roll roll(2);
  roll.set(1, standing::dead);
  roll.when_asked([&](int) { sync::store(shared.table().word(1, 0), 1); });
  CHECK_FALSE(shared.of(0).meet(peer_list{1}, roll).has_value());
}

TEST_CASE("a peer that posts before the verdict is asked has been met, whatever the verdict") {
  shared_table shared(3);
  fake_roll roll(3);
  roll.set_verdict({standing::left, 2});
  roll.when_asked_for_verdict([&] { sync::store(shared.table().word(1, 0), 1); });
  CHECK_FALSE(shared.of(0).meet(peer_list{1}, roll).has_value());
}

TEST_CASE("a verdict that others have settled ends the wait for a living peer") {
  shared_table shared(3);
  fake_roll roll(3);
  roll.set_verdict({standing::left, 2});
  CHECK(shared.of(0).meet(peer_list{1}, roll) == absence{standing::left, 2});
}

TEST_CASE("a verdict that others have settled goes before what a rank finds itself") {
  shared_table shared(3);
  fake_roll roll(3);
  roll.set(1, standing::dead);
  roll.set_verdict({standing::left, 2});
  CHECK(shared.of(0).meet(peer_list{1}, roll) == absence{standing::left, 2});
}
