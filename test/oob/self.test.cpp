#include "shm/oob/self.hpp"

#include <array>
#include <cstddef>
#include <vector>

#include "shm/oob/out_of_band.hpp"
#include "support/catch.hpp"

namespace {

static_assert(shm::out_of_band<shm::self_oob>);
static_assert(shm::self_oob::rank() == 0);
static_assert(shm::self_oob::size() == 1);

TEST_CASE("a process that is alone gathers its own block") {
  std::array const mine{std::byte{1}, std::byte{2}, std::byte{3}};
  std::array<std::byte, 3> all{};
  shm::self_oob::allgather(mine, all);
  CHECK(all == mine);
}

TEST_CASE("a process that is alone can gather an empty block") {
  std::vector<std::byte> all;
  shm::self_oob::allgather({}, all);
  CHECK(all.empty());
}

}  // namespace
