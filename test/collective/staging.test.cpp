#include "shm/collective/staging.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <stdexcept>
#include <string>
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

TEST_CASE("ranks in a private collective and in another call of the group find each other out") {
  struct other_call {
    std::function<void(shm::group&)> make;
    bool is_agreement;  ///< after which the group goes on
  };
  other_call const others[] = {
      {[](shm::group& node) { node.agree([] {}); }, true},
      {[](shm::group& node) { static_cast<void>(shm::window<int>(node, 1)); }, true},
      {[](shm::group& node) { node.barrier(); }, false},
      {[](shm::group& node) { static_cast<void>(node.split(0)); }, false}};
  for (std::uint32_t const first : {0U, 0xfffffffeU}) {
    for (auto const& other : others) {
      for (int const alone : {0, 2}) {
        shm_test::on_ranks(3,
                           [&](shm::group& node, findings& found) {
                             shm::window<int> ranks(node, 1);
                             RANK_CHECK(found, shm::allreduce(node, 1) == 3);
                             auto const call = [&] {
                               if (node.rank() == alone) return other.make(node);
                               static_cast<void>(shm::allreduce(node, 1));
                             };
                             auto const failed = shm_test::failure_of(call);
                             RANK_CHECK(found, failed.cause == shm::errc::mismatch);
                             // Nobody leaves before all have found out: that would be another
                             // reason.
                             ranks.local()[0] = failed.rank;
                             for (int r = 0; r < 3; ++r) ranks.post(r);
                             for (int r = 0; r < 3; ++r) ranks.wait(r);
                             for (int r = 0; r < 3; ++r)
                               RANK_CHECK(found, ranks[r][0] == ranks[0][0]);
                             if (!other.is_agreement) return;
                             RANK_CHECK(found, shm::allreduce(node, 2) == 6);
                             RANK_CHECK(found, shm::bcast(node, node.rank(), 1) == 1);
                           },
                           {{.first_number = first}});
      }
    }
  }
}

TEST_CASE("a rank that fails before a private collective gives its error to all") {
  for (bool const is_first_call : {false, true}) {
    for (int const failing : {0, 2}) {
      shm_test::on_ranks(3, [&](shm::group& node, findings& found) {
        if (!is_first_call) RANK_CHECK(found, shm::allreduce(node, 1) == 3);
        for (int round = 0; round < 3; ++round) {
          auto const text = shm_test::message_of([&] {
            node.agree([&] {
              if (node.rank() == failing) throw std::runtime_error("the disk is full");
              static_cast<void>(shm::allreduce(node, 5));
            });
          });
          RANK_CHECK(found, text.find("the disk is full") != std::string::npos);
          // Some have taken a step more than others, which is nobody's concern later.
          node.barrier();
          // The same call again, which must not be answered with what is left of the last.
          RANK_CHECK(found, shm::allreduce(node, 5 + node.rank()) == 18);
        }
      });
    }
  }
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
