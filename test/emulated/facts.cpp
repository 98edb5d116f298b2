/// @file
/// Checks from inside that an emulated machine is what the tests in it rely on.

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "shm/shm.hpp"

namespace {

constexpr char const* usage =
    "usage: facts plain|hmat|kunpeng    the machine has these nodes, and ranks run on it\n"
    "       facts memory_max BYTES      this process is in a control group with this limit\n";

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

// From linux/mempolicy.h, which not every machine has.
constexpr int mpol_bind = 2;

/// A file below /sys/devices/system/node; without content where it must not exist.
struct file_fact {
  std::string_view path;
  std::optional<std::string_view> content;
};

struct machine_facts {
  std::vector<int> nodes;
  std::vector<file_fact> files;
};

std::map<std::string_view, machine_facts> const machines{
    {"plain",
     {.nodes = {0},
      .files = {{"online", "0"},
                {"node0/cpulist", "0-1"},
                {"node0/access0/initiators/read_bandwidth", {}}}}},
    {"hmat",
     {.nodes = {0, 1, 2},
      .files = {{"online", "0-2"},
                {"node0/cpulist", "0"},
                {"node1/cpulist", "1"},
                {"node2/cpulist", ""},
                {"node2/distance", "12 22 10"},
                {"node0/access0/initiators/read_bandwidth", "40960"},
                {"node1/access0/initiators/read_bandwidth", "40960"},
                {"node2/access0/initiators/read_bandwidth", "204800"},
                {"node0/hugepages/hugepages-2048kB/nr_hugepages", "4"},
                {"node1/hugepages/hugepages-2048kB/nr_hugepages", "0"},
                {"node2/hugepages/hugepages-2048kB/nr_hugepages", "8"}}}},
    {"kunpeng",
     {.nodes = {0, 1, 16, 17},
      .files = {{"online", "0-1,16-17"},
                {"node0/cpulist", "0"},
                {"node1/cpulist", "1"},
                {"node16/cpulist", ""},
                {"node17/cpulist", ""},
                {"node16/distance", "12 20 10 20"},
                {"node17/distance", "20 12 20 10"},
                {"node16/access0/initiators/read_bandwidth", {}}}}},
};

bool all_well = true;

void check(bool is_well, std::string const& what) {
  std::printf("%s: %s\n", is_well ? "ok" : "FAILED", what.c_str());
  all_well = all_well && is_well;
}

/// Returns a file's text without the line feed at its end.
std::optional<std::string> content_of(std::string const& path) {
  std::ifstream file(path);
  if (!file) return std::nullopt;
  std::string text{std::istreambuf_iterator<char>(file), {}};
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

void check_file(std::string const& path, std::optional<std::string_view> content) {
  auto const found = content_of(path);
  auto text = path + (content ? " is '" + std::string(*content) + "'" : " does not exist");
  if (found != content) text += found ? ", found '" + *found + "'" : ", cannot be read";
  check(found == content, text);
}

/// Checks that memory can be bound to a node, populated in one call, and then lies there.
void check_memory_of(int node) {
  constexpr std::size_t bytes = 4U << 20U;
  auto const name = std::to_string(node);
  void* const memory =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  check(memory != MAP_FAILED, "memory for node " + name);
  if (memory == MAP_FAILED) return;
  unsigned long const mask = 1UL << static_cast<unsigned>(node);
  check(::syscall(SYS_mbind, memory, bytes, mpol_bind, &mask, 8 * sizeof mask, 0) == 0,
        "mbind to node " + name);
  check(::madvise(memory, bytes, MADV_POPULATE_WRITE) == 0, "MADV_POPULATE_WRITE on node " + name);
  auto const page_bytes = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  std::size_t elsewhere = 0;
  for (std::size_t at = 0; at < bytes; at += page_bytes) {
    void* page = static_cast<std::byte*>(memory) + at;
    int where = -1;
    ::syscall(SYS_move_pages, 0, 1UL, &page, nullptr, &where, 0);
    if (where != node) ++elsewhere;
  }
  check(elsewhere == 0,
        "all pages are on node " + name + ", " + std::to_string(elsewhere) + " elsewhere");
  ::munmap(memory, bytes);
}

/// Checks that two forked ranks see each other's MiB of a window.
void check_ranks() {
  constexpr std::size_t bytes = 1U << 20U;
  try {
    auto const right = shm::fork_ranks(2, [](shm::group& node) {
      shm::window<char> letters{node, bytes};
      std::ranges::fill(letters.local(), static_cast<char>('a' + node.rank()));
      letters.fence();
      auto const others = std::as_const(letters)[1 - node.rank()];
      return static_cast<int>(std::ranges::count(others, static_cast<char>('b' - node.rank())));
    });
    check(right == std::vector<int>(2, static_cast<int>(bytes)), "ranks see each other's window");
  } catch (std::exception const& e) {
    check(false, e.what());
  }
}

void check_memory_max(std::string const& bytes) {
  auto const group = content_of("/proc/self/cgroup").value_or("");
  constexpr std::string_view version_2 = "0::";
  check(group.starts_with(std::string(version_2) + "/with_memory_max."),
        "/proc/self/cgroup names a group of version 2: " + group);
  if (!group.starts_with(version_2)) return;
  check_file("/sys/fs/cgroup" + group.substr(version_2.size()) + "/memory.max", bytes);
}

}  // namespace

int main(int argc, char** argv) {
  std::span<char* const> const words(argv, static_cast<std::size_t>(argc));
  if (words.size() == 3 && std::string_view(words[1]) == "memory_max") {
    check_memory_max(words[2]);
  } else if (words.size() == 2 && machines.contains(words[1])) {
    auto const& [nodes, files] = machines.at(words[1]);
    for (auto const& [path, content] : files) {
      check_file("/sys/devices/system/node/" + std::string(path), content);
    }
    for (int const node : nodes) check_memory_of(node);
    check_ranks();
  } else {
    std::fputs(usage, stderr);
    return 2;
  }
  return all_well ? 0 : 1;
}
