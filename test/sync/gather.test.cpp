#include "shm/sync/gather.hpp"

#include <array>
#include <chrono>
#include <cstdint>
#include <thread>

#include "shm/sync/arrival.hpp"
#include "shm/sync/wait.hpp"
#include "support/catch.hpp"
#include "support/threads.hpp"

using shm::sync::absence;
using shm::sync::gather;
using shm::sync::patience;
using shm::sync::standing;

TEST_CASE("a gathering ends when all have come, and shows what they wrote") {
  constexpr int ranks = 3;
  std::array<shm_test::datum, ranks> data{};
  std::array<std::uint32_t, ranks> words{};
  std::array<int, ranks> wrong{};
  shm_test::on_threads(ranks, [&](int rank) {
    auto const own = static_cast<std::size_t>(rank);
    shm_test::fake_roll const roll(ranks);
    for (std::uint32_t step = 1; step <= 300; ++step) {
      if (step % 2 == 1) data[own].value = static_cast<int>(step);
      shm::sync::store(words[own], step);
      auto const missing = gather(
          ranks, patience::with_shared_processor(),
          [&](int r) {
            return shm::reached(shm::sync::load(words[static_cast<std::size_t>(r)]), step);
          },
          roll);
      wrong[own] += missing.has_value();
      if (step % 2 == 0) continue;  // the steps between let all read
      for (auto const& one : data) wrong[own] += one.value != static_cast<int>(step);
    }
  });
  CHECK(wrong == std::array<int, ranks>{});
}

TEST_CASE("a gathering names the lowest rank that will never come") {
  shm_test::fake_roll roll(4);
  roll.set(2, standing::dead);
  roll.set(3, standing::left);
  auto const missing = gather(4, patience{.spins = 5}, [](int rank) { return rank < 2; }, roll);
  REQUIRE(missing);
  CHECK(*missing == absence{standing::dead, 2});
}

TEST_CASE("a rank that has come is not missed, whatever became of it") {
  shm_test::fake_roll roll(2);
  roll.set(0, standing::dead);
  CHECK_FALSE(gather(2, patience{.spins = 0}, [](int) { return true; }, roll));
}
