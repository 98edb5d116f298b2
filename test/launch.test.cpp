#include "shm/launch.hpp"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
#include <csignal>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "support/catch.hpp"
#include "support/exits.hpp"
#include "support/ranks.hpp"

using namespace shm;
using shm_test::contains;
using shm_test::failure_of;
using kind = rank_exit::kind;

namespace {

/// The exits of ranks that run `f`, which must make one of them fail.
template <class F>
std::vector<rank_exit> exits_of_failing(int ranks, F f) {
  try {
    fork_ranks(ranks, f);
  } catch (ranks_failed const& e) {
    return e.exits();
  }
  FAIL("fork_ranks has not thrown");
  return {};
}

using file = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

std::string text_of(file const& from) {
  std::rewind(from.get());
  std::string all;
  for (int c = 0; (c = std::fgetc(from.get())) != EOF;) all.push_back(static_cast<char>(c));
  return all;
}

detail::forked_array<int>* exit_handler_runs = nullptr;

}  // namespace

TEST_CASE("results come in rank order") {
  for (int const ranks : {1, 2, 3, 4, 8}) {
    auto const results = fork_ranks(ranks, [](group& node) { return 10 + node.rank(); });
    REQUIRE(results.size() == static_cast<std::size_t>(ranks));
    for (int rank = 0; rank < ranks; ++rank) {
      CHECK(results[static_cast<std::size_t>(rank)] == 10 + rank);
    }
  }
}

TEST_CASE("every rank is a process of its own, and the caller is none") {
  auto const pids = fork_ranks(3, [](group&) { return ::getpid(); });
  CHECK(pids[0] != pids[1]);
  CHECK(pids[1] != pids[2]);
  for (auto const pid : pids) CHECK(pid != ::getpid());
}

TEST_CASE("fewer than one rank is refused") {
  CHECK(failure_of([] { fork_ranks(0, [](group&) {}); }).cause == errc::invalid_argument);
  CHECK(failure_of([] { fork_ranks(-3, [](group&) { return 1; }); }).cause ==
        errc::invalid_argument);
}

#if !defined(__SANITIZE_THREAD__)
TEST_CASE("forking while other threads run is refused, and works when they have ended") {
  std::atomic<bool> done = false;
  std::thread other([&] {
    while (!done) std::this_thread::yield();
  });
  CHECK(failure_of([] { fork_ranks(2, [](group&) {}); }).cause == errc::unsupported);
  done = true;
  other.join();
  CHECK_FALSE(failure_of([] { fork_ranks(2, [](group&) {}); }).is_failure());
}
#endif

TEST_CASE("the text of a rank's exception arrives with its rank, and the others' ends too") {
  auto const exits = exits_of_failing(3, [](group& node) {
    if (node.rank() == 1) throw std::runtime_error("no such river");
  });
  CHECK(exits[0].how == kind::finished);
  CHECK(exits[1].how == kind::threw);
  CHECK(exits[1].what == "no such river");
  CHECK(exits[2].how == kind::finished);
}

TEST_CASE("the cause of an error of the library arrives with its text") {
  auto const exits = exits_of_failing(2, [](group& node) {
    if (node.rank() == 1) throw error({.cause = errc::no_space, .subject = "9 MiB"});
  });
  CHECK(exits[1].code == errc::no_space);
  CHECK(contains(exits[1].what, "9 MiB"));
}

TEST_CASE("a thrown number is reported as an exception") {
  auto const exits = exits_of_failing(1, [](group&) { throw 1; });
  CHECK(exits[0].how == kind::threw);
  CHECK_FALSE(exits[0].what.empty());
}

TEST_CASE("the text of an exception may be longer than what is kept of it") {
  auto const exits =
      exits_of_failing(1, [](group&) { throw std::runtime_error(std::string(5000, 'x')); });
  CHECK(exits[0].what.size() >= 500);
  CHECK(exits[0].what.ends_with("x…"));
  CHECK(exits[0].what.find_first_not_of('x') ==
        exits[0].what.size() - std::string_view("…").size());
}

TEST_CASE("a killed rank is reported with its signal, by number and in words") {
  auto const exits = exits_of_failing(2, [](group& node) {
    if (node.rank() == 1) ::raise(SIGKILL);
  });
  CHECK(exits[0].how == kind::finished);
  CHECK(exits[1].how == kind::killed);
  CHECK(exits[1].value == SIGKILL);
  CHECK(contains(exits[1].in_words(), "signal 9 (Killed)"));
}

TEST_CASE("a rank that calls exit is reported with its status, also where that is 0") {
  for (int const status : {0, 5}) {
    auto const exits = exits_of_failing(2, [&](group& node) {
      if (node.rank() == 0) ::_exit(status);
    });
    CHECK(exits[0].how == kind::exited);
    CHECK(exits[0].value == status);
  }
}

TEST_CASE("the error of all names the rank that others complain of") {
  try {
    fork_ranks(4, [](group& node) {
      if (node.rank() == 2) ::raise(SIGKILL);
      node.barrier();
    });
    FAIL("fork_ranks has not thrown");
  } catch (ranks_failed const& e) {
    CHECK(e.rank() == 2);
    CHECK(e.code() == errc::ranks_failed);
    CHECK(contains(e.what(), "killed by signal 9"));
    CHECK(e.exits()[0].how == kind::threw);
    CHECK(e.exits()[0].code == errc::peer_lost);
  }
}

TEST_CASE("text that is buffered before the fork is written once") {
  file const out(std::tmpfile(), &std::fclose);
  std::fputs("before;", out.get());
  fork_ranks(3, [](group&) {});
  CHECK(text_of(out) == "before;");
}

TEST_CASE("text that a rank has buffered is written, also where the rank throws") {
  file const out(std::tmpfile(), &std::fclose);
  exits_of_failing(3, [&](group& node) {
    std::fputs("x", out.get());
    if (node.rank() == 1) throw std::runtime_error("late");
  });
  CHECK(text_of(out) == "xxx");
}

TEST_CASE("handlers for the exit of the program do not run in ranks") {
  static detail::forked_array<int> runs(1);
  exit_handler_runs = &runs;
  std::atexit([] {
    if (exit_handler_runs != nullptr) ++(*exit_handler_runs)[0];
  });
  fork_ranks(3, [](group&) {});
  CHECK(runs[0] == 0);
  exit_handler_runs = nullptr;
}

TEST_CASE("no rank is left as a process, whatever has happened to it") {
  exits_of_failing(3, [](group& node) {
    if (node.rank() == 1) ::raise(SIGKILL);
    node.barrier();
  });
  CHECK(::waitpid(-1, nullptr, WNOHANG) == -1);
}

TEST_CASE("ranks die with the process that forked them") {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  auto const middle = ::fork();
  if (middle == 0) {
    ::close(ends[0]);
    fork_ranks(2, [&](group& node) {
      node.barrier();
      if (node.rank() == 0) [[maybe_unused]]
        auto const told = ::write(ends[1], "x", 1);
      for (;;) ::pause();
    });
    ::_exit(1);
  }
  ::close(ends[1]);
  char byte = 0;
  CHECK(::read(ends[0], &byte, 1) == 1);  // both ranks run
  ::kill(middle, SIGKILL);
  ::waitpid(middle, nullptr, 0);
  CHECK(::read(ends[0], &byte, 1) == 0);  // nobody has the other end any more
  ::close(ends[0]);
}

TEST_CASE("forking while SIGCHLD is ignored is refused, since it hides how ranks end") {
  auto const old = std::signal(SIGCHLD, SIG_IGN);
  auto const refused = shm_test::failure_of([] { shm::fork_ranks(2, [](shm::group&) {}); });
  std::signal(SIGCHLD, old);
  CHECK(refused.cause == shm::errc::unsupported);
  CHECK(refused.subject.view().find("SIGCHLD") != std::string_view::npos);
}

TEST_CASE("ranks that a handler of the program reaps are ranks that have ended") {
  auto const old = std::signal(SIGCHLD, [](int) {
    while (::waitpid(-1, nullptr, WNOHANG) > 0) {
    }
  });
  CHECK_NOTHROW(shm::fork_ranks(3, [](shm::group& node) { node.barrier(); }));
  std::signal(SIGCHLD, old);
}
