#include "shm/oob/fork.hpp"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "support/threads.hpp"

using namespace shm;
using shm_test::failure_of;
using shm_test::on_threads;

namespace {

/// Gathers blocks of `n` bytes with a pattern; returns whether all have come.
bool gathers(fork_oob& oob, std::size_t n, int round) {
  auto const value = [&](int rank) { return static_cast<std::byte>(rank * 16 + round % 16); };
  std::vector<std::byte> const mine(n, value(oob.rank()));
  std::vector<std::byte> all(n * static_cast<std::size_t>(oob.size()));
  oob.allgather(mine, all);
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i] != value(static_cast<int>(i / n))) return false;
  }
  return true;
}

}  // namespace

TEST_CASE("fork_oob is a bootstrap") { STATIC_REQUIRE(out_of_band<fork_oob>); }

TEST_CASE("an area for fewer than one rank is refused") {
  CHECK(failure_of([] { fork_area area(0); }).cause == errc::invalid_argument);
  CHECK(failure_of([] { fork_area area(-1); }).cause == errc::invalid_argument);
}

TEST_CASE("blocks of an area do not overlap and lie inside it") {
  fork_area area(3);
  std::vector<std::byte*> blocks;
  for (std::uint32_t set = 0; set < 2; ++set) {
    for (int rank = 0; rank < 3; ++rank) blocks.push_back(area.block(set, rank).data());
  }
  std::ranges::sort(blocks);
  for (std::size_t i = 1; i < blocks.size(); ++i) {
    CHECK(blocks[i] - blocks[i - 1] >= static_cast<std::ptrdiff_t>(fork_area::block_bytes));
  }
  CHECK(area.block(2, 1).data() == area.block(0, 1).data());
}

TEST_CASE("blocks of any length are gathered in rank order, many times in a row") {
  for (int const ranks : {1, 2, 3, 4, 8}) {
    INFO(ranks << " ranks");
    fork_area area(ranks);
    std::atomic<int> wrong = 0;
    on_threads(ranks, [&](int rank) {
      fork_oob oob(area, rank);
      for (int round = 0; round < 50; ++round) {
        for (std::size_t const n : {1U, 255U, 256U, 257U, 1000U}) {
          if (!gathers(oob, n, round)) wrong.fetch_add(1, std::memory_order_relaxed);
        }
      }
    });
    CHECK(wrong == 0);
  }
}

TEST_CASE("forked ranks gather through an area made before") {
  fork_area area(4);
  shm_test::on_ranks(4, [&](group& node, shm_test::findings& found) {
    fork_oob oob(area, node.rank());
    for (int round = 0; round < 20; ++round) RANK_CHECK(found, gathers(oob, 700, round));
  });
}

TEST_CASE("ranks that wait for one that is gone get peer_lost with its number") {
  fork_area area(4);
  area.mark_gone(2);
  CHECK(area.is_gone(2));
  CHECK_FALSE(area.is_gone(1));
  std::vector<failure> found(4);
  on_threads(4, [&](int rank) {
    if (rank == 2) return;
    fork_oob oob(area, rank);
    found[static_cast<std::size_t>(rank)] = failure_of([&] { gathers(oob, 10, 1); });
  });
  for (std::size_t const r : {0U, 1U, 3U}) {
    CHECK(found[r].cause == errc::peer_lost);
    CHECK(found[r].rank == 2);
  }
}

TEST_CASE("a rank that is gone after its last allgather is missed by nobody") {
  fork_area area(3);
  std::atomic<int> wrong = 0;
  on_threads(3, [&](int rank) {
    fork_oob oob(area, rank);
    if (!gathers(oob, 10, 1)) wrong.fetch_add(1, std::memory_order_relaxed);
    area.mark_gone(rank);
  });
  CHECK(wrong == 0);
}
