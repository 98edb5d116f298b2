#include "shm/group/greeting.hpp"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <functional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "shm/oob/callback.hpp"
#include "support/catch.hpp"
#include "support/exits.hpp"

using namespace shm;
using detail::greeting;
using detail::greeting_exchange;
using shm_test::contains;

namespace {

/// Plays the other ranks: sees this rank's greeting, and fills in everybody's.
using script = std::function<void(int call, std::vector<greeting>& all)>;

/// The bootstrap of rank `rank` of `size`, whose other ranks greet properly unless `play` changes
/// it.
struct scripted_oob {
  int own_rank;
  int own_size;
  script play;
  int calls = 0;

  [[nodiscard]] int rank() const noexcept { return own_rank; }
  [[nodiscard]] int size() const noexcept { return own_size; }
  void allgather(std::span<std::byte const> mine, std::span<std::byte> all) {
    greeting own;
    std::memcpy(&own, mine.data(), sizeof own);
    std::vector<greeting> greetings(static_cast<std::size_t>(own_size), own);
    for (int r = 0; r < own_size; ++r) {
      auto& one = greetings[static_cast<std::size_t>(r)];
      one.rank = r;
      if (r != own_rank) one.state = greeting::state::idle;
    }
    play(++calls, greetings);
    std::memcpy(all.data(), greetings.data(), all.size());
  }
};

/// What a rank sees that sees nobody come out of an exchange.
bool nobody_passed(std::uint32_t) { return false; }

/// Runs the first exchange of rank 1 of 3 with what `play` makes the others say.
failure found_in_first(script play) {
  scripted_oob oob{1, 3, std::move(play)};
  greeting_exchange exchange{out_of_band_ref(oob), nobody_passed};
  exchange.run(1);
  return exchange.first_failure().value_or(failure{});
}

}  // namespace

TEST_CASE("a greeting has 256 bytes, with the version in the first twelve") {
  STATIC_REQUIRE(sizeof(greeting) == 256);
  STATIC_REQUIRE(offsetof(greeting, magic) == 0);
  STATIC_REQUIRE(offsetof(greeting, layout) == 8);
}

TEST_CASE("proper greetings are no failure, and everybody's are kept") {
  scripted_oob oob{1, 3, [](int, std::vector<greeting>& all) { all[2].settings = 9; }};
  greeting_exchange exchange{out_of_band_ref(oob), nobody_passed};
  exchange.run(1);
  CHECK_FALSE(exchange.first_failure().has_value());
  CHECK(exchange.from(2).settings == 9);
  CHECK(oob.calls == 1);
}

// In these the rank under test is rank 1: it is the one that has received wrongly.
TEST_CASE("garbage from the allgather is a failure of the bootstrap of who has received it") {
  auto const found = found_in_first([](int, std::vector<greeting>& all) {
    std::memset(static_cast<void*>(&all[1]), 0x5a, 2 * sizeof(greeting));
  });
  CHECK(found.cause == errc::bootstrap_failed);
  CHECK(found.rank == 1);
  CHECK(contains(found.subject.view(), "did not bring the message of rank 1 to its place"));
}

TEST_CASE("an allgather that leaves its result untouched is a failure of the bootstrap") {
  auto const found = found_in_first([](int, std::vector<greeting>& all) {
    std::memset(static_cast<void*>(all.data()), 0, all.size() * sizeof(greeting));
  });
  CHECK(found.cause == errc::bootstrap_failed);
  CHECK(found.rank == 1);
}

TEST_CASE("messages in the wrong order are a failure of the bootstrap") {
  auto const found =
      found_in_first([](int, std::vector<greeting>& all) { std::swap(all[0], all[2]); });
  CHECK(found.cause == errc::bootstrap_failed);
  CHECK(found.rank == 1);
}

TEST_CASE("two processes with one rank are a mismatch that names it") {
  auto const found = found_in_first([](int, std::vector<greeting>& all) { all[2].rank = 1; });
  CHECK(found.cause == errc::mismatch);
  CHECK(found.rank == 1);
  CHECK(contains(found.subject.view(), "two processes say that they are rank 1"));
}

TEST_CASE("another version of the layout is a mismatch that names both") {
  auto const found =
      found_in_first([](int, std::vector<greeting>& all) { all[2].layout = layout_version + 1; });
  CHECK(found.cause == errc::mismatch);
  CHECK(found.rank == 2);
  CHECK(contains(found.subject.view(), std::to_string(layout_version + 1) + " there, and " +
                                           std::to_string(layout_version) + " on rank 0"));
}

TEST_CASE("another number of ranks is a mismatch that names both") {
  auto const found = found_in_first([](int, std::vector<greeting>& all) { all[2].size = 4; });
  CHECK(found.cause == errc::mismatch);
  CHECK(found.rank == 2);
  CHECK(contains(found.subject.view(), "the number of ranks is 4 there, and 3 on rank 0"));
}

TEST_CASE("ranks on another machine cannot share memory, and the error says who is where") {
  auto const found = found_in_first([](int, std::vector<greeting>& all) {
    all[0].boot = all[1].boot = {3, 4};
    all[2].boot = {1, 2};
  });
  CHECK(found.cause == errc::not_shareable);
  CHECK(found.rank == 2);
  CHECK(found.subject.view() == "one machine has ranks 0 to 1; one machine has ranks 2");
}

TEST_CASE("a rank that cannot tell its machine is taken to be on that of the others") {
  auto const found = found_in_first([](int, std::vector<greeting>& all) {
    all[0].boot = all[1].boot = {3, 4};
    all[2].boot = {};
  });
  CHECK_FALSE(found.is_failure());
}

TEST_CASE("machines are told in runs of ranks") {
  std::vector<greeting> all(6);
  for (std::size_t const r : {2U, 3U}) all[r].boot = {7, 7};
  CHECK(detail::machines_in_words(all) ==
        "one machine has ranks 0 to 1, 4 to 5; one machine has ranks 2 to 3");
}

TEST_CASE("a failure that another rank reports is taken over with its words") {
  auto const found = found_in_first([](int, std::vector<greeting>& all) {
    all[0].state = greeting::state::failed;
    all[0].cause = errc::no_space;
    all[0].system = 28;
    all[0].subject = "4 KiB";
  });
  CHECK(found.cause == errc::no_space);
  CHECK(found.rank == 0);
  CHECK(found.system == 28);
  CHECK(found.subject.view() == "4 KiB");
}

TEST_CASE("of two ranks that report failures the lower is taken") {
  auto const found = found_in_first([](int, std::vector<greeting>& all) {
    for (auto* const one : {&all[0], &all[2]}) {
      one->state = greeting::state::failed;
      one->cause = one == &all[0] ? errc::no_space : errc::limit_reached;
    }
  });
  CHECK(found.rank == 0);
  CHECK(found.cause == errc::no_space);
}

TEST_CASE("an exception of the bootstrap is this rank's failure, and the next exchange tells it") {
  greeting told;
  scripted_oob oob{1, 2, [&](int call, std::vector<greeting>& all) {
                     if (call == 1) throw std::runtime_error("cable cut");
                     told = all[1];
                   }};
  greeting_exchange exchange{out_of_band_ref(oob), nobody_passed};
  exchange.run(1);
  CHECK(oob.calls == 1);
  CHECK(exchange.own_failure().has_value());
  exchange.run(2);
  CHECK(told.state == greeting::state::failed);
  CHECK(told.cause == errc::bootstrap_failed);
  CHECK(contains(told.subject.view(), "cable cut"));
  auto const found = exchange.first_failure().value_or(failure{});
  CHECK(found.cause == errc::bootstrap_failed);
  CHECK(found.rank == 1);
}

TEST_CASE("a return code of a callback is told to the others with its number") {
  int calls = 0;
  callback_oob oob(0, 1, [&](std::span<std::byte const> mine, std::span<std::byte> all) {
    std::ranges::copy(mine, all.begin());
    return ++calls == 1 ? -17 : 0;
  });
  greeting_exchange exchange{out_of_band_ref(oob), nobody_passed};
  exchange.run(1);
  exchange.run(2);
  auto const found = exchange.first_failure().value_or(failure{});
  CHECK(found.cause == errc::bootstrap_failed);
  CHECK(contains(found.subject.view(), "returned -17"));
}

TEST_CASE("a rank that finds the others one exchange behind repeats its call") {
  scripted_oob oob{1, 3, [](int call, std::vector<greeting>& all) {
                     if (call == 1) all[0].stage = all[2].stage = 1;
                   }};
  greeting_exchange exchange{out_of_band_ref(oob), nobody_passed};
  exchange.run(2);
  CHECK(oob.calls == 2);
}

TEST_CASE("a rank that finds the others one exchange ahead does not repeat its call") {
  scripted_oob oob{1, 3, [](int, std::vector<greeting>& all) { all[0].stage = 2; }};
  greeting_exchange exchange{out_of_band_ref(oob), nobody_passed};
  exchange.run(1);
  CHECK(oob.calls == 1);
}

TEST_CASE("a rank that finds others behind for ever gives up") {
  scripted_oob oob{1, 3, [](int, std::vector<greeting>& all) { all[0].stage = 1; }};
  greeting_exchange exchange{out_of_band_ref(oob), nobody_passed};
  exchange.run(2);
  CHECK(oob.calls == 3);
}

TEST_CASE("the first failure of a rank is the one that it reports") {
  scripted_oob oob{0, 1, [](int, std::vector<greeting>&) {}};
  greeting_exchange exchange{out_of_band_ref(oob), nobody_passed};
  exchange.fail({.cause = errc::no_space});
  exchange.fail({.cause = errc::limit_reached});
  exchange.run(1);
  CHECK(exchange.first_failure().value_or(failure{}).cause == errc::no_space);
}

TEST_CASE("a bootstrap that fails is the better reason than refused access to rank 0's memory") {
  auto const reported_after = [](failure const& first) {
    scripted_oob oob{1, 2, [](int, std::vector<greeting>&) { throw std::runtime_error("lost"); }};
    greeting_exchange exchange{out_of_band_ref(oob), nobody_passed};
    exchange.fail(first);
    exchange.run(2);
    return exchange.first_failure().value_or(failure{}).cause;
  };
  CHECK(reported_after({.cause = errc::not_shareable, .system = ENOENT}) == errc::bootstrap_failed);
  CHECK(reported_after({.cause = errc::not_shareable}) == errc::not_shareable);
  CHECK(reported_after({.cause = errc::no_space, .system = ENOSPC}) == errc::no_space);
}

TEST_CASE("the death of rank 0 is reported unless all have been told of another failure") {
  for (bool const is_told : {false, true}) {
    scripted_oob oob{1, 3, [is_told](int, std::vector<greeting>& all) {
                       if (!is_told) return;
                       all[2].state = greeting::state::failed;
                       all[2].cause = errc::no_space;
                     }};
    greeting_exchange exchange{out_of_band_ref(oob), nobody_passed};
    exchange.run(1);
    exchange.lose_root();
    auto const found = exchange.first_failure().value_or(failure{});
    CHECK(found.cause == (is_told ? errc::no_space : errc::peer_lost));
    CHECK(found.rank == (is_told ? 2 : 0));
  }
}

TEST_CASE("refused access to rank 0's memory that all have been told of is its death in the end") {
  auto const tell = [](std::vector<greeting>& all, int rank) {
    auto& one = all[static_cast<std::size_t>(rank)];
    one.state = greeting::state::failed;
    one.cause = errc::not_shareable;
    one.system = ENOENT;
  };
  {  // a rank that sees the death
    scripted_oob oob{1, 3, [&](int, std::vector<greeting>& all) { tell(all, 2); }};
    greeting_exchange exchange{out_of_band_ref(oob), nobody_passed};
    exchange.run(1);
    exchange.lose_root();
    auto const found = exchange.first_failure().value_or(failure{});
    CHECK(found.cause == errc::peer_lost);
    CHECK(found.rank == 0);
  }
  {  // the rank that was refused, which only sees its bootstrap fail
    scripted_oob oob{2, 3, [&](int call, std::vector<greeting>& all) {
                       if (call == 2) throw std::runtime_error("rank 0 was lost");
                       tell(all, 2);
                     }};
    greeting_exchange exchange{out_of_band_ref(oob), nobody_passed};
    exchange.fail({.cause = errc::not_shareable, .system = ENOENT});
    exchange.run(2);
    CHECK(exchange.first_failure().value_or(failure{}).cause == errc::not_shareable);
    exchange.run(3);
    CHECK(exchange.first_failure().value_or(failure{}).cause == errc::bootstrap_failed);
  }
}
