#include "shm/window/report.hpp"

#include <cstddef>
#include <optional>
#include <string_view>

#include "support/catch.hpp"

namespace {

using shm::errc;
using shm::detail::misplacement;
using shm::os::node_set;

constexpr std::optional<std::size_t> unknown;
shm::failure const refusal{.cause = errc::permission_denied, .subject = "mbind"};

TEST_CASE("memory that lies where it was wished needs no word") {
  CHECK_FALSE(misplacement({1}, {0, 1}, {}, 0U).is_failure());
  CHECK_FALSE(misplacement({1}, {0, 1}, refusal, 0U).is_failure());
  CHECK_FALSE(misplacement({1}, {0, 1}, {}, unknown).is_failure());
  CHECK_FALSE(misplacement({1}, {}, {}, unknown).is_failure());
}

TEST_CASE("nodes are called full only where memory could be placed on them") {
  auto const full = misplacement({1}, {0, 1}, {}, 3U);
  CHECK(full.cause == errc::limit_reached);
  CHECK(full.subject.view() == "no memory is left on NUMA node 1");
  CHECK(misplacement({1}, {0, 1}, refusal, 3U).subject.view() == "mbind");
}

TEST_CASE("a refusal to place counts also where nobody can say where memory lies") {
  CHECK(misplacement({1}, {0, 1}, refusal, unknown).subject.view() == "mbind");
  CHECK(misplacement({1}, {}, refusal, unknown).subject.view() == "mbind");
}

TEST_CASE("nodes that this process may not use are named as such") {
  for (auto const elsewhere : {unknown, std::optional<std::size_t>{5}}) {
    auto const kept = misplacement({1}, {0, 2}, refusal, elsewhere);
    CHECK(kept.cause == errc::permission_denied);
    CHECK(kept.subject.view() == "this process may use NUMA nodes 0, 2 only, not NUMA node 1");
  }
  CHECK_FALSE(misplacement({1, 2}, {0, 2}, {}, 0U).is_failure());
}

}  // namespace
