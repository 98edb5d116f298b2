#include "shm/group/gathering.hpp"

#include <unistd.h>

#include <cstddef>
#include <span>

#include "shm/shm.hpp"
#include "support/catch.hpp"
#include "support/exits.hpp"
#include "support/ranks.hpp"

using shm::errc;
using shm::group;
using shm::operation;
using shm::detail::gathering;
using shm_test::contains;
using shm_test::failure_of;
using shm_test::findings;
using shm_test::message_of;
using shm_test::notes;
using shm_test::on_all_rank_counts;
using shm_test::on_ranks;

namespace {

/// Gathers the number of this rank plus `round`; returns whether those of all have come.
bool gathers(group& node, int round) {
  auto const mine = static_cast<std::byte>(node.rank() + round);
  gathering const gathered(*node.state(), {.where = operation::allgather, .length = 1},
                           std::span(&mine, 1));
  for (int rank = 0; rank < node.size(); ++rank) {
    if (gathered.from(rank).front() != static_cast<std::byte>(rank + round)) return false;
  }
  return true;
}

}  // namespace

TEST_CASE("every rank sees what every rank has brought") {
  on_all_rank_counts([](group& node, findings& found) {
    for (int round = 0; round < 100; ++round) RANK_CHECK(found, gathers(node, round));
  });
}

TEST_CASE("what a rank has brought stays until this rank's next collective call") {
  on_all_rank_counts([](group& node, findings& found) {
    for (int round = 0; round < 100; ++round) {
      auto const mine = static_cast<std::byte>(round);
      gathering const gathered(*node.state(), {.where = operation::allgather, .length = 1},
                               std::span(&mine, 1));
      if (node.rank() % 2 == 1) ::usleep(100);  // the others are in the next one meanwhile
      for (int rank = 0; rank < node.size(); ++rank) {
        RANK_CHECK(found, gathered.from(rank).front() == mine);
      }
    }
  });
}

TEST_CASE("calls of different kinds are a mismatch in the same words on all ranks") {
  for (int const ranks : {2, 3, 4}) {
    for (int const odd : {0, ranks - 1}) {
      notes texts(ranks);
      on_ranks(ranks, [&](group& node, findings& found) {
        auto const where = node.rank() == odd ? operation::barrier : operation::allgather;
        texts.write(node.rank(),
                    message_of([&] { gathering(*node.state(), {.where = where}, {}); }));
        RANK_CHECK(found, gathers(node, 1));
      });
      INFO(texts.all());
      CHECK(texts.are_equal());
      CHECK(contains(texts.of(0), "the call is "));
      CHECK(contains(texts.of(0), "barrier"));
      CHECK(contains(texts.of(0), "gathering from all"));
    }
  }
}

TEST_CASE("a rank that is refused its result is an error of all ranks") {
  on_all_rank_counts([](group& node, findings& found) {
    int const last = node.size() - 1;
    auto const failed = failure_of([&] {
      gathering(*node.state(), {.where = operation::allgather, .is_refused = node.rank() == last},
                {});
    });
    RANK_CHECK(found, failed.cause == errc::invalid_argument);
    RANK_CHECK(found, failed.rank == last);
    RANK_CHECK(found, gathers(node, 1));
  });
}
