#include "shm/group/live_memory.hpp"

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "support/catch.hpp"
#include "support/threads.hpp"

using list = shm::detail::live_memory<int>;

TEST_CASE("an address is found in the memory that it lies in, and not beside it") {
  std::array<std::byte, 100> memory{};
  auto const low = std::make_shared<int>(1);
  auto const high = std::make_shared<int>(2);
  list all;
  all.add(std::span(memory).subspan(10, 20), 7, low);
  all.add(std::span(memory).subspan(30, 20), 8, high);
  CHECK(all.at(&memory[10]) == low);
  CHECK(all.at(&memory[29]) == low);
  CHECK(all.at(&memory[30]) == high);
  CHECK(all.at(&memory[9]) == nullptr);
  CHECK(all.at(&memory[50]) == nullptr);
  CHECK(all.numbered(8) == high);
  CHECK(all.numbered(9) == nullptr);
}

TEST_CASE("what is taken out, or being destroyed, is not found") {
  std::array<std::byte, 10> memory{};
  auto owner = std::make_shared<int>(1);
  list all;
  all.reserve();
  all.add(memory, 7, owner);
  owner.reset();
  CHECK(all.at(&memory[0]) == nullptr);
  CHECK(all.numbered(7) == nullptr);
  owner = std::make_shared<int>(2);
  all.remove(&memory[0]);
  all.add(memory, 9, owner);
  CHECK(all.at(&memory[0]) == owner);
  all.remove(&memory[0]);
  CHECK(all.at(&memory[0]) == nullptr);
}

TEST_CASE("threads may add, find and take out at the same time") {
  std::array<std::array<std::byte, 64>, 4> memory{};
  list all;
  std::array<int, 4> wrong{};
  shm_test::on_threads(4, [&](int thread) {
    auto const own = static_cast<std::size_t>(thread);
    for (int i = 0; i < 2000; ++i) {
      auto const owner = std::make_shared<int>(i);
      all.add(memory[own], own, owner);
      wrong[own] += all.at(&memory[own][63]) != owner;
      all.remove(&memory[own][0]);
      wrong[own] += all.numbered(own) != nullptr;
    }
  });
  CHECK(wrong == std::array<int, 4>{});
}
