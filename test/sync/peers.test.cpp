#include "shm/sync/peers.hpp"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "support/catch.hpp"
#include "support/threads.hpp"

using namespace shm;
using shm_test::datum;
using shm_test::fake_roll;
using shm_test::on_threads;
using sync::absence;
using sync::peer_table;
using sync::standing;

namespace {

/// The memory of one table of posts, as if every pair had met `first` times.
struct shared_table {
  explicit shared_table(int ranks_wanted, std::uint32_t first = 0)
      : ranks(ranks_wanted),
        lines(static_cast<std::size_t>(ranks) * peer_table::row_bytes(ranks) / shm::line_bytes) {
    for (int from = 0; from < ranks; ++from) {
      for (int to = 0; to < ranks; ++to) of(0).word(from, to) = first;
    }
  }
  peer_table of(int rank) {
    return {reinterpret_cast<std::byte*>(lines.data()), rank, ranks,
            sync::patience::with_shared_processor()};
  }

  struct alignas(shm::line_bytes) line {
    std::array<std::byte, shm::line_bytes> bytes{};
  };
  int ranks;
  std::vector<line> lines;
};

using peer_list = std::vector<int>;

/// Writes, meets both neighbours in a ring, reads theirs, meets them again; returns the mistakes.
int count_wrong_in_ring(shared_table& shared, int rounds) {
  int const ranks = shared.ranks;
  fake_roll const roll(ranks);
  std::vector<datum> data(static_cast<std::size_t>(ranks));
  std::atomic<int> wrong = 0;
  on_threads(ranks, [&](int rank) {
    auto table = shared.of(rank);
    int const before = (rank + ranks - 1) % ranks;
    int const after = (rank + 1) % ranks;
    peer_list const peers{before, after};
    int mistakes = 0;
    for (int round = 1; round <= rounds; ++round) {
      data[static_cast<std::size_t>(rank)].value = round * 100 + rank;
      if (table.meet(peers, roll)) ++mistakes;
      for (int const peer : peers) {
        if (data[static_cast<std::size_t>(peer)].value != round * 100 + peer) ++mistakes;
      }
      if (table.meet(peers, roll)) ++mistakes;
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
    CHECK(shared.of(0).word(0, 1) == 0xfffffffcU + 20);
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
  shared.of(1).word(1, 0) = 1;
  shared.of(2).word(2, 0) = 1;
  fake_roll const roll(3);
  auto table = shared.of(0);
  CHECK_FALSE(table.meet(peer_list{1, 0, 2, 1, 0, 1}, roll).has_value());
  CHECK(table.word(0, 0) == 0);
  CHECK(table.word(0, 1) == 1);
  CHECK(table.word(0, 2) == 1);
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
  CHECK(shared.of(0).word(0, 2) == 1);
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
    auto table = shared.of(rank);
    int mistakes = 0;
    for (int round = 0; round < 50; ++round) {
      for (int turn = 1; turn < ranks; ++turn) {
        int const peer = rank ^ turn;
        auto const p = static_cast<std::size_t>(peer);
        mail[r][p].value = round * 1000 + rank * 10 + peer;
        if (table.meet(peer_list{peer}, roll)) ++mistakes;
        if (mail[p][r].value != round * 1000 + peer * 10 + rank) ++mistakes;
        if (table.meet(peer_list{peer}, roll)) ++mistakes;
      }
    }
    wrong.fetch_add(mistakes, std::memory_order_relaxed);
  });
  CHECK(wrong == 0);
}

TEST_CASE("a peer that will never come is named, with the reason") {
  for (auto const why : {standing::dead, standing::left}) {
    shared_table shared(3);
    shared.of(1).word(1, 0) = 1;
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
  sync::store(shared.of(1).word(1, 0), 1);
  fake_roll roll(2);
  roll.set(1, standing::dead);
  CHECK_FALSE(shared.of(0).meet(peer_list{1}, roll).has_value());
}

TEST_CASE("a peer that posts while its standing is asked has been met, though it is dead then") {
  shared_table shared(2);
  fake_roll roll(2);
  roll.set(1, standing::dead);
  roll.when_asked([&](int) { sync::store(shared.of(1).word(1, 0), 1); });
  CHECK_FALSE(shared.of(0).meet(peer_list{1}, roll).has_value());
}

TEST_CASE("a peer that posts before the verdict is asked has been met, whatever the verdict") {
  shared_table shared(3);
  fake_roll roll(3);
  roll.set_verdict({standing::left, 2});
  roll.when_asked_for_verdict([&] { sync::store(shared.of(1).word(1, 0), 1); });
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

TEST_CASE("rows of the table of posts have room for all ranks and begin on lines") {
  STATIC_REQUIRE(peer_table::row_bytes(1) == shm::line_bytes);
  STATIC_REQUIRE(peer_table::row_bytes(32) == shm::line_bytes);
  STATIC_REQUIRE(peer_table::row_bytes(33) == 2 * shm::line_bytes);
  for (int ranks = 1; ranks <= 300; ++ranks) {
    auto const bytes = peer_table::row_bytes(ranks);
    CHECK(bytes >= static_cast<std::size_t>(ranks) * sizeof(std::uint32_t));
    CHECK(bytes % shm::line_bytes == 0);
  }
}

TEST_CASE("each ordered pair of ranks has a word of its own, in the row of the first") {
  shared_table shared(33);
  auto const table = shared.of(0);
  for (int from = 0; from < 33; ++from) {
    for (int to = 0; to < 33; ++to)
      table.word(from, to) = static_cast<std::uint32_t>(from * 33 + to);
  }
  bool kept = true;
  for (int from = 0; from < 33; ++from) {
    for (int to = 0; to < 33; ++to) {
      kept = kept && table.word(from, to) == static_cast<std::uint32_t>(from * 33 + to);
    }
  }
  CHECK(kept);
}
