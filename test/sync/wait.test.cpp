#include "shm/sync/wait.hpp"

#include <chrono>
#include <cstdint>
#include <limits>
#include <ratio>

#include "support/catch.hpp"

using namespace std::chrono_literals;
using clock_type = std::chrono::steady_clock;
using shm::sync::deadline_after;
using shm::sync::patience;
using shm::sync::wait_until;

TEST_CASE("a wait that is ready at once asks once and does not look further") {
  int asked = 0;
  int looks = 0;
  wait_until(patience{1000}, [&] { return ++asked > 0; }, [&] { return ++looks > 0; });
  CHECK(asked == 1);
  CHECK(looks == 0);
}

TEST_CASE("a wait ends as soon as it is ready while it spins") {
  int asked = 0;
  int looks = 0;
  wait_until(patience{1000}, [&] { return ++asked == 900; }, [&] { return ++looks > 0; });
  CHECK(asked == 900);
  CHECK(looks == 0);
}

TEST_CASE("a wait without spins asks before it returns") {
  int asked = 0;
  wait_until(patience{0}, [&] { return ++asked == 1; }, [] { return false; });
  CHECK(asked == 1);
}

TEST_CASE("a wait ends when it is ready after it has spun, while it yields") {
  int asked = 0;
  wait_until(patience{50}, [&] { return ++asked == 60; }, [] { return false; });
  CHECK(asked == 60);
}

TEST_CASE("a wait ends when it is ready after it has yielded, while it sleeps") {
  auto const start = clock_type::now();
  bool ready = false;
  wait_until(
      patience{50}, [&] { return ready = clock_type::now() - start > 4ms; }, [] { return false; });
  CHECK(ready);
}

TEST_CASE("a wait that sleeps asks far less often than one that spins") {
  auto const start = clock_type::now();
  int asked_asleep = 0;
  wait_until(
      patience{0},
      [&] {
        auto const waited = clock_type::now() - start;
        if (waited > 5ms) ++asked_asleep;
        return waited > 50ms;
      },
      [] { return false; });
  CHECK(asked_asleep < 1000);
}

TEST_CASE("a wait looks further only when 10 ms have passed") {
  auto const start = clock_type::now();
  clock_type::duration waited{};
  wait_until(
      patience{50}, [] { return false; },
      [&] {
        waited = clock_type::now() - start;
        return true;
      });
  CHECK(waited >= 10ms);
}

TEST_CASE("a wait that is resolved ends though it never gets ready") {
  int asked = 0;
  int looks = 0;
  wait_until(patience{50}, [&] { return ++asked < 0; }, [&] { return ++looks == 1; });
  CHECK(asked > 50);
  CHECK(looks == 1);
}

TEST_CASE("a wait that is not resolved goes on, and looks again") {
  int looks = 0;
  wait_until(
      patience{50}, [&] { return looks == 2; },
      [&] {
        ++looks;
        return false;
      });
  CHECK(looks == 2);
}

TEST_CASE("two looks of a wait are at least 200 ms apart") {
  clock_type::time_point first{};
  clock_type::time_point second{};
  wait_until(
      patience{0}, [] { return false; },
      [&] {
        if (first == clock_type::time_point{}) {
          first = clock_type::now();
          return false;
        }
        second = clock_type::now();
        return true;
      });
  CHECK(second - first >= 200ms);
}

TEST_CASE("a wait ends at its deadline, and not before, and asks a last time then") {
  for (auto const timeout : {1us, 500us, 3000us, 15000us}) {
    clock_type::time_point asked{};
    auto const deadline = deadline_after(timeout);
    wait_until(
        patience{50},
        [&] {
          asked = clock_type::now();
          return false;
        },
        [] { return false; }, deadline);
    auto const end = clock_type::now();
    CHECK(end >= deadline);
    // A waiter that heeded it between its looks only would be 200 ms late.
    CHECK(end - deadline < 100ms);
    CHECK((timeout < 100us || asked >= deadline));
  }
}

TEST_CASE("a wait with a deadline still ends as soon as it is ready or resolved") {
  int asked = 0;
  wait_until(patience{50}, [&] { return ++asked == 60; }, [] { return false; }, deadline_after(1h));
  CHECK(asked == 60);
  int looks = 0;
  wait_until(patience{50}, [] { return false; }, [&] { return ++looks == 1; }, deadline_after(1h));
  CHECK(looks == 1);
}

TEST_CASE("a deadline too far for the clock is none, and one that it cannot tell is the next") {
  constexpr auto never = clock_type::time_point::max();
  CHECK(deadline_after(std::chrono::hours::max()) == never);
  CHECK(deadline_after(std::chrono::duration<std::int64_t, std::ratio<86400 * 365>>::max()) ==
        never);
  CHECK(deadline_after(std::chrono::nanoseconds::max()) == never);
  CHECK(deadline_after(std::chrono::duration<double>(1e300)) == never);
  CHECK(deadline_after(std::chrono::duration<double>(std::numeric_limits<double>::infinity())) ==
        never);
  auto const before = clock_type::now();
  CHECK(deadline_after(std::chrono::duration<std::int64_t, std::pico>(1)) > before);
  auto const hour = deadline_after(std::chrono::duration<float, std::ratio<3600>>(1.0F));
  CHECK(hour - clock_type::now() > 59min);
  CHECK(hour - before < 61min);
}

TEST_CASE("a rank with a processor of its own spins longer than one without") {
  CHECK(patience::with_own_processor().spins > patience::with_shared_processor().spins);
}
