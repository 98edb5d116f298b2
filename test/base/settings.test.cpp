#include "shm/base/settings.hpp"

#include <cstdint>
#include <cstdlib>
#include <set>
#include <string>
#include <type_traits>
#include <vector>

#include "support/catch.hpp"

namespace {

static_assert(std::is_trivially_copyable_v<shm::settings>);

constexpr char const* type = "KUPL_SHM_TYPE";
constexpr char const* fence = "KUPL_SHM_FENCE_ALGORITHM";

/// Gives an environment variable a value for the length of a scope, or none for nullptr.
class variable {
 public:
  variable(char const* name, char const* value) : name_(name) {
    if (char const* const old = std::getenv(name)) {
      old_ = old;
      was_set_ = true;
    }
    set(value);
  }
  variable(variable const&) = delete;
  variable& operator=(variable const&) = delete;
  ~variable() { set(was_set_ ? old_.c_str() : nullptr); }

 private:
  void set(char const* value) const {
    if (value == nullptr) {
      ::unsetenv(name_);
    } else {
      ::setenv(name_, value, 1);
    }
  }

  char const* name_;
  std::string old_;
  bool was_set_ = false;
};

/// Reads an environment where both variables have these values.
shm::environment read(char const* type_value, char const* fence_value) {
  variable const first(type, type_value);
  variable const second(fence, fence_value);
  return shm::read_environment();
}

bool has(std::string const& text, std::string const& part) {
  return text.find(part) != std::string::npos;
}

TEST_CASE("unset variables mean the defaults, without a remark") {
  auto const found = read(nullptr, nullptr);
  CHECK(found.values == shm::settings{});
  CHECK(found.values.backend == shm::backend::posix);
  CHECK(found.values.fence == shm::fence_algorithm::automatic);
  CHECK(found.values.first_number == 0);
  CHECK(found.remarks.empty());
}

TEST_CASE("empty variables mean the defaults, without a remark") {
  auto const found = read("", "");
  CHECK(found.values == shm::settings{});
  CHECK(found.remarks.empty());
}

TEST_CASE("the backend posix can be asked for by name") {
  auto const found = read("posix", nullptr);
  CHECK(found.values.backend == shm::backend::posix);
  CHECK(found.remarks.empty());
}

TEST_CASE("the backend sls can be asked for by name") {
  auto const found = read("sls", nullptr);
  CHECK(found.values.backend == shm::backend::sls);
  CHECK(found.remarks.empty());
}

TEST_CASE("each number of a fence algorithm chooses that algorithm, without a remark") {
  struct {
    char const* value;
    shm::fence_algorithm chosen;
  } const table[] = {{"0", shm::fence_algorithm::automatic},
                     {"1", shm::fence_algorithm::linear},
                     {"2", shm::fence_algorithm::dissemination},
                     {"3", shm::fence_algorithm::counter}};
  for (auto const& row : table) {
    INFO(row.value);
    auto const found = read(nullptr, row.value);
    CHECK(found.values.fence == row.chosen);
    CHECK(found.remarks.empty());
  }
}

TEST_CASE("an unknown backend gives the default and one remark with variable, value and choices") {
  auto const found = read("poxis", nullptr);
  CHECK(found.values == shm::settings{});
  REQUIRE(found.remarks.size() == 1);
  CHECK(has(found.remarks[0], "KUPL_SHM_TYPE=poxis "));
  CHECK(has(found.remarks[0], "choices: posix, sls"));
  CHECK(has(found.remarks[0], "taken: posix"));
  CHECK_FALSE(has(found.remarks[0], "\n"));
}

TEST_CASE("an unknown fence algorithm gives the default and one remark with all choices") {
  auto const found = read(nullptr, "7");
  CHECK(found.values == shm::settings{});
  REQUIRE(found.remarks.size() == 1);
  CHECK(has(found.remarks[0], "KUPL_SHM_FENCE_ALGORITHM=7 "));
  for (auto const* choice : {"0 (automatic)", "1 (linear)", "2 (dissemination)", "3 (counter)"}) {
    CHECK(has(found.remarks[0], choice));
  }
  CHECK(has(found.remarks[0], "taken: 0"));
}

TEST_CASE("a known value with something around it is unknown") {
  for (auto const* value : {"1 ", " 1", "01", "1,2", "-1"}) {
    INFO(value);
    auto const found = read(nullptr, value);
    CHECK(found.values.fence == shm::fence_algorithm::automatic);
    CHECK(found.remarks.size() == 1);
  }
  CHECK(read("POSIX", nullptr).remarks.size() == 1);
}

TEST_CASE("two unknown values give a remark each") { CHECK(read("a", "b").remarks.size() == 2); }

TEST_CASE("an unknown backend does not hide a known fence algorithm") {
  auto const found = read("a", "2");
  CHECK(found.values.fence == shm::fence_algorithm::dissemination);
  CHECK(found.remarks.size() == 1);
}

TEST_CASE("settings that differ in one value are different") {
  shm::settings const usual;
  shm::settings other;
  other.fence = shm::fence_algorithm::linear;
  CHECK_FALSE(usual == other);
  other = {};
  other.first_number = 1;
  CHECK_FALSE(usual == other);
}

TEST_CASE("huge pages, on-package memory, its nodes and verbosity come from the environment") {
  variable const v0("KUPL_SHM_TYPE", "sls");
  variable const v1("KUPL_SHM_ENABLE_HUGEPAGE", "y");
  variable const v2("KUPL_SHM_ON_PACKAGE", "y");
  variable const v3("SHM_HBM_NODES", "2,16-31");
  variable const v4("SHM_VERBOSE", "y");
  auto const found = shm::read_environment();
  CHECK(found.remarks.empty());
  CHECK(found.values.pages == shm::pages::prefer_huge);
  CHECK(found.values.memory == shm::memory::prefer_on_package);
  CHECK(found.values.high_bandwidth_nodes.view() == "2,16-31");
  CHECK(found.values.is_verbose);
}

TEST_CASE("the ways of collectives come from the environment, by the documented numbers") {
  using enum shm::collective_algorithm;
  struct {
    char const* name;
    shm::collective_algorithm shm::settings::* of;
    std::vector<shm::collective_algorithm> by_number;
  } const table[] = {
      {"KUPL_SHM_ALLREDUCE_ALGORITHM", &shm::settings::allreduce, {automatic, staged, direct}},
      {"KUPL_SHM_BCAST_ALGORITHM",
       &shm::settings::bcast,
       {automatic, direct, staged, automatic, automatic, automatic, automatic}},
      {"KUPL_SHM_ALLTOALL_ALGORITHM", &shm::settings::alltoall, {automatic, direct, staged}},
  };
  for (auto const& one : table) {
    for (std::size_t number = 0; number < one.by_number.size(); ++number) {
      variable const set(one.name, std::to_string(number).c_str());
      auto const found = shm::read_environment();
      CHECK(found.values.*one.of == one.by_number[number]);
      CHECK(found.remarks.empty());
    }
    variable const unknown(one.name, std::to_string(one.by_number.size()).c_str());
    auto const found = shm::read_environment();
    CHECK(found.values.*one.of == automatic);
    REQUIRE(found.remarks.size() == 1);
    CHECK(has(found.remarks[0], one.name));
  }
}

TEST_CASE("a switch that is neither y nor n is off, with one remark that names the choices") {
  for (auto const* name : {"KUPL_SHM_ENABLE_HUGEPAGE", "KUPL_SHM_ON_PACKAGE", "SHM_VERBOSE"}) {
    variable const v0("KUPL_SHM_TYPE", "sls");
    variable const v1(name, "1");
    auto const found = shm::read_environment();
    CHECK(found.values == shm::settings{.backend = shm::backend::sls});
    REQUIRE(found.remarks.size() == 1);
    CHECK(has(found.remarks[0], std::string(name) + "=1 "));
    CHECK(has(found.remarks[0], "choices: y, n"));
  }
}

TEST_CASE("huge pages that the backend posix cannot give are a remark") {
  variable const v0("KUPL_SHM_ENABLE_HUGEPAGE", "y");
  auto const found = shm::read_environment();
  REQUIRE(found.remarks.size() == 1);
  CHECK(has(found.remarks[0], "KUPL_SHM_ENABLE_HUGEPAGE=y has no effect"));
  CHECK(has(found.remarks[0], "KUPL_SHM_TYPE=sls"));
  variable const v1("KUPL_SHM_ON_PACKAGE", "y");
  auto const both = shm::read_environment();
  REQUIRE(both.remarks.size() == 1);
  CHECK(
      has(both.remarks[0], "KUPL_SHM_ENABLE_HUGEPAGE=y and KUPL_SHM_ON_PACKAGE=y have no effect"));
}

TEST_CASE("digests of settings differ by each of them") {
  std::vector<shm::settings> all(11);
  all[1].backend = shm::backend::sls;
  all[2].fence = shm::fence_algorithm::counter;
  all[3].first_number = 1;
  all[4].pages = shm::pages::prefer_huge;
  all[5].memory = shm::memory::prefer_on_package;
  all[6].is_verbose = true;
  all[7].high_bandwidth_nodes = "1";
  all[8].allreduce = shm::collective_algorithm::staged;
  all[9].bcast = shm::collective_algorithm::staged;
  all[10].alltoall = shm::collective_algorithm::staged;
  std::set<std::uint64_t> digests;
  for (auto const& one : all) {
    digests.insert(one.digest());
    CHECK((one == all[0]) == (&one == &all[0]));
  }
  CHECK(digests.size() == all.size());
}

}  // namespace
