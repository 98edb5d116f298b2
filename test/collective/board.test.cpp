#include "shm/collective/board.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "support/ranks.hpp"

using shm::detail::board;

TEST_CASE("what ranks announce in a step is there, step after step, also where numbers wrap") {
  for (std::uint32_t const first : {0U, std::numeric_limits<std::uint32_t>::max() - 2}) {
    for (std::size_t const bytes : {std::size_t{4}, std::size_t{112}, std::size_t{5000}}) {
      shm_test::on_all_rank_counts(
          [bytes](shm::group& node, shm_test::findings& found) {
            board steps(node, bytes, shm::operation::allreduce, {});
            int wrong = 0;
            for (int step = 0; step < 200; ++step) {
              steps.begin();
              int const mine = step * 10 + node.rank();
              std::memcpy(steps.data(node.rank()) + bytes - 4, &mine, sizeof mine);
              steps.announce();
              steps.segment().await_all(shm::operation::allreduce, {},
                                        [&](int r) { return steps.has_announced(r); });
              for (int r = 0; r < node.size(); ++r) {
                int theirs = 0;
                std::memcpy(&theirs, steps.data(r) + bytes - 4, sizeof theirs);
                wrong += theirs != step * 10 + r;
              }
            }
            RANK_CHECK(found, wrong == 0);
          },
          {{.first_number = first}});
    }
  }
}

TEST_CASE("nobody has announced or finished what has not begun") {
  for (std::uint32_t const first : {0U, std::numeric_limits<std::uint32_t>::max() - 1}) {
    shm_test::on_ranks(2,
                       [](shm::group& node, shm_test::findings& found) {
                         board steps(node, 8, shm::operation::allreduce, {});
                         node.barrier();
                         for (int step = 0; step < 5; ++step) {
                           steps.begin();
                           int const peer = 1 - node.rank();
                           RANK_CHECK(found, !steps.has_announced(node.rank()));
                           RANK_CHECK(found, !steps.has_finished(node.rank()));
                           RANK_CHECK(found, steps.has_finished(node.rank(), 1));
                           node.barrier();
                           RANK_CHECK(found, !steps.has_announced(peer));
                           RANK_CHECK(found, !steps.has_finished(peer));
                           node.barrier();
                           steps.announce();
                           node.barrier();
                           RANK_CHECK(found, steps.has_announced(peer));
                           RANK_CHECK(found, !steps.has_finished(peer));
                           node.barrier();
                           steps.finish();
                           node.barrier();
                           RANK_CHECK(found, steps.has_finished(peer));
                         }
                       },
                       {{.first_number = first}});
  }
}

TEST_CASE("data begins on 16 bytes, and small data lies in the line of its flag") {
  shm_test::on_ranks(3, [](shm::group& node, shm_test::findings& found) {
    board steps(node, 112, shm::operation::allreduce, {});
    steps.begin();
    for (int r = 0; r < 3; ++r) {
      auto const at = reinterpret_cast<std::uintptr_t>(steps.data(r));
      RANK_CHECK(found, at % shm::line_bytes == board::data_at);
    }
  });
}

TEST_CASE("what a rank brings as a failure is the failure of all") {
  shm_test::on_ranks(3, [](shm::group& node, shm_test::findings& found) {
    shm::failure cause;
    if (node.rank() == 1) {
      cause = {.cause = shm::errc::limit_reached, .subject = "a limit", .remedy = {}};
    }
    auto const text =
        shm_test::message_of([&] { board(node, 8, shm::operation::alltoall, cause); });
    RANK_CHECK(found, text.starts_with("shm: rank 1 of 3: alltoall: limit reached: a limit"));
    board(node, 8, shm::operation::alltoall, {});
  });
}
