#include "shm/collective/bcast.hpp"

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "collective/kinds.hpp"

namespace {

using shm_test::findings;

constexpr shm::collective_algorithm algorithms[] = {shm::collective_algorithm::automatic,
                                                    shm::collective_algorithm::staged,
                                                    shm::collective_algorithm::direct};

bool is_of(std::span<int const> data, int rank, int round) {
  for (std::size_t at = 0; at < data.size(); ++at) {
    if (data[at] != shm_test::element<int>(rank, at, round)) return false;
  }
  return true;
}

}  // namespace

TEST_CASE("a bcast of any count brings the root's elements to all, from any root") {
  for (auto const how : algorithms) {
    for (int const ranks : {1, 2, 3, 4, 5}) {
      shm_test::on_ranks(ranks,
                         [](shm::group& node, findings& found) {
                           for (auto const count : shm_test::counts) {
                             shm::window<int> shared(node, count + 200);
                             auto const buffer = shared.local().subspan(
                                 static_cast<std::size_t>(node.rank()) * 8, count);
                             for (int const root : {0, node.size() - 1}) {
                               shm::bcast_plan plan(node, buffer, root);
                               for (int round = 0; round < 3; ++round) {
                                 shm_test::fill(buffer, node.rank(), round);
                                 plan.start();
                                 plan.wait();
                                 RANK_CHECK(found, is_of(buffer, root, round));
                                 std::vector<int> own(count);
                                 shm_test::fill(std::span(own), node.rank(), round);
                                 shm::bcast(node, std::span(own), root);
                                 RANK_CHECK(found, is_of(own, root, round));
                               }
                             }
                           }
                         },
                         {{.bcast = how}});
    }
  }
}

TEST_CASE("ranks that name the root's own memory read there, and nothing is copied") {
  for (auto const how : algorithms) {
    shm_test::on_ranks(3,
                       [](shm::group& node, findings& found) {
                         shm::window<int> table(node, node.rank() == 1 ? 500 : 0);
                         shm::bcast_plan plan(node, table[1], 1);
                         shm::window<int> own(node, 500);
                         auto const mixed_buffer = node.rank() == 0 ? own.local() : table[1];
                         shm::bcast_plan mixed(node, mixed_buffer, 1);
                         for (int round = 0; round < 200; ++round) {
                           if (node.rank() == 1) shm_test::fill(table.local(), 1, round);
                           plan.start();
                           plan.wait();
                           RANK_CHECK(found, is_of(table[1], 1, round));
                           mixed.start();
                           mixed.wait();
                           RANK_CHECK(found, is_of(mixed_buffer, 1, round));
                           node.barrier();
                         }
                       },
                       {{.bcast = how}});
  }
}

TEST_CASE("a root that is slow or fast does not matter, however many are under way") {
  shm_test::on_ranks(4, [](shm::group& node, findings& found) {
    shm::window<int> shared(node, 16);
    shm::bcast_plan plan(node, shared.local(), 0);
    int wrong = 0;
    for (int round = 0; round < 3000; ++round) {
      if (node.rank() == 0) std::ranges::fill(shared.local(), round);
      plan.start();
      plan.wait();
      wrong += std::ranges::count(shared.local(), round) != 16;
    }
    RANK_CHECK(found, wrong == 0);
    RANK_CHECK(found, shm::bcast(node, node.rank() == 3 ? 1.5 : 0.0, 3) == 1.5);
  });
}

TEST_CASE("buffers of a bcast that overlap are refused") {
  shm_test::on_ranks(3, [](shm::group& node, findings& found) {
    shm::window<int> shared(node, 100);
    auto const cause_of = [](auto const& plan) { return shm_test::failure_of(plan).cause; };
    RANK_CHECK(found, cause_of([&] {
                        shm::bcast_plan plan(node, shared[0].subspan(node.rank() == 2 ? 1 : 0, 50),
                                             0);
                      }) == shm::errc::invalid_argument);
    RANK_CHECK(found, cause_of([&] {
                        shm::bcast_plan plan(node, shared[node.rank() == 0 ? 0 : 1], 0);
                      }) == shm::errc::invalid_argument);
    auto const says = [&](int root, std::string const& words) {
      auto const text = shm_test::message_of([&] { shm::bcast(node, shared.local(), root); });
      RANK_CHECK(found, text.find(words) != std::string::npos);
    };
    says(-1, "rank 0 of 3: bcast: invalid argument: there is no such root; ranks are 0 to 2");
    says(node.rank() == 1 ? 3 : 0, "rank 1 of 3: bcast: invalid argument: there is no such root");
    says(node.rank() == 2 ? 1 : 0,
         "rank 2 of 3: bcast: the ranks' arguments differ: the root is 1 "
         "there, and 0 on rank 0");
  });
}
