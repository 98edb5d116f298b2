#pragma once
/// @file Forked processes of a test that runs in one process otherwise.
///
/// A child never runs Catch's checks and always leaves with _exit. What it finds wrong goes through
/// a pipe to the parent, where it fails the test case.

#include <csignal>
#include <exception>
#include <stdexcept>
#include <string>
#include <utility>

#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "support/skipped.hpp"

namespace shm_test {

/// Lets one process wait for another: opened once by any process that shares it, passed by one.
class gate {
 public:
  gate() {
    if (::pipe(ends_) != 0) throw std::runtime_error("pipe");
  }
  gate(gate const&) = delete;
  gate& operator=(gate const&) = delete;
  ~gate() {
    ::close(ends_[0]);
    ::close(ends_[1]);
  }

  void open() const noexcept { static_cast<void>(!::write(ends_[1], "o", 1)); }
  /// Waits until it is open; false only where that takes so long that something hangs.
  [[nodiscard]] bool pass() const noexcept {
    pollfd wait{.fd = ends_[0], .events = POLLIN, .revents = 0};
    char byte = 0;
    return ::poll(&wait, 1, 20000) == 1 && ::read(ends_[0], &byte, 1) == 1;
  }

 private:
  int ends_[2] = {-1, -1};
};

/// A forked process that runs a function. Killed and reaped at the end of its scope at the latest.
class child {
 public:
  template <class F>
  explicit child(F body) : pid_(::fork()) {
    if (pid_ < 0) throw std::runtime_error("fork");
    if (pid_ > 0) return;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::alarm(100);
    try {
      body();
    } catch (...) {
      ::_exit(99);
    }
    ::_exit(0);
  }
  child(child const&) = delete;
  child& operator=(child const&) = delete;
  ~child() {
    if (pid_ > 0) ::kill(pid_, SIGKILL);
    wait();
  }

  [[nodiscard]] pid_t pid() const noexcept { return pid_; }
  void send(int signal) const noexcept { ::kill(pid_, signal); }
  /// Waits until the child is dead, without reaping it: it stays a zombie.
  void await_death() const noexcept { await(WEXITED); }
  void await_stop() const noexcept { await(WSTOPPED); }
  /// Reaps the child; returns its status as of waitpid(2).
  int wait() noexcept {
    int status = 0;
    if (pid_ > 0) ::waitpid(pid_, &status, 0);
    pid_ = -1;
    return status;
  }

 private:
  void await(int what) const noexcept {
    siginfo_t info{};
    ::waitid(P_PID, static_cast<id_t>(pid_), &info, what | WNOWAIT);
  }

  pid_t pid_;
};

/// Runs `body(findings&)` in a forked child. A failed check, an exception or a death fails the
/// current test case; `skipped` only warns.
template <class F>
void in_child(F body) {
  int ends[2] = {-1, -1};
  REQUIRE(::pipe(ends) == 0);
  child runner([&] {
    std::string report;
    try {
      findings found;
      body(found);
      report = "f" + found.all();
    } catch (skipped const& e) {
      report = "s" + e.why;
    } catch (std::exception const& e) {
      report = "fexception: " + std::string(e.what());
    }
    static_cast<void>(!::write(ends[1], report.data(), report.size()));
  });
  ::close(ends[1]);
  std::string report;
  char buffer[4096];
  for (;;) {
    auto const got = ::read(ends[0], buffer, sizeof buffer);
    if (got <= 0) break;
    report.append(buffer, static_cast<std::size_t>(got));
  }
  ::close(ends[0]);
  int const status = runner.wait();
  INFO("the child says: " << report << "\nits status: " << status);
  CHECK(status == 0);
  if (report.starts_with('s')) {
    WARN("skipped: " << report.substr(1));
  } else {
    CHECK(report == "f");
  }
}

}  // namespace shm_test
