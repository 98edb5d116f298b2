/// @file Random reads over a large window on huge pages, against the same on base pages.
///
///     random_reads [--quick] [--mib N]
///
/// Two forked ranks read all blocks of a window of N MiB (512), each load waiting for the one
/// before. Reserves the huge pages for it and gives them back, which needs root; else it says so.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <numeric>
#include <span>
#include <string_view>
#include <utility>

#include "comparison.hpp"
#include "shm/shm.hpp"
#include "statistics.hpp"
#include "support/huge_pages.hpp"

namespace {

using table = shm::window<std::uint64_t, shm::sls_policy>;

/// Reads `count` elements of all blocks, each at a place that the one before decides.
std::uint64_t walk(table const& w, int count, std::uint64_t seed) {
  auto const blocks = static_cast<std::uint64_t>(w.size());
  std::uint64_t at = seed;
  for (int i = 0; i < count; ++i) {
    at = at * 6364136223846793005U + 1442695040888963407U;  // Knuth's generator, MMIX
    auto const block = w[static_cast<int>((at >> 32U) % blocks)];
    at += block[(at >> 20U) % block.size()];
  }
  return at;
}

bench::lane reading(std::string_view name, std::shared_ptr<table> const& w) {
  return {.name = std::string(name),
          .run =
              [w, last = std::make_shared<std::uint64_t>(0)](int count) {
                *last = walk(*w, count, *last + static_cast<std::uint64_t>(w->rank()));
              },
          .is_right =
              [w] {
                auto const mine = std::as_const(*w).local();
                auto const sum = std::accumulate(mine.begin(), mine.end(), std::uint64_t{0});
                return sum == mine.size() * (static_cast<std::uint64_t>(w->rank()) + 1);
              }};
}

void run(shm::group& node, std::size_t bytes, bench::pace const& how) {
  auto const make = [&](shm::pages pages) {
    auto const count = bytes / sizeof(std::uint64_t) / static_cast<std::size_t>(node.size());
    auto made = std::make_shared<table>(node, count, shm::sls_policy{.pages = pages});
    std::ranges::fill(made->local(), static_cast<std::uint64_t>(node.rank()) + 1);
    made->fence();
    return made;
  };
  auto const huge = make(shm::pages::require_huge);
  auto const base = make(shm::pages::base);
  auto const row = bench::measure(node,
                                  {.operation = "random read",
                                   .ours = reading("huge pages", huge),
                                   .rival = reading("base pages", base)},
                                  how);
  if (node.rank() != 0) return;
  bench::print_head();
  bench::print(row);
  std::printf("pages of %zu and of %zu bytes\n", huge->page_size(), base->page_size());
}

}  // namespace

int main(int argc, char** argv) {
  bench::pace how{};
  std::size_t mib = 512;
  std::span<char* const> const words(argv, static_cast<std::size_t>(argc));
  for (std::size_t i = 1; i < words.size(); ++i) {
    if (std::string_view(words[i]) == "--quick") {
      how = {.batch_us = 20e3, .batches = 5};
    } else if (std::string_view(words[i]) == "--mib" && i + 1 < words.size()) {
      mib = std::strtoul(words[++i], nullptr, 10);
    } else {
      std::fprintf(stderr, "usage: random_reads [--quick] [--mib N]\n");
      return 2;
    }
  }
  std::size_t const bytes = std::max<std::size_t>(mib, 4) << 20U;
  auto const page = shm::os::default_huge_page_bytes();
  shm_test::huge_page_reserve const reserve(page == 0 ? 1 : bytes / page + 4);
  if (!reserve.is_there()) {
    std::printf("skipped: %s\n", reserve.why_not().c_str());
    return 77;
  }
  try {
    shm::fork_ranks(2, [&](shm::group& node) { run(node, bytes, how); });
  } catch (std::exception const& failed) {
    std::fprintf(stderr, "%s\n", failed.what());
    return 1;
  }
}
