/// @file Fences of forked ranks: of four nested groups in turn, and of each algorithm.
///
///     nested [--quick] [--rounds N] [--batches N]
///
/// First, 8 ranks fence all together, in halves, in pairs and each alone, in turn, for many rounds,
/// in one-byte windows. Then the algorithms are each other's rivals on the same ranks, batch by
/// batch; the limit, for 2 ranks, is a flag each. Numbers are medians over the batches of the
/// slowest rank's time; after each batch a fence of each kind is verified.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string_view>
#include <utility>
#include <vector>

#include "comparison.hpp"
#include "handshake.hpp"
#include "shm/base/settings.hpp"
#include "shm/communicator.hpp"
#include "shm/group.hpp"
#include "shm/launch.hpp"
#include "shm/oob/callback.hpp"
#include "shm/options.hpp"
#include "shm/window.hpp"
#include "statistics.hpp"

namespace {

constexpr std::string_view usage =
    "usage: nested [options]\n"
    "  --quick      shorter and fewer batches\n"
    "  --rounds N   rounds over the nested groups in a batch (2000)\n"
    "  --batches N  how many batches (11; quick: 5)\n";

constexpr int nested_ranks = 8;
constexpr int levels = 4;

struct options {
  bench::pace pace = {};
  int rounds = 2000;
};

/// Returns nothing where the arguments make no sense, or ask for help.
std::optional<options> parse(std::span<char const* const> arguments) {
  options result;
  int batches = 0;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    std::string_view const name = arguments[i];
    bool const has_value = i + 1 < arguments.size();
    if (name == "--quick") {
      result.pace = {.batch_us = 20e3, .batches = 5};
    } else if (name == "--rounds" && has_value) {
      result.rounds = std::atoi(arguments[++i]);
    } else if (name == "--batches" && has_value) {
      batches = std::max(std::atoi(arguments[++i]), 1);
    } else {
      return std::nullopt;
    }
  }
  if (result.rounds < 1) return std::nullopt;
  if (batches != 0) result.pace.batches = batches;
  return result;
}

/// Makes a group of `size` neighbouring ranks of `parent`, through the parent's allgather.
///
/// Requires:   every rank of the parent makes its part at the same time, with parts of equal size
///             whose ranks reach each other in the same way: each allgather of a part is one of the
///             parent.
/// Collective: all ranks of the parent.
shm::group part_of(shm::group& parent, int size) {
  auto const first = static_cast<std::size_t>(parent.rank() / size * size);
  shm::callback_oob oob(
      parent.rank() % size, size, [&](std::span<std::byte const> mine, std::span<std::byte> all) {
        auto const ranks = static_cast<std::size_t>(parent.size());
        std::vector<std::byte> whole(mine.size() * ranks);
        parent.allgather(mine, whole);
        auto const part = std::span(whole).subspan(first * mine.size(), all.size());
        std::ranges::copy(part, all.begin());
      });
  return shm::communicator(oob);
}

/// A window of one byte, used as a fence only, and the proof that it is one.
class byte_fence {
 public:
  explicit byte_fence(shm::group& ranks) : bytes_(ranks, 1) {}

  void cross() { bytes_.fence(); }

  /// Whether what every rank writes before the fence is seen after it.
  bool is_right() {
    ++turn_;
    bytes_.local()[0] = turn_;
    bytes_.fence();
    bool right = true;
    for (int rank = 0; rank < bytes_.size(); ++rank) {
      right = right && std::as_const(bytes_)[rank][0] == turn_;
    }
    bytes_.fence();
    return right;
  }

 private:
  shm::window<unsigned char> bytes_;
  unsigned char turn_ = 0;
};

/// Returns the µs of a batch of rounds over four nested groups.
double run_nested(shm::group& node, options const& wanted) {
  auto halves = part_of(node, nested_ranks / 2);
  auto pairs = part_of(halves, nested_ranks / 4);
  auto each = part_of(pairs, 1);
  std::array<byte_fence, levels> fences{byte_fence(node), byte_fence(halves), byte_fence(pairs),
                                        byte_fence(each)};
  bench::lane const lane{.name = "nested fences",
                         .run =
                             [&](int rounds) {
                               for (int round = 0; round < rounds; ++round) {
                                 for (auto& fence : fences) fence.cross();
                               }
                             },
                         .is_right =
                             [&] {
                               // Every rank looks at all of them, whatever it finds: the others
                               // wait for it.
                               return std::ranges::count_if(fences, &byte_fence::is_right) ==
                                      levels;
                             }};
  // A batch is the rounds that were asked for: nothing is left to calibration.
  std::vector<double> samples;
  for (int batch = 0; batch < wanted.pace.batches; ++batch) {
    samples.push_back(bench::timed_us(node, lane, wanted.rounds));
    bool const right = lane.is_right();
    node.agree([&] {
      if (!right) throw std::runtime_error("the result of a nested fence is wrong");
    });
  }
  return bench::median(samples);
}

using algorithm = shm::fence_algorithm;
constexpr std::array<std::pair<algorithm, char const*>, 4> algorithms{{
    {algorithm::linear, "linear"},
    {algorithm::dissemination, "dissemination"},
    {algorithm::counter, "counter"},
    {algorithm::automatic, "automatic"},
}};
using fence_times = std::array<double, algorithms.size() + 1>;  // the limit last

/// Returns the µs of one fence for each algorithm, and of the limit.
fence_times run_algorithms(shm::group& node, options const& wanted) {
  std::vector<shm::group> groups;  // outlive the windows' fences
  std::vector<bench::lane> lanes;
  for (auto const& [which, name] : algorithms) {
    groups.push_back(shm::communicator(node, shm::settings{.fence = which}));
    auto const fence = std::make_shared<byte_fence>(groups.back());
    lanes.push_back({.name = name,
                     .run =
                         [fence](int iterations) {
                           for (int i = 0; i < iterations; ++i) fence->cross();
                         },
                     .is_right = [fence] { return fence->is_right(); }});
  }
  auto const flags =
      std::make_shared<bench::handshake>(node, node.size() == 2 ? 1 - node.rank() : -1);
  lanes.push_back({.name = node.size() == 2 ? "a flag each" : "", .run = [flags](int iterations) {
                     for (int i = 0; i < iterations; ++i) flags->meet();
                   }});
  auto const us = bench::interleave(node, lanes, wanted.pace);
  fence_times result{};
  std::ranges::copy(us, result.begin());
  return result;
}

void run(options const& wanted) {
  std::fprintf(stderr, "nested: four nested groups of %d ranks\n", nested_ranks);
  auto const us =
      shm::fork_ranks(nested_ranks, [&](shm::group& node) { return run_nested(node, wanted); })[0];
  std::printf("%d ranks, %d nested groups, %d rounds: %.3f s, %.3f µs a fence\n\n", nested_ranks,
              levels, wanted.rounds, us / 1e6, us / wanted.rounds / levels);

  std::printf("a fence [µs]\n%-8s", "ranks");
  for (auto const& [which, name] : algorithms) std::printf("%15s", name);
  std::printf("%15s\n", "limit");
  for (int const ranks : {2, 4, 8, 16}) {
    std::fprintf(stderr, "nested: algorithms on %d ranks\n", ranks);
    auto const times =
        shm::fork_ranks(ranks, [&](shm::group& node) { return run_algorithms(node, wanted); })[0];
    std::printf("%-8d", ranks);
    for (double const one : times) std::printf("%15s", bench::in_us(one).c_str());
    std::printf("\n");
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<char const*> const arguments(argv + 1, argv + argc);
  bool const is_help = std::ranges::count(arguments, std::string_view("--help")) != 0;
  auto const wanted = parse(arguments);
  if (is_help || !wanted) {
    std::fputs(usage.data(), is_help ? stdout : stderr);
    return is_help ? 0 : 2;
  }
  try {
    run(*wanted);
  } catch (std::exception const& e) {
    std::fprintf(stderr, "nested: %s\n", e.what());
    return 1;
  }
}
