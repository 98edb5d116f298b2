#include "shm/sync/signal.hpp"

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

#include "support/catch.hpp"
#include "support/pairs.hpp"
#include "support/threads.hpp"

using namespace std::chrono_literals;
using namespace shm;
using shm_test::datum;
using shm_test::fake_roll;
using shm_test::on_threads;
using sync::absence;
using sync::signals;
using sync::standing;

namespace {

constexpr auto how = sync::patience::with_shared_processor();
constexpr int thread_counts[] = {1, 2, 3, 4, 8};

using peer_list = std::vector<int>;

/// The shared words of the signals of all pairs, as if every pair had posted `first` times.
struct shared_words : shm_test::shared_pairs {
  explicit shared_words(int ranks_wanted, std::uint32_t first_count = 0)
      : shared_pairs(ranks_wanted, first_count), first(first_count) {}
  signals of(int rank) { return {table(), rank, ranks, first}; }

  std::uint32_t first;
};

/// Every rank writes, posts to the one after it, waits for the one before it and reads what that
/// has written; returns the mistakes.
int count_wrong_in_ring(shared_words& shared, int rounds) {
  int const ranks = shared.ranks;
  fake_roll const roll(ranks);
  std::vector<datum> data(static_cast<std::size_t>(ranks));
  std::atomic<int> wrong = 0;
  on_threads(ranks, [&](int rank) {
    auto mine = shared.of(rank);
    int const before = (rank + ranks - 1) % ranks;
    int const after = (rank + 1) % ranks;
    int mistakes = 0;
    for (int round = 1; round <= rounds; ++round) {
      data[static_cast<std::size_t>(rank)].value = round * 100 + rank;
      mine.post(after);
      if (mine.wait(peer_list{before}, how, roll).from != before) ++mistakes;
      if (data[static_cast<std::size_t>(before)].value != round * 100 + before) ++mistakes;
      mine.post(before);  // that it has been read
      if (mine.wait(peer_list{after}, how, roll).from != after) ++mistakes;
    }
    wrong.fetch_add(mistakes, std::memory_order_relaxed);
  });
  return wrong;
}

}  // namespace

TEST_CASE("what a rank writes before a post is seen after the wait that consumes it") {
  for (int const ranks : thread_counts) {
    INFO(ranks << " ranks");
    shared_words shared(ranks);
    CHECK(count_wrong_in_ring(shared, 300) == 0);
  }
}

TEST_CASE("signals go on when their counts wrap around") {
  for (int const ranks : thread_counts) {
    INFO(ranks << " ranks");
    shared_words shared(ranks, 0xfffffffcU);
    CHECK(count_wrong_in_ring(shared, 10) == 0);
    CHECK(shared.table().word(0, (ranks - 1) % ranks) == 0xfffffffcU + (ranks < 3 ? 20U : 10U));
  }
}

TEST_CASE("a message that is posted without its reader's leave is whole when it is taken") {
  // The producer is ahead by as much as it likes: each message has a place of its own.
  constexpr int messages = 20000;
  shared_words shared(2);
  fake_roll const roll(2);
  std::vector<int> mail(messages);
  int wrong = 0;
  on_threads(2, [&](int rank) {
    auto mine = shared.of(rank);
    for (int i = 0; i < messages; ++i) {
      if (rank == 0) {
        mail[static_cast<std::size_t>(i)] = i + 1;
        mine.post(1);
      } else {
        if (mine.wait(peer_list{0}, how, roll).from != 0) ++wrong;
        if (mail[static_cast<std::size_t>(i)] != i + 1) ++wrong;
      }
    }
    if (rank == 1 && mine.take(0)) ++wrong;
  });
  CHECK(wrong == 0);
}

TEST_CASE("as many posts are taken as were made, and no more") {
  for (auto const first : {0U, 0xfffffffdU, 0xffffffffU, 0x7ffffffeU}) {
    INFO("first " << first);
    shared_words shared(2, first);
    auto poster = shared.of(0);
    auto waiter = shared.of(1);
    CHECK_FALSE(waiter.take(0));
    for (int i = 0; i < 5; ++i) poster.post(1);
    for (int i = 0; i < 5; ++i) CHECK(waiter.take(0));
    CHECK_FALSE(waiter.take(0));
    CHECK(waiter.take_any(peer_list{0}) == -1);
    poster.post(1);
    CHECK(waiter.take_any(peer_list{0}) == 0);
    CHECK_FALSE(waiter.take(0));
  }
}

TEST_CASE("as many as 2^31 posts may be unconsumed") {
  for (auto const first : {0U, 0xffffffffU}) {
    shared_words shared(2, first);
    auto waiter = shared.of(1);
    sync::store(shared.table().word(0, 1), first + 0x80000000U);
    CHECK(waiter.take(0));
  }
}

TEST_CASE("a post belongs to its ordered pair alone") {
  shared_words shared(3);
  auto poster = shared.of(0);
  poster.post(1);
  CHECK_FALSE(shared.of(2).take(0));
  CHECK_FALSE(poster.take(1));
  CHECK_FALSE(poster.take(0));
  auto waiter = shared.of(1);
  CHECK_FALSE(waiter.take(1));
  CHECK_FALSE(waiter.take(2));
  CHECK(waiter.take(0));
}

TEST_CASE("a rank hears what it posts to itself") {
  shared_words shared(2);
  auto mine = shared.of(1);
  mine.post(1);
  mine.post(1);
  fake_roll const roll(2);
  CHECK(mine.wait(peer_list{1}, how, roll).from == 1);
  CHECK(mine.take(1));
  CHECK_FALSE(mine.take(1));
}

TEST_CASE("of ranks that go on posting each has its turn") {
  shared_words shared(4);
  auto waiter = shared.of(3);
  for (int from = 0; from < 3; ++from) sync::store(shared.table().word(from, 3), 1000);
  std::array<int, 4> served{};
  for (int i = 0; i < 300; ++i) ++served[static_cast<std::size_t>(waiter.take_any({{0, 1, 2}}))];
  CHECK(served == std::array{100, 100, 100, 0});
}

TEST_CASE("a rank that posts seldom is heard before those that it waits behind are heard twice") {
  for (int const rare : {0, 1, 2}) {
    shared_words shared(4);
    auto waiter = shared.of(3);
    for (int from = 0; from < 3; ++from) {
      if (from != rare) sync::store(shared.table().word(from, 3), 1000);
    }
    for (int i = 0; i < 7; ++i) CHECK(waiter.take_any({{0, 1, 2}}) != rare);
    shared.of(rare).post(3);
    bool is_heard = false;
    for (int i = 0; i < 3; ++i) is_heard = waiter.take_any({{0, 1, 2}}) == rare || is_heard;
    CHECK(is_heard);
  }
}

TEST_CASE("calls that name other ranks take nobody's turn") {
  // Where the start of the search moved on with every call, rank 1 or rank 0 would never come.
  for (bool const is_reverse : {false, true}) {
    shared_words shared(4);
    auto waiter = shared.of(3);
    for (int from = 0; from < 3; ++from) sync::store(shared.table().word(from, 3), 1000);
    std::array<int, 3> served{};
    for (int i = 0; i < 100; ++i) {
      peer_list const pair = is_reverse ? peer_list{1, 0} : peer_list{0, 1};
      ++served[static_cast<std::size_t>(waiter.take_any(pair))];
      ++served[static_cast<std::size_t>(waiter.take_any({{2}}))];
    }
    CHECK(served == std::array{50, 50, 100});
  }
}

TEST_CASE("a wait for any of several ranks consumes every post of each once") {
  constexpr int ranks = 4;
  constexpr int posts = 2000;
  shared_words shared(ranks);
  fake_roll const roll(ranks);
  std::array<std::vector<int>, ranks> mail;
  for (auto& box : mail) box.resize(posts);
  std::array<int, ranks> heard_of{};
  int wrong = 0;
  on_threads(ranks, [&](int rank) {
    auto mine = shared.of(rank);
    auto const r = static_cast<std::size_t>(rank);
    if (rank != 0) {
      for (int i = 0; i < posts; ++i) {
        mail[r][static_cast<std::size_t>(i)] = rank * 10000 + i;
        mine.post(0);
      }
      return;
    }
    for (int i = 0; i < posts * (ranks - 1); ++i) {
      int const from = mine.wait(peer_list{3, 1, 2}, how, roll).from;
      if (from < 1 || from >= ranks) {
        ++wrong;
        continue;
      }
      auto const f = static_cast<std::size_t>(from);
      auto const at = heard_of[f]++;
      if (at >= posts || mail[f][static_cast<std::size_t>(at)] != from * 10000 + at) ++wrong;
    }
    if (mine.take_any(peer_list{1, 2, 3}) != -1) ++wrong;
  });
  CHECK(wrong == 0);
  CHECK(heard_of == std::array{0, posts, posts, posts});
}

TEST_CASE("one thread of a rank posts while another waits") {
  shared_words shared(2);
  fake_roll const roll(2);
  std::array<signals, 2> ends{shared.of(0), shared.of(1)};
  constexpr int rounds = 2000;
  std::atomic<int> wrong = 0;
  on_threads(4, [&](int number) {
    auto const rank = static_cast<std::size_t>(number % 2);
    int const peer = 1 - number % 2;
    for (int i = 0; i < rounds; ++i) {
      if (number < 2) {
        ends[rank].post(peer);
      } else if (ends[rank].wait(peer_list{peer}, how, roll).from != peer) {
        ++wrong;
      }
    }
  });
  CHECK(wrong == 0);
  CHECK_FALSE(ends[0].take(1));
  CHECK_FALSE(ends[1].take(0));
}

TEST_CASE("a rank that will never post is named, with the reason") {
  for (auto const why : {standing::dead, standing::left}) {
    shared_words shared(3);
    fake_roll roll(3);
    roll.set(1, why);
    auto const result = shared.of(0).wait(peer_list{1}, how, roll);
    CHECK(result.from == -1);
    CHECK(result.missing == absence{why, 1});
  }
}

TEST_CASE("of several ranks that will never post the first that was named is reported") {
  shared_words shared(4);
  fake_roll roll(4);
  roll.set(1, standing::dead);
  roll.set(2, standing::left);
  CHECK(shared.of(0).wait(peer_list{3, 2, 1}, how, roll).missing == absence{standing::left, 2});
}

TEST_CASE("a rank that nobody waits for may be dead, and is not asked about") {
  shared_words shared(3);
  fake_roll roll(3);
  roll.set(2, standing::dead);
  int heard_from = -2;
  on_threads(2, [&](int rank) {
    auto mine = shared.of(rank);
    if (rank == 0) {
      heard_from = mine.wait(peer_list{1}, how, roll).from;
    } else {
      while (roll.asked(1) == 0) std::this_thread::yield();  // the waiter has looked
      mine.post(0);
    }
  });
  CHECK(heard_from == 1);
  CHECK(roll.asked(2) == 0);
}

TEST_CASE("posts that a rank made before it left or died are consumed first") {
  for (auto const why : {standing::dead, standing::left}) {
    shared_words shared(3);
    shared.of(1).post(0);
    shared.of(1).post(0);
    fake_roll roll(3);
    roll.set(1, why);
    auto waiter = shared.of(0);
    CHECK(waiter.wait(peer_list{1}, how, roll).from == 1);
    CHECK(waiter.wait(peer_list{2, 1}, how, roll).from == 1);
    CHECK(waiter.wait(peer_list{1}, how, roll).missing == absence{why, 1});
  }
}

TEST_CASE("a rank that posts while its standing is asked is heard, though it is dead then") {
  shared_words shared(2);
  fake_roll roll(2);
  roll.set(1, standing::dead);
  auto const post_once = [&, is_posted = false](int) mutable {
    if (!is_posted) shared.of(1).post(0);
    is_posted = true;
  };
  SECTION("by one that waits") {
    roll.when_asked(post_once);
    auto waiter = shared.of(0);
    CHECK(waiter.wait(peer_list{1}, how, roll).from == 1);
    CHECK(waiter.wait(peer_list{1}, how, roll).missing == absence{standing::dead, 1});
  }
  SECTION("by one that looks now and then") {
    roll.when_asked(post_once);
    auto waiter = shared.of(0);
    auto const result = waiter.look_now_and_then(1, roll);
    CHECK(result.from == 1);
    CHECK_FALSE(result.missing.has_value());
    CHECK_FALSE(waiter.take(1));
  }
}

TEST_CASE("a post that comes before the verdict is asked is heard, whatever the verdict") {
  shared_words shared(3);
  fake_roll roll(3);
  roll.set_verdict({standing::dead, 2});
  roll.when_asked_for_verdict([&] { sync::store(shared.table().word(1, 0), 1); });
  CHECK(shared.of(0).wait(peer_list{1}, how, roll).from == 1);
}

TEST_CASE("a verdict that others have settled ends the wait for a living rank") {
  shared_words shared(3);
  fake_roll roll(3);
  roll.set_verdict({standing::dead, 2});
  CHECK(shared.of(0).wait(peer_list{1}, how, roll).missing == absence{standing::dead, 2});
  roll.set(1, standing::left);
  CHECK(shared.of(0).wait(peer_list{1}, how, roll).missing == absence{standing::dead, 2});
}

TEST_CASE("a wait that ends at its deadline has consumed nothing and found nobody missing") {
  shared_words shared(2);
  fake_roll const roll(2);
  auto waiter = shared.of(0);
  for (auto const timeout : {1us, 20000us}) {
    auto const deadline = sync::deadline_after(timeout);
    auto const result = waiter.wait(peer_list{1}, how, roll, deadline);
    CHECK(result.from == -1);
    CHECK_FALSE(result.missing.has_value());
    CHECK(sync::wait_clock::now() >= deadline);
  }
  shared.of(1).post(0);
  CHECK(waiter.take(1));
  CHECK_FALSE(waiter.take(1));
}

TEST_CASE("one that polls finds at its first look that a rank will never post") {
  shared_words shared(4);
  fake_roll roll(4);
  roll.set(1, standing::left);
  roll.set(2, standing::dead);
  auto waiter = shared.of(0);
  CHECK(waiter.look_now_and_then(3, roll).from == -1);
  CHECK(waiter.look_now_and_then(1, roll).missing == absence{standing::left, 1});
  CHECK(waiter.look_now_and_then(2, roll).missing == absence{standing::dead, 2});
}

TEST_CASE("one that polls looks at a rank at most five times a second") {
  shared_words shared(2);
  fake_roll roll(2);
  auto waiter = shared.of(0);
  auto const start = sync::wait_clock::now();
  bool is_found = false;
  int polls = 0;
  while (!is_found) {
    ++polls;
    is_found = waiter.look_now_and_then(1, roll).missing.has_value();
    if (roll.asked(1) == 2) roll.set(1, standing::dead);
  }
  CHECK(roll.asked(1) == 3);
  CHECK(sync::wait_clock::now() - start >= 400ms);
  CHECK(polls > 100);
}
