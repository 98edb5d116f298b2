#include "shm/policy/segment_policy.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "support/catch.hpp"

namespace {

using shm::segment_policy;
using shm::segment_policy_ref;
using shm::segment_request;
using shm::os::shared_object;

/// The least that a policy must have.
struct minimal {
  static constexpr std::string_view name = "minimal";
  shared_object create(segment_request const& request) const {
    return shm::os::make_anonymous("policy test", request.bytes);
  }
};
static_assert(segment_policy<minimal>);

struct named_by_characters {
  static constexpr char const* name = "characters";
  shared_object create(segment_request const&) const { return {}; }
};
static_assert(segment_policy<named_by_characters>);

struct without_name {
  shared_object create(segment_request const&) const { return {}; }
};
static_assert(!segment_policy<without_name>);

struct with_a_number_as_name {
  static constexpr int name = 1;
  shared_object create(segment_request const&) const { return {}; }
};
static_assert(!segment_policy<with_a_number_as_name>);

struct without_create {
  static constexpr std::string_view name = "without create";
};
static_assert(!segment_policy<without_create>);

struct creating_a_descriptor {
  static constexpr std::string_view name = "descriptor";
  int create(segment_request const&) const { return -1; }
};
static_assert(!segment_policy<creating_a_descriptor>);

struct creating_nothing {
  static constexpr std::string_view name = "nothing";
  void create(segment_request const&) const {}
};
static_assert(!segment_policy<creating_nothing>);

struct creating_from_bytes {
  static constexpr std::string_view name = "bytes";
  shared_object create(std::size_t) const { return {}; }
};
static_assert(!segment_policy<creating_from_bytes>);

struct changing_itself {
  static constexpr std::string_view name = "changing";
  shared_object create(segment_request const&) { return {}; }
};
static_assert(!segment_policy<changing_itself>);

struct not_copyable {
  [[maybe_unused]] static constexpr std::string_view name = "not copyable";
  not_copyable() = default;
  not_copyable(not_copyable const&) = delete;
  shared_object create(segment_request const&) const { return {}; }
};
static_assert(!segment_policy<not_copyable>);
static_assert(!segment_policy<int>);

/// The same as `minimal` under another name.
struct renamed : minimal {
  static constexpr std::string_view name = "renamed";
};

/// A policy with options and without padding.
struct with_options {
  static constexpr std::string_view name = "options";
  std::uint32_t pages = 0;
  std::uint32_t memory = 0;
  shared_object create(segment_request const&) const { return {}; }
};

/// A policy with everything that it may have. It writes down what it is asked.
struct complete {
  static constexpr std::string_view name = "complete";
  std::vector<std::string>* log = nullptr;

  std::string_view name_in(shm::settings const& values) const noexcept {
    return values.fence == shm::fence_algorithm::linear ? "complete, linear" : "complete, other";
  }
  int attempts(shm::settings const&) const noexcept { return 3; }
  std::size_t page_bytes(int attempt, shm::settings const&) const {
    return attempt == 0 ? 2U << 20U : 4096U;
  }
  void place(shm::block_request const& block) const {
    log->push_back("place " + std::to_string(block.mine.size()) + " attempt " +
                   std::to_string(block.attempt));
  }
  shared_object create(segment_request const& request) const {
    log->push_back("create " + std::to_string(request.bytes) + " attempt " +
                   std::to_string(request.attempt));
    return shm::os::make_anonymous("policy test", request.bytes);
  }
};
static_assert(segment_policy<complete>);

template <class Policy>
std::uint64_t signature_of(Policy const& policy) {
  return segment_policy_ref(policy, {}).signature();
}

TEST_CASE("a minimal policy has its name, one attempt and base pages") {
  minimal const policy;
  segment_policy_ref const ref(policy, {});
  CHECK(ref.name() == "minimal");
  CHECK(ref.attempts() == 1);
  CHECK(ref.page_bytes(0) == shm::os::base_page_bytes());
}

TEST_CASE("a minimal policy makes the object that it is asked for") {
  minimal const policy;
  auto const object = segment_policy_ref(policy, {}).create({.bytes = 8192, .page_bytes = 4096});
  CHECK(object.descriptor.is_open());
  CHECK(object.bytes == 8192);
}

TEST_CASE("placing with a policy that does not place does nothing") {
  minimal const policy;
  std::vector<std::byte> block(4096, std::byte{1});
  segment_policy_ref(policy, {}).place({.mine = block, .attempt = 1});
  CHECK(block == std::vector<std::byte>(4096, std::byte{1}));
}

TEST_CASE("a policy's attempts are used where it has them") {
  complete const policy;
  CHECK(segment_policy_ref(policy, {}).attempts() == 3);
}

TEST_CASE("a policy's page sizes are used where it has them, for each attempt") {
  complete const policy;
  segment_policy_ref const ref(policy, {});
  CHECK(ref.page_bytes(0) == 2U << 20U);
  CHECK(ref.page_bytes(1) == 4096);
}

TEST_CASE("a policy's name comes from the settings where it has one there") {
  complete const policy;
  CHECK(segment_policy_ref(policy, {.fence = shm::fence_algorithm::linear}).name() ==
        "complete, linear");
  CHECK(segment_policy_ref(policy, {}).name() == "complete, other");
}

TEST_CASE("a policy's place is run once, on the block that is given") {
  std::vector<std::string> log;
  complete const policy{&log};
  std::vector<std::byte> block(4096);
  segment_policy_ref(policy, {}).place({.mine = block, .attempt = 1});
  CHECK(log == std::vector<std::string>{"place 4096 attempt 1"});
}

TEST_CASE("a policy's place is not run on an empty block") {
  std::vector<std::string> log;
  complete const policy{&log};
  segment_policy_ref(policy, {}).place({});
  CHECK(log.empty());
}

TEST_CASE("a policy's create sees the whole request") {
  std::vector<std::string> log;
  complete const policy{&log};
  auto const object =
      segment_policy_ref(policy, {}).create({.bytes = 4096, .page_bytes = 4096, .attempt = 2});
  CHECK(log == std::vector<std::string>{"create 4096 attempt 2"});
}

TEST_CASE("referring to a policy runs neither create nor place") {
  std::vector<std::string> log;
  complete const policy{&log};
  CHECK(segment_policy_ref(policy, {}).name() == "complete, other");
  CHECK(log.empty());
}

TEST_CASE("signatures of equal policies are equal") {
  CHECK(signature_of(minimal{}) == signature_of(minimal{}));
  CHECK(signature_of(with_options{1, 2}) == signature_of(with_options{1, 2}));
}

TEST_CASE("signatures differ by the policy's name") {
  CHECK(signature_of(minimal{}) != signature_of(renamed{}));
}

TEST_CASE("signatures differ by each option") {
  CHECK(signature_of(with_options{1, 0}) != signature_of(with_options{0, 0}));
  CHECK(signature_of(with_options{0, 1}) != signature_of(with_options{0, 0}));
  CHECK(signature_of(with_options{1, 0}) != signature_of(with_options{0, 1}));
}

TEST_CASE("a signature does not depend on the settings") {
  complete const policy;
  CHECK(segment_policy_ref(policy, {.fence = shm::fence_algorithm::linear}).signature() ==
        segment_policy_ref(policy, {}).signature());
}

}  // namespace
