#include "shm/sync/pair_table.hpp"

#include <cstddef>
#include <cstdint>

#include "shm/base/size.hpp"
#include "support/catch.hpp"
#include "support/pairs.hpp"

using shm::sync::pair_table;
using shm_test::shared_pairs;

TEST_CASE("rows of a table of pairs have room for all ranks and begin on lines") {
  STATIC_REQUIRE(pair_table::row_bytes(1) == shm::line_bytes);
  STATIC_REQUIRE(pair_table::row_bytes(32) == shm::line_bytes);
  STATIC_REQUIRE(pair_table::row_bytes(33) == 2 * shm::line_bytes);
  for (int ranks = 1; ranks <= 300; ++ranks) {
    auto const bytes = pair_table::row_bytes(ranks);
    CHECK(bytes >= static_cast<std::size_t>(ranks) * sizeof(std::uint32_t));
    CHECK(bytes % shm::line_bytes == 0);
    CHECK(pair_table::size_bytes(ranks) == static_cast<std::size_t>(ranks) * bytes);
  }
}

TEST_CASE("each ordered pair of ranks has a word of its own, in the row of the first") {
  shared_pairs shared(33);
  auto const table = shared.table();
  for (int from = 0; from < 33; ++from) {
    for (int to = 0; to < 33; ++to)
      table.word(from, to) = static_cast<std::uint32_t>(from * 33 + to);
  }
  bool kept = true;
  for (int from = 0; from < 33; ++from) {
    for (int to = 0; to < 33; ++to) {
      kept = kept && table.word(from, to) == static_cast<std::uint32_t>(from * 33 + to);
      kept = kept && &table.word(from, to) == table.row(from) + to;
    }
  }
  CHECK(kept);
}
