#include "shm/collective/operation.hpp"

#include <cmath>
#include <cstdint>
#include <limits>

#include "support/catch.hpp"

using shm::detail::type_signature;
namespace op = shm::op;

TEST_CASE("sums and products of integers wrap around") {
  CHECK(op::sum{}(std::numeric_limits<int>::max(), 1) == std::numeric_limits<int>::min());
  CHECK(op::sum{}(std::uint8_t{250}, std::uint8_t{10}) == 4);
  CHECK(op::product{}(std::int16_t{-32768}, std::int16_t{-32768}) == 0);
  CHECK(op::product{}(std::numeric_limits<long>::max(), 2L) == -2);
  CHECK(op::sum{}(std::int8_t{127}, std::int8_t{1}) == -128);
}

TEST_CASE("operations on numbers give what their names say") {
  CHECK(op::sum{}(1.5, 2.0) == 3.5);
  CHECK(op::product{}(1.5F, 2.0F) == 3.0F);
  CHECK(op::min{}(3, -4) == -4);
  CHECK(op::max{}(3, -4) == 3);
  CHECK(op::bit_and{}(6U, 3U) == 2U);
  CHECK(op::bit_or{}(6U, 3U) == 7U);
  CHECK(op::bit_xor{}(6U, 3U) == 5U);
}

TEST_CASE("the lower rank's is taken where one of two is no number") {
  double const nan = std::numeric_limits<double>::quiet_NaN();
  CHECK(std::isnan(op::min{}(nan, 1.0)));
  CHECK(op::min{}(1.0, nan) == 1.0);
  CHECK(std::isnan(op::max{}(nan, 1.0)));
  CHECK(op::max{}(1.0, nan) == 1.0);
}

TEST_CASE("signatures of different types and operations differ") {
  STATIC_REQUIRE(type_signature<int, op::sum>() != type_signature<int, op::max>());
  STATIC_REQUIRE(type_signature<int, op::sum>() != type_signature<unsigned, op::sum>());
  STATIC_REQUIRE(type_signature<int, op::sum>() == type_signature<int, op::sum>());
}

TEST_CASE("what is no operation is refused by the concept") {
  auto const two = [](double a, double b) { return a + b; };
  STATIC_REQUIRE(shm::reduction<decltype(two), double>);
  auto const one = [](double a) { return a; };
  STATIC_REQUIRE_FALSE(shm::reduction<decltype(one), double>);
  STATIC_REQUIRE_FALSE(shm::reduction<op::bit_and, double>);
  STATIC_REQUIRE_FALSE(shm::reduction<op::sum, double*>);
}
