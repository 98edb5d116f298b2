#include "shm/window/fallback.hpp"

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "support/catch.hpp"
#include "support/ranks.hpp"

namespace {

using shm::errc;
using shm::layout;
using shm::detail::fallback;

constexpr std::size_t mib = std::size_t{1} << 20U;

/// A backend with pages of these sizes.
struct listed_policy {
  static constexpr std::string_view name = "listed";
  std::vector<std::size_t> const* pages = nullptr;

  [[nodiscard]] int attempts(shm::settings const&) const noexcept {
    return static_cast<int>(pages->size());
  }
  [[nodiscard]] std::size_t page_bytes(int attempt, shm::settings const&) const {
    return (*pages)[static_cast<std::size_t>(attempt)];
  }
  [[nodiscard]] shm::os::shared_object create(shm::segment_request const&) const { return {}; }
};

/// The order in which kinds with these pages are tried for blocks of these sizes.
std::vector<int> order(std::vector<std::size_t> const& pages, std::vector<std::uint64_t> sizes,
                       layout how = layout::page_aligned) {
  listed_policy const policy{&pages};
  fallback kinds;
  kinds.plan({policy, {}}, sizes, how);
  std::vector<int> result;
  try {
    for (;;) {
      result.push_back(kinds.attempt());
      kinds.pass_over({.cause = errc::no_space});
    }
  } catch (shm::error const&) {
    return result;
  }
}

using attempts = std::vector<int>;

std::vector<std::size_t> preferring() { return {2 * mib, 2 * mib, shm::os::base_page_bytes()}; }

TEST_CASE("kinds with large pages are left out where blocks would mostly be padding") {
  CHECK(order(preferring(), {3 * mib, 3 * mib}) == attempts{0, 1, 2});
  CHECK(order(preferring(), {mib, mib}) == attempts{0, 1, 2});
  CHECK(order(preferring(), {mib - 1, mib}) == attempts{2});
  CHECK(order(preferring(), {0, 0}) == attempts{2});
}

TEST_CASE("kinds with large pages that are all there is come last, not never") {
  std::vector<std::size_t> const required{1024 * mib, 2 * mib};
  CHECK(order(required, {3 * mib, 3 * mib}) == attempts{1, 0});
  CHECK(order(required, {1024 * mib}) == attempts{0, 1});
  CHECK(order({2 * mib, 2 * mib}, {64, 64}) == attempts{0, 1});
}

TEST_CASE("a kind is tried at least once, whatever the size") {
  CHECK(order({shm::os::base_page_bytes()}, {0}) == attempts{0});
  CHECK(order({2 * mib}, {1}) == attempts{0});
}

TEST_CASE("sizes that do not add up are an error of their own") {
  auto const refused = shm_test::failure_of([] { order(preferring(), {~0ULL, ~0ULL}); });
  CHECK(refused.cause == errc::size_overflow);
}

/// What counts where kinds of memory have failed like this, one after the other.
std::string_view told(std::vector<shm::failure> const& failures) {
  static fallback kinds;
  kinds = {};
  for (auto const& one : failures) kinds.pass_over(one);
  return kinds.why().subject.view();
}

TEST_CASE("the last failure counts, but not that the machine lacks another kind of memory") {
  shm::failure const full{.cause = errc::limit_reached, .rank = 1, .subject = "full"};
  shm::failure const refused{.cause = errc::unsupported, .system = 38, .subject = "refused"};
  shm::failure const missing{.cause = errc::unsupported, .subject = "missing"};
  shm::failure const absent{.cause = errc::unsupported, .subject = "absent"};
  CHECK(told({}).empty());
  CHECK(told({full, missing}) == "full");
  CHECK(told({full, missing, absent}) == "full");
  CHECK(told({missing, full}) == "full");
  CHECK(told({missing, absent}) == "absent");
  CHECK(told({full, refused}) == "refused");
}

TEST_CASE("the largest pages that were tried are known") {
  std::vector<std::size_t> const pages{mib, 4 * mib, 2 * mib};
  listed_policy const policy{&pages};
  fallback kinds;
  CHECK(kinds.largest_page_bytes() == 0);
  kinds.plan({policy, {}}, std::vector<std::uint64_t>{64 * mib}, layout::page_aligned);
  CHECK(kinds.largest_page_bytes() == mib);
  kinds.pass_over({.cause = errc::no_space});
  kinds.pass_over({.cause = errc::no_space});
  CHECK(kinds.largest_page_bytes() == 4 * mib);
}

TEST_CASE("one large block among empty ones has large pages, and so have blocks without padding") {
  std::vector<std::uint64_t> uneven(24, 0);
  uneven.front() = 20'000'000;
  CHECK(order(preferring(), uneven) == attempts{0, 1, 2});
  std::vector<std::uint64_t> const small(100, 100'000);
  CHECK(order(preferring(), small) == attempts{2});
  CHECK(order(preferring(), small, layout::contiguous) == attempts{0, 1, 2});
  CHECK(order(preferring(), {100, 100}, layout::contiguous) == attempts{2});
}

}  // namespace
