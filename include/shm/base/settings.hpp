#pragma once
/// @file Settings of a group, and how they are read from the environment.

#include <cstdint>
#include <cstdlib>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shm/base/hash.hpp"
#include "shm/base/text.hpp"
#include "shm/options.hpp"

namespace shm::inline v1 {

/// Settings of a group, the same on every rank: rank 0's, from its environment or from code.
struct settings {
  shm::backend backend = shm::backend::posix;
  fence_algorithm fence = fence_algorithm::automatic;
  /// The number that fences, signals, agreements and collectives count on from. All of them wrap
  /// around at 2^32; another start than 0 serves to try that.
  std::uint32_t first_number = 0;
  shm::pages pages = shm::pages::base;  ///< of the backend sls where it is chosen at run time
  shm::memory memory = shm::memory::ordinary;  ///< likewise
  bool is_verbose = false;                     ///< whether rank 0 tells of each window
  /// Which nodes have high-bandwidth memory, as a list "2,16-31"; empty: as the machine says.
  fixed_text<100> high_bandwidth_nodes{};
  collective_algorithm allreduce = collective_algorithm::automatic;
  collective_algorithm bcast = collective_algorithm::automatic;
  collective_algorithm alltoall = collective_algorithm::automatic;

  friend bool operator==(settings const& a, settings const& b) noexcept {
    return a.backend == b.backend && a.fence == b.fence && a.first_number == b.first_number &&
           a.pages == b.pages && a.memory == b.memory && a.is_verbose == b.is_verbose &&
           a.high_bandwidth_nodes.view() == b.high_bandwidth_nodes.view() &&
           a.allreduce == b.allreduce && a.bcast == b.bcast && a.alltoall == b.alltoall;
  }

  /// A number that is the same for equal settings.
  [[nodiscard]] std::uint64_t digest() const noexcept {
    sequence_hash hash;
    for (auto const word :
         {static_cast<std::uint32_t>(backend), static_cast<std::uint32_t>(fence), first_number,
          static_cast<std::uint32_t>(pages), static_cast<std::uint32_t>(memory),
          static_cast<std::uint32_t>(is_verbose), static_cast<std::uint32_t>(allreduce),
          static_cast<std::uint32_t>(bcast), static_cast<std::uint32_t>(alltoall)}) {
      hash.add(word);
    }
    hash.add_each(high_bandwidth_nodes.view());
    return hash.value();
  }
};

/// Settings read from the environment, and what is to be said about values that have no meaning.
struct environment {
  shm::settings values;
  std::vector<std::string> remarks;  ///< one line each, naming variable, value and choices
};

namespace detail {

inline std::string_view variable(char const* name) noexcept {
  char const* const value = std::getenv(name);
  return value == nullptr ? std::string_view{} : std::string_view{value};
}

inline std::string unknown_value(std::string_view name, std::string_view value,
                                 std::string_view choices, std::string_view taken) {
  return std::string(name) + "=" + std::string(value) +
         " is not known; choices: " + std::string(choices) + "; taken: " + std::string(taken);
}

/// Returns what the variable `name` stands for in `table`, whose first row is the default; an
/// unknown value is the default and a remark.
template <class Value>
Value choice(char const* name, std::initializer_list<std::pair<std::string_view, Value>> table,
             std::string_view choices, std::vector<std::string>& remarks) {
  auto const& usual = *table.begin();
  auto const value = variable(name);
  if (value.empty()) return usual.second;
  for (auto const& [word, meaning] : table) {
    if (value == word) return meaning;
  }
  remarks.push_back(unknown_value(name, value, choices, usual.first));
  return usual.second;
}

/// Reads a variable that is y or n.
inline bool is_on(char const* name, std::vector<std::string>& remarks) {
  return choice<bool>(name, {{"n", false}, {"y", true}}, "y, n", remarks);
}

}  // namespace detail

/// Reads KUPL_SHM_TYPE, KUPL_SHM_ENABLE_HUGEPAGE, KUPL_SHM_ON_PACKAGE, KUPL_SHM_FENCE_ALGORITHM and
/// those of the collectives, SHM_HBM_NODES and SHM_VERBOSE. An unset or empty variable means its
/// default; an unknown value means the default and a remark.
inline environment read_environment() {
  environment result;
  auto& [values, remarks] = result;
  values.backend = detail::choice<backend>(
      "KUPL_SHM_TYPE", {{"posix", backend::posix}, {"sls", backend::sls}}, "posix, sls", remarks);
  bool const is_huge = detail::is_on("KUPL_SHM_ENABLE_HUGEPAGE", remarks);
  bool const is_on_package = detail::is_on("KUPL_SHM_ON_PACKAGE", remarks);
  if (is_huge) values.pages = pages::prefer_huge;
  if (is_on_package) values.memory = memory::prefer_on_package;
  if (values.backend == backend::posix && (is_huge || is_on_package)) {
    std::string names;
    if (is_huge) names += "KUPL_SHM_ENABLE_HUGEPAGE=y";
    if (is_huge && is_on_package) names += " and ";
    if (is_on_package) names += "KUPL_SHM_ON_PACKAGE=y";
    remarks.push_back(names + (is_huge && is_on_package ? " have" : " has") +
                      " no effect on the backend posix; set KUPL_SHM_TYPE=sls");
  }
  values.fence = detail::choice<fence_algorithm>(
      "KUPL_SHM_FENCE_ALGORITHM",
      {{"0", fence_algorithm::automatic},
       {"1", fence_algorithm::linear},
       {"2", fence_algorithm::dissemination},
       {"3", fence_algorithm::counter}},
      "0 (automatic), 1 (linear), 2 (dissemination), 3 (counter)", remarks);
  using enum collective_algorithm;
  values.allreduce = detail::choice<collective_algorithm>(
      "KUPL_SHM_ALLREDUCE_ALGORITHM", {{"0", automatic}, {"1", staged}, {"2", direct}},
      "0 (automatic), 1 (staged), 2 (direct)", remarks);
  values.bcast = detail::choice<collective_algorithm>(
      "KUPL_SHM_BCAST_ALGORITHM",
      {{"0", automatic},
       {"1", direct},
       {"2", staged},
       {"3", automatic},
       {"4", automatic},
       {"5", automatic},
       {"6", automatic}},
      "0 (automatic), 1 (direct), 2 (staged), 3 to 6 (automatic)", remarks);
  values.alltoall = detail::choice<collective_algorithm>(
      "KUPL_SHM_ALLTOALL_ALGORITHM", {{"0", automatic}, {"1", direct}, {"2", staged}},
      "0 (automatic), 1 (direct), 2 (staged)", remarks);
  auto const nodes = detail::variable("SHM_HBM_NODES");
  values.high_bandwidth_nodes = nodes;
  if (values.high_bandwidth_nodes.view() != nodes) {
    values.high_bandwidth_nodes = {};
    remarks.push_back("SHM_HBM_NODES is longer than 99 characters and not taken; write ranges");
  }
  values.is_verbose = detail::is_on("SHM_VERBOSE", remarks);
  return result;
}

}  // namespace shm::inline v1
