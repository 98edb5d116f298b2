// Where the parts of a window lie in its segment.

#include "shm/window/segment_layout.hpp"

#include <cstdint>
#include <limits>
#include <vector>

#include "support/catch.hpp"
#include "support/ranks.hpp"

namespace {

using shm::detail::block_entry;
using shm::detail::segment_layout;

constexpr std::size_t page = 4096;

struct placed {
  segment_layout layout;
  std::vector<block_entry> blocks;
};

placed place(std::vector<std::uint64_t> const& sizes, shm::layout how,
             std::size_t page_bytes = page) {
  placed result{segment_layout::of_header(static_cast<int>(sizes.size()), page_bytes),
                std::vector<block_entry>(sizes.size())};
  result.layout.place(sizes, result.blocks, how, page_bytes);
  return result;
}

}  // namespace

TEST_CASE("the parts of a header do not overlap, whatever the number of ranks") {
  for (int const ranks : {1, 2, 3, 31, 32, 33, 64, 255, 1000}) {
    for (std::size_t const page_bytes : {std::size_t{4096}, std::size_t{65536}}) {
      auto const n = static_cast<std::size_t>(ranks);
      auto const at = segment_layout::of_header(ranks, page_bytes);
      CHECK(at.lines_at >= sizeof(shm::detail::segment_header));
      CHECK(at.lines_at % shm::line_bytes == 0);
      CHECK(at.blocks_at >= at.lines_at + n * shm::line_bytes);
      CHECK(at.peers_at >= at.blocks_at + n * sizeof(block_entry));
      CHECK(at.peers_at % shm::line_bytes == 0);
      CHECK(at.posts_at >= at.peers_at + n * n * sizeof(std::uint32_t));
      CHECK(at.posts_at % shm::line_bytes == 0);
      CHECK(at.data_at >= at.posts_at + n * n * sizeof(std::uint32_t));
      CHECK(at.data_at % page_bytes == 0);
    }
  }
}

TEST_CASE("aligned blocks begin on pages and keep their sizes") {
  for (std::size_t const page_bytes : {std::size_t{4096}, std::size_t{65536}}) {
    std::vector<std::uint64_t> const sizes{1, 0, page, page + 1, 65536, 0, 3};
    auto const result = place(sizes, shm::layout::page_aligned, page_bytes);
    std::size_t end = result.layout.data_at;
    for (std::size_t r = 0; r < sizes.size(); ++r) {
      CHECK(result.blocks[r].offset == end);
      CHECK(result.blocks[r].bytes == sizes[r]);
      end += (sizes[r] + page_bytes - 1) / page_bytes * page_bytes;
    }
    CHECK(result.layout.total == end);
  }
}

TEST_CASE("contiguous blocks follow each other without padding") {
  std::vector<std::uint64_t> const sizes{1000, 0, 1000, 8};
  auto const result = place(sizes, shm::layout::contiguous);
  CHECK(result.blocks[0].offset == result.layout.data_at);
  CHECK(result.blocks[2].offset == result.layout.data_at + 1000);
  CHECK(result.blocks[3].offset == result.layout.data_at + 2000);
  CHECK(result.layout.total == result.layout.data_at + page);
}

TEST_CASE("blocks whose sum cannot be addressed are a size overflow") {
  constexpr auto most = std::numeric_limits<std::uint64_t>::max();
  for (auto const how : {shm::layout::page_aligned, shm::layout::contiguous}) {
    for (std::vector<std::uint64_t> const& sizes : {std::vector<std::uint64_t>{most},
                                                    {most - page},
                                                    {most / 2, most / 2},
                                                    {most / 2 + 1, most / 2 + 1, 1}}) {
      CHECK(shm_test::failure_of([&] { place(sizes, how); }).cause == shm::errc::size_overflow);
    }
  }
}
