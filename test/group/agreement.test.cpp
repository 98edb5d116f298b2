#include "shm/group/agreement.hpp"

#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>

#include "shm/shm.hpp"
#include "support/catch.hpp"
#include "support/exits.hpp"
#include "support/ranks.hpp"

using namespace shm;
using detail::agreement;
using detail::decision;
using detail::proposal;
using shm_test::contains;
using shm_test::findings;
using shm_test::notes;
using shm_test::on_all_rank_counts;
using shm_test::on_ranks;
using shm_test::on_ranks_losing;

namespace {

/// Votes for this rank in the next epoch as an agreement does, but looks at no decision.
void cast_vote_only(detail::group_state& state) {
  auto const epoch = state.epoch() + 1;
  auto& ballot = state.block().ballot_of(state.rank(), epoch);
  ballot.where = operation::agree;
  ballot.arguments = {};
  ballot.cause = {};
  sync::store(ballot.epoch, epoch);
}

/// The last epoch that is decided.
std::uint32_t decided_epoch(detail::group_state& state) {
  std::uint32_t last = state.epoch() - 1;
  for (auto& decision : state.header().decisions) {
    auto const epoch = static_cast<std::uint32_t>(sync::load(decision) >> 32);
    if (shm::reached(epoch, last)) last = epoch;
  }
  return last;
}

}  // namespace

TEST_CASE("a decision keeps its epoch, kind and rank in 64 bits") {
  auto const word = decision::encode(0xfedcba98U, decision::kind::dead, 0x7654321);
  CHECK(word >> 32 == 0xfedcba98U);
  CHECK(decision::decode(word).is == decision::kind::dead);
  CHECK(decision::decode(word).rank == 0x7654321);
}

TEST_CASE("all ranks that vote without a failure succeed") {
  on_all_rank_counts([](group& node, findings& found) {
    for (int i = 0; i < 100; ++i) {
      RANK_CHECK(found, !agreement(*node.state()).settle({.where = operation::agree}));
    }
  });
}

TEST_CASE("only rank 0 prepares, and all ranks see what it wrote") {
  on_all_rank_counts([](group& node, findings& found) {
    auto& state = *node.state();
    for (std::uint64_t i = 1; i <= 100; ++i) {
      bool ran = false;
      agreement vote(state);
      auto const failed = vote.settle({.where = operation::agree}, [&] {
        ran = true;
        state.header().notice.page_bytes = i;
      });
      RANK_CHECK(found, !failed);
      RANK_CHECK(found, ran == (node.rank() == 0));
      RANK_CHECK(found, state.header().notice.page_bytes == i);
      RANK_CHECK(found, !agreement(state).settle({.where = operation::agree}));
    }
  });
}

TEST_CASE("rank 0 does not prepare where any rank has failed") {
  on_all_rank_counts([](group& node, findings& found) {
    bool ran = false;
    proposal mine{.where = operation::agree};
    if (node.rank() == node.size() - 1) mine.cause = {.cause = errc::no_space};
    auto const failed = agreement(*node.state()).settle(mine, [&] { ran = true; });
    RANK_CHECK(found, failed && failed->details().cause == errc::no_space);
    RANK_CHECK(found, failed && failed->rank() == node.size() - 1);
    RANK_CHECK(found, !ran);
  });
}

TEST_CASE("rank 0 does not prepare where the ranks' arguments differ") {
  on_ranks(3, [](group& node, findings& found) {
    std::string_view const names[] = {"the colour"};
    bool ran = false;
    proposal const mine{
        .where = operation::agree, .arguments = {node.rank() == 2 ? 7U : 5U}, .equal = names};
    auto const failed = agreement(*node.state()).settle(mine, [&] { ran = true; });
    RANK_CHECK(found, failed && failed->details().cause == errc::mismatch);
    RANK_CHECK(found, failed && failed->rank() == 2);
    RANK_CHECK(found, failed && contains(failed->what(), "the colour is 7 there, and 5 on rank 0"));
    RANK_CHECK(found, !ran);
  });
}

TEST_CASE("arguments that need not be equal may differ") {
  on_ranks(3, [](group& node, findings& found) {
    std::string_view const names[] = {"the colour"};
    auto const own = static_cast<std::uint64_t>(node.rank());
    proposal const mine{.where = operation::agree, .arguments = {1, own}, .equal = names};
    RANK_CHECK(found, !agreement(*node.state()).settle(mine));
  });
}

TEST_CASE("the first rank that differs from rank 0 is named") {
  on_ranks(4, [](group& node, findings& found) {
    std::string_view const names[] = {"one", "other"};
    auto const odd = node.rank() >= 2 ? 1U : 0U;
    proposal const mine{.where = operation::agree, .arguments = {4, odd}, .equal = names};
    auto const failed = agreement(*node.state()).settle(mine);
    RANK_CHECK(found, failed && failed->rank() == 2);
    RANK_CHECK(found, failed && contains(failed->what(), "other is 1"));
  });
}

TEST_CASE("a failure on a rank goes before a difference on another") {
  on_ranks(3, [](group& node, findings& found) {
    std::string_view const names[] = {"one"};
    proposal mine{
        .where = operation::agree, .arguments = {node.rank() == 1 ? 1U : 0U}, .equal = names};
    if (node.rank() == 2) mine.cause = {.cause = errc::limit_reached};
    auto const failed = agreement(*node.state()).settle(mine);
    RANK_CHECK(found, failed && failed->details().cause == errc::limit_reached);
  });
}

TEST_CASE("what rank 0 throws while it prepares becomes the error of all") {
  notes texts(4);
  on_ranks(4, [&](group& node, findings& found) {
    auto const failed = agreement(*node.state()).settle({.where = operation::agree}, [] {
      throw error({.cause = errc::no_space, .subject = "64 GiB"});
    });
    RANK_CHECK(found, failed && failed->details().cause == errc::no_space);
    RANK_CHECK(found, failed && failed->rank() == 0);
    if (failed) texts.write(node.rank(), failed->what());
    auto const other = agreement(*node.state()).settle({.where = operation::agree}, [] {
      throw std::length_error("too long");
    });
    RANK_CHECK(found, other && contains(other->what(), "too long"));
    RANK_CHECK(found, !agreement(*node.state()).settle({.where = operation::agree}));
  });
  INFO(texts.all());
  CHECK(texts.are_equal());
}

TEST_CASE("a rank that votes and then dies has voted") {
  on_ranks_losing(1, 3, [](group& node, findings& found) {
    if (node.rank() == 1) {
      cast_vote_only(*node.state());
      ::raise(SIGKILL);
    }
    RANK_CHECK(found, !agreement(*node.state()).settle({.where = operation::agree}));
    auto const failed = agreement(*node.state()).settle({.where = operation::agree});
    RANK_CHECK(found, failed && failed->details().cause == errc::peer_lost);
    RANK_CHECK(found, failed && failed->rank() == 1);
  });
}

TEST_CASE("a rank 0 that votes and dies before it decides is lost to all others") {
  on_ranks_losing(0, 4, [](group& node, findings& found) {
    if (node.rank() == 0) {
      cast_vote_only(*node.state());
      ::raise(SIGKILL);
    }
    auto const failed = agreement(*node.state()).settle({.where = operation::agree});
    RANK_CHECK(found, failed && failed->details().cause == errc::peer_lost);
    RANK_CHECK(found, failed && failed->rank() == 0);
  });
}

TEST_CASE("a rank that reads a decision late gets it, though the next one was set meanwhile") {
  // Rank 1 has voted, and is then not run for long. The others decide, and go on to the next
  // agreement, for which rank 2 does not come.
  on_ranks(4, [](group& node, findings& found) {
    ::alarm(15);  // ends a rank that would wait for ever
    auto& state = *node.state();
    auto const first = state.epoch() + 1;
    if (node.rank() == 1) {
      cast_vote_only(state);
      auto const patience = std::chrono::steady_clock::now() + std::chrono::seconds(1);
      // where a late rank is waited for, nothing more is decided: go on then
      while (decided_epoch(state) != first + 1 && std::chrono::steady_clock::now() < patience) {
        std::this_thread::yield();
      }
      RANK_CHECK(found, !agreement(state).settle({.where = operation::agree}));
    } else {
      RANK_CHECK(found, !agreement(state).settle({.where = operation::agree}));
      if (node.rank() == 2) {
        state.leave();
        return;
      }
    }
    auto const failed = agreement(state).settle({.where = operation::agree});
    RANK_CHECK(found, failed && failed->details().cause == errc::peer_left);
    RANK_CHECK(found, failed && failed->rank() == 2);
  });
}

namespace {

/// Agrees ten times, every second time on a failure of the last rank.
void agree_ten_times(group& node, findings& found) {
  ::alarm(15);  // ends a rank that would wait for ever
  auto& state = *node.state();
  for (std::uint64_t i = 1; i <= 10; ++i) {
    proposal mine{.where = operation::agree};
    bool const fails = i % 2 == 0;
    if (fails && node.rank() == node.size() - 1) mine.cause = {.cause = errc::no_space};
    auto const failed =
        agreement(state).settle(mine, [&] { state.header().notice.page_bytes = i; });
    RANK_CHECK(found, failed.has_value() == fails);
    RANK_CHECK(found, state.header().notice.page_bytes == (fails ? i - 1 : i));
  }
}

}  // namespace

TEST_CASE("agreements go on when their epochs wrap around") {
  for (auto const first : {0xfffffffbU, 0xfffffffcU, 0xfffffffdU, 0xfffffffeU}) {
    on_all_rank_counts(agree_ten_times, settings{.first_number = first});
  }
}
