#include "shm/collective/kernel.hpp"

#include <array>
#include <cstddef>
#include <numeric>
#include <span>
#include <vector>

#include "shm/collective/operation.hpp"
#include "support/catch.hpp"

using shm::detail::combine;
using shm::detail::copy_bytes;
using shm::detail::slice;

namespace {

template <class T>
std::byte* bytes_of(std::vector<T>& values) {
  return reinterpret_cast<std::byte*>(values.data());
}

}  // namespace

TEST_CASE("slices cover every element once, in rank order") {
  for (std::size_t const element_bytes : {1U, 3U, 8U, 16U, 128U, 200U}) {
    for (std::size_t const count : {0U, 1U, 15U, 16U, 17U, 1000U, 100'000U}) {
      for (int const ranks : {1, 2, 3, 5, 64}) {
        std::size_t next = 0;
        for (int rank = 0; rank < ranks; ++rank) {
          auto const part = slice::of(count, element_bytes, rank, ranks);
          CHECK((part.count == 0 || part.begin == next));
          next += part.count;
        }
        CHECK(next == count);
      }
    }
  }
}

TEST_CASE("slices begin on lines, and differ by a line at most") {
  for (int const ranks : {2, 3, 7}) {
    std::size_t least = 100'000;
    std::size_t most = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      auto const part = slice::of(16 * 1000, sizeof(double), rank, ranks);
      CHECK(part.begin * sizeof(double) % shm::line_bytes == 0);
      least = std::min(least, part.count);
      most = std::max(most, part.count);
    }
    CHECK(most - least <= shm::line_bytes / sizeof(double));
  }
}

TEST_CASE("elements are combined in the order of the ranks") {
  // Any other order of these loses the ones.
  std::array<std::vector<double>, 4> blocks;
  double const values[] = {1e16, -1e16, 1, 1};
  std::vector<std::byte*> in;
  for (std::size_t r = 0; r < blocks.size(); ++r) {
    blocks[r].assign(1000, values[r]);
    in.push_back(bytes_of(blocks[r]));
  }
  std::vector<double> result(1000);
  auto* const out = bytes_of(result);
  combine<double>(in, std::span(&out, 1), {.begin = 0, .count = 1000}, shm::op::sum{});
  CHECK(result == std::vector<double>(1000, 2.0));
}

TEST_CASE("a part is combined into all results, and nothing else is written") {
  std::vector<int> a(3000);
  std::vector<int> b(3000);
  std::iota(a.begin(), a.end(), 0);
  std::iota(b.begin(), b.end(), 100'000);
  std::vector<std::byte*> const in{bytes_of(a), bytes_of(b)};
  std::vector<int> first(3000, -1);
  std::vector<int> second(3000, -1);
  std::vector<std::byte*> const out{bytes_of(first), bytes_of(second)};
  combine<int>(in, out, {.begin = 5, .count = 2000}, shm::op::sum{});
  CHECK(first == second);
  for (std::size_t i = 0; i < first.size(); ++i) {
    bool const is_in = i >= 5 && i < 2005;
    REQUIRE(first[i] == (is_in ? static_cast<int>(2 * i) + 100'000 : -1));
  }
}

TEST_CASE("a result may take the place of what was sent") {
  std::vector<long> a(2000, 1);
  std::vector<long> b(2000, 2);
  std::vector<std::byte*> const both{bytes_of(a), bytes_of(b)};
  combine<long>(both, both, {.begin = 0, .count = 2000}, shm::op::sum{});
  CHECK(a == std::vector<long>(2000, 3));
  CHECK(b == std::vector<long>(2000, 3));
}

TEST_CASE("elements that are large or cannot be assigned are combined") {
  struct large {
    std::array<int, 3000> values;
  };
  struct fixed {
    int const value;
  };
  std::vector<large> a(3);
  std::vector<large> b(3);
  a[2].values[2999] = 4;
  b[2].values[2999] = 5;
  auto const add = [](large const& x, large const& y) {
    large sum = x;
    for (std::size_t i = 0; i < sum.values.size(); ++i) sum.values[i] += y.values[i];
    return sum;
  };
  auto* const out = bytes_of(a);
  combine<large>(std::array{bytes_of(a), bytes_of(b)}, std::span(&out, 1), {.begin = 0, .count = 3},
                 add);
  CHECK(a[2].values[2999] == 9);

  std::vector<fixed> c(10, fixed{3});
  std::vector<fixed> d(10, fixed{4});
  auto* const to = bytes_of(c);
  combine<fixed>(std::array{bytes_of(c), bytes_of(d), bytes_of(d)}, std::span(&to, 1),
                 {.begin = 0, .count = 10},
                 [](fixed x, fixed y) { return fixed{x.value + y.value}; });
  CHECK(c[9].value == 11);
}

TEST_CASE("streamed copies are whole at any alignment and length") {
  std::vector<unsigned char> from(1000);
  std::iota(from.begin(), from.end(), static_cast<unsigned char>(1));
  for (std::size_t at = 0; at < 17; ++at) {
    for (std::size_t const length : {0U, 1U, 15U, 16U, 17U, 63U, 64U, 65U, 500U}) {
      std::vector<unsigned char> to(1000, 0);
      copy_bytes(bytes_of(to) + at, bytes_of(from) + 3, length, true);
      shm::detail::end_streaming();
      bool right = true;
      for (std::size_t i = 0; i < to.size(); ++i) {
        bool const is_in = i >= at && i < at + length;
        right = right && to[i] == (is_in ? from[i - at + 3] : 0);
      }
      CHECK(right);
    }
  }
}

TEST_CASE("a large part is combined as a small one") {
  std::size_t const count = shm::detail::stream_bytes / sizeof(double) + 11;
  std::vector<double> a(count, 1.0);
  std::vector<double> b(count, 2.0);
  std::vector<double> result(count);
  auto* const out = bytes_of(result);
  combine<double>(std::array{bytes_of(a), bytes_of(b)}, std::span(&out, 1),
                  {.begin = 0, .count = count}, shm::op::sum{});
  CHECK(result == std::vector<double>(count, 3.0));
}
