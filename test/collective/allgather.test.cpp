#include "shm/collective/allgather.hpp"

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "collective/kinds.hpp"

namespace {

using shm_test::findings;

bool is_of_all(std::span<int const> data, std::size_t count, int ranks, int round) {
  for (int rank = 0; rank < ranks; ++rank) {
    for (std::size_t at = 0; at < count; ++at) {
      if (data[static_cast<std::size_t>(rank) * count + at] !=
          shm_test::element<int>(rank, at, round)) {
        return false;
      }
    }
  }
  return data.size() == count * static_cast<std::size_t>(ranks);
}

}  // namespace

TEST_CASE("an allgather of any count brings the blocks of all to all, in every form") {
  for (int const ranks : {1, 2, 3, 4, 5}) {
    shm_test::on_ranks(ranks, [](shm::group& node, findings& found) {
      auto const n = static_cast<std::size_t>(node.size());
      for (auto const count : shm_test::counts) {
        shm::window<int> send(node, count);
        shm::window<int> receive(node, n * count + 16);
        auto const own = static_cast<std::size_t>(node.rank());
        auto const to = receive.local().last(n * count);
        auto const one_place = receive[0].first(n * count);
        auto const in_place = to.subspan(own * count, count);
        shm::allgather_plan plan(node, send.local(), to);
        shm::allgather_plan within(node, in_place, to);
        for (int round = 0; round < 2; ++round) {
          shm_test::fill(send.local(), node.rank(), round);
          plan.start();
          plan.wait();
          RANK_CHECK(found, is_of_all(to, count, node.size(), round));
          shm_test::fill(in_place, node.rank(), round + 50);
          within.start();
          within.wait();
          RANK_CHECK(found, is_of_all(to, count, node.size(), round + 50));
          std::vector<int> all(n * count);
          shm::allgather(node, send.local(), std::span(all));
          RANK_CHECK(found, is_of_all(all, count, node.size(), round));
          std::ranges::fill(all, 0);
          auto const part = std::span(all).subspan(own * count, count);
          shm_test::fill(part, node.rank(), round);
          shm::allgather(node, part, std::span(all));
          RANK_CHECK(found, is_of_all(all, count, node.size(), round));
        }
        node.barrier();
        shm::allgather_plan shared(node, send.local(), one_place);
        shm::allgather_plan in_shared(node, one_place.subspan(own * count, count), one_place);
        for (int round = 0; round < 2; ++round) {
          shm_test::fill(send.local(), node.rank(), round);
          shared.start();
          shared.wait();
          RANK_CHECK(found, is_of_all(one_place, count, node.size(), round));
          node.barrier();
          shm_test::fill(one_place.subspan(own * count, count), node.rank(), round + 9);
          in_shared.start();
          in_shared.wait();
          RANK_CHECK(found, is_of_all(one_place, count, node.size(), round + 9));
          node.barrier();
        }
      }
      auto const ranks_of_all = shm::allgather(node, node.rank());
      RANK_CHECK(found, ranks_of_all.size() == n && ranks_of_all.back() == node.size() - 1);
    });
  }
}

TEST_CASE("buffers of an allgather that overlap or do not fit are refused") {
  shm_test::on_ranks(2, [](shm::group& node, findings& found) {
    shm::window<int> shared(node, 100);
    auto const block = shared.local();
    auto const is_refused = [&](std::span<int> send, std::span<int> receive) {
      return shm_test::failure_of([&] { shm::allgather_plan plan(node, send, receive); }).cause ==
             shm::errc::invalid_argument;
    };
    RANK_CHECK(found, is_refused(block.first(10), block.first(20)) == true);
    RANK_CHECK(found, is_refused(block.first(10), block.last(21)));
    RANK_CHECK(found, is_refused(block.first(10), block.subspan(5, 20)));
    RANK_CHECK(found, shm_test::failure_of([&] {
                        shm::allgather(node, block.first(10), block.last(21));
                      }).cause == shm::errc::invalid_argument);
  });
}
