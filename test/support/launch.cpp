/// @file
/// Starts the ranks of a failure test, each behind its own command, and reports how each of them
/// ended.

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launch_hub.hpp"
#include "launch_options.hpp"
#include "launch_os.hpp"
#include "launch_output.hpp"
#include "launch_process.hpp"
#include "launch_shm.hpp"

namespace shm_test {
namespace {

using namespace std::chrono_literals;
using clock = std::chrono::steady_clock;

enum exit_status { good = 0, bad = 1, wrong_usage = 2, limit_passed = 3, cannot_set_up = 77 };

/// Time for the output of processes that a rank leaves behind, after the last rank is reaped.
constexpr auto output_grace = 200ms;

/// One rank as the launcher sees it.
struct rank_process {
  pid_t started = 0;          ///< the prefix, or the program where there is none
  pid_t real = 0;             ///< who said hello; until then the started process
  descriptor real_pidfd;      ///< empty once that process is dead
  std::optional<int> status;  ///< wait status of the started process
  line_printer output;
  line_printer error;
};

class launcher {
 public:
  explicit launcher(options asked)
      : options_{std::move(asked)}, hub_{options_.ranks}, ranks_(options_.ranks) {
    if (options_.is_shm_private) shm_.emplace(options_.shm_options);
  }

  launcher(launcher const&) = delete;
  launcher& operator=(launcher const&) = delete;
  ~launcher() { end_all(); }

  /// Runs all ranks to their end, prints the report and returns the exit status.
  int run() {
    limit_ = clock::now() + std::chrono::duration_cast<clock::duration>(options_.limit);
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) start(rank);
    ::prctl(PR_SET_TIMERSLACK, 1);
    while (!is_over()) turn();
    bool const is_late = clock::now() >= limit_ && !are_all_reaped();
    bool const are_all_dead = end_all();
    for (rank_process& each : ranks_) {
      each.output.drain();
      each.error.drain();
    }
    if (is_late) print_limit();
    if (!are_all_dead) print("launch: a process does not die of SIGKILL\n");
    bool const is_good = report() && are_all_dead;
    if (ending_signal_ != 0) return 128 + ending_signal_;
    if (is_late) return limit_passed;
    return is_good ? good : bad;
  }

 private:
  void start(std::size_t rank) {
    auto [read_output, write_output] = make_pipe();
    auto [read_error, write_error] = make_pipe();
    rank_setup const setup{rank, ranks_.size(), hub_.connect(rank), std::move(write_output),
                           std::move(write_error)};
    rank_process& process = ranks_[rank];
    process.output = line_printer{std::move(read_output), std::to_string(rank) + "| "};
    process.error = line_printer{std::move(read_error), std::to_string(rank) + "! "};
    process.started = start_rank(supervisor_, setup, options_.commands[rank]);
    process.real = process.started;
    process.real_pidfd = open_pidfd(process.started);
    if (!process.real_pidfd.is_open()) throw_errno("pidfd_open");
  }

  static std::pair<descriptor, descriptor> make_pipe() {
    int ends[2];
    checked(::pipe2(ends, O_CLOEXEC), "pipe2");
    return {descriptor{ends[0]}, descriptor{ends[1]}};
  }

  /// Waits for the next event or time and handles all that have come.
  void turn() {
    constexpr std::size_t per_rank = 4;
    polls_.clear();
    polls_.push_back({supervisor_.signals().number(), POLLIN, 0});
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      rank_process const& process = ranks_[rank];
      polls_.push_back(hub_.interest(rank));
      polls_.push_back({process.real_pidfd.number(), POLLIN, 0});
      polls_.push_back({process.output.pipe().number(), POLLIN, 0});
      polls_.push_back({process.error.pipe().number(), POLLIN, 0});
    }
    timespec const timeout = time_to_next();
    if (::ppoll(polls_.data(), polls_.size(), &timeout, nullptr) < 0 && errno != EINTR) {
      throw_errno("ppoll");
    }
    send_due_signals();
    std::span<pollfd const> events{polls_};
    if (events.front().revents != 0) ending_signal_ = supervisor_.take_signals();
    reap();
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      handle(rank, events.subspan(1 + rank * per_rank, per_rank));
    }
    send_due_signals();
  }

  /// Handles what poll() said about a rank's socket, process, output and errors.
  void handle(std::size_t rank, std::span<pollfd const> events) {
    rank_process& process = ranks_[rank];
    if (events[0].revents != 0 && hub_.interest(rank).fd >= 0) hub_.serve(rank);
    if (process.real_pidfd.is_open() && events[1].revents != 0) lose(rank);
    if (events[2].revents != 0) process.output.read();
    if (events[3].revents != 0) process.error.read();
    watch_real_process(rank);
  }

  /// Follows the process that said hello in place of the prefix that was started.
  void watch_real_process(std::size_t rank) {
    rank_process& process = ranks_[rank];
    pid_t const said_hello = hub_.pid(rank);
    if (said_hello == 0 || said_hello == process.real) return;
    process.real = said_hello;
    process.real_pidfd = open_pidfd(said_hello);
    if (!process.real_pidfd.is_open()) hub_.lose(rank);
  }

  void lose(std::size_t rank) {
    ranks_[rank].real_pidfd.close();
    hub_.lose(rank);
  }

  void reap() {
    supervisor::reap([this](pid_t pid, int status) { note_death(pid, status); });
  }

  /// Keeps a rank's status; an adopted orphan is of no interest.
  void note_death(pid_t pid, int status) {
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      rank_process& process = ranks_[rank];
      if (process.started != pid || process.status) continue;
      process.status = status;
      lose(rank);
      return;
    }
  }

  void send_due_signals() {
    if (!hub_.go_time()) return;
    while (next_signal_ < options_.signals.size()) {
      timed_signal const& next = options_.signals[next_signal_];
      if (*hub_.go_time() + next.after > clock::now()) return;
      send_signal(ranks_[next.rank].real_pidfd, next.number);
      ++next_signal_;
    }
  }

  /// Time until a signal is due, the grace for output ends or the limit passes.
  [[nodiscard]] timespec time_to_next() const {
    clock::time_point next = limit_;
    if (hub_.go_time() && next_signal_ < options_.signals.size()) {
      next = std::min(next, *hub_.go_time() + options_.signals[next_signal_].after);
    }
    if (grace_end_) next = std::min(next, *grace_end_);
    auto const left = std::max(next - clock::now(), clock::duration::zero());
    auto const seconds = std::chrono::duration_cast<std::chrono::seconds>(left);
    return {seconds.count(), std::chrono::nanoseconds{left - seconds}.count()};
  }

  /// Whether nothing more is to be waited for.
  bool is_over() {
    auto const now = clock::now();
    if (ending_signal_ != 0 || now >= limit_) return true;
    if (!are_all_reaped()) return false;
    if (!grace_end_) grace_end_ = now + output_grace;
    return now >= *grace_end_ || std::ranges::none_of(ranks_, [](rank_process const& each) {
             return each.output.pipe().is_open() || each.error.pipe().is_open();
           });
  }

  [[nodiscard]] bool are_all_reaped() const {
    return std::ranges::all_of(ranks_,
                               [](rank_process const& each) { return each.status.has_value(); });
  }

  /// Kills and reaps whatever still runs; false where something does not die.
  bool end_all() {
    return supervisor::kill_descendants([this](pid_t pid, int status) { note_death(pid, status); });
  }

  void print_limit() const {
    std::ostringstream line;
    line << "limit: " << options_.limit.count() << " seconds passed\n";
    print(line.str());
  }

  /// Prints how every rank ended and what is left; true where all is well.
  [[nodiscard]] bool report() const {
    bool is_good = true;
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      std::optional<int> const& status = ranks_[rank].status;
      is_good = is_good && status == 0;
      print("rank " + std::to_string(rank) + ": " + ending(status) + "\n");
    }
    if (!shm_) return is_good;
    auto const left = shm_->entries();
    std::string line = "left in /dev/shm: " + std::to_string(left.size());
    for (std::string const& name : left) line += " " + name;
    print(line + "\n");
    return is_good && left.empty();
  }

  static std::string ending(std::optional<int> const& status) {
    if (!status) return "alive";
    if (WIFSIGNALED(*status)) return "signal " + std::to_string(WTERMSIG(*status));
    return "exit " + std::to_string(WEXITSTATUS(*status));
  }

  options options_;
  supervisor supervisor_;
  std::optional<private_shm> shm_;
  hub hub_;
  std::vector<rank_process> ranks_;
  std::vector<pollfd> polls_;
  std::size_t next_signal_ = 0;
  int ending_signal_ = 0;
  clock::time_point limit_;
  std::optional<clock::time_point> grace_end_;
};

int run_launch(std::span<char* const> arguments) {
  try {
    options asked = options_parser{arguments}.parse();
    if (asked.wants_help) {
      print(usage_text);
      return good;
    }
    return launcher{std::move(asked)}.run();
  } catch (usage_error const& error) {
    std::fprintf(stderr, "launch: %s\n\n%s", error.what(), usage_text.data());
    return wrong_usage;
  } catch (std::exception const& error) {
    std::fprintf(stderr, "launch: cannot set up: %s\n", error.what());
    return cannot_set_up;
  }
}

}  // namespace
}  // namespace shm_test

int main(int argc, char** argv) {
  return shm_test::run_launch(std::span{argv, static_cast<std::size_t>(argc)}.subspan(1));
}
