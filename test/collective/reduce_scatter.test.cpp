#include "shm/collective/reduce_scatter.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "collective/kinds.hpp"

namespace {

using shm_test::findings;

}  // namespace

TEST_CASE("a reduce_scatter of any count brings each rank its block of the sums") {
  for (int const ranks : {1, 2, 3, 4, 5}) {
    shm_test::on_ranks(ranks, [](shm::group& node, findings& found) {
      auto const n = static_cast<std::size_t>(node.size());
      for (auto const count : shm_test::counts) {
        if (count > 20'000) continue;
        shm::window<double> send(node, n * count + 100);
        shm::window<double> receive(node, count);
        auto const own = static_cast<std::size_t>(node.rank());
        auto const from = send.local().subspan(own * 8, n * count);
        auto const is_right = [&](std::span<double const> result, int round) {
          return shm_test::is_combined(result, own * count, node.size(), round, shm::op::sum{});
        };
        shm::reduce_scatter_plan plan(node, from, receive.local());
        shm::reduce_scatter_plan in_place(node, from, from.subspan(own * count, count));
        for (int round = 0; round < 2; ++round) {
          shm_test::fill(from, node.rank(), round);
          plan.start();
          plan.wait();
          RANK_CHECK(found, is_right(receive.local(), round));
          std::vector<double> all(from.begin(), from.end());
          std::vector<double> block(count);
          shm::reduce_scatter(node, std::span(all), std::span(block));
          RANK_CHECK(found, is_right(block, round));
          in_place.start();
          in_place.wait();
          RANK_CHECK(found, is_right(from.subspan(own * count, count), round));
        }
      }
    });
  }
}

TEST_CASE("elements of which a slot holds few are scattered block by block") {
  struct large {
    std::array<int, 10'000> values;
  };
  auto const add = [](large const& a, large const& b) {
    large sum = a;
    for (std::size_t i = 0; i < sum.values.size(); ++i) sum.values[i] += b.values[i];
    return sum;
  };
  shm_test::on_ranks(4, [&](shm::group& node, findings& found) {
    std::vector<large> send(8);
    for (std::size_t at = 0; at < send.size(); ++at) {
      send[at].values.fill(static_cast<int>(at) + node.rank());
    }
    std::vector<large> receive(2);
    shm::reduce_scatter(node, std::span(send), std::span(receive), add);
    for (std::size_t i = 0; i < receive.size(); ++i) {
      auto const at = 2 * node.rank() + static_cast<int>(i);
      RANK_CHECK(found, std::ranges::count(receive[i].values, 4 * at + 6) == 10'000);
    }
  });
}

TEST_CASE("buffers of a reduce_scatter that overlap or do not fit are refused") {
  shm_test::on_ranks(2, [](shm::group& node, findings& found) {
    shm::window<int> shared(node, 100);
    auto const block = shared.local();
    auto const is_refused = [&](std::span<int> send, std::span<int> receive) {
      return shm_test::failure_of([&] {
               shm::reduce_scatter_plan plan(node, send, receive);
             }).cause == shm::errc::invalid_argument;
    };
    RANK_CHECK(found, is_refused(block.first(20), block.subspan(5, 10)));
    RANK_CHECK(found, is_refused(block.first(21), block.last(10)));
    RANK_CHECK(found, shm_test::failure_of([&] {
                        shm::reduce_scatter(node, block.first(30), block.last(10));
                      }).cause == shm::errc::invalid_argument);
  });
}
