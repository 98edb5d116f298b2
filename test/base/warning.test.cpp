#include "shm/base/warning.hpp"

#include <array>
#include <cstdio>
#include <string>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

#include "support/catch.hpp"
#include "support/child.hpp"

namespace {

/// What a process has written: one text for each call of write(2).
struct output {
  std::vector<std::string> to_stdout;
  std::vector<std::string> to_stderr;
};

/// Reads to its end a pipe of packets, which keeps each write apart.
std::vector<std::string> packets(int pipe) {
  std::vector<std::string> result;
  std::array<char, 8192> buffer{};
  for (;;) {
    auto const got = ::read(pipe, buffer.data(), buffer.size());
    if (got <= 0) return result;
    result.emplace_back(buffer.data(), static_cast<std::size_t>(got));
  }
}

/// Runs `body` in a child and returns what it writes.
template <class F>
output output_of(F body) {
  int out[2] = {-1, -1};
  int err[2] = {-1, -1};
  REQUIRE(::pipe2(out, O_DIRECT) == 0);
  REQUIRE(::pipe2(err, O_DIRECT) == 0);
  shm_test::child writer([&] {
    ::dup2(out[1], 1);
    ::dup2(err[1], 2);
    body();
    std::fflush(nullptr);
  });
  ::close(out[1]);
  ::close(err[1]);
  output result;
  result.to_stderr = packets(err[0]);
  result.to_stdout = packets(out[0]);
  ::close(out[0]);
  ::close(err[0]);
  CHECK(writer.wait() == 0);
  return result;
}

TEST_CASE("a warning is one line with the rank, in one write") {
  auto const written = output_of([] { shm::warn(2, 4, "take care"); });
  REQUIRE(written.to_stderr.size() == 1);
  CHECK(written.to_stderr[0] == "shm: rank 2 of 4: take care\n");
}

TEST_CASE("a long warning is still one write") {
  std::string const text(3000, 'w');
  auto const written = output_of([&] { shm::warn(0, 1, text); });
  REQUIRE(written.to_stderr.size() == 1);
  CHECK(written.to_stderr[0] == "shm: rank 0 of 1: " + text + "\n");
}

TEST_CASE("a warning writes nothing to standard output") {
  CHECK(output_of([] { shm::warn(0, 1, "take care"); }).to_stdout.empty());
}

TEST_CASE("a percent sign in a warning stands for itself") {
  auto const written = output_of([] { shm::warn(0, 1, "100%n %s"); });
  REQUIRE(written.to_stderr.size() == 1);
  CHECK(written.to_stderr[0] == "shm: rank 0 of 1: 100%n %s\n");
}

}  // namespace
