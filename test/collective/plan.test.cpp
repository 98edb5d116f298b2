/// What all plans have in common, tried on one or two kinds.
#include "shm/collective/plan.hpp"

#include <signal.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "support/ranks.hpp"

namespace {

using shm_test::findings;

constexpr shm::collective_algorithm algorithms[] = {shm::collective_algorithm::automatic,
                                                    shm::collective_algorithm::staged,
                                                    shm::collective_algorithm::direct};

/// Settings in which every plan that has a choice takes `how`.
shm::settings with(shm::collective_algorithm how) {
  return {.allreduce = how, .bcast = how, .alltoall = how};
}

/// Runs `body` with every algorithm on 1 to 5 ranks.
void on_all(shm_test::rank_body const& body) {
  for (auto const how : algorithms) {
    for (int const ranks : {1, 2, 3, 4, 5}) shm_test::on_ranks(ranks, body, with(how));
  }
}

}  // namespace

static_assert(!std::is_copy_constructible_v<shm::bcast_plan<int>>);
static_assert(std::is_nothrow_move_constructible_v<shm::bcast_plan<int>>);
static_assert(std::is_nothrow_default_constructible_v<shm::allreduce_plan<int>>);

TEST_CASE("several plans on one window do not disturb each other, and start again at once") {
  on_all([](shm::group& node, findings& found) {
    shm::window<int> shared(node, 2000);
    auto const block = shared.local();
    shm::bcast_plan low(node, block.first(1000), 0);
    shm::bcast_plan high(node, block.last(1000), node.size() - 1);
    bool const is_low = node.rank() == 0;
    bool const is_high = node.rank() == node.size() - 1;
    int wrong = 0;
    for (int round = 1; round <= 500; ++round) {
      if (is_low) std::ranges::fill(block.first(1000), round);
      if (is_high) std::ranges::fill(block.last(1000), -round);
      low.start();
      high.start();
      high.wait();
      low.wait();
      wrong += std::ranges::count(block.first(1000), round) != 1000;
      wrong += std::ranges::count(block.last(1000), -round) != 1000;
      // The roots change their buffers right away.
      if (is_low) std::ranges::fill(block.first(1000), 0);
      if (is_high) std::ranges::fill(block.last(1000), 0);
    }
    RANK_CHECK(found, wrong == 0);
  });
}

TEST_CASE("each rank completes plans in an order of its own, with fences between") {
  on_all([](shm::group& node, findings& found) {
    shm::window<int> shared(node, 600);
    auto const part = [&](std::size_t at) { return shared.local().subspan(at * 200, 200); };
    shm::allreduce_plan first(node, part(0));
    shm::bcast_plan second(node, part(1), 0);
    shm::allreduce_plan third(node, part(2), shm::op::max{});
    for (int round = 0; round < 30; ++round) {
      std::ranges::fill(shared.local(), node.rank() + round);
      first.start();
      second.start();
      third.start();
      std::function<void()> const waits[] = {[&] { first.wait(); }, [&] { second.wait(); },
                                             [&] { third.wait(); }};
      bool const is_fence_first = (node.rank() + round) % 2 == 0;
      if (is_fence_first) shared.fence();
      for (int i = 0; i < 3; ++i) waits[(node.rank() + round + i) % 3]();
      if (!is_fence_first) shared.fence();
      int const n = node.size();
      RANK_CHECK(found, part(0)[199] == n * (n - 1) / 2 + round * n);
      RANK_CHECK(found, part(1)[199] == round);
      RANK_CHECK(found, part(2)[199] == n - 1 + round);
      node.barrier();
    }
  });
}

TEST_CASE("plans of two groups are completed in different orders") {
  on_all([](shm::group& node, findings& found) {
    shm::communicator other(node);
    shm::window<int> here(node, 600);
    shm::window<int> there(other, 600);
    shm::allreduce_plan first(node, here.local());
    shm::allreduce_plan second(other, there.local());
    for (int round = 0; round < 30; ++round) {
      std::ranges::fill(here.local(), 1);
      std::ranges::fill(there.local(), 2);
      first.start();
      second.start();
      if (node.rank() % 2 == 0) {
        first.wait();
        second.wait();
      } else {
        second.wait();
        other.barrier();
        first.wait();
      }
      if (node.rank() % 2 == 0) other.barrier();
      RANK_CHECK(found, here.local()[599] == node.size());
      RANK_CHECK(found, there.local()[599] == 2 * node.size());
    }
  });
}

TEST_CASE("a started plan lets a rank work until it asks, and completes by asking") {
  on_all([](shm::group& node, findings& found) {
    shm::window<long> shared(node, 3000);
    shm::window<long> sums(node, 3000);
    shm::allreduce_plan plan(node, shared.local(), sums.local());
    RANK_CHECK(found,
               shm_test::failure_of([&] { plan.wait(); }).cause == shm::errc::invalid_argument);
    RANK_CHECK(found, shm_test::failure_of([&] { static_cast<void>(plan.test()); }).cause ==
                          shm::errc::invalid_argument);
    for (int round = 0; round < 50; ++round) {
      std::ranges::fill(shared.local(), node.rank() + round);
      plan.start();
      if (round % 3 == node.rank() % 3) node.barrier();  // what is under way is nobody's concern
      if (round % 2 == 0) {
        while (!plan.test()) {
        }
      } else {
        plan.wait();
      }
      if (round % 3 != node.rank() % 3) node.barrier();
      long const wanted = node.size() * (node.size() - 1) / 2 + long{round} * node.size();
      RANK_CHECK(found, std::ranges::count(sums.local(), wanted) == 3000);
      RANK_CHECK(found, plan.test());
      plan.wait();
    }
  });
}

TEST_CASE("what starts a plan never waits") {
  shm_test::on_ranks(2, [](shm::group& node, findings& found) {
    shm::window<int> shared(node, 10);
    shm::allreduce_plan plan(node, shared.local());
    if (node.rank() == 0) {
      plan.start();
      RANK_CHECK(found, !plan.test());  // the other one waits for the post
      shared.post(1);
    } else {
      shared.wait(0);
      plan.start();
    }
    plan.wait();
  });
}

TEST_CASE("counters of plans wrap around") {
  for (auto const how : algorithms) {
    auto settings = with(how);
    settings.first_number = std::numeric_limits<std::uint32_t>::max() - 3;
    for (int const ranks : {1, 2, 3, 4}) {
      shm_test::on_ranks(
          ranks,
          [](shm::group& node, findings& found) {
            auto const n = static_cast<std::size_t>(node.size());
            shm::window<int> send(node, 64 * n);
            shm::window<int> receive(node, 64 * n);
            shm::allreduce_plan sum(node, send.local(), receive.local());
            shm::bcast_plan copy(node, send.local().first(32), 0);
            shm::alltoall_plan exchange(node, send.local(), receive.local());
            shm::allgather_plan gather(node, send.local().first(64), receive.local());
            shm::reduce_scatter_plan scatter(node, send.local(), receive.local().first(64));
            for (int round = 0; round < 10; ++round) {
              std::ranges::fill(send.local(), node.rank() + round);
              int const total = node.size() * (node.size() - 1) / 2 + round * node.size();
              sum.start();
              sum.wait();
              RANK_CHECK(found,
                         std::ranges::count(receive.local(), total) == std::ssize(receive.local()));
              exchange.start();
              exchange.wait();
              RANK_CHECK(found, receive.local().back() == node.size() - 1 + round);
              gather.start();
              gather.wait();
              RANK_CHECK(found, receive.local().back() == node.size() - 1 + round);
              scatter.start();
              scatter.wait();
              RANK_CHECK(found, receive.local().front() == total);
              copy.start();
              copy.wait();
              RANK_CHECK(found, std::ranges::count(send.local().first(32), round) == 32);
              RANK_CHECK(found, shm::allreduce(node, round + node.rank()) == total);
              RANK_CHECK(found, shm::bcast(node, node.rank(), 0) == 0);
            }
          },
          settings);
    }
  }
}

TEST_CASE("a plan keeps its windows alive, and moves") {
  on_all([](shm::group& node, findings& found) {
    shm::allreduce_plan<int> plan;
    RANK_CHECK(found, !plan.valid());
    std::span<int> result;
    {
      shm::window<int> send(node, 100);
      shm::window<int> receive(node, 100);
      std::ranges::fill(send.local(), 1);
      result = receive.local();
      plan = shm::allreduce_plan(node, send.local(), receive.local());
    }
    plan.start();
    auto moved = std::move(plan);
    moved.wait();
    RANK_CHECK(found, std::ranges::count(result, node.size()) == 100);
    RANK_CHECK(found, !plan.valid());
    RANK_CHECK(found, shm_test::failure_of([&] { plan.start(); }).cause == shm::errc::empty);
    RANK_CHECK(found, shm_test::failure_of([&] { plan.wait(); }).cause == shm::errc::empty);
  });
}

TEST_CASE("starting a plan that is under way is refused, and does no harm") {
  on_all([](shm::group& node, findings& found) {
    shm::window<int> shared(node, 10);
    std::ranges::fill(shared.local(), 2);
    shm::allreduce_plan plan(node, shared.local());
    plan.start();
    RANK_CHECK(found,
               shm_test::failure_of([&] { plan.start(); }).cause == shm::errc::invalid_argument);
    plan.wait();
    RANK_CHECK(found, shared.local()[9] == 2 * node.size());
  });
}

TEST_CASE("who destroys a started plan leaves the others with an error, not waiting") {
  for (bool const is_asked : {false, true}) {
    for (int const ranks : {2, 3, 4}) {
      shm_test::on_ranks(
          ranks,
          [is_asked](shm::group& node, findings& found) {
            shm::window<int> shared(node, 100);
            int const last = node.size() - 1;
            std::optional<shm::allreduce_plan<int>> plan(std::in_place, node, shared.local());
            plan->start();
            if (node.rank() == last) {
              plan.reset();
            } else {
              auto const failed = shm_test::failure_of([&] {
                while (is_asked && !plan->test()) {
                }
                plan->wait();
              });
              RANK_CHECK(found, failed.cause == shm::errc::peer_left && failed.rank == last);
              RANK_CHECK(found, shm_test::failure_of([&] { plan->start(); }).cause ==
                                    shm::errc::peer_left);
            }
            // The group itself goes on.
            RANK_CHECK(found, shm::allreduce(node, 1) == node.size());
            node.barrier();
          },
          with(shm::collective_algorithm::direct));
    }
  }
}

TEST_CASE("what a rank has sent before it leaves is received") {
  for (auto const how : algorithms) {
    shm_test::on_ranks(
        2,
        [](shm::group& node, findings& found) {
          shm::window<int> shared(node, 10);
          shm::window<int> flags(node, 1);
          std::optional<shm::bcast_plan<int>> plan(std::in_place, node, shared.local(), 0);
          if (node.rank() == 0) std::ranges::fill(shared.local(), 7);
          plan->start();
          if (node.rank() == 0) plan.reset();  // started, not completed
          node.barrier();
          if (node.rank() == 1) plan->wait();
          RANK_CHECK(found, shared.local()[9] == 7);
          node.barrier();
        },
        with(how));
  }
}

TEST_CASE("the death of a rank ends the operations of the others with one error") {
  for (auto const how : algorithms) {
    for (int const lost : {0, 2}) {
      shm_test::on_ranks_losing(
          lost, 3,
          [lost](shm::group& node, findings& found) {
            shm::window<int> shared(node, 100);
            shm::allreduce_plan plan(node, shared.local());
            plan.start();
            plan.wait();
            if (node.rank() == lost) ::raise(SIGKILL);
            plan.start();
            auto const failed = shm_test::failure_of([&] {
              if (node.rank() == 1) return plan.wait();
              while (!plan.test()) {
              }
            });
            RANK_CHECK(found, failed.cause == shm::errc::peer_lost && failed.rank == lost);
            auto const later = shm_test::failure_of([&] { plan.start(); });
            RANK_CHECK(found, later.cause == shm::errc::peer_lost && later.rank == lost);
            auto const more =
                shm_test::failure_of([&] { static_cast<void>(shm::allreduce(node, 1)); });
            RANK_CHECK(found, more.cause == shm::errc::peer_lost && more.rank == lost);
          },
          with(how));
    }
  }
}

TEST_CASE("a bcast goes on without a receiver that has left, and ends for all with one that died") {
  for (auto const how : algorithms) {
    shm_test::on_ranks(
        3,
        [](shm::group& node, findings& found) {
          shm::window<int> shared(node, 100);
          std::optional<shm::bcast_plan<int>> plan(std::in_place, node, shared.local(), 0);
          if (node.rank() == 2) plan.reset();
          for (int round = 0; node.rank() != 2 && round < 20; ++round) {
            if (node.rank() == 0) std::ranges::fill(shared.local(), round);
            plan->start();
            plan->wait();
            RANK_CHECK(found, std::ranges::count(shared.local(), round) == 100);
          }
          node.barrier();
        },
        with(how));
    for (bool const is_asked : {false, true}) {
      shm_test::on_ranks_losing(
          2, 3,
          [is_asked](shm::group& node, findings& found) {
            shm::window<int> shared(node, 100);
            shm::bcast_plan plan(node, shared.local(), 0);
            if (node.rank() == 2) ::raise(SIGKILL);
            // The root finds out, and goes no further; the other one waits for nobody but the root.
            auto const failed = shm_test::failure_of([&] {
              for (;;) {
                plan.start();
                if (!is_asked) plan.wait();
                while (!plan.test()) {
                }
              }
            });
            RANK_CHECK(found, failed.cause == shm::errc::peer_lost && failed.rank == 2);
          },
          with(how));
    }
  }
}

TEST_CASE("a death ends a wait for ranks that have given up before it") {
  // Rank 2 dies in the barrier's place of the order, having arrived there, before its part of the
  // plan is done; rank 0 waits for the plan first, rank 1 for the barrier.
  shm_test::on_ranks_losing(
      2, 3,
      [](shm::group& node, findings& found) {
        shm::window<int> shared(node, 1000);
        shm::allreduce_plan plan(node, shared.local());
        plan.start();
        if (node.rank() == 2) {
          auto& line = node.state()->block().line(2);
          shm::sync::store(line.arrived, line.arrived + 1);
          ::raise(SIGKILL);
        }
        auto const failed = shm_test::failure_of([&] {
          if (node.rank() == 1) node.barrier();
          plan.wait();
        });
        RANK_CHECK(found, failed.cause == shm::errc::peer_lost && failed.rank == 2);
      },
      with(shm::collective_algorithm::direct));
}

TEST_CASE("asking a plan in a lost group is an error at once") {
  shm_test::on_ranks_losing(
      2, 3,
      [](shm::group& node, findings& found) {
        shm::window<int> shared(node, 100);
        shm::allreduce_plan plan(node, shared.local());
        if (node.rank() == 0) plan.start();
        if (node.rank() == 2) {
          plan.start();
          ::raise(SIGKILL);
        }
        RANK_CHECK(found, shm_test::failure_of([&] { node.barrier(); }).rank == 2);
        if (node.rank() != 0) return;
        RANK_CHECK(found, shm_test::failure_of([&] {
                            while (!plan.test()) {
                            }
                          }).cause == shm::errc::peer_lost);
      },
      with(shm::collective_algorithm::staged));
}

TEST_CASE("a rank that fails before it starts gives its error to those that wait for it") {
  for (auto const how : algorithms) {
    for (int const failing : {0, 2}) {
      shm_test::on_ranks(
          3,
          [failing](shm::group& node, findings& found) {
            shm::window<int> shared(node, 100);
            auto const text = shm_test::message_of([&] {
              shm::allreduce_plan plan(node, shared.local());
              node.agree([&] {
                if (node.rank() == failing) throw std::runtime_error("the disk is full");
                plan.start();
                plan.wait();
              });
            });
            RANK_CHECK(found, text.find("the disk is full") != std::string::npos);
            RANK_CHECK(found, text.starts_with("shm: rank " + std::to_string(failing)));
            // The group goes on.
            shm::allreduce_plan plan(node, shared.local());
            std::ranges::fill(shared.local(), 1);
            plan.start();
            plan.wait();
            RANK_CHECK(found, shared.local()[99] == 3);
            node.barrier();
          },
          with(how));
    }
  }
}

TEST_CASE("a plan that some ranks have started before an agreed error is refused by all") {
  for (auto const how : algorithms) {
    shm_test::on_ranks(
        3,
        [](shm::group& node, findings& found) {
          shm::window<int> shared(node, 100);
          auto const low = shared.local().first(50);
          auto const high = shared.local().last(50);
          shm::bcast_plan copy(node, low, 0);
          shm::allreduce_plan sum(node, high);
          shm::allreduce_plan under_way(node, shared.local().subspan(50, 0));
          under_way.start();
          auto const text = shm_test::message_of([&] {
            node.agree([&] {
              if (node.rank() == 2) throw std::runtime_error("boom");
              copy.start();
              copy.wait();
              sum.start();
              sum.wait();
            });
          });
          RANK_CHECK(found, text.find("boom") != std::string::npos);
          under_way.wait();  // what all have started completes
          auto const is_refused = [](auto& plan) {
            return shm_test::message_of([&] { plan.start(); }).find("make the plan anew") !=
                   std::string::npos;
          };
          RANK_CHECK(found, is_refused(copy));
          RANK_CHECK(found, is_refused(sum));
          if (node.rank() == 1) {
            RANK_CHECK(found,
                       shm_test::message_of([&] { sum.wait(); }).find("anew") != std::string::npos);
          }
          shm::bcast_plan again(node, low, 0);
          for (int round = 0; round < 5; ++round) {
            if (node.rank() == 0) std::ranges::fill(low, round);
            again.start();
            again.wait();
            RANK_CHECK(found, std::ranges::count(low, round) == 50);
          }
          node.barrier();
          RANK_CHECK(found, shm::allreduce(node, 1) == 3);
        },
        with(how));
  }
}

TEST_CASE("an agreed error before which all have started the same leaves plans as they are") {
  shm_test::on_ranks(3, [](shm::group& node, findings& found) {
    shm::window<int> shared(node, 100);
    shm::allreduce_plan sum(node, shared.local());
    sum.start();
    RANK_CHECK(found, !shm_test::message_of([&] {
                         node.agree([&] {
                           if (node.rank() == 1) throw std::runtime_error("boom");
                         });
                       }).empty());
    sum.wait();
    sum.start();
    sum.wait();
    RANK_CHECK(found, shm::allreduce(node, 1) == 3);
  });
}

TEST_CASE("what a failing rank's function has made is gone, and its error is that of all") {
  for (int const failing : {0, 2}) {
    for (int const when : {0, 1, 2}) {
      shm_test::on_ranks(3, [&](shm::group& node, findings& found) {
        for (int round = 0; round < 2; ++round) {
          auto const text = shm_test::message_of([&] {
            node.agree([&] {
              shm::window<int> shared(node, 5000);
              auto const fail = [&](int at) {
                if (when == at && node.rank() == failing) throw std::runtime_error("boom");
              };
              fail(0);
              shared.fence();
              shm::allreduce_plan sum(node, shared.local());
              fail(1);
              sum.start();
              fail(2);
              sum.wait();
              shared.fence();
            });
          });
          RANK_CHECK(found, text.find("boom") != std::string::npos);
          node.barrier();
          RANK_CHECK(found, shm::allreduce(node, 1) == 3);
        }
      });
    }
  }
}

TEST_CASE("ranks that ask different plans, or for posts, do the work of the others") {
  shm_test::on_ranks(
      2,
      [](shm::group& node, findings& found) {
        shm::window<int> shared(node, 20'000);
        shm::allreduce_plan first(node, shared.local().first(10'000));
        shm::allreduce_plan second(node, shared.local().last(10'000));
        for (int round = 0; round < 20; ++round) {
          first.start();
          second.start();
          auto& mine = node.rank() == 0 ? first : second;
          auto& other = node.rank() == 0 ? second : first;
          while (!mine.test()) {
          }
          while (!other.test()) {
          }
          first.start();
          if (node.rank() == 0) {
            while (!shared.try_wait(1)) {
            }
            first.wait();
          } else {
            first.wait();
            shared.post(0);
          }
        }
        RANK_CHECK(found, node.valid());
        node.barrier();
      },
      with(shm::collective_algorithm::direct));
}

TEST_CASE("ranks that start different things find each other out") {
  for (bool const is_private : {false, true}) {
    shm_test::on_ranks(3, [is_private](shm::group& node, findings& found) {
      shm::window<int> shared(node, 100);
      shm::allreduce_plan first(node, shared.local().first(10));
      shm::allreduce_plan second(node, shared.local().last(10));
      RANK_CHECK(found, shm::allreduce(node, 1) == 3);
      auto const failed = shm_test::failure_of([&] {
        if (node.rank() != 1) {
          first.start();
          return first.wait();
        }
        if (is_private) return void(shm::allreduce(node, 1));
        second.start();
        second.wait();
      });
      RANK_CHECK(found, failed.cause == shm::errc::mismatch);
      for (int r = 0; r < 3; ++r) shared.post(r);
      for (int r = 0; r < 3; ++r) shared.wait(r);
    });
  }
}

TEST_CASE("a window that is read-only on a rank is no place for results that it writes") {
  shm_test::on_ranks(2, [](shm::group& node, findings& found) {
    shm::window<int> send(node, 5000);
    shm::window<int> results(node, 5000);
    auto const to = results.local();
    std::optional<shm::window<int const>> frozen;
    if (node.rank() == 1) frozen = std::move(results).freeze();
    auto const text =
        shm_test::message_of([&] { shm::allreduce_plan plan(node, send.local(), to); });
    RANK_CHECK(found, text.find("is read-only in this process") != std::string::npos);
    RANK_CHECK(found, text.starts_with("shm: rank 1 of 2"));
    if (frozen) {
      shm::bcast_plan plan(node, send.local(), 1);
    } else {
      shm::bcast_plan plan(node, send.local(), 1);
    }
  });
}

TEST_CASE("a window that a plan keeps is left by those that destroy it") {
  shm_test::on_ranks(2, [](shm::group& node, findings& found) {
    std::optional<shm::window<int>> shared(std::in_place, node, 100);
    shm::allreduce_plan plan(node, shared->local());
    if (node.rank() == 1) {
      shared.reset();
    } else {
      RANK_CHECK(found,
                 shm_test::failure_of([&] { shared->fence(); }).cause == shm::errc::peer_left);
    }
    plan.start();
    plan.wait();
    node.barrier();
  });
}

TEST_CASE("arguments that do not go together are one error on all ranks, and the group goes on") {
  for (int const ranks : {2, 3, 5}) {
    shm_test::on_ranks(ranks, [](shm::group& node, findings& found) {
      shm::window<double> shared(node, 1000);
      auto const block = shared.local();
      int const last = node.size() - 1;
      bool const is_last = node.rank() == last;
      std::vector<double> own(1000);
      auto const all_get = [&](shm::errc cause, int rank, std::string const& words,
                               std::function<void()> const& plan) {
        auto const text = shm_test::message_of(plan);
        auto const failed = shm_test::failure_of(plan);
        RANK_CHECK(found, failed.cause == cause);
        RANK_CHECK(found, failed.rank == rank);
        RANK_CHECK(found, text.find(words) != std::string::npos);
        auto const digest = static_cast<std::uint64_t>(std::hash<std::string>{}(text));
        auto const all = shm::allgather(node, digest);
        RANK_CHECK(found, std::ranges::count(all, digest) == node.size());
      };
      using enum shm::errc;
      all_get(mismatch, last, "the count of elements",
              [&] { shm::allreduce_plan plan(node, block.first(is_last ? 9 : 10)); });
      all_get(mismatch, last, "the type with the operation", [&] {
        if (is_last) return void(shm::allreduce_plan(node, block, shm::op::max{}));
        shm::allreduce_plan plan(node, block);
      });
      all_get(mismatch, last, "the call is bcast there, and allreduce on rank 0", [&] {
        if (is_last) return void(shm::bcast_plan(node, block, 0));
        shm::allreduce_plan plan(node, block);
      });
      all_get(mismatch, last, "the root is",
              [&] { shm::bcast_plan plan(node, block, is_last ? 1 : 0); });
      all_get(invalid_argument, last, "does not begin in a live window",
              [&] { shm::allreduce_plan plan(node, is_last ? std::span(own) : block); });
      all_get(invalid_argument, last, "ends outside of the block", [&] {
        shm::allreduce_plan plan(node, std::span(block.data() + (is_last ? 1 : 0), 1000));
      });
      all_get(invalid_argument, last, "elements are sent and", [&] {
        shm::allreduce_plan plan(node, block.first(10), block.last(is_last ? 11 : 10));
      });
      all_get(invalid_argument, 0, "the root is 99",
              [&] { shm::bcast_plan plan(node, block, 99); });
      all_get(invalid_argument, 0, "overlaps",
              [&] { shm::allreduce_plan plan(node, block.first(10), block.subspan(5, 10)); });
      all_get(invalid_argument, 0, "overlaps", [&] {
        shm::alltoall_plan plan(node, block.first(static_cast<std::size_t>(node.size())),
                                shared[0].last(static_cast<std::size_t>(node.size())));
      });
      shm::allreduce_plan plan(node, block.first(3));
      std::ranges::fill(block, 1.0);
      plan.start();
      plan.wait();
      RANK_CHECK(found, block[2] == node.size());
    });
  }
}

TEST_CASE("a window that one rank has given up cannot be planned with") {
  shm_test::on_ranks(3, [](shm::group& node, findings& found) {
    shm::window<int> kept(node, 10);
    std::optional<shm::window<int>> given_up(std::in_place, node, 10);
    if (node.rank() == 2) given_up.reset();
    // Rank 2 sends in another one, so that only its view of the others' is missing.
    auto const buffer = node.rank() == 2 ? kept.local() : given_up->local();
    auto const failed = shm_test::failure_of([&] { shm::allreduce_plan plan(node, buffer); });
    RANK_CHECK(found, failed.cause == shm::errc::invalid_argument && failed.rank == 2);
    RANK_CHECK(found, shm::allreduce(node, 1) == 3);
  });
}

TEST_CASE("an invalid group cannot plan") {
  shm::group none;
  std::vector<int> own(4);
  CHECK(shm_test::failure_of([&] { shm::allreduce_plan plan(none, std::span(own)); }).cause ==
        shm::errc::empty);
  CHECK(shm_test::failure_of([&] {
          shm::alltoall_plan plan(none, std::span(own), std::span(own));
        }).cause == shm::errc::empty);
  CHECK(shm_test::failure_of([&] { static_cast<void>(shm::allreduce(none, 1)); }).cause ==
        shm::errc::empty);
  CHECK(shm_test::failure_of([&] { shm::bcast(none, std::span(own), 0); }).cause ==
        shm::errc::empty);
}

TEST_CASE("plans leave no mapping and no descriptor behind") {
  shm_test::on_ranks(2, [](shm::group& node, findings& found) {
    shm::window<int> shared(node, 1000);
    auto const holdings = [] {
      return std::ranges::count(shm::os::read_kernel_file("/proc/self/maps"), '\n');
    };
    long before = 0;
    for (int i = 0; i < 200; ++i) {
      shm::allreduce_plan plan(node, shared.local());
      plan.start();
      plan.wait();
      if (i == 10) before = holdings();
    }
    RANK_CHECK(found, holdings() <= before);
  });
}
