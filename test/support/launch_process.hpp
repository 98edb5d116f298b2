#pragma once

/// @file
/// Starts, signals and ends processes, inside the launcher of failure tests.

#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <linux/close_range.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launch_os.hpp"
#include "launch_protocol.hpp"

namespace shm_test {

/// Opens a pidfd; empty where the process no longer exists.
inline descriptor open_pidfd(pid_t pid) noexcept {
  return descriptor{static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))};
}

/// Sends a signal; without effect on a dead process or an empty descriptor.
inline void send_signal(descriptor const& pidfd, int number) noexcept {
  if (pidfd.is_open()) ::syscall(SYS_pidfd_send_signal, pidfd.number(), number, nullptr, 0);
}

/// Turns this process into one that adopts, outlives and ends all its descendants.
///
/// Effects:    orphans become children of this process; the signals that concern it arrive through
/// a
///             descriptor; a closed standard output does not kill it; it may open as many files as
///             the hard limit lets it. Children undo all this with restore_in_child().
class supervisor {
 public:
  supervisor() {
    fill_standard_descriptors();
    checked(::prctl(PR_SET_CHILD_SUBREAPER, 1), "prctl(PR_SET_CHILD_SUBREAPER)");
    if (!std::ifstream{children_file}) throw_errno(children_file);
    std::signal(SIGCHLD, SIG_DFL);
    sigset_t handled;
    ::sigemptyset(&handled);
    for (int const number : {SIGCHLD, SIGINT, SIGTERM, SIGHUP}) ::sigaddset(&handled, number);
    signals_ =
        descriptor{checked(::signalfd(-1, &handled, SFD_CLOEXEC | SFD_NONBLOCK), "signalfd")};
    ::sigaddset(&handled, SIGPIPE);
    checked(::sigprocmask(SIG_BLOCK, &handled, &mask_before_), "sigprocmask");
    checked(::getrlimit(RLIMIT_NOFILE, &files_before_), "getrlimit");
    rlimit const most{files_before_.rlim_max, files_before_.rlim_max};
    checked(::setrlimit(RLIMIT_NOFILE, &most), "setrlimit");
  }

  /// Becomes readable when a child has died or this process shall end.
  [[nodiscard]] descriptor const& signals() const noexcept { return signals_; }

  /// Takes the pending signals in; the number of one that asks this process to end, or 0.
  [[nodiscard]] int take_signals() const {
    int ending = 0;
    signalfd_siginfo info{};
    while (::read(signals_.number(), &info, sizeof info) == sizeof info) {
      if (info.ssi_signo != SIGCHLD) ending = static_cast<int>(info.ssi_signo);
    }
    return ending;
  }

  /// Gives a child back what this process changed for itself.
  void restore_in_child() const noexcept {
    ::setrlimit(RLIMIT_NOFILE, &files_before_);
    ::sigprocmask(SIG_SETMASK, &mask_before_, nullptr);
  }

  /// Reaps every child that is dead and calls note(pid, wait status); false where no child is left.
  template <typename Note>
  static bool reap(Note note) {
    for (;;) {
      int status = 0;
      pid_t const pid = uninterrupted([&] { return ::waitpid(-1, &status, WNOHANG); });
      if (pid <= 0) return pid == 0;
      note(pid, status);
    }
  }

  /// Kills all descendants; false where one does not die within five seconds.
  ///
  /// Killing the children is enough: theirs then become children of this process, until none is
  /// left. A child's number cannot be reused before it is reaped here. The first process of a PID
  /// namespace takes all others with it.
  template <typename Note>
  static bool kill_descendants(Note note) {
    auto const give_up = std::chrono::steady_clock::now() + std::chrono::seconds{5};
    while (reap(note)) {
      if (std::chrono::steady_clock::now() > give_up) return false;
      std::ifstream children{children_file};
      for (pid_t child = 0; children >> child;) ::kill(child, SIGKILL);
      std::this_thread::sleep_for(std::chrono::milliseconds{1});
    }
    return true;
  }

 private:
  static constexpr char children_file[] = "/proc/thread-self/children";

  /// Keeps later descriptors off 0 to 2 where this process was started without them.
  static void fill_standard_descriptors() {
    for (int number = 0; number <= STDERR_FILENO;) {
      number = checked(::open("/dev/null", O_RDWR), "/dev/null");
      if (number > STDERR_FILENO) ::close(number);
    }
  }

  descriptor signals_;
  sigset_t mask_before_{};
  rlimit files_before_{};
};

/// Place of a rank and its ends of what connects it to the launcher.
struct rank_setup {
  std::size_t rank;
  std::size_t ranks;
  descriptor socket;
  descriptor output;
  descriptor error;
};

namespace detail {

/// Number of the socket in every rank, so that the descriptors of all ranks are alike.
inline constexpr int rank_socket = 3;

/// Gives a descriptor the number under which the program shall inherit it.
inline void hand_over(descriptor const& file, int number) {
  if (file.number() == number) {
    checked(::fcntl(number, F_SETFD, 0), "fcntl");
  } else {
    checked(::dup2(file.number(), number), "dup2");
  }
}

/// Becomes the program of a rank, in the forked child.
inline void become_rank(supervisor const& parent, pid_t parent_pid, rank_setup const& setup,
                        std::vector<std::string> const& command) {
  checked(::prctl(PR_SET_PDEATHSIG, SIGKILL), "prctl(PR_SET_PDEATHSIG)");
  if (::getppid() != parent_pid) ::_exit(127);
  checked(::setpgid(0, 0), "setpgid");
  descriptor const input{checked(::open("/dev/null", O_RDONLY | O_CLOEXEC), "/dev/null")};
  hand_over(input, STDIN_FILENO);
  hand_over(setup.output, STDOUT_FILENO);
  hand_over(setup.error, STDERR_FILENO);
  hand_over(setup.socket, rank_socket);
  ::syscall(SYS_close_range, rank_socket + 1U, ~0U, CLOSE_RANGE_CLOEXEC);  // what others left open
  ::setenv(rank_variable, std::to_string(setup.rank).c_str(), 1);
  ::setenv(size_variable, std::to_string(setup.ranks).c_str(), 1);
  ::setenv(socket_variable, std::to_string(rank_socket).c_str(), 1);
  std::vector<char*> words;
  for (std::string const& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  parent.restore_in_child();
  ::execvp(words.front(), words.data());
  throw_errno(command.front());
}

}  // namespace detail

/// Starts a rank's command in a process group of its own that dies with the launcher.
///
/// Errors:     a command that cannot be executed exits 127 after a line on its standard error.
inline pid_t start_rank(supervisor const& parent, rank_setup const& setup,
                        std::vector<std::string> const& command) {
  pid_t const parent_pid = ::getpid();
  pid_t const pid = checked(::fork(), "fork");
  if (pid == 0) {
    try {
      detail::become_rank(parent, parent_pid, setup, command);
    } catch (std::exception const& failure) {
      ::dprintf(STDERR_FILENO, "launch: %s\n", failure.what());
    }
    ::_exit(127);
  }
  return pid;
}

}  // namespace shm_test
