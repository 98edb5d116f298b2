/// @file
/// Checks, inside an emulated machine, on which nodes and in which pages windows lie.

#include <sched.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <map>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shm/shm.hpp"

namespace {

constexpr char const* usage = "usage: windows plain|hmat|kunpeng\n";
constexpr std::size_t mib = std::size_t{1} << 20U;

using nodes = std::vector<int>;
using on_sls = shm::window<unsigned char, shm::sls_policy>;

void check(bool holds, std::string const& what) {
  if (!holds) throw std::runtime_error(what);
}

std::string in_words(nodes const& list) {
  std::string text;
  for (int const node : list) text += std::to_string(node) + " ";
  return text;
}

void check_nodes(nodes const& found, nodes const& wanted, std::string const& what) {
  check(found == wanted,
        what + ": blocks lie on " + in_words(found) + "not on " + in_words(wanted));
}

/// Writes to all of a window, reads all of it.
template <class Window>
void check_contents(Window& w) {
  std::ranges::fill(w.local(), static_cast<unsigned char>(w.rank() + 1));
  w.fence();
  for (int r = 0; r < w.size(); ++r) {
    auto const is_right = [r](unsigned char byte) { return byte == r + 1; };
    check(std::ranges::all_of(std::as_const(w)[r], is_right), "wrong bytes");
  }
  w.fence();
}

/// How many pages of a block lie on each node.
std::map<int, int> pages_on(std::span<unsigned char const> block) {
  std::map<int, int> count;
  for (int const node : shm::os::nodes_of(std::as_bytes(block), 4096)) ++count[node];
  return count;
}

std::string message_of(auto const& f) {
  try {
    f();
  } catch (shm::error const& e) {
    return e.what();
  }
  return {};
}

void check_owner(shm::group& node, nodes const& local) {
  shm::window<unsigned char, shm::posix_policy> posix(node, 4 * mib);
  check_nodes(posix.residency().nodes, local, "posix, by owner");
  on_sls sls(node, 4 * mib);
  check_nodes(sls.residency().nodes, local, "sls, by owner");
  check_contents(sls);
}

void check_wishes(shm::group& node, nodes const& ordinary) {
  on_sls spread(node, 4 * mib, shm::sls_policy{}, {.place = shm::place::interleave});
  for (int r = 0; r < node.size(); ++r) {
    auto const count = pages_on(std::as_const(spread)[r]);
    check(count.size() == ordinary.size(), "interleaved over " + std::to_string(count.size()));
    for (auto const& [at, pages] : count) {
      check(std::ranges::count(ordinary, at) == 1, "interleaved on node " + std::to_string(at));
      check(pages > 400, "node " + std::to_string(at) + " has a small part");
    }
  }
  int const last = ordinary.back();
  shm::window<unsigned char, shm::posix_policy> one(node, 4 * mib,
                                                    {.place = shm::place::node(last)});
  check_nodes(one.residency().nodes, {last, last}, "posix, on one node");
}

void check_on_package(shm::group& node, nodes const& nearest) {
  for (auto const wanted : {shm::memory::prefer_on_package, shm::memory::require_on_package}) {
    on_sls fast(node, 4 * mib, {.memory = wanted});
    check_nodes(fast.residency().nodes, nearest, "on package");
    check_contents(fast);
  }
}

/// Asks for more than the only node with high-bandwidth memory has.
void check_full(shm::group& node, int fast_node) {
  auto const left = shm::os::memory_nodes().free_bytes(fast_node);
  node.barrier();
  auto const share = left / 2 + 16 * mib;
  auto const text = message_of(
      [&] { on_sls const too_much(node, share, {.memory = shm::memory::require_on_package}); });
  check(text.find("limit reached") != std::string::npos && text.find(" left") != std::string::npos,
        "required beyond what is left: '" + text + "'");
  on_sls spilled(node, share, {.memory = shm::memory::prefer_on_package});
  check_contents(spilled);
  std::map<int, int> count;
  for (int r = 0; r < node.size(); ++r) {
    for (auto const& [at, pages] : pages_on(std::as_const(spilled)[r])) count[at] += pages;
  }
  check(count[fast_node] > 0 && count.size() > 1, "preferred memory did not spill over");
}

/// The pool has 8 huge pages on node 2, and 4 on node 0.
void check_huge_on_package(shm::group& node) {
  constexpr shm::sls_policy wanted{.pages = shm::pages::prefer_huge,
                                   .memory = shm::memory::require_on_package};
  {
    on_sls fast(node, 4 * mib, wanted);
    check(fast.page_size() == 2 * mib, "pages of " + std::to_string(fast.page_size()));
    check_nodes(fast.residency().nodes, {2, 2}, "huge, on package");
    check_contents(fast);
    node.barrier();
  }
  node.barrier();
  on_sls more(node, 16 * mib, wanted);
  check(more.page_size() < 2 * mib, "more huge pages than node 2 has");
  check_nodes(more.residency().nodes, {2, 2}, "more than its huge pages, on package");
}

void check_none(shm::group& node) {
  auto const text = message_of(
      [&] { on_sls const none(node, mib, {.memory = shm::memory::require_on_package}); });
  check(text.find("not supported here") != std::string::npos &&
            text.find("SHM_HBM_NODES") != std::string::npos,
        "required where there is none: '" + text + "'");
  on_sls ordinary(node, mib, {.memory = shm::memory::prefer_on_package});
  check_nodes(ordinary.residency().nodes, {0, 0}, "preferred where there is none");
  check_contents(ordinary);
}

/// Stays on the processor with this rank's number, which is on the node with that number.
void pin(int rank) {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(static_cast<std::size_t>(rank), &one);
  check(::sched_setaffinity(0, sizeof one, &one) == 0, "cannot pin");
}

void run(shm::group& node, std::string_view machine) {
  pin(node.rank());
  if (machine == "hmat") {
    check_owner(node, {0, 1});
    check_wishes(node, {0, 1});
    check_on_package(node, {2, 2});
    check_huge_on_package(node);
    check_full(node, 2);
  } else if (machine == "kunpeng") {
    check_owner(node, {0, 1});
    check_wishes(node, {0, 1});
    check_on_package(node, {16, 17});
  } else {
    check_owner(node, {0, 0});
    check_none(node);
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::span<char* const> const words(argv, static_cast<std::size_t>(argc));
  if (words.size() != 2) {
    std::fputs(usage, stderr);
    return 2;
  }
  try {
    shm::fork_ranks(
        2, [&](shm::group& node) { run(node, words[1]); }, shm::settings{.is_verbose = true});
  } catch (std::exception const& failed) {
    std::printf("FAILED: %s\n", failed.what());
    return 1;
  }
}
