#include "shm/collective/allreduce.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "collective/kinds.hpp"

namespace {

using shm_test::findings;

constexpr shm::collective_algorithm algorithms[] = {shm::collective_algorithm::automatic,
                                                    shm::collective_algorithm::staged,
                                                    shm::collective_algorithm::direct};

/// Planned, in place, into one result, and on private memory; twice each.
template <class T, class Op>
void all_forms_are_right(shm::group& node, findings& found, std::size_t count, Op const& op) {
  shm::window<T> send(node, count + 200);
  shm::window<T> receive(node, count + 200);
  // At another place on each rank.
  auto const offset = static_cast<std::size_t>(node.rank()) * 8;
  auto const from = send.local().subspan(offset, count);
  auto const to = receive.local().subspan(offset + 16, count);
  auto const one_place = receive[node.size() - 1].last(count);
  shm::allreduce_plan plan(node, from, to, op);
  auto const is_right = [&](std::span<T const> result, int round) {
    return shm_test::is_combined(result, 0, node.size(), round, op);
  };
  for (int round = 0; round < 2; ++round) {
    shm_test::fill(from, node.rank(), round);
    plan.start();
    plan.wait();
    shm_test::fill(from, node.rank(), round + 100);  // at once
    RANK_CHECK(found, is_right(to, round));
    shm_test::fill(from, node.rank(), round);
    std::vector<T> own(from.begin(), from.end());
    std::vector<T> result(count);
    shm::allreduce(node, std::span<T const>(own), std::span<T>(result), op);
    RANK_CHECK(found, is_right(result, round));
    shm::allreduce(node, std::span<T>(own), op);
    RANK_CHECK(found, is_right(own, round));
  }
  node.barrier();
  shm::allreduce_plan shared(node, from, one_place, op);
  shm::allreduce_plan in_place(node, from, op);
  for (int round = 0; round < 2; ++round) {
    shm_test::fill(from, node.rank(), round);
    shared.start();
    shared.wait();
    RANK_CHECK(found, is_right(one_place, round));
    in_place.start();
    in_place.wait();
    RANK_CHECK(found, is_right(from, round));
  }
}

}  // namespace

TEST_CASE("an allreduce of any count brings the sum in rank order to all, in every form") {
  for (auto const how : algorithms) {
    for (int const ranks : {1, 2, 3, 4, 5}) {
      shm_test::on_ranks(ranks,
                         [](shm::group& node, findings& found) {
                           for (auto const count : shm_test::counts) {
                             all_forms_are_right<double>(node, found, count, shm::op::sum{});
                           }
                         },
                         {{.allreduce = how}});
    }
  }
}

// The five types and three operations of the C interface are tried there, on all counts.
TEST_CASE("operations on other types are right") {
  for (int const ranks : {1, 3, 4}) {
    shm_test::on_ranks(ranks, [](shm::group& node, findings& found) {
      all_forms_are_right<std::uint16_t>(node, found, 2000, shm::op::sum{});
      all_forms_are_right<long>(node, found, 2000, shm::op::product{});
      all_forms_are_right<int>(node, found, 2000, shm::op::bit_and{});
      all_forms_are_right<unsigned>(node, found, 3, shm::op::bit_or{});
      all_forms_are_right<char>(node, found, 2000, shm::op::bit_xor{});
      all_forms_are_right<float>(node, found, 2000, shm::op::max{});
      all_forms_are_right<double>(node, found, 2000, shm::op::min{});
    });
  }
}

TEST_CASE("the result has the same bits on every rank with every algorithm") {
  // 1e16, 1, -1e16, 1: in rank order the first 1 is lost and the second is not.
  for (auto const how : algorithms) {
    for (std::size_t const count : {1U, 40U, 3000U}) {
      shm_test::on_ranks(4,
                         [count](shm::group& node, findings& found) {
                           double const values[] = {1e16, 1, -1e16, 1};
                           shm::window<double> send(node, count);
                           shm::window<double> receive(node, count);
                           std::ranges::fill(send.local(), values[node.rank()]);
                           shm::allreduce_plan plan(node, send.local(), receive.local());
                           plan.start();
                           plan.wait();
                           RANK_CHECK(found, std::ranges::count(receive.local(), 1.0) ==
                                                 std::ssize(receive.local()));
                           std::vector<double> own(count, values[node.rank()]);
                           shm::allreduce(node, std::span(own));
                           RANK_CHECK(found, std::ranges::count(own, 1.0) == std::ssize(own));
                         },
                         {{.allreduce = how}});
    }
  }
}

TEST_CASE("a function of the user's combines structures") {
  struct extreme {
    double value;
    int rank;
  };
  auto const larger = [](extreme const& a, extreme const& b) { return a.value < b.value ? b : a; };
  shm_test::on_ranks(3, [&](shm::group& node, findings& found) {
    auto const most = shm::allreduce(
        node, extreme{.value = node.rank() == 1 ? 9.5 : 1.0, .rank = node.rank()}, larger);
    RANK_CHECK(found, most.rank == 1 && most.value == 9.5);
    shm::window<extreme> all(node, 500);
    std::ranges::fill(all.local(),
                      extreme{.value = node.rank() == 2 ? 8.5 : 1, .rank = node.rank()});
    shm::allreduce_plan plan(node, all.local(), larger);
    plan.start();
    plan.wait();
    RANK_CHECK(found, all.local()[499].rank == 2);
  });
}

TEST_CASE("types of any alignment are combined in windows") {
  struct alignas(64) wide {
    double value;
  };
  auto const add = [](wide const& a, wide const& b) { return wide{a.value + b.value}; };
  shm_test::on_ranks(3, [&](shm::group& node, findings& found) {
    shm::window<wide> all(node, 5);
    std::ranges::fill(all.local(), wide{1});
    shm::allreduce_plan plan(node, all.local(), add);
    plan.start();
    plan.wait();
    RANK_CHECK(found, all.local()[4].value == 3);
  });
}

TEST_CASE("ranks may receive where another one has sent") {
  for (auto const how : algorithms) {
    shm_test::on_ranks(
        3,
        [](shm::group& node, findings& found) {
          shm::window<int> ring(node, 700);
          shm::allreduce_plan plan(node, ring.local(), ring[(node.rank() + 1) % node.size()]);
          for (int round = 0; round < 100; ++round) {
            std::ranges::fill(ring.local(), round + node.rank());
            ring.fence();
            plan.start();
            plan.wait();
            RANK_CHECK(found, std::ranges::count(ring.local(), 3 * round + 3) == 700);
            ring.fence();
          }
        },
        {{.allreduce = how}});
  }
}

TEST_CASE("calls on private memory that do not go together are one error on all") {
  shm_test::on_ranks(3, [](shm::group& node, findings& found) {
    std::vector<double> own(100, 1.0);
    bool const is_last = node.rank() == 2;
    auto const expect = [&](shm::errc cause, std::string const& words, auto const& call) {
      auto const text = shm_test::message_of(call);
      RANK_CHECK(found, text.find(words) != std::string::npos);
      RANK_CHECK(found, shm_test::failure_of(call).cause == cause);
      RANK_CHECK(found, shm_test::failure_of(call).rank == 2);
    };
    expect(shm::errc::mismatch, "the count of elements is 99 there, and 100 on rank 0",
           [&] { shm::allreduce(node, std::span(own).first(is_last ? 99 : 100)); });
    expect(shm::errc::mismatch, "the type of the elements or their operation", [&] {
      if (is_last) return shm::allreduce(node, std::span(own), shm::op::max{});
      shm::allreduce(node, std::span(own));
    });
    expect(shm::errc::mismatch, "the call is bcast there, and allreduce on rank 0", [&] {
      if (is_last) return shm::bcast(node, std::span(own), 0);
      shm::allreduce(node, std::span(own));
    });
    expect(shm::errc::invalid_argument, "lengths", [&] {
      std::vector<double> result(is_last ? 99 : 100);
      shm::allreduce(node, std::span<double const>(own), std::span(result));
    });
    RANK_CHECK(found, shm::allreduce(node, 2) == 6);
  });
}
