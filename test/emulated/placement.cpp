/// @file
/// Checks, in an emulated machine, that its nodes are told apart, and that memory lies where a
/// policy says: also where a node is full, and on huge pages.

#include <algorithm>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shm/options.hpp"
#include "shm/os/mapping.hpp"
#include "shm/os/memory_node.hpp"
#include "shm/os/placement.hpp"
#include "shm/os/topology.hpp"

namespace {

namespace os = shm::os;
using os::memory_policy;
using os::node_set;

constexpr std::size_t mib = std::size_t{1} << 20U;
constexpr std::size_t huge_page = 2 * mib;

bool all_well = true;

void check(bool is_well, std::string const& what) {
  std::printf("%s: %s\n", is_well ? "ok" : "FAILED", what.c_str());
  std::fflush(stdout);
  all_well = all_well && is_well;
}

/// What a machine is expected to be.
struct machine {
  node_set ordinary;
  node_set high_bandwidth;
  std::vector<int> node_of_processor;
  bool has_huge_pages = false;
};

std::map<std::string_view, machine> const machines{
    {"plain", {.ordinary = {0}, .high_bandwidth = {}, .node_of_processor = {0, 0}}},
    {"hmat",
     {.ordinary = {0, 1},
      .high_bandwidth = {2},
      .node_of_processor = {0, 1},
      .has_huge_pages = true}},
    {"kunpeng", {.ordinary = {0, 1}, .high_bandwidth = {16, 17}, .node_of_processor = {0, 1}}},
};

/// Returns how many of the pages that were looked at lie on each node.
std::map<int, std::size_t> spread(std::span<std::byte const> memory, std::size_t most,
                                  std::size_t page_bytes = os::base_page_bytes()) {
  std::map<int, std::size_t> counts;
  for (int const node : os::nodes_of(memory, most, page_bytes)) ++counts[node];
  return counts;
}

std::string in_words(std::map<int, std::size_t> const& counts) {
  std::string text;
  for (auto const& [node, count] : counts) {
    text += (text.empty() ? "" : ", ") + std::to_string(count) + " on " + std::to_string(node);
  }
  return text.empty() ? "nothing" : text;
}

os::mapping placed(std::size_t bytes, memory_policy policy, node_set const& nodes) {
  auto memory = os::mapping::shared_with_children(bytes);
  os::set_memory_policy(memory.bytes(), policy, nodes);
  os::populate(memory.bytes(), memory.bytes(), -1);
  return memory;
}

/// Runs `f` in a child; returns its status as of waitpid(2).
template <class F>
int in_child(F const& f) {
  std::fflush(stdout);
  pid_t const pid = ::fork();
  if (pid == 0) {
    all_well = true;
    f();
    std::fflush(stdout);
    ::_exit(all_well ? 0 : 1);
  }
  int status = -1;
  ::waitpid(pid, &status, 0);
  return status;
}

void check_processors(std::vector<int> const& node_of_processor) {
  for (std::size_t processor = 0; processor < node_of_processor.size(); ++processor) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(processor, &set);
    ::sched_setaffinity(0, sizeof set, &set);
    check(os::current_node() == node_of_processor[processor],
          "processor " + std::to_string(processor) + " is on node " +
              std::to_string(os::current_node()));
    int const number = os::current_processor();
    check(os::domain_of(shm::domain::numa, number) == node_of_processor[processor],
          "processor " + std::to_string(number) + " belongs to that node in /sys");
  }
}

/// Pages lie on the node that a policy names, and in turn on all nodes.
void check_policies(os::memory_nodes const& nodes) {
  constexpr std::size_t pages = 1024;
  auto const bytes = pages * os::base_page_bytes();
  auto const all = nodes.with_memory();
  for (int const node : all.members()) {
    for (auto const policy : {memory_policy::bound, memory_policy::preferred}) {
      auto const memory = placed(bytes, policy, {node});
      auto const found = spread(memory.bytes(), pages);
      check(found == std::map<int, std::size_t>{{node, pages}},
            std::string(policy == memory_policy::bound ? "bound to " : "preferring ") +
                std::to_string(node) + ": " + in_words(found));
    }
  }
  auto const memory = placed(bytes, memory_policy::interleaved, all);
  auto const found = spread(memory.bytes(), pages);
  auto const share = pages / static_cast<std::size_t>(all.count());
  check(std::ranges::all_of(found,
                            [&](auto const& one) {
                              return all.contains(one.first) && one.second + 1 >= share &&
                                     one.second <= share + 1;
                            }) &&
            found.size() == static_cast<std::size_t>(all.count()),
        "interleaved over " + all.in_words() + ": " + in_words(found));
}

/// Blocks of one object lie on nodes of their own, seen alike by a process that touched none.
void check_blocks(os::memory_nodes const& nodes) {
  auto const members = nodes.with_memory().members();
  constexpr std::size_t block = mib;
  auto const memory = os::mapping::shared_with_children(members.size() * block);
  check(in_child([&] {
          for (std::size_t i = 0; i < members.size(); ++i) {
            auto const mine = memory.bytes().subspan(i * block, block);
            os::set_memory_policy(mine, memory_policy::bound, {members[i]});
            os::populate(memory.bytes(), mine, -1);
          }
        }) == 0,
        "a child places blocks");
  check(os::nodes_of(memory.bytes(), members.size()) == members, "its parent finds them there");
}

/// Memory that prefers several nodes lies on them only, as long as they have room.
void check_several(node_set const& several) {
  auto const memory = placed(4 * mib, memory_policy::preferred, several);
  auto const found = spread(memory.bytes(), 1024);
  check(std::ranges::all_of(found, [&](auto const& one) { return several.contains(one.first); }),
        "preferring " + several.in_words() + ": " + in_words(found));
}

/// What a node has free can be taken without harm, and more than that kills or spills over.
void check_full(os::memory_nodes const& nodes, int node) {
  auto const name = std::to_string(node);
  auto const free = nodes.free_bytes(node);
  check(free > 64 * mib && free < 512 * mib,
        "node " + name + " has " + std::to_string(free / mib) + " MiB free");

  int const filled = in_child([&] {
    auto const memory = placed(free, memory_policy::bound, {node});
    auto const found = spread(memory.bytes(), 512);
    check(found == std::map<int, std::size_t>{{node, 512}}, "bound: " + in_words(found));
    check(nodes.free_bytes(node) < free / 10,  // others free and take a little meanwhile
          "then " + std::to_string(nodes.free_bytes(node) / mib) + " MiB are free");
  });
  check(filled == 0, "all that is free on node " + name + " can be bound to it");

  int const killed = in_child([&] { placed(free + free / 10, memory_policy::bound, {node}); });
  check(WIFSIGNALED(killed) && WTERMSIG(killed) == SIGKILL,
        "a tenth more kills, status " + std::to_string(killed));

  int const spilled = in_child([&] {
    auto const memory = placed(free + 64 * mib, memory_policy::preferred, {node});
    auto const found = spread(memory.bytes(), 512);
    check(found.size() > 1 && found.contains(node) && !found.contains(-1),
          "64 MiB more than free, preferred: " + in_words(found));
  });
  check(spilled == 0, "memory that prefers node " + name + " spills over");
}

/// A part of a mapping of huge pages lies where it is bound to, seen also by another process.
void check_huge_pages(os::memory_nodes const& nodes, int node) {
  check(nodes.free_huge_pages(0, huge_page) == 4 && nodes.free_huge_pages(node, huge_page) == 8,
        "the nodes' free huge pages are counted");
  void* const address = ::mmap(nullptr, 4 * huge_page, PROT_READ | PROT_WRITE,
                               MAP_SHARED | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
  check(address != MAP_FAILED, "four huge pages are mapped");
  if (address == MAP_FAILED) return;
  std::span<std::byte> const memory(static_cast<std::byte*>(address), 4 * huge_page);
  // Each part ends within a huge page.
  auto const first = memory.first(2 * huge_page - 5000);
  auto const second = memory.subspan(2 * huge_page, huge_page + 1);
  os::set_memory_policy(first, memory_policy::bound, {node}, huge_page);
  os::set_memory_policy(second, memory_policy::bound, {0}, huge_page);
  check(in_child([&] { std::ranges::fill(memory, std::byte{1}); }) == 0, "a child fills them");
  auto const found = os::nodes_of(memory, 4, huge_page);
  check(found == std::vector{node, node, 0, 0}, "they lie where they are bound to");
  check(nodes.free_huge_pages(node, huge_page) == 6, "two of the node's huge pages are taken");
  ::munmap(address, 4 * huge_page);
}

void run(machine const& expected) {
  os::memory_nodes const nodes;
  check(nodes.high_bandwidth() == expected.high_bandwidth,
        "high-bandwidth: " + nodes.high_bandwidth().in_words());
  check(nodes.ordinary() == expected.ordinary, "ordinary: " + nodes.ordinary().in_words());
  check(nodes.remark().empty(), "no remark");
  check(os::usable_nodes() == nodes.with_memory(), "usable: " + os::usable_nodes().in_words());
  for (int const node : nodes.high_bandwidth().members()) {
    auto const near = nodes.nearest(node, nodes.ordinary());
    check(near == node % 2, "the ordinary node nearest to " + std::to_string(node));
  }
  check_policies(nodes);
  check_blocks(nodes);
  if (nodes.with_memory().count() > 1) {
    check_several(nodes.high_bandwidth());
    check_several({0, 1});
    check_full(nodes, nodes.high_bandwidth().members().front());
  }
  if (expected.has_huge_pages) check_huge_pages(nodes, nodes.high_bandwidth().members().front());
  check_processors(expected.node_of_processor);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2 || !machines.contains(argv[1])) {
    std::fputs("usage: placement plain|hmat|kunpeng    the machine has these nodes\n", stderr);
    return 2;
  }
  try {
    run(machines.at(argv[1]));
  } catch (std::exception const& e) {
    check(false, e.what());
  }
  return all_well ? 0 : 1;
}
