#pragma once
/// @file Ranks without MPI: processes forked from this one.

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "shm/base/settings.hpp"
#include "shm/base/size.hpp"
#include "shm/base/text.hpp"
#include "shm/communicator.hpp"
#include "shm/error.hpp"
#include "shm/group.hpp"
#include "shm/oob/fork.hpp"
#include "shm/os/call.hpp"
#include "shm/os/file_descriptor.hpp"
#include "shm/os/mapping.hpp"
#include "shm/os/process.hpp"

namespace shm::inline v1 {

/// How one rank of `fork_ranks` ended.
struct rank_exit {
  enum class kind { finished, threw, exited, killed };
  rank_exit::kind how = kind::finished;
  int value = 0;          ///< exit status where exited, signal where killed
  std::string what = {};  ///< what() of the exception where it threw
  errc code = {};         ///< its cause where it threw a `shm::error`

  /// Says it in words: "threw: …", "was killed by signal 9 (Killed)".
  [[nodiscard]] std::string in_words() const {
    switch (how) {
      case kind::threw:
        return "threw: " + what;
      case kind::exited:
        return "called exit(" + std::to_string(value) + ") before its function returned";
      case kind::killed:
        return "was killed by signal " + std::to_string(value) + " (" + ::strsignal(value) + ")";
      case kind::finished:
        break;
    }
    return "finished";
  }
};

/// The error of `fork_ranks`: how every rank ended, in rank order.
class ranks_failed : public error {
 public:
  explicit ranks_failed(std::vector<rank_exit> exits)
      : error(first_of(exits),
              {.where = operation::fork_ranks, .size = static_cast<int>(exits.size())}),
        exits_(std::make_shared<std::vector<rank_exit> const>(std::move(exits))) {
    text_.append("shm: forking ranks: rank " + std::to_string(rank()) + " of " +
                 std::to_string(exits_->size()) + " ");
    text_.append((*exits_)[static_cast<std::size_t>(rank())].in_words());
  }

  /// Says how the rank that others complain of has ended, in full.
  [[nodiscard]] char const* what() const noexcept override { return text_.c_str(); }
  /// How every rank ended, in rank order.
  [[nodiscard]] std::vector<rank_exit> const& exits() const noexcept { return *exits_; }

 private:
  /// Names a rank that others complain of, rather than one that complains.
  static failure first_of(std::vector<rank_exit> const& exits) {
    auto const weight = [](rank_exit const& one) {
      if (one.how == rank_exit::kind::finished) return 0;
      if (one.how != rank_exit::kind::threw) return 3;
      return one.code == errc::peer_lost || one.code == errc::peer_left ? 1 : 2;
    };
    auto const first = std::ranges::max_element(exits, {}, weight);
    return {.cause = errc::ranks_failed,
            .rank = static_cast<int>(first - exits.begin()),
            .subject = first->in_words(),
            .remedy = {}};
  }

  std::shared_ptr<std::vector<rank_exit> const> exits_;
  fixed_text<1200> text_;
};

namespace detail {

/// Room for what one forked rank hands back.
struct alignas(line_bytes) fork_report {
  enum class state : std::uint32_t { running, finished, threw };
  fork_report::state is = state::running;
  errc code{};
  fixed_text<1000> what{};
};

/// Memory shared with later children, zero at first, for `count` objects of a trivial type.
template <class T>
class forked_array {
 public:
  explicit forked_array(std::size_t count)
      : memory_(os::mapping::shared_with_children(count * sizeof(T))) {}

  T& operator[](int index) noexcept { return reinterpret_cast<T*>(memory_.bytes().data())[index]; }

 private:
  os::mapping memory_;
};

/// The children of one `fork_ranks`: reaped as they end, killed where the parent fails.
class forked_children {
 public:
  explicit forked_children(fork_area& area) : area_(area) {
    running_.reserve(static_cast<std::size_t>(area.size()));
  }
  forked_children(forked_children const&) = delete;
  forked_children& operator=(forked_children const&) = delete;
  ~forked_children() {
    for (auto const& one : running_) ::kill(one.pid, SIGKILL);
    for (auto const& one : running_) {
      os::retry([&] { return ::waitpid(one.pid, nullptr, 0); });
    }
  }

  void add(int rank, pid_t pid) {
    // Where the kernel is older than 5.3 the descriptor is closed, and reaping polls.
    running_.push_back(
        {rank, pid, os::file_descriptor{static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))}});
  }

  /// Waits for all children. Calls `ended(rank, status)` as each is reaped.
  template <class Ended>
  void reap(Ended const& ended) {
    while (!running_.empty()) {
      wait_for_any();
      std::erase_if(running_, [&](child const& one) {
        int status = 0;  // stays so where somebody else has reaped it
        if (::waitpid(one.pid, &status, WNOHANG) == 0) return false;
        area_.mark_gone(one.rank);
        ended(one.rank, status);
        return true;
      });
    }
  }

 private:
  struct child {
    int rank;
    pid_t pid;
    os::file_descriptor handle;
  };

  void wait_for_any() const {
    std::vector<pollfd> handles;
    int timeout_ms = -1;
    for (auto const& one : running_) {
      handles.push_back({.fd = one.handle.number(), .events = POLLIN, .revents = 0});
      if (!one.handle.is_open()) timeout_ms = 1;
    }
    ::poll(handles.data(), handles.size(), timeout_ms);
  }

  fork_area& area_;
  std::vector<child> running_;
};

/// The life of one forked rank; does not return.
template <class Body>
[[noreturn]] void live_as_rank(fork_area& area, int rank, pid_t parent,
                               std::optional<settings> const& given, fork_report& report,
                               Body const& body) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);
  auto result = fork_report::state::threw;
  try {
    fork_oob oob(area, rank);
    communicator node(oob, given);
    body(static_cast<group&>(node), rank);
    result = fork_report::state::finished;
  } catch (error const& e) {
    report.what = std::string_view(e.what());
    report.code = e.details().cause;
  } catch (std::exception const& e) {
    report.what = std::string_view(e.what());
  } catch (...) {
    report.what = "an exception that is not a std::exception";
  }
  report.is = result;
  std::fflush(nullptr);
  ::_exit(result == fork_report::state::finished ? 0 : 1);
}

inline rank_exit exit_of(fork_report const& report, int status) {
  if (WIFSIGNALED(status)) return {.how = rank_exit::kind::killed, .value = WTERMSIG(status)};
  switch (report.is) {
    case fork_report::state::finished:
      return {};
    case fork_report::state::threw:
      return {.how = rank_exit::kind::threw,
              .what = std::string(report.what.view()),
              .code = report.code};
    case fork_report::state::running:
      break;
  }
  return {.how = rank_exit::kind::exited, .value = WEXITSTATUS(status)};
}

/// Refuses to fork where the child would be broken.
inline void require_forkable() {
  auto const refuse = [](std::string_view subject) {
    throw error({.cause = errc::unsupported,
                 .subject = subject,
                 .remedy = "call it first thing in main, or start the ranks otherwise"},
                {.where = operation::fork_ranks});
  };
  if (os::is_mpi_initialized()) refuse("forking after MPI_Init");
  if (!os::has_sanitizer_thread && os::thread_count() > 1) {
    refuse("forking while other threads run");
  }
  struct sigaction action{};
  ::sigaction(SIGCHLD, nullptr, &action);
  if (action.sa_handler == SIG_IGN || (action.sa_flags & SA_NOCLDWAIT) != 0) {
    refuse("forking while SIGCHLD is ignored, which hides how ranks end");
  }
}

/// Forks `ranks` processes that run `body(group, rank)`, and waits for them.
template <class Body>
void fork_and_reap(int ranks, std::optional<settings> const& given, Body const& body) {
  fork_area area(ranks);
  require_forkable();
  forked_array<fork_report> reports(static_cast<std::size_t>(ranks));
  std::vector<rank_exit> exits(static_cast<std::size_t>(ranks));
  forked_children children(area);
  auto const parent = ::getpid();
  std::fflush(nullptr);
  for (int rank = 0; rank < ranks; ++rank) {
    auto const pid = ::fork();
    if (pid < 0) {
      os::throw_last("forking a rank",
                     "raise the number of processes (ulimit -u), or ask for fewer ranks");
    }
    if (pid == 0) live_as_rank(area, rank, parent, given, reports[rank], body);
    children.add(rank, pid);
  }
  bool failed = false;
  children.reap([&](int rank, int status) {
    auto& end = exits[static_cast<std::size_t>(rank)];
    end = exit_of(reports[rank], status);
    failed = failed || end.how != rank_exit::kind::finished;
  });
  if (failed) throw ranks_failed(std::move(exits));
}

}  // namespace detail

/// Runs `f(group)` in `ranks` processes forked from this one, and waits for them. This process is
/// no rank.
///
/// Returns:  nothing where f returns void; else the ranks' results in rank order, which are copied
///           between processes and so must be trivially copyable.
/// Effects:  flushes stdio (and so std::cout, unless it is not synchronized with stdio); each rank
///           flushes its own and ends without running atexit handlers. A rank dies with this
///           process.
/// Errors:   `ranks_failed` where a rank threw or died, with every rank's exit. errc::unsupported
///           after MPI_Init, or with other threads running. errc::invalid_argument for fewer than
///           one rank.
template <std::invocable<group&> F>
auto fork_ranks(int ranks, F f, std::optional<settings> given = {}) {
  using result = std::invoke_result_t<F&, group&>;
  if constexpr (std::is_void_v<result>) {
    detail::fork_and_reap(ranks, given, [&](group& node, int) { f(node); });
  } else {
    static_assert(std::is_trivially_copyable_v<result> && !std::is_pointer_v<result>,
                  "fork_ranks: what a rank returns is copied between processes; return a type "
                  "that is trivially copyable and not a pointer, or put it into a window");
    detail::forked_array<result> results(static_cast<std::size_t>(std::max(ranks, 1)));
    detail::fork_and_reap(ranks, given,
                          [&](group& node, int rank) { ::new (&results[rank]) result(f(node)); });
    std::vector<result> all;
    for (int rank = 0; rank < ranks; ++rank) all.push_back(results[rank]);
    return all;
  }
}

}  // namespace shm::inline v1
