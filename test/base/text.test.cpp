#include "shm/base/text.hpp"

#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>

#include "support/catch.hpp"

namespace {

using text = shm::fixed_text<8>;

static_assert(std::is_trivially_copyable_v<text>);
static_assert(std::is_nothrow_default_constructible_v<text>);
static_assert(std::is_nothrow_constructible_v<text, std::string>);
static_assert(noexcept(text{}.append("x")));

/// A text whose bytes another process has overwritten, without a zero anywhere.
text overwritten() {
  text result;
  std::memset(static_cast<void*>(&result), 'x', sizeof result);
  return result;
}

TEST_CASE("a default text is empty") {
  constexpr text nothing;
  STATIC_REQUIRE(nothing.is_empty());
  STATIC_REQUIRE(nothing.view().empty());
}

TEST_CASE("a text that fits is kept whole") {
  text const whole("1234567");
  CHECK(whole.view() == "1234567");
  CHECK_FALSE(whole.is_empty());
}

TEST_CASE("a text that is too long is cut and terminated") {
  text const cut(std::string(100, 'a'));
  CHECK(cut.view() == "aaaa…");
  CHECK(std::strlen(cut.c_str()) == 7);
}

TEST_CASE("appending goes on where the text ends") {
  text all("ab");
  all.append("cd");
  CHECK(all.view() == "abcd");
}

TEST_CASE("appending past the capacity cuts what is appended") {
  text all("abcde");
  all.append("fghi");
  CHECK(all.view() == "abcd…");
  all.append("more");
  CHECK(all.view() == "abcd…");
}

TEST_CASE("a text is not cut inside a character") {
  CHECK(text("abcäöü").view() == "abc…");  // ä begins at the last byte before the ellipsis
  CHECK(text("abcdäöü").view() == "abcd…");
  text cut("abcäöü");
  cut.append("m");
  CHECK(cut.view() == "abc…");
}

TEST_CASE("a view that is not terminated is not read beyond its end") {
  std::string_view const part = std::string_view("abcdef").substr(1, 2);
  CHECK(text(part).view() == "bc");
}

TEST_CASE("a text ends at its first zero") {
  CHECK(text(std::string_view("ab\0cd", 5)).view() == "ab");
}

TEST_CASE("a text without a zero ends before its last byte") {
  CHECK(overwritten().view() == "xxxxxxx");
}

TEST_CASE("appending to a text without a zero changes no byte beyond it") {
  struct {
    text inner = overwritten();
    char after = 'y';
  } both;
  both.inner.append("zzz");
  CHECK(both.inner.view() == "xxxx…");
  CHECK(std::strlen(both.inner.c_str()) == 7);
  CHECK(both.after == 'y');
}

TEST_CASE("a text of capacity 1 takes nothing") { CHECK(shm::fixed_text<1>("abc").view().empty()); }

}  // namespace
