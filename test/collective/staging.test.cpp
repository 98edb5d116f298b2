#include "shm/collective/staging.hpp"

#include <cstddef>
#include <utility>
#include <vector>

#include "support/ranks.hpp"

using shm_test::findings;

TEST_CASE(
    "the memory for staging is made once, goes with the group, and is not shared with others") {
  shm_test::on_ranks(2, [](shm::group& node, findings& found) {
    RANK_CHECK(found, node.staging() == nullptr);
    RANK_CHECK(found, shm::allreduce(node, 1) == 2);
    auto const made = node.staging();
    RANK_CHECK(found, made != nullptr);
    shm::communicator other(node);
    RANK_CHECK(found, shm::allreduce(other, 2) == 4);
    RANK_CHECK(found, other.staging() != nullptr && other.staging() != made);
    RANK_CHECK(found, shm::allreduce(node, 3) == 6);
    RANK_CHECK(found, node.staging() == made);
    shm::group moved(std::move(static_cast<shm::group&>(other)));
    RANK_CHECK(found, shm::allreduce(moved, 2) == 4);
  });
}

TEST_CASE("private collectives of all kinds follow each other in any mixture") {
  shm_test::on_all_rank_counts([](shm::group& node, findings& found) {
    auto const n = static_cast<std::size_t>(node.size());
    for (int round = 0; round < 300; ++round) {
      RANK_CHECK(found, shm::bcast(node, round * 10 + node.rank(), round % node.size()) ==
                            round * 10 + round % node.size());
      if (round % 3 == 0) {
        auto const all = shm::allgather(node, node.rank() + round);
        RANK_CHECK(found, all.back() == node.size() - 1 + round);
      }
      if (round % 2 == 0) {
        std::vector<long> send(n, round);
        std::vector<long> receive(n);
        shm::alltoall(node, std::span(send), std::span(receive));
        RANK_CHECK(found, receive.back() == round);
      }
      RANK_CHECK(found, shm::allreduce(node, node.rank(), shm::op::max{}) == node.size() - 1);
    }
  });
}

TEST_CASE("a rank that has destroyed its group is missed in a private collective") {
  shm_test::on_ranks(3, [](shm::group& node, findings& found) {
    shm::communicator other(node);
    RANK_CHECK(found, shm::allreduce(other, 1) == 3);
    if (node.rank() == 1) {
      shm::group const gone(std::move(static_cast<shm::group&>(other)));
      return;
    }
    auto const failed = shm_test::failure_of([&] { static_cast<void>(shm::allreduce(other, 1)); });
    RANK_CHECK(found, failed.cause == shm::errc::peer_left && failed.rank == 1);
  });
}
