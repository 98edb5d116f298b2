#include "shm/collective/alltoall.hpp"

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "collective/kinds.hpp"

namespace {

using shm_test::findings;

constexpr shm::collective_algorithm algorithms[] = {shm::collective_algorithm::automatic,
                                                    shm::collective_algorithm::staged,
                                                    shm::collective_algorithm::direct};

/// Whether block r is what rank r has sent in its block of this rank.
bool is_from_all(std::span<int const> data, std::size_t count, int rank, int ranks, int round) {
  for (int from = 0; from < ranks; ++from) {
    for (std::size_t at = 0; at < count; ++at) {
      if (data[static_cast<std::size_t>(from) * count + at] !=
          shm_test::element<int>(from, static_cast<std::size_t>(rank) * count + at, round)) {
        return false;
      }
    }
  }
  return true;
}

}  // namespace

TEST_CASE("an alltoall of any count exchanges the blocks of all") {
  for (auto const how : algorithms) {
    for (int const ranks : {1, 2, 3, 4, 5}) {
      shm_test::on_ranks(
          ranks,
          [](shm::group& node, findings& found) {
            auto const n = static_cast<std::size_t>(node.size());
            for (auto const count : shm_test::counts) {
              if (count > 20'000) continue;
              shm::window<int> send(node, n * count + 100);
              shm::window<int> receive(node, n * count);
              auto const from =
                  send.local().subspan(static_cast<std::size_t>(node.rank()) * 8, n * count);
              shm::alltoall_plan plan(node, from, receive.local());
              for (int round = 0; round < 3; ++round) {
                shm_test::fill(from, node.rank(), round);
                plan.start();
                plan.wait();
                RANK_CHECK(found,
                           is_from_all(receive.local(), count, node.rank(), node.size(), round));
                std::vector<int> own(from.begin(), from.end());
                std::vector<int> all(n * count);
                shm::alltoall(node, std::span(own), std::span(all));
                RANK_CHECK(found, is_from_all(all, count, node.rank(), node.size(), round));
              }
            }
          },
          {{.alltoall = how}});
    }
  }
}

TEST_CASE("buffers of an alltoall that overlap or do not fit are refused") {
  shm_test::on_ranks(3, [](shm::group& node, findings& found) {
    shm::window<int> shared(node, 100);
    auto const block = shared.local();
    auto const is_refused = [&](std::span<int> send, std::span<int> receive) {
      return shm_test::failure_of([&] { shm::alltoall_plan plan(node, send, receive); }).cause ==
             shm::errc::invalid_argument;
    };
    RANK_CHECK(found, is_refused(block.first(9), block.first(9)));
    RANK_CHECK(found, is_refused(block.first(10), block.last(10)));
    RANK_CHECK(found, is_refused(block.first(9), block.last(12)));
    RANK_CHECK(found, shm_test::failure_of([&] {
                        shm::alltoall(node, block.first(10), block.last(10));
                      }).cause == shm::errc::invalid_argument);
  });
}
