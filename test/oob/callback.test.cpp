#include "shm/oob/callback.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>

#include "shm/oob/out_of_band.hpp"
#include "support/catch.hpp"
#include "support/ranks.hpp"

namespace {

using block = std::span<std::byte const>;
using blocks = std::span<std::byte>;

/// Gathers with an allgather that returns `code`.
template <class Code>
shm::failure failure_with(Code code) {
  shm::callback_oob oob(0, 1, [code](block, blocks) { return code; });
  return shm_test::failure_of([&] { oob.allgather({}, {}); });
}

auto const nothing = [](block, blocks) {};
static_assert(shm::out_of_band<shm::callback_oob<decltype(nothing)>>);
static_assert(shm::out_of_band<shm::callback_oob<int (*)(block, blocks)>>);

template <class F>
concept can_call_back = requires(F f) { shm::callback_oob(0, 1, f); };
static_assert(can_call_back<void (*)(block, blocks)>);
static_assert(!can_call_back<void (*)(block)>);
static_assert(!can_call_back<void (*)(blocks, blocks)>);
static_assert(!can_call_back<int>);

TEST_CASE("a callback bootstrap has the rank and size that it was given") {
  shm::callback_oob const oob(2, 5, nothing);
  CHECK(oob.rank() == 2);
  CHECK(oob.size() == 5);
}

TEST_CASE("a callback without a result gathers, and succeeds") {
  bool called = false;
  shm::callback_oob oob(0, 1, [&called](block mine, blocks all) {
    called = true;
    std::ranges::copy(mine, all.begin());
  });
  std::array const mine{std::byte{4}, std::byte{5}};
  std::array<std::byte, 2> all{};
  oob.allgather(mine, all);
  CHECK(called);
  CHECK(all == mine);
}

TEST_CASE("a callback that returns 0 gathers, and succeeds") {
  int code = 1;
  shm::callback_oob oob(0, 1, [&code](block mine, blocks all) {
    std::ranges::copy(mine, all.begin());
    return code = 0;
  });
  std::array const mine{std::byte{4}, std::byte{5}};
  std::array<std::byte, 2> all{};
  oob.allgather(mine, all);
  CHECK(all == mine);
}

TEST_CASE("a callback is called once for each gathering") {
  int calls = 0;
  shm::callback_oob oob(0, 1, [&](block, blocks) { ++calls; });
  oob.allgather({}, {});
  oob.allgather({}, {});
  CHECK(calls == 2);
}

TEST_CASE("a callback that returns anything but 0 is bootstrap failed, with the number") {
  auto const positive = failure_with(17);
  CHECK(positive.cause == shm::errc::bootstrap_failed);
  CHECK(positive.subject.view() == "the allgather callback returned 17");
  auto const negative = failure_with(-3);
  CHECK(negative.cause == shm::errc::bootstrap_failed);
  CHECK(negative.subject.view() == "the allgather callback returned -3");
}

TEST_CASE("a callback's number is not cut to 32 bits") {
  auto const large = failure_with(1LL << 40);
  CHECK(large.cause == shm::errc::bootstrap_failed);
  CHECK(large.subject.view() == "the allgather callback returned 1099511627776");
}

TEST_CASE("a callback's failure says the number in its message") {
  shm::callback_oob oob(0, 1, [](block, blocks) { return 17; });
  auto const text = shm_test::message_of([&] { oob.allgather({}, {}); });
  CHECK(text.find("the bootstrap failed: the allgather callback returned 17;") !=
        std::string::npos);
}

TEST_CASE("a callback's own exception is passed on as it is") {
  shm::callback_oob oob(0, 1, [](block, blocks) { throw std::logic_error("mine"); });
  CHECK_THROWS_AS(oob.allgather({}, {}), std::logic_error);
}

TEST_CASE("a callback that can only be moved is taken") {
  shm::callback_oob oob(0, 1, [owned = std::make_unique<int>(3)](block, blocks) { ++*owned; });
  CHECK_NOTHROW(oob.allgather({}, {}));
}

TEST_CASE("a callback that returns an enumerator other than 0 has failed") {
  enum class status { ok, failed };
  auto const make = [](status result) {
    return shm::callback_oob(
        0, 1, [result](std::span<std::byte const>, std::span<std::byte>) { return result; });
  };
  auto good = make(status::ok);
  CHECK_NOTHROW(good.allgather({}, {}));
  auto bad = make(status::failed);
  CHECK_THROWS_AS(bad.allgather({}, {}), shm::error);
}

}  // namespace
