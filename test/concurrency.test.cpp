// What several threads of one process may do at once; meant for ThreadSanitizer.

#include <array>
#include <atomic>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "shm/shm.hpp"
#include "support/catch.hpp"
#include "support/ranks.hpp"

namespace {

using shm_test::findings;

/// Runs `body(number)` on `count` threads at once, and waits for them.
void on_threads(int count, std::function<void(int)> const& body) {
  std::vector<std::jthread> threads;
  for (int number = 0; number < count; ++number) threads.emplace_back(body, number);
}

}  // namespace

TEST_CASE("threads that each make and destroy groups and windows of their own do not meet") {
  std::atomic<int> wrong = 0;
  on_threads(2, [&](int number) {
    for (int round = 0; round < 100; ++round) {
      shm::communicator alone{shm::self_oob{}};
      shm::window<int> w(alone, 100 + round);
      w.local()[round] = number;
      w.fence();
      alone.barrier();
      if (std::as_const(w)[0][round] != number) ++wrong;
    }
  });
  CHECK(wrong == 0);
}

TEST_CASE("threads that each use windows of a group of their own do not meet") {
  shm_test::on_ranks(2, [](shm::group& node, findings& found) {
    std::array<shm::communicator<shm::group>, 2> groups{shm::communicator{node},
                                                        shm::communicator{node}};
    std::atomic<int> wrong = 0;
    on_threads(2, [&](int number) {
      auto& mine = groups[static_cast<std::size_t>(number)];
      for (int round = 0; round < 50; ++round) {
        shm::window<int> w(mine, 10);
        w.local()[3] = 1000 * number + round + mine.rank();
        w.fence();
        if (std::as_const(w)[1][3] != 1000 * number + round + 1) ++wrong;
        mine.barrier();
      }
    });
    RANK_CHECK(found, wrong == 0);
    node.barrier();
  });
}

TEST_CASE("a thread may post, another one wait, and a third one fence at the same time") {
  shm_test::on_ranks(2, [](shm::group& node, findings& found) {
    constexpr int rounds = 500;
    shm::window<int> w(node, rounds);
    int const peer = 1 - node.rank();
    std::atomic<int> wrong = 0;
    on_threads(3, [&](int number) {
      for (int i = 0; i < rounds; ++i) {
        auto const at = static_cast<std::size_t>(i);
        if (number == 0) {
          w[w.rank()][at] = i + 1;
          w.post(peer);
        } else if (number == 1) {
          w.wait(peer);
          if (w[peer][at] != i + 1) ++wrong;
        } else {
          w.fence();
        }
      }
    });
    RANK_CHECK(found, wrong == 0);
    RANK_CHECK(found, !w.try_wait(peer));
    node.barrier();
  });
}

TEST_CASE("any thread may read a window and ask about it while one is in its fences") {
  shm_test::on_ranks(2, [](shm::group& node, findings& found) {
    shm::window<int> w(node, 1000);
    w.local()[7] = 70 + node.rank();
    w.fence();
    auto const& read_only = w;
    std::atomic<int> wrong = 0;
    std::atomic<bool> is_over = false;
    std::vector<std::jthread> readers;
    for (int number = 0; number < 4; ++number) {
      readers.emplace_back([&] {
        while (!is_over) {
          int const peer = 1 - read_only.rank();
          bool const is_right =
              read_only[peer][7] == 70 + peer && read_only.at(peer).size() == 1000 &&
              read_only.local().size() == 1000 && read_only.size() == 2 && read_only.valid() &&
              read_only.page_size() > 0 && !read_only.residency().backend.empty() &&
              std::as_const(node).size() == 2;
          if (!is_right) ++wrong;
        }
      });
    }
    for (int round = 0; round < 200; ++round) w.fence();
    is_over = true;
    readers.clear();
    RANK_CHECK(found, wrong == 0);
    node.barrier();
  });
}

TEST_CASE("a thread may wait for posts while another one has plans under way") {
  shm_test::on_ranks(2, [](shm::group& node, findings& found) {
    constexpr int rounds = 100;
    shm::window<int> w(node, 1000);
    int const peer = 1 - node.rank();
    std::atomic<int> wrong = 0;
    on_threads(2, [&](int number) {
      if (number == 0) {
        for (int i = 0; i < rounds; ++i) {
          w.post(peer);
          w.wait(peer);
        }
        return;
      }
      shm::allreduce_plan plan(node, w.local());
      for (int i = 0; i < rounds; ++i) {
        w.local()[7] = 1;
        plan.start();
        plan.wait();
        if (w.local()[7] != 2) ++wrong;
        if (shm::allreduce(node, 1) != 2) ++wrong;
      }
    });
    RANK_CHECK(found, wrong == 0);
    node.barrier();
  });
}
