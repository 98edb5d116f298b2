#include "shm/os/topology.hpp"

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <sched.h>

#include "support/catch.hpp"
#include "support/child.hpp"
#include "support/directory.hpp"
#include "support/ranks.hpp"

namespace {

using shm::domain;
using shm::os::domain_of;
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

/// A made-up /sys in a directory.
class tree {
 public:
  void write(std::string const& path, std::string_view content) const {
    auto const file = std::filesystem::path(root_.path()) / "devices/system" / path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << content << '\n';
  }
  void write_cache(int processor, int index, std::string_view level,
                   std::string_view shared) const {
    auto const cache =
        "cpu/cpu" + std::to_string(processor) + "/cache/index" + std::to_string(index);
    write(cache + "/level", level);
    write(cache + "/shared_cpu_list", shared);
  }
  [[nodiscard]] std::optional<int> find(domain part, int processor) const {
    return domain_of(part, processor, root_.path());
  }

 private:
  shm_test::temporary_directory root_;
};

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

TEST_CASE("a processor is on the node that links to it") {
  tree const sys;
  sys.write("node/online", "0,2-3");
  for (int const processor : {0, 1}) sys.write("node/node0/cpu" + std::to_string(processor), "");
  for (int const processor : {2, 13}) sys.write("node/node3/cpu" + std::to_string(processor), "");
  CHECK(sys.find(domain::numa, 0) == 0);
  CHECK(sys.find(domain::numa, 1) == 0);
  CHECK(sys.find(domain::numa, 2) == 3);
  CHECK(sys.find(domain::numa, 13) == 3);
  CHECK(sys.find(domain::numa, 3) == std::nullopt);
}

TEST_CASE("a processor is in the package that it says") {
  tree const sys;
  sys.write("cpu/cpu0/topology/physical_package_id", "0");
  sys.write("cpu/cpu1/topology/physical_package_id", "36");
  sys.write("cpu/cpu2/topology/physical_package_id", "-1");
  sys.write("cpu/cpu3/topology/physical_package_id", "4294967295");
  CHECK(sys.find(domain::package, 0) == 0);
  CHECK(sys.find(domain::package, 1) == 36);
  CHECK(sys.find(domain::package, 2) == std::nullopt);
  CHECK(sys.find(domain::package, 3) == std::nullopt);
}

TEST_CASE("processors of one level 3 cache have a number in common, at whichever place it is") {
  tree const sys;
  for (int const processor : {0, 1, 2, 3}) {
    auto const own = std::to_string(processor);
    sys.write_cache(processor, 0, "1", own);
    sys.write_cache(processor, 1, "1", own);
    sys.write_cache(processor, 2, processor < 3 ? "2" : "3", processor < 3 ? own : "2-3");
    sys.write_cache(processor, 3, processor < 3 ? "3" : "2", processor < 2 ? "0-1" : "2-3");
  }
  CHECK(sys.find(domain::l3, 0) == 0);
  CHECK(sys.find(domain::l3, 1) == 0);
  CHECK(sys.find(domain::l3, 2) == 2);
  CHECK(sys.find(domain::l3, 3) == 2);
}

TEST_CASE("a processor without a level 3 cache is in no part of that kind") {
  tree const sys;
  sys.write_cache(0, 0, "1", "0");
  sys.write_cache(0, 1, "2", "0-3");
  CHECK(sys.find(domain::l3, 0) == std::nullopt);
}

TEST_CASE("a machine that does not say has no parts") {
  tree const sys;
  for (auto const part : {domain::numa, domain::package, domain::l3}) {
    CHECK(sys.find(part, 0) == std::nullopt);
    CHECK(sys.find(part, -1) == std::nullopt);
  }
}

TEST_CASE("a kind of part that does not exist is an invalid argument") {
  auto const failed =
      shm_test::failure_of([] { static_cast<void>(domain_of(static_cast<domain>(3), 0)); });
  CHECK(failed.cause == shm::errc::invalid_argument);
  CHECK(failed.subject.view() == "domain number 3");
}

TEST_CASE("a process that is bound to one processor runs on that one") {
  shm_test::in_child([](shm_test::findings& found) {
    for (int const processor : processors()) {
      run_on(processor);
      RANK_CHECK(found, shm::os::current_processor() == processor);
    }
  });
}

}  // namespace
