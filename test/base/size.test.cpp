#include "shm/base/size.hpp"

#include <cstddef>
#include <cstdint>
#include <limits>

#include "support/catch.hpp"

namespace {

constexpr std::size_t largest = std::numeric_limits<std::size_t>::max();

static_assert(noexcept(shm::checked_add(1, 1)) && noexcept(shm::checked_multiply(1, 1)));
static_assert(noexcept(shm::round_up(1, 1)) && noexcept(shm::reached(1, 1)));

TEST_CASE("a sum that just fits is exact") {
  STATIC_REQUIRE(shm::checked_add(largest - 7, 7) == largest);
  STATIC_REQUIRE(shm::checked_add(0, largest) == largest);
}

TEST_CASE("a sum one above the largest size is nothing") {
  STATIC_REQUIRE(shm::checked_add(largest, 1) == std::nullopt);
  STATIC_REQUIRE(shm::checked_add(largest, largest) == std::nullopt);
}

TEST_CASE("a product that just fits is exact") {
  STATIC_REQUIRE(shm::checked_multiply(largest / 2, 2) == largest - 1);
  STATIC_REQUIRE(shm::checked_multiply(largest, 1) == largest);
  STATIC_REQUIRE(shm::checked_multiply(largest, 0) == 0U);
}

TEST_CASE("a product that wraps around to a small number is nothing") {
  STATIC_REQUIRE(shm::checked_multiply(largest / 2 + 1, 2) == std::nullopt);
  STATIC_REQUIRE(shm::checked_multiply(largest, largest) == std::nullopt);
}

TEST_CASE("rounding leaves multiples as they are") {
  STATIC_REQUIRE(shm::round_up(8192, 4096) == 8192U);
  STATIC_REQUIRE(shm::round_down(8192, 4096) == 8192U);
  STATIC_REQUIRE(shm::round_up(0, 4096) == 0U);
}

TEST_CASE("rounding goes to the nearest multiple of its direction") {
  STATIC_REQUIRE(shm::round_up(4097, 4096) == 8192U);
  STATIC_REQUIRE(shm::round_down(8191, 4096) == 4096U);
  STATIC_REQUIRE(shm::round_up(13, 1) == 13U);
}

TEST_CASE("rounding up reaches the last multiple and not beyond") {
  STATIC_REQUIRE(shm::round_up(largest - 4095, 4096) == largest - 4095);
  STATIC_REQUIRE(shm::round_up(largest - 5000, 4096) == largest - 4095);
  STATIC_REQUIRE(shm::round_up(largest - 4094, 4096) == std::nullopt);
  STATIC_REQUIRE(shm::round_up(largest, 2) == std::nullopt);
}

TEST_CASE("a counter has reached itself and its past") {
  STATIC_REQUIRE(shm::reached(5, 5));
  STATIC_REQUIRE(shm::reached(6, 5));
  STATIC_REQUIRE_FALSE(shm::reached(5, 6));
}

TEST_CASE("a counter that has wrapped around is ahead of one that has not") {
  constexpr std::uint32_t last = std::numeric_limits<std::uint32_t>::max();
  STATIC_REQUIRE(shm::reached(0, last));
  STATIC_REQUIRE(shm::reached(3, last - 3));
  STATIC_REQUIRE_FALSE(shm::reached(last, 0));
}

TEST_CASE("counters almost half the range apart are told apart") {
  constexpr std::uint32_t half = 1U << 31U;
  STATIC_REQUIRE(shm::reached(half - 1, 0));
  STATIC_REQUIRE_FALSE(shm::reached(0, half - 1));
  STATIC_REQUIRE(shm::reached(half + 6, 7));
}

TEST_CASE("a size in words has the largest unit that divides it") {
  CHECK(shm::bytes_in_words(1024) == "1 KiB");
  CHECK(shm::bytes_in_words(16U << 20U) == "16 MiB");
  CHECK(shm::bytes_in_words(3ULL << 30U) == "3 GiB");
  CHECK(shm::bytes_in_words(1ULL << 42U) == "4 TiB");
}

TEST_CASE("a small size that no unit divides is told to the byte") {
  CHECK(shm::bytes_in_words(0) == "0 bytes");
  CHECK(shm::bytes_in_words(1) == "1 byte");
  CHECK(shm::bytes_in_words(4097) == "4097 bytes");
}

TEST_CASE("a large size that no unit divides is told to six digits") {
  CHECK(shm::bytes_in_words((16U << 20U) + 4096) == "16.0039 MiB");
  CHECK(shm::bytes_in_words((100U << 10U) + 512) == "100.5 KiB");
  CHECK(shm::bytes_in_words(~0ULL) == "16 EiB");
}

}  // namespace
