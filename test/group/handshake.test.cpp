#include "shm/group/handshake.hpp"

#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "shm/shm.hpp"
#include "support/catch.hpp"
#include "support/exits.hpp"
#include "support/faulty_oob.hpp"
#include "support/ranks.hpp"
#include "support/strangers.hpp"

using namespace shm;
using shm_test::contains;
using shm_test::failure_of;
using shm_test::fault;
using shm_test::faulty_oob;
using shm_test::findings;
using shm_test::lying_oob;
using shm_test::make_strangers;
using shm_test::notes;
using shm_test::on_ranks;

namespace {

constexpr unsigned hang_seconds = 20;  // ends a rank that would wait for ever

/// Whether all ranks of `node` have made the same number of collective calls so far.
bool is_in_step(group& node) {
  auto const own = static_cast<std::byte>(0xa0 + node.rank());
  std::vector<std::byte> all(static_cast<std::size_t>(node.size()));
  node.allgather(std::span(&own, 1), all);
  for (int rank = 0; rank < node.size(); ++rank) {
    if (all[static_cast<std::size_t>(rank)] != static_cast<std::byte>(0xa0 + rank)) return false;
  }
  return true;
}

/// Makes a group whose bootstrap fails on rank `failing` in call `at`; checks that all ranks get
/// the same error and have taken the same number of turns.
void check_fault(int ranks, int failing, fault how, int at, bool are_strangers = false,
                 std::optional<settings> given = {}) {
  notes texts(ranks);
  on_ranks(ranks, [&](group& node, findings& found) {
    ::alarm(hang_seconds);
    if (are_strangers) make_strangers(node);
    faulty_oob oob(node, node.rank() == failing ? how : fault::none, at);
    std::string text;
    try {
      communicator const made(oob, given);
    } catch (error const& e) {
      text = e.what();
      RANK_CHECK(found, e.details().cause == errc::bootstrap_failed);
      RANK_CHECK(found, e.rank() == failing);
      RANK_CHECK(found, e.is_agreed());
    }
    texts.write(node.rank(), text);
    RANK_CHECK(found, is_in_step(node));
  });
  INFO(ranks << " ranks, call " << at << " fails on rank " << failing << "\n" << texts.all());
  CHECK(texts.are_equal());
  CHECK(contains(texts.of(0), "call " + std::to_string(at) + " of the bootstrap fails on rank " +
                                  std::to_string(failing)));
}

}  // namespace

TEST_CASE("a first allgather that fails on a rank before its turn is an error on all") {
  for (int const ranks : {2, 3, 4}) {
    for (int const failing : {0, ranks - 1}) check_fault(ranks, failing, fault::before, 1);
  }
}

TEST_CASE("a first allgather that fails on a rank after its turn is an error on all") {
  for (int const ranks : {2, 3, 4}) {
    for (int const failing : {0, ranks - 1}) check_fault(ranks, failing, fault::after, 1);
  }
}

TEST_CASE("a second allgather that fails on a rank before its turn is an error on all") {
  for (int const failing : {0, 2}) check_fault(3, failing, fault::before, 2);
}

TEST_CASE("a second allgather that fails on a rank after its turn is an error on all") {
  for (int const ranks : {2, 3, 4}) {
    for (int const failing : {0, ranks - 1}) check_fault(ranks, failing, fault::after, 2);
  }
}

TEST_CASE("ranks that cannot open rank 0's descriptors are sent them, in a third allgather") {
  on_ranks(3, [](group& node, findings& found) {
    ::alarm(hang_seconds);
    make_strangers(node);
    faulty_oob oob(node);
    communicator made(oob);
    RANK_CHECK(found, oob.calls() == 3);
    made.barrier();
    RANK_CHECK(found, made.agree([&] { return made.rank(); }) == node.rank());
    RANK_CHECK(found, is_in_step(made));
  });
}

TEST_CASE("a first allgather that fails where descriptors would be sent is an error on all") {
  for (auto const how : {fault::before, fault::after}) {
    for (int const failing : {0, 2}) check_fault(3, failing, how, 1, true);
  }
}

TEST_CASE("a second allgather that fails where descriptors are to be sent is an error on all") {
  for (auto const how : {fault::before, fault::after}) {
    for (int const failing : {0, 2}) check_fault(3, failing, how, 2, true);
  }
}

TEST_CASE("a third allgather that fails where descriptors were sent is an error on all") {
  for (auto const how : {fault::before, fault::after}) {
    for (int const failing : {0, 2}) check_fault(3, failing, how, 3, true);
  }
}

TEST_CASE(
    "a second allgather that fails is an error on all though the first agreement has number 0") {
  check_fault(3, 2, fault::after, 2, false, settings{.first_number = 0xffffffffU});
}

TEST_CASE("a group can be made after one that failed") {
  on_ranks(3, [](group& node, findings& found) {
    ::alarm(hang_seconds);
    faulty_oob oob(node, node.rank() == 1 ? fault::after : fault::none, 1);
    RANK_CHECK(found, failure_of([&] { communicator const made(oob); }).is_failure());
    communicator made(oob);
    RANK_CHECK(found, is_in_step(made));
  });
}

TEST_CASE("an allgather that brings garbage on all ranks is a clear error on all") {
  on_ranks(3, [](group& node, findings& found) {
    ::alarm(hang_seconds);
    callback_oob oob(node.rank(), node.size(),
                     [&](std::span<std::byte const>, std::span<std::byte> all) {
                       node.barrier();
                       std::memset(all.data(), 0x77, all.size());
                     });
    auto const failed = failure_of([&] { communicator const made(oob); });
    RANK_CHECK(found, failed.cause == errc::bootstrap_failed);
    RANK_CHECK(found,
               contains(failed.subject.view(), "did not bring the message of rank 0 to its place"));
  });
}

TEST_CASE("an allgather that brings garbage to one rank alone is an error on all") {
  for (int const deceived : {0, 1}) {
    on_ranks(3, [&](group& node, findings& found) {
      ::alarm(hang_seconds);
      callback_oob oob(node.rank(), node.size(),
                       [&](std::span<std::byte const> mine, std::span<std::byte> all) {
                         node.allgather(mine, all);
                         if (node.rank() == deceived) std::memset(all.data(), 0x77, all.size());
                       });
      auto const failed = failure_of([&] { communicator const made(oob); });
      RANK_CHECK(found, failed.cause == errc::bootstrap_failed);
      RANK_CHECK(found, failed.rank == deceived);
      RANK_CHECK(found, is_in_step(node));
    });
  }
}

TEST_CASE("ranks that claim different sizes are a mismatch on all") {
  for (int const liar : {0, 2}) {
    for (int const claim : {2, 4}) {
      if (liar == 2 && claim == 2) continue;  // no rank 2 among two
      notes texts(3);
      on_ranks(3, [&](group& node, findings& found) {
        ::alarm(hang_seconds);
        lying_oob oob(node, node.rank(), node.rank() == liar ? claim : 3);
        std::string text;
        try {
          communicator const made(oob);
        } catch (error const& e) {
          text = e.details().subject.view();
          RANK_CHECK(found, e.details().cause == errc::mismatch);
        }
        texts.write(node.rank(), text);
        RANK_CHECK(found, is_in_step(node));
      });
      INFO(texts.all());
      CHECK(texts.are_equal());
      CHECK(contains(texts.of(0), "the number of ranks is"));
    }
  }
}

TEST_CASE("two processes that claim one rank are a clear error on all") {
  for (int const claim : {0, 1}) {
    on_ranks(3, [&](group& node, findings& found) {
      ::alarm(hang_seconds);
      lying_oob oob(node, node.rank() == 2 ? claim : node.rank(), 3);
      auto const failed = failure_of([&] { communicator const made(oob); });
      RANK_CHECK(found, failed.cause == errc::mismatch);
      RANK_CHECK(found, failed.rank == claim);
      RANK_CHECK(found, contains(failed.subject.view(), "two processes say that they are rank "));
      RANK_CHECK(found, is_in_step(node));
    });
  }
}
