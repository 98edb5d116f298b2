#include "shm/os/topology.hpp"

#include <type_traits>
#include <vector>

#include <sched.h>

#include "support/catch.hpp"
#include "support/child.hpp"

namespace {

using shm::os::processor_set;

static_assert(std::is_trivially_copyable_v<processor_set>);

/// Returns the numbers of the processors that this process may run on.
std::vector<int> processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  ::sched_getaffinity(0, sizeof set, &set);
  std::vector<int> result;
  for (int p = 0; p < CPU_SETSIZE; ++p) {
    if (CPU_ISSET(p, &set)) result.push_back(p);
  }
  return result;
}

void run_on(int processor) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(processor, &set);
  ::sched_setaffinity(0, sizeof set, &set);
}

TEST_CASE("a default set of processors is empty") { CHECK(processor_set{}.count() == 0); }

TEST_CASE("the usable processors are as many as the affinity mask has") {
  CHECK(processor_set::usable().count() == static_cast<int>(processors().size()));
}

TEST_CASE("a process that is bound to one processor has one") {
  shm_test::in_child([](shm_test::findings& found) {
    run_on(processors().back());
    RANK_CHECK(found, processor_set::usable().count() == 1);
  });
}

TEST_CASE("a set united with itself does not grow") {
  auto all = processor_set::usable();
  auto const before = all.count();
  all |= processor_set::usable();
  CHECK(all.count() == before);
}

TEST_CASE("a set united with the empty set keeps its processors") {
  auto all = processor_set::usable();
  auto const before = all.count();
  all |= processor_set{};
  CHECK(all.count() == before);
  processor_set none;
  none |= all;
  CHECK(none.count() == before);
}

TEST_CASE("two processes on different processors have two together") {
  shm_test::in_child([](shm_test::findings& found) {
    auto const all = processors();
    if (all.size() < 2) throw shm_test::skipped{"this needs two processors"};
    run_on(all.front());
    auto both = processor_set::usable();
    run_on(all.back());
    both |= processor_set::usable();
    RANK_CHECK(found, both.count() == 2);
  });
}

}  // namespace
