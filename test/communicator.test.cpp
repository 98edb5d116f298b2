#include "shm/communicator.hpp"

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "shm/shm.hpp"
#include "support/capture.hpp"
#include "support/catch.hpp"
#include "support/exits.hpp"
#include "support/faulty_oob.hpp"
#include "support/ranks.hpp"

using namespace shm;
using shm_test::capture;
using shm_test::contains;
using shm_test::faulty_oob;
using shm_test::findings;
using shm_test::on_all_rank_counts;
using shm_test::on_ranks;

namespace {

constexpr char const* fence_variable = "KUPL_SHM_FENCE_ALGORITHM";

fence_algorithm fence_of(group const& node) { return node.state()->fence_in_use(); }

/// What all ranks print to standard error while they make a group, each with `value` of its rank in
/// the environment.
template <class Value>
std::string printed_while_making(int ranks, Value const& value,
                                 std::optional<settings> given = {}) {
  capture const output;
  on_ranks(ranks, [&](group& node, findings&) {
    ::setenv(fence_variable, value(node.rank()), 1);
    output.standard_error_of([&] { communicator const made(node, given); });
  });
  return output.text();
}

}  // namespace

TEST_CASE("a communicator is a group, moved and not copied") {
  STATIC_REQUIRE(std::is_base_of_v<group, communicator<self_oob>>);
  STATIC_REQUIRE_FALSE(std::is_copy_constructible_v<communicator<self_oob>>);
  STATIC_REQUIRE(std::is_nothrow_move_constructible_v<communicator<self_oob>>);
}

TEST_CASE("a process alone makes a group of one rank from a temporary bootstrap") {
  communicator alone{self_oob{}};
  CHECK(alone.rank() == 0);
  CHECK(alone.size() == 1);
  alone.barrier();
  window<int> field(alone, 3);
  field.fence();
  CHECK(field.local().size() == 3);
}

TEST_CASE("a group takes rank and size from its bootstrap") {
  on_all_rank_counts([](group& node, findings& found) {
    communicator const made(node);
    RANK_CHECK(found, made.rank() == node.rank());
    RANK_CHECK(found, made.size() == node.size());
  });
}

TEST_CASE("making a group takes two allgathers, and making and using windows takes none") {
  on_all_rank_counts([](group& node, findings& found) {
    faulty_oob oob(node);
    communicator made(oob);
    RANK_CHECK(found, oob.calls() == 2);
    for (int i = 0; i < 3; ++i) {
      window<int> field(made, 1000);
      field.fence();
    }
    made.barrier();
    made.agree([] {});
    RANK_CHECK(found, oob.calls() == 2);
  });
}

TEST_CASE("a group outlives its bootstrap") {
  on_all_rank_counts([](group& node, findings&) {
    auto oob = std::make_unique<faulty_oob>(node);
    communicator made(*oob);
    oob.reset();
    window<int> field(made, 1);
    field.fence();
  });
}

TEST_CASE("settings come from the environment where none are given") {
  on_all_rank_counts([](group& node, findings& found) {
    ::setenv(fence_variable, "1", 1);
    RANK_CHECK(found, fence_of(communicator(node)) == fence_algorithm::linear);
    ::setenv(fence_variable, "3", 1);
    RANK_CHECK(found, fence_of(communicator(node)) == fence_algorithm::counter);
  });
}

TEST_CASE("settings given in code replace the environment") {
  on_all_rank_counts([](group& node, findings& found) {
    ::setenv(fence_variable, "1", 1);
    communicator const made(node, settings{.fence = fence_algorithm::counter});
    RANK_CHECK(found, fence_of(made) == fence_algorithm::counter);
  });
}

TEST_CASE("an automatic choice is made once, the same on all ranks") {
  on_all_rank_counts([](group& node, findings& found) {
    ::unsetenv(fence_variable);
    communicator const made(node);
    RANK_CHECK(found, fence_of(made) == fence_algorithm::dissemination ||
                          fence_of(made) == fence_algorithm::counter);
    RANK_CHECK(found, made.state()->settings().fence == fence_algorithm::automatic);
  });
}

TEST_CASE("of settings that differ rank 0's are taken on all ranks") {
  on_ranks(3, [](group& node, findings& found) {
    capture const ignored;
    ignored.standard_error_of([&] {
      ::setenv(fence_variable, node.rank() == 0 ? "1" : "3", 1);
      RANK_CHECK(found, fence_of(communicator(node)) == fence_algorithm::linear);
      auto const own = node.rank() == 0 ? fence_algorithm::dissemination : fence_algorithm::linear;
      RANK_CHECK(found, fence_of(communicator(node, settings{.fence = own})) ==
                            fence_algorithm::dissemination);
    });
  });
}

TEST_CASE("an environment that differs between ranks is one warning that names the first rank") {
  auto const text = printed_while_making(4, [](int rank) { return rank >= 2 ? "3" : "1"; });
  INFO(text);
  CHECK(std::ranges::count(text, '\n') == 1);
  CHECK(contains(text, "shm: rank 0 of 4: the settings of rank 2 differ from those of rank 0"));
  CHECK(contains(text, "KUPL_SHM_… and SHM_… variables"));
}

TEST_CASE("an environment that is the same on all ranks is no warning") {
  CHECK(printed_while_making(3, [](int) { return "2"; }).empty());
}

TEST_CASE("an unknown value on all ranks is one warning that names variable, value and choices") {
  auto const text = printed_while_making(3, [](int) { return "fast"; });
  INFO(text);
  CHECK(std::ranges::count(text, '\n') == 1);
  CHECK(contains(text, "KUPL_SHM_FENCE_ALGORITHM=fast"));
  CHECK(contains(text, "2 (dissemination)"));
}

TEST_CASE("an unknown value in the environment is no warning where settings are given in code") {
  CHECK(printed_while_making(3, [](int) { return "fast"; }, settings{}).empty());
}

TEST_CASE("a communicator is made over another one without naming its type") {
  shm_test::on_all_rank_counts([](shm::group& node, shm_test::findings& found) {
    shm::communicator outer{node};
    shm::communicator inner{outer};
    RANK_CHECK(found, inner.valid() && outer.valid());
    RANK_CHECK(found, inner.rank() == node.rank() && inner.size() == node.size());
    inner.barrier();
  });
}
