#include "shm/os/placement.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "shm/os/mapping.hpp"
#include "shm/os/memory_node.hpp"
#include "support/catch.hpp"
#include "support/child.hpp"
#include "support/ranks.hpp"
#include "support/system_call_filter.hpp"

namespace {

namespace os = shm::os;
using os::memory_policy;
using os::node_set;
using shm::errc;

std::size_t const page = os::base_page_bytes();

os::mapping shared(std::size_t pages) { return os::mapping::shared_with_children(pages * page); }

/// The policy of the thread (address zero), or of the page at an address.
struct policy_of {
  int mode = -1;
  std::array<unsigned long, 16> mask{};

  explicit policy_of(void const* address) {
    unsigned long const flag = address == nullptr ? 0 : 2;  // MPOL_F_ADDR
    if (::syscall(SYS_get_mempolicy, &mode, mask.data(), 16 * 64 + 1, address, flag) != 0)
      mode = -1;
  }
  friend bool operator==(policy_of const&, policy_of const&) = default;
};

/// Whether this machine, or the container that it is, lets memory be placed.
bool can_place() { return policy_of(nullptr).mode >= 0; }

shm::failure refusal(std::span<std::byte> pages, memory_policy policy, node_set const& nodes) {
  return shm_test::failure_of([&] { os::set_memory_policy(pages, policy, nodes); });
}

TEST_CASE("this thread runs on a node of this machine") {
  os::memory_nodes const nodes;
  int const node = os::current_node();
  CHECK(node >= 0);
  if (!nodes.all().empty()) CHECK(nodes.exists(node));
}

TEST_CASE("the usable nodes are some of those with memory") {
  os::memory_nodes const nodes;
  if (nodes.all().empty()) return;
  CHECK_FALSE(os::usable_nodes().is_empty());
  CHECK((os::usable_nodes() - nodes.with_memory()).is_empty());
}

TEST_CASE("the usable nodes are known where a container refuses get_mempolicy") {
  auto const expected = os::usable_nodes();
  shm_test::in_child([&](shm_test::findings& found) {
    shm_test::answer({.number = SYS_get_mempolicy}, EPERM);
    RANK_CHECK(found, os::usable_nodes() == expected);
  });
}

TEST_CASE("memory is bound to a node, and lies there once it is touched") {
  if (!can_place()) return;
  int const node = os::usable_nodes().members().front();
  auto const memory = shared(8);
  os::set_memory_policy(memory.bytes(), memory_policy::bound, {node});
  CHECK(policy_of(memory.bytes().data()).mode == 2);
  std::ranges::fill(memory.bytes(), std::byte{1});
  CHECK(os::nodes_of(memory.bytes(), 100) == std::vector<int>(8, node));
}

TEST_CASE("memory is interleaved over all nodes") {
  if (!can_place()) return;
  auto const memory = shared(8);
  os::set_memory_policy(memory.bytes(), memory_policy::interleaved, os::usable_nodes());
  CHECK(policy_of(memory.bytes().data()).mode == 3);
}

TEST_CASE("a mask is passed with the one bit more that the kernel takes off") {
  CHECK(os::detail::bits_of(node_set{63}.words()) == 65);
  CHECK(os::detail::bits_of(node_set{64}.words()) == 129);
}

TEST_CASE("nodes that do not exist are refused in words") {
  if (!can_place()) return;
  auto const memory = shared(1);
  for (auto const policy :
       {memory_policy::bound, memory_policy::preferred, memory_policy::interleaved}) {
    auto const refused = refusal(memory.bytes(), policy, {500, 1000, 1001});
    CHECK(refused.cause == errc::invalid_argument);
    CHECK(refused.subject.view().ends_with(" on NUMA nodes: 500, 1000, 1001"));
    CHECK(refusal(memory.bytes(), policy, {60}).cause == errc::invalid_argument);
    CHECK(refusal(memory.bytes(), policy, {}).subject.view().ends_with(": none"));
  }
}

TEST_CASE("a node that exists is enough among others that do not") {
  if (!can_place()) return;
  int const node = os::usable_nodes().members().front();
  auto const memory = shared(1);
  CHECK_FALSE(refusal(memory.bytes(), memory_policy::bound, {node, 60}).is_failure());
  CHECK(policy_of(memory.bytes().data()).mask[0] == 1UL << static_cast<unsigned>(node));
}

TEST_CASE("preferring the only node there is does nothing") {
  auto const usable = os::usable_nodes();
  if (usable.count() != 1) return;
  shm_test::in_child([&](shm_test::findings&) {
    auto const memory = shared(1);
    shm_test::answer({.number = SYS_mbind}, EPERM);
    os::set_memory_policy(memory.bytes(), memory_policy::preferred, usable);
  });
}

TEST_CASE("a kernel that prefers one node only is given the first of several") {
  if (!can_place()) return;
  int const node = os::usable_nodes().members().front();
  shm_test::in_child([&](shm_test::findings& found) {
    auto const memory = shared(1);
    shm_test::answer({.number = SYS_mbind, .argument = 2, .mask = ~0U, .value = 5}, EINVAL);
    os::set_memory_policy(memory.bytes(), memory_policy::preferred, {node, node + 1});
    RANK_CHECK(found, policy_of(memory.bytes().data()).mode == 1);
  });
}

TEST_CASE("a system that does not place memory refuses in words, and the memory is usable") {
  for (auto const& [number, cause] :
       {std::pair{EPERM, errc::permission_denied}, std::pair{ENOSYS, errc::unsupported}}) {
    shm_test::in_child([number = number, cause = cause](shm_test::findings& found) {
      auto const memory = shared(1);
      shm_test::answer({.number = SYS_mbind}, number);
      auto const refused = shm_test::failure_of(
          [&] { os::set_memory_policy(memory.bytes(), memory_policy::bound, {0}); });
      RANK_CHECK(found, refused.cause == cause);
      RANK_CHECK(found, refused.remedy.view() != "");
      std::ranges::fill(memory.bytes(), std::byte{1});
    });
  }
}

TEST_CASE("whether memory may be placed is known without placing any") {
  auto const usable = os::usable_nodes();
  if (!can_place() || usable.is_empty()) return;
  auto several = usable;
  several.add(60);
  CHECK_FALSE(os::placement_refusal(usable).is_failure());
  CHECK_FALSE(os::placement_refusal(several).is_failure());
  shm_test::in_child([&](shm_test::findings& found) {
    shm_test::answer({.number = SYS_mbind}, EPERM);
    auto const refused = os::placement_refusal(several);
    RANK_CHECK(found, refused.cause == errc::permission_denied);
    RANK_CHECK(found, refused.subject.view() == "placing memory on " + several.named());
    RANK_CHECK(found, refused.remedy.view().find("seccomp") != refused.remedy.view().npos);
  });
}

TEST_CASE("a page belongs to the range that has its first byte") {
  if (!can_place()) return;
  int const node = os::usable_nodes().members().front();
  auto const memory = shared(4);
  auto const mode = [&](std::size_t at) { return policy_of(&memory.bytes()[at * page]).mode; };
  os::set_memory_policy(memory.bytes().subspan(1, page), memory_policy::bound, {node});
  CHECK(mode(0) != 2);
  CHECK(mode(1) == 2);
  CHECK(mode(2) != 2);
  // Within one page, and nothing at all: no page is meant, whatever the nodes.
  os::set_memory_policy(memory.bytes().subspan(2 * page + 1, 5), memory_policy::bound, {1000});
  os::set_memory_policy({}, memory_policy::bound, {1000});
  CHECK(mode(2) != 2);
}

TEST_CASE("the thread's own policy is not touched") {
  auto const before = policy_of(nullptr);
  auto const memory = shared(4);
  for (auto const policy :
       {memory_policy::bound, memory_policy::preferred, memory_policy::interleaved}) {
    refusal(memory.bytes(), policy, os::usable_nodes());
  }
  CHECK(policy_of(nullptr) == before);
}

TEST_CASE("a page that nobody has touched is not there, and looking does not make it") {
  auto const memory = shared(4);
  CHECK(os::nodes_of(memory.bytes(), 4) == std::vector<int>(4, -1));
  unsigned char residency[4] = {};
  REQUIRE(::mincore(memory.bytes().data(), 4 * page, residency) == 0);
  CHECK(std::ranges::count_if(residency, [](unsigned char r) { return (r & 1U) != 0; }) == 0);
  memory.bytes()[2 * page] = std::byte{1};
  auto const nodes = os::nodes_of(memory.bytes(), 4);
  if (nodes.empty()) return;
  CHECK(nodes[1] == -1);
  CHECK(nodes[2] >= 0);
  CHECK(nodes[3] == -1);
}

TEST_CASE("a page that only another process has touched is there") {
  auto const memory = shared(4);
  shm_test::in_child([&](shm_test::findings&) { std::ranges::fill(memory.bytes(), std::byte{1}); });
  auto const nodes = os::nodes_of(memory.bytes(), 4);
  CHECK(std::ranges::count(nodes, -1) == 0);
}

TEST_CASE("memory that is not mapped, or not readable, is not there and kills nobody") {
  auto const memory = shared(4);
  std::ranges::fill(memory.bytes(), std::byte{1});
  REQUIRE(::mprotect(&memory.bytes()[page], page, PROT_NONE) == 0);
  REQUIRE(::munmap(&memory.bytes()[2 * page], page) == 0);
  auto const nodes = os::nodes_of(memory.bytes(), 4);
  if (nodes.empty()) return;
  CHECK(nodes[0] >= 0);
  CHECK(nodes[2] == -1);
  CHECK(nodes[3] >= 0);
}

TEST_CASE("at most as many pages are looked at as asked for, spread evenly") {
  auto const memory = shared(9);
  for (std::size_t const at : {0U, 3U, 6U}) memory.bytes()[at * page] = std::byte{1};
  auto const nodes = os::nodes_of(memory.bytes(), 3);
  CHECK((nodes.size() == 3 || nodes.empty()));
  CHECK(std::ranges::count(nodes, -1) == 0);
  CHECK(os::nodes_of(memory.bytes(), 0).empty());
  CHECK(os::nodes_of({}, 3).empty());
  // Two bytes of two pages.
  if (!nodes.empty()) CHECK(os::nodes_of(memory.bytes().subspan(page - 1, 2), 9).size() == 2);
}

TEST_CASE("where the system cannot say, there is no answer") {
  auto const memory = shared(1);
  shm_test::in_child([&](shm_test::findings& found) {
    shm_test::answer({.number = SYS_move_pages}, EPERM);
    RANK_CHECK(found, os::nodes_of(memory.bytes(), 1).empty());
  });
}

}  // namespace
