#include "shm/os/memory_node.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shm/os/mapping.hpp"
#include "support/catch.hpp"
#include "support/directory.hpp"

namespace {

using shm::os::memory_nodes;
using shm::os::node_set;

/// A made-up /sys in a directory.
class tree {
 public:
  void write(std::string const& path, std::string_view content) const {
    auto const file = std::filesystem::path(root_.path()) / path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << content << '\n';
  }
  void write_nodes(std::string const& file, std::string_view content) const {
    write("devices/system/node/" + file, content);
  }
  /// Makes a node with these processors and distances; without memory where that is 0 kB.
  void make(int number, std::string_view processors, std::string_view distances,
            std::uint64_t memory_kb = 1000000) const {
    auto const name = "node" + std::to_string(number);
    write_nodes(name + "/cpulist", processors);
    write_nodes(name + "/distance", distances);
    write_nodes(name + "/meminfo", "\nNode " + std::to_string(number) +
                                       " MemTotal:       " + std::to_string(memory_kb) + " kB");
  }
  void say_bandwidth(int number, std::string_view access, std::uint64_t megabytes_s) const {
    write_nodes(
        "node" + std::to_string(number) + "/" + std::string(access) + "/initiators/read_bandwidth",
        std::to_string(megabytes_s));
  }
  void say_driver(std::string_view lines) const {
    write("kernel/hbm_memory/memory_topo/memory_locality", lines);
  }
  [[nodiscard]] memory_nodes read(std::string_view list = {}) const {
    return memory_nodes(root_.path(), list, root_.path() + "/proc");
  }

 private:
  shm_test::temporary_directory root_;
};

/// One node with all processors.
void make_plain(tree const& sys) {
  sys.write_nodes("online", "0");
  sys.write_nodes("has_memory", "0");
  sys.make(0, "0-7", "10");
}

/// Nodes 0 and 1 with processors, 2 and 3 with the memory on the package of each.
void make_two_and_two(tree const& sys) {
  sys.write_nodes("online", "0-3");
  sys.write_nodes("has_memory", "0-3");
  sys.make(0, "0-3", "10 21 13 23");
  sys.make(1, "4-7", "21 10 23 13");
  sys.make(2, "", "13 23 10 23");
  sys.make(3, "", "23 13 23 10");
}

/// The memory on the package of node n is node n + 16.
void make_kunpeng(tree const& sys) {
  sys.write_nodes("online", "0-1,16-17");
  sys.write_nodes("has_memory", "0-1,16-17");
  sys.make(0, "0-3", "10 20 12 22");
  sys.make(1, "4-7", "20 10 22 12");
  sys.make(16, "", "12 22 10 22");
  sys.make(17, "", "22 12 22 10");
}

TEST_CASE("one node with all processors is ordinary") {
  tree const sys;
  make_plain(sys);
  auto const nodes = sys.read();
  REQUIRE(nodes.all().size() == 1);
  CHECK(nodes.all()[0].has_memory);
  CHECK(nodes.all()[0].has_processors);
  CHECK(nodes.all()[0].distances == std::vector{10});
  CHECK(nodes.all()[0].read_megabytes_s == 0);
  CHECK(nodes.exists(0));
  CHECK_FALSE(nodes.exists(1));
  CHECK(nodes.with_memory() == node_set{0});
  CHECK(nodes.ordinary() == node_set{0});
  CHECK(nodes.high_bandwidth().is_empty());
  CHECK(nodes.remark().empty());
}

TEST_CASE("a kernel without NUMA shows no nodes") {
  tree const sys;
  auto const nodes = sys.read();
  CHECK(nodes.all().empty());
  CHECK(nodes.with_memory().is_empty());
  CHECK(nodes.ordinary().is_empty());
  CHECK(nodes.high_bandwidth().is_empty());
  CHECK(nodes.nearest(0, {0, 1}) == std::nullopt);
  CHECK_FALSE(nodes.exists(0));
  CHECK(nodes.free_bytes(0) == shm::os::unlimited);
  CHECK(nodes.free_huge_pages(0, 2U << 20U) == 0);
}

TEST_CASE("the machine at hand has the nodes that it shows") {
  memory_nodes const nodes;
  for (auto const& node : nodes.all()) {
    INFO("node " << node.number);
    CHECK(nodes.distance(node.number, node.number) == 10);
    if (node.has_memory) CHECK(nodes.free_bytes(node.number) < shm::os::unlimited);
  }
  CHECK((nodes.high_bandwidth() - nodes.with_memory()).is_empty());
}

TEST_CASE("a kernel that does not list the nodes with memory shows it in their sizes") {
  tree const sys;
  sys.write_nodes("online", "0-1");
  sys.make(0, "0", "10 20");
  sys.make(1, "1", "20 10", 0);
  CHECK(sys.read().with_memory() == node_set{0});
}

TEST_CASE("memory with twice the bandwidth of the nearest processors' own is high-bandwidth") {
  tree const sys;
  make_two_and_two(sys);
  sys.say_bandwidth(0, "access0", 40960);
  sys.say_bandwidth(1, "access0", 40961);
  sys.say_bandwidth(2, "access0", 81920);  // exactly twice node 0
  sys.say_bandwidth(3, "access0", 81921);  // one less than twice node 1
  auto const nodes = sys.read();
  CHECK(nodes.high_bandwidth() == node_set{2});
  CHECK(nodes.ordinary() == node_set{0, 1, 3});
  CHECK(nodes.all()[2].read_megabytes_s == 81920);
}

TEST_CASE("the bandwidth seen from processors counts, not the one from an accelerator") {
  tree const sys;
  make_two_and_two(sys);
  for (int const node : {0, 1}) sys.say_bandwidth(node, "access1", 1000);
  sys.say_bandwidth(2, "access0", 9000);
  sys.say_bandwidth(2, "access1", 1000);
  sys.say_bandwidth(3, "access1", 9000);
  sys.say_bandwidth(3, "access0", 1000);
  CHECK(sys.read().high_bandwidth() == node_set{3});
}

TEST_CASE("bandwidth without any to compare with decides nothing") {
  tree const sys;
  make_two_and_two(sys);
  sys.say_bandwidth(2, "access0", 100000);
  CHECK(sys.read().high_bandwidth().is_empty());
}

TEST_CASE("fast memory with processors of its own is what they have, not more") {
  tree const sys;
  make_two_and_two(sys);
  sys.say_bandwidth(0, "access0", 100);
  sys.say_bandwidth(1, "access0", 1000);
  CHECK(sys.read().high_bandwidth().is_empty());
}

TEST_CASE("where the firmware is silent openEuler's driver says it") {
  tree const sys;
  make_two_and_two(sys);
  sys.say_driver("2 0-1\n3 0,1");
  CHECK(sys.read().high_bandwidth() == node_set{2, 3});
}

TEST_CASE("lines of the driver that are none, and nodes without memory in it, do not count") {
  tree const sys;
  make_two_and_two(sys);
  sys.write_nodes("has_memory", "0-2");
  sys.say_driver("x 0\n\n3 1\n9 0\n2 0");
  CHECK(sys.read().high_bandwidth() == node_set{2});
}

TEST_CASE("the driver goes before the numbering") {
  tree const sys;
  make_kunpeng(sys);
  sys.say_driver("17 1");
  CHECK(sys.read().high_bandwidth() == node_set{17});
}

TEST_CASE("node n + 16 is the memory on the package of node n") {
  tree const sys;
  make_kunpeng(sys);
  auto const nodes = sys.read();
  CHECK(nodes.high_bandwidth() == node_set{16, 17});
  CHECK(nodes.ordinary() == node_set{0, 1});
  CHECK(nodes.nearest(1, nodes.high_bandwidth()) == 17);
}

TEST_CASE("node n + 16 is none where it has processors, no memory, or is not the nearest") {
  tree const sys;
  make_kunpeng(sys);
  SECTION("processors") { sys.make(17, "8-9", "22 12 22 10"); }
  SECTION("no memory") { sys.write_nodes("has_memory", "0-1,16"); }
  SECTION("not the nearest") { sys.make(1, "4-7", "20 10 12 13"); }
  CHECK(sys.read().high_bandwidth() == node_set{16});
}

TEST_CASE("the numbering does not overrule a firmware that denies it") {
  tree const sys;
  make_kunpeng(sys);
  sys.say_bandwidth(0, "access0", 1000);
  sys.say_bandwidth(1, "access0", 1000);
  sys.say_bandwidth(16, "access0", 300);
  CHECK(sys.read().high_bandwidth() == node_set{17});
}

TEST_CASE("a node without processors at another number is none by the numbering") {
  tree const sys;
  make_two_and_two(sys);
  CHECK(sys.read().high_bandwidth().is_empty());
}

TEST_CASE("the user's list goes before all that the machine says") {
  tree const sys;
  make_kunpeng(sys);
  sys.say_driver("17 1");
  auto const nodes = sys.read("1,16");
  CHECK(nodes.high_bandwidth() == node_set{1, 16});
  CHECK(nodes.ordinary() == node_set{0, 17});
  CHECK(nodes.remark().empty());
}

TEST_CASE("a malformed list is named, and the machine is asked instead") {
  tree const sys;
  make_kunpeng(sys);
  auto const nodes = sys.read("16;17");
  CHECK(nodes.high_bandwidth() == node_set{16, 17});
  CHECK(nodes.remark() ==
        "SHM_HBM_NODES=16;17 is not a list of nodes up to 1023, such as 2,16-31; taken: what the "
        "machine says");
  CHECK(sys.read("9999").remark().find("nodes up to 1023") != std::string::npos);
}

TEST_CASE("nodes of the list without memory are named, and the others taken") {
  tree const sys;
  make_kunpeng(sys);
  sys.write_nodes("has_memory", "0-1,16");
  auto const nodes = sys.read("2-4,16-17");
  CHECK(nodes.high_bandwidth() == node_set{16});
  CHECK(nodes.remark() ==
        "SHM_HBM_NODES=2-4,16-17 names nodes without memory, which are left out: 2 to 4, 17");
  CHECK(sys.read("40").high_bandwidth().is_empty());
}

TEST_CASE("the nearest node is the one at the smallest distance, then with the lowest number") {
  tree const sys;
  make_two_and_two(sys);
  auto const nodes = sys.read();
  CHECK(nodes.nearest(1, {0, 2, 3}) == 3);
  CHECK(nodes.nearest(1, {1, 3}) == 1);
  CHECK(nodes.nearest(3, {0, 2}) == 0);
  CHECK(nodes.nearest(0, {7}) == std::nullopt);
  CHECK(nodes.nearest(0, {}) == std::nullopt);
  CHECK(nodes.nearest(-1, {2, 3}) == 2);
}

TEST_CASE("distances belong to the nodes that there are, whatever their numbers") {
  tree const sys;
  make_kunpeng(sys);
  auto const nodes = sys.read();
  CHECK(nodes.distance(17, 1) == 12);
  CHECK(nodes.distance(16, 17) == 22);
}

TEST_CASE("without distances that fit the nodes the kernel's defaults hold") {
  tree const sys;
  make_two_and_two(sys);
  sys.make(1, "4-7", "21 10");
  auto const nodes = sys.read();
  CHECK(nodes.distance(1, 1) == 10);
  CHECK(nodes.distance(1, 0) == 20);
  CHECK(nodes.distance(0, 9) == 20);
  CHECK(nodes.nearest(1, {0, 3}) == 0);
}

TEST_CASE("200 nodes are all read") {
  tree const sys;
  sys.write_nodes("online", "0-199");
  sys.write_nodes("has_memory", "0-199");
  for (int from = 0; from < 200; ++from) {
    std::string distances;
    for (int to = 0; to < 200; ++to) {
      distances += (to == 0 ? "" : " ") + std::to_string(to == from               ? 10
                                                         : to % 100 == from % 100 ? 12
                                                                                  : 40);
    }
    sys.make(from, from < 100 ? "0" : "", distances);
    sys.say_bandwidth(from, "access1", from < 100 ? 100 : 500);
  }
  auto const nodes = sys.read();
  CHECK(nodes.with_memory().count() == 200);
  CHECK(nodes.high_bandwidth().in_words() == "100 to 199");
  CHECK(nodes.nearest(57, nodes.high_bandwidth()) == 157);
}

/// What the kernel says of a node of 100000 pages.
void say_free(tree const& sys, int node, std::uint64_t free) {
  auto const name = "Node " + std::to_string(node) + " ";
  auto const line = [&](std::string_view label, std::uint64_t pages) {
    return name + std::string(label) + "    " +
           std::to_string(pages * shm::os::base_page_bytes() / 1024) + " kB\n";
  };
  sys.write_nodes("node" + std::to_string(node) + "/meminfo",
                  "\n" + line("MemTotal:", 100000) + line("MemFree:", free) + line("MemUsed:", 7) +
                      line("Active:", 99999) + line("Inactive:", 99999) +
                      line("Active(anon):", 99999) + line("Inactive(anon):", 99999) +
                      line("Active(file):", 300) + line("Inactive(file):", 40));
}

std::string zone(int node, std::string_view name, int free, int min, std::string_view protection) {
  return "Node " + std::to_string(node) + ", zone " + std::string(name) +
         "\n  per-node stats\n      nr_inactive_file 99\n  pages free     " + std::to_string(free) +
         "\n        boost    0\n        min      " + std::to_string(min) +
         "\n        low      5000\n        high     6000\n        protection: (" +
         std::string(protection) +
         ")\n      nr_free_pages 1234\n  pagesets\n    cpu: 0\n              count: 5\n";
}

TEST_CASE("bound memory can take what is free and droppable, less what the kernel keeps") {
  tree const sys;
  make_plain(sys);
  // A zone that is kept for other uses as a whole, one in part, one that has nothing.
  sys.write("proc/zoneinfo",
            zone(10, "DMA", 90, 90, "0, 90") + zone(0, "DMA", 700, 10, "0, 0, 800") +
                zone(0, "Normal", 9000, 500, "0, 0, 60") + zone(0, "Movable", 0, 32, "0, 0, 0") +
                zone(1, "Normal", 9000, 500, "0, 0, 0"));
  auto const nodes = sys.read();
  say_free(sys, 0, 9700);
  CHECK(nodes.free_bytes(0) == (9700 + 340 - 700 - 560 - 2000) * shm::os::base_page_bytes());
  say_free(sys, 0, 1000);  // it is read anew, and is never below zero
  CHECK(nodes.free_bytes(0) == 0);
}

TEST_CASE("where it is not told what the kernel keeps, the most that it does is left to it") {
  tree const sys;
  make_plain(sys);
  auto const nodes = sys.read();
  say_free(sys, 0, 9700);
  CHECK(nodes.free_bytes(0) == (9700 + 340 - 5000 - 2000) * shm::os::base_page_bytes());
}

TEST_CASE("the free huge pages of a node are those of the size asked for") {
  tree const sys;
  make_plain(sys);
  sys.write_nodes("node0/hugepages/hugepages-2048kB/free_hugepages", "12");
  sys.write_nodes("node0/hugepages/hugepages-1048576kB/free_hugepages", "3");
  auto const nodes = sys.read();
  CHECK(nodes.free_huge_pages(0, std::size_t{2} << 20U) == 12);
  CHECK(nodes.free_huge_pages(0, std::size_t{1} << 30U) == 3);
  CHECK(nodes.free_huge_pages(0, std::size_t{64} << 10U) == 0);
  CHECK(nodes.free_huge_pages(1, std::size_t{2} << 20U) == 0);
}

}  // namespace
