#include "shm/error.hpp"

#include <cerrno>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>

#include "support/catch.hpp"

namespace {

using shm::errc;
using shm::operation;

static_assert(std::is_base_of_v<std::system_error, shm::error>);
static_assert(std::is_nothrow_copy_constructible_v<shm::error>);
static_assert(std::is_nothrow_copy_assignable_v<shm::error>);
static_assert(std::is_error_code_enum_v<shm::errc>);
static_assert(std::is_trivially_copyable_v<shm::failure>);

constexpr auto last_cause = static_cast<std::uint32_t>(errc::system_failure);
constexpr auto last_operation = static_cast<std::uint32_t>(operation::attach_memory);

/// A failure with everything in it.
shm::failure full_failure() {
  return {.cause = errc::no_space,
          .system = ENOSPC,
          .rank = 2,
          .subject = "16 MiB in /dev/shm",
          .remedy = "remove files"};
}

TEST_CASE("a full message has rank, operation, cause, subject, errno and remedy in this order") {
  shm::error const e(full_failure(),
                     {.where = operation::create_window, .size = 4, .agreed = true});
  std::string const words = std::generic_category().message(ENOSPC);
  CHECK(std::string(e.what()) ==
        "shm: rank 2 of 4: creating a window: no space in the shared-memory file system: "
        "16 MiB in /dev/shm (" +
            words + "); remove files");
}

TEST_CASE("a message of a cause alone has the usual remedy") {
  shm::error const e({.cause = errc::invalid_argument});
  CHECK(std::string(e.what()) == "shm: invalid argument; correct the call");
}

TEST_CASE("a message names no size where there is no group") {
  shm::error const e({.cause = errc::invalid_argument, .rank = 3});
  CHECK(std::string(e.what()).starts_with("shm: rank 3: invalid argument"));
}

TEST_CASE("rank 0 is named like any other") {
  shm::error const e({.cause = errc::peer_lost, .rank = 0}, {.size = 2});
  CHECK(std::string(e.what()).starts_with("shm: rank 0 of 2: the rank died"));
  CHECK(e.rank() == 0);
}

TEST_CASE("an error that is not tied to a rank has rank -1") {
  CHECK(shm::error({.cause = errc::empty}).rank() == -1);
}

TEST_CASE("an error is agreed only where it says so") {
  CHECK_FALSE(shm::error({.cause = errc::empty}).is_agreed());
  CHECK(shm::error({.cause = errc::empty}, {.agreed = true}).is_agreed());
}

TEST_CASE("an error keeps the details of its failure") {
  shm::error const e(full_failure());
  CHECK(e.details().cause == errc::no_space);
  CHECK(e.details().system == ENOSPC);
  CHECK(e.details().subject.view() == "16 MiB in /dev/shm");
  CHECK(e.details().remedy.view() == "remove files");
}

TEST_CASE("a default failure is no failure") {
  CHECK_FALSE(shm::failure{}.is_failure());
  CHECK(full_failure().is_failure());
}

TEST_CASE("an error's code compares equal to its cause and to no other") {
  shm::error const e({.cause = errc::mismatch});
  CHECK(e.code() == errc::mismatch);
  CHECK_FALSE(e.code() == errc::empty);
  CHECK(std::string(e.code().category().name()) == "shm");
}

TEST_CASE("an error's code is not an errno of the same number") {
  shm::error const e({.cause = static_cast<errc>(EINTR)});
  CHECK_FALSE(e.code() == std::errc::interrupted);
}

TEST_CASE("an error can be caught as std::system_error with its message") {
  try {
    throw shm::error({.cause = errc::empty});
  } catch (std::system_error const& e) {
    CHECK(e.code() == errc::empty);
    CHECK(std::string(e.what()).starts_with("shm: empty object"));
    return;
  }
}

TEST_CASE("a copy of an error says the same after the original is gone") {
  auto const copy = [] {
    shm::error const original(full_failure());
    return shm::error(original);
  }();
  CHECK(std::string(copy.what()) == shm::error(full_failure()).what());
}

TEST_CASE("every cause has words and a remedy of its own") {
  std::set<std::string_view> seen;
  for (std::uint32_t c = 1; c <= last_cause; ++c) {
    auto const [cause, remedy] = shm::detail::words_for(static_cast<errc>(c));
    INFO(c);
    CHECK_FALSE(cause.empty());
    CHECK(cause != "unknown cause");
    CHECK_FALSE(remedy.empty());
    CHECK(seen.insert(cause).second);
    CHECK(shm::make_error_code(static_cast<errc>(c)).message() == cause);
  }
}

TEST_CASE("a cause that another process has overwritten is unknown, not a crash") {
  shm::error const e({.cause = static_cast<errc>(0xdeadbeef)});
  CHECK(std::string(e.what()).starts_with("shm: unknown cause"));
}

TEST_CASE("every operation has words of its own") {
  std::set<std::string_view> seen;
  for (std::uint32_t o = 1; o <= last_operation; ++o) {
    auto const words = shm::detail::words_for(static_cast<operation>(o));
    INFO(o);
    CHECK_FALSE(words.empty());
    CHECK(seen.insert(words).second);
  }
  CHECK(shm::detail::words_for(operation::none).empty());
}

TEST_CASE("an exception whose text is missing becomes a failure that says so") {
  struct silent : std::exception {
    [[nodiscard]] char const* what() const noexcept override { return nullptr; }
  };
  try {
    throw silent{};
  } catch (...) {
    auto const found = shm::failure_of_exception(errc::rank_failed);
    CHECK(found.cause == errc::rank_failed);
    CHECK(found.subject.view() == "an exception without a text");
  }
}

TEST_CASE("the longest message keeps the end of its remedy") {
  std::string const subject(300, 's');
  std::string const remedy(300, 'r');
  for (std::uint32_t c = 1; c <= last_cause; ++c) {
    for (std::uint32_t o = 1; o <= last_operation; ++o) {
      shm::error const e({.cause = static_cast<errc>(c),
                          .system = EILSEQ,
                          .rank = 1000000,
                          .subject = subject,
                          .remedy = remedy},
                         {.where = static_cast<operation>(o), .size = 1000001});
      CHECK(std::string(e.what()).ends_with("; " + std::string(176, 'r') + "…"));
    }
  }
}

}  // namespace
