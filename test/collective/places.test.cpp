#include "shm/collective/places.hpp"

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "support/ranks.hpp"

using shm::detail::locate;
using shm::detail::window_range;

namespace {

/// What `locate` says of a buffer: empty where it is good.
std::string refusal(shm::group& node, std::span<std::byte const> buffer) {
  return shm_test::message_of([&] { static_cast<void>(locate(*node.state(), buffer, "send")); });
}

}  // namespace

TEST_CASE("ranges overlap where they have a byte in common") {
  window_range const one{.window = 1, .offset = 100, .bytes = 10};
  CHECK(one.overlaps({1, 109, 5}));
  CHECK(one.overlaps({1, 90, 11}));
  CHECK(one.overlaps({1, 95, 50}));
  CHECK_FALSE(one.overlaps({1, 110, 5}));
  CHECK_FALSE(one.overlaps({1, 90, 10}));
  CHECK_FALSE(one.overlaps({2, 100, 10}));
  CHECK_FALSE(one.overlaps({1, 105, 0}));
}

TEST_CASE("a part of any block is found at the same place by all ranks") {
  shm_test::on_ranks(3, [](shm::group& node, shm_test::findings& found) {
    shm::window<std::byte> first(node, 5000);
    shm::window<std::byte> second(node, 5000 + node.rank());
    auto const& state = *node.state();
    for (int r = 0; r < 3; ++r) {
      auto const range = locate(*node.state(), second[r].subspan(70, 30), "send");
      RANK_CHECK(found, range.bytes == 30);
      auto const all = shm::allgather(node, range.offset);
      RANK_CHECK(found, all[0] == range.offset && all[2] == range.offset);
      shm::detail::window_holder holder;
      auto* const address = holder.address_of(*node.state(), range, 1);
      RANK_CHECK(found, address == second[r].data() + 70);
    }
    RANK_CHECK(found, locate(*node.state(), {}, "send") == window_range{});
    RANK_CHECK(found, state.size() == 3);
  });
}

TEST_CASE("private memory and what ends outside of a block are refused in words") {
  shm_test::on_ranks(2, [](shm::group& node, shm_test::findings& found) {
    shm::window<std::byte> blocks(node, 5000);
    std::array<std::byte, 64> own{};
    RANK_CHECK(found,
               refusal(node, own).find("does not begin in a live window") != std::string::npos);
    auto const block = blocks[1];
    RANK_CHECK(found, refusal(node, {block.data(), 5000}).empty());
    auto const said = refusal(node, {block.data() + 4000, 1001});
    RANK_CHECK(found, said.find("ends outside of the block") != std::string::npos);
    RANK_CHECK(found, said.find("1000 bytes are left") != std::string::npos);
    RANK_CHECK(found, refusal(node, {block.data() + 5000, 1}).find("not begin in a block") !=
                          std::string::npos);
    RANK_CHECK(found, !refusal(node, {blocks[0].data() - 1, 1}).empty());
    RANK_CHECK(found, !refusal(node, {block.data(), ~std::size_t{0} - 10}).empty());
  });
}

TEST_CASE("blocks that follow each other without padding are one piece of memory") {
  shm_test::on_ranks(3, [](shm::group& node, shm_test::findings& found) {
    shm::window<std::byte> packed(node, 1000, {.layout = shm::layout::contiguous});
    RANK_CHECK(found, refusal(node, packed.all()).empty());
    RANK_CHECK(found, refusal(node, {packed[1].data() + 500, 1500}).empty());
    RANK_CHECK(found, !refusal(node, {packed[1].data() + 500, 1501}).empty());
    auto const page = shm::os::base_page_bytes();
    shm::window<std::byte> pages(node, page);
    RANK_CHECK(found, refusal(node, {pages[0].data(), 2 * page}).empty());
  });
}

TEST_CASE("a window is known as long as it lives, under any owner") {
  shm_test::on_ranks(2, [](shm::group& node, shm_test::findings& found) {
    shm::detail::window_holder holder;
    window_range range;
    {
      shm::window<std::byte, shm::sls_policy> made(node, 100);
      shm::window<std::byte> moved(std::move(made));
      range = locate(*node.state(), moved.local(), "send");
      RANK_CHECK(found, range.bytes == 100);
      static_cast<void>(holder.address_of(*node.state(), range, 0));
    }
    RANK_CHECK(found, holder.address_of(*node.state(), range, 0) != nullptr);
    holder = {};
    RANK_CHECK(found, shm_test::failure_of([&] {
                        static_cast<void>(holder.address_of(*node.state(), range, 1));
                      }).cause == shm::errc::invalid_argument);
  });
}

TEST_CASE("windows of another group are not found") {
  shm_test::on_ranks(2, [](shm::group& node, shm_test::findings& found) {
    shm::communicator other(node);
    shm::window<std::byte> blocks(other, 100);
    RANK_CHECK(found, !refusal(node, blocks.local()).empty());
    RANK_CHECK(found, refusal(other, blocks.local()).empty());
  });
}
