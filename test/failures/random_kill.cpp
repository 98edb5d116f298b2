/// @file
/// Kills forked ranks at random moments while they create communicators and windows, split and
/// fence, and checks that the survivors agree on what has happened, that none hangs and that
/// nothing is left.

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <sys/prctl.h>
#include <sys/statfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shm/shm.hpp"
#include "support/launch_shm.hpp"

namespace {

using namespace std::chrono_literals;
using clock = std::chrono::steady_clock;

constexpr std::string_view usage =
    R"(usage: random_kill [--rounds N] [--kill one|all] [--seed S] [--first K] [--limit SECONDS]

Each round forks 2 to 4 ranks and kills one of them, or all, 0 to 20 ms after the fork, or after all
have made their communicator. Survivors of one then make a group of their own. Round K of a seed is
repeated with --seed S --first K --rounds 1. Exit status: 0 all well; 1 something failed; 2 usage.
)";

/// What the command line asks for.
struct options {
  std::uint64_t rounds = 1000;
  std::uint64_t first = 0;
  std::uint64_t seed = std::random_device{}();
  std::uint64_t limit_seconds = 10;
  bool kills_all = false;
};

options parse(std::span<char* const> words) {
  options result;
  for (std::size_t i = 0; i + 1 < words.size(); i += 2) {
    std::string_view const name = words[i];
    std::string_view const value = words[i + 1];
    if (name == "--kill" && (value == "one" || value == "all")) {
      result.kills_all = value == "all";
      continue;
    }
    auto* const number = name == "--rounds"  ? &result.rounds
                         : name == "--first" ? &result.first
                         : name == "--seed"  ? &result.seed
                         : name == "--limit" ? &result.limit_seconds
                                             : nullptr;
    if (number == nullptr) throw std::invalid_argument(std::string(name));
    auto const end = value.data() + value.size();
    if (std::from_chars(value.data(), end, *number).ptr != end) {
      throw std::invalid_argument(std::string(value));
    }
  }
  if (words.size() % 2 != 0) throw std::invalid_argument(words.back());
  return result;
}

/// What a rank is doing; read by the parent where it hangs or fails.
enum class step : std::uint32_t {
  starting,
  communicator,
  window,
  fence,
  agree,
  barrier,
  split,
  destroying,
  new_communicator,
  new_window,
  new_fence,
  done,
};

constexpr std::array<std::string_view, 12> step_names = {
    "starting", "communicator", "window",           "fence",      "agree",     "barrier",
    "split",    "destroying",   "new communicator", "new window", "new fence", "done"};

/// Room in which a rank tells the parent what it does and how it ended.
struct alignas(shm::line_bytes) report {
  step doing = step::starting;
  step failed_in = step::starting;
  std::uint32_t iterations = 0;
  std::int32_t rank = -1;        ///< that the error names
  shm::errc cause{};             ///< of the error; zero: not a shm::error
  shm::fixed_text<640> error{};  ///< empty: none
  shm::fixed_text<640> after{};  ///< what went wrong with the survivors' new group; empty: nothing
};

/// One round: everything in it follows from its number and the seed.
struct plan {
  int ranks = 2;
  int victim = 0;
  std::chrono::microseconds delay{};
  bool starts_late = false;   ///< the delay counts from when all have their communicator
  bool keeps_handle = false;  ///< survivors keep the lost group while they make a new one
  shm::fence_algorithm fence = shm::fence_algorithm::automatic;

  plan(std::uint64_t seed, std::uint64_t round) {
    std::seed_seq mixed{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32),
                        static_cast<std::uint32_t>(round)};
    std::mt19937_64 random(mixed);
    ranks = std::uniform_int_distribution(2, 4)(random);
    victim = std::uniform_int_distribution(0, ranks - 1)(random);
    // The cube puts half of all kills into the first 2.5 ms, where communicators are made.
    auto const u = std::uniform_real_distribution(0.0, 1.0)(random);
    delay = std::chrono::microseconds{std::lround(20000 * u * u * u)};
    starts_late = random() % 2 == 0;
    keeps_handle = random() % 2 == 0;
    fence = static_cast<shm::fence_algorithm>(std::uniform_int_distribution(0, 3)(random));
  }
};

/// Memory that the parent shares with the ranks of one round.
struct round_area {
  explicit round_area(plan const& how)
      : bootstrap(how.ranks),
        second(std::max(how.ranks - 1, 1)),
        reports(static_cast<std::size_t>(how.ranks)) {}

  shm::fork_area bootstrap;
  shm::fork_area second;  ///< of the group that the survivors make
  shm::detail::forked_array<report> reports;
};

void enter(report& own, step what) {
  std::atomic_ref(own.doing).store(what, std::memory_order_release);
}

/// Creates windows of changing sizes and fences, until an error ends it.
[[noreturn]] void work_forever(shm::group& node, report& own) {
  for (std::uint32_t i = 1;; ++i) {
    enter(own, step::window);
    auto const rank = static_cast<std::uint32_t>(node.rank());
    shm::window<std::uint32_t> field(node, 1 + (i * 37 + rank * 11) % 5000);
    for (std::uint32_t k = 1; k <= 1 + i % 4; ++k) {
      field.local().back() = i + k;
      enter(own, step::fence);
      field.fence();
      for (int r = 0; r < node.size(); ++r) {
        if (std::as_const(field)[r].back() != i + k) throw std::logic_error("a stale value");
      }
      field.fence();
    }
    if (i % 3 == 0) {
      enter(own, step::agree);
      node.agree([] {});
    }
    if (i % 5 == 0) {
      enter(own, step::barrier);
      node.barrier();
    }
    if (i % 2 == 0) {
      enter(own, step::split);
      node.split(node.rank() % 2, -node.rank());
    }
    enter(own, step::destroying);
    own.iterations = i;
  }
}

/// Makes a group of the survivors and uses it.
void go_on(round_area& area, plan const& how, int rank, report& own) {
  enter(own, step::new_communicator);
  shm::fork_oob oob(area.second, rank < how.victim ? rank : rank - 1);
  shm::communicator node(oob, shm::settings{.fence = how.fence});
  enter(own, step::new_window);
  shm::window<int> field(node, 100);
  enter(own, step::new_fence);
  field.fence();
  enter(own, step::done);
}

/// The life of one rank.
[[noreturn]] void live(round_area& area, plan const& how, int rank, bool has_survivors) {
  auto& own = area.reports[rank];
  std::optional<shm::group> node;
  try {
    enter(own, step::communicator);
    shm::fork_oob oob(area.bootstrap, rank);
    node.emplace(shm::communicator(oob, shm::settings{.fence = how.fence}));
    work_forever(*node, own);
  } catch (shm::error const& e) {
    own.failed_in = own.doing;
    own.cause = e.details().cause;
    own.rank = e.rank();
    own.error = std::string_view(e.what());
  } catch (std::exception const& e) {
    own.failed_in = own.doing;
    own.error = std::string_view(e.what());
  }
  if (!how.keeps_handle) node.reset();
  try {
    if (has_survivors && rank != how.victim) go_on(area, how, rank, own);
  } catch (std::exception const& e) {
    own.after = std::string_view(e.what());
  }
  ::_exit(0);
}

/// What rounds have brought to light.
struct tally {
  std::uint64_t rounds = 0;
  std::uint64_t failed = 0;
  std::map<std::string, std::uint64_t> kinds;    ///< of failures; a round may have several
  std::map<std::string, std::uint64_t> moments;  ///< what the first survivor was doing
  clock::duration slowest{};                     ///< from the kill to the last survivor's error
  std::uint64_t late = 0;                        ///< rounds in which that took over a second
};

class round {
 public:
  round(options const& asked, std::uint64_t number, shm_test::private_shm const* directory)
      : asked_(asked),
        number_(number),
        how_(asked.seed, number),
        area_(how_),
        directory_(directory),
        pids_(static_cast<std::size_t>(how_.ranks), 0) {}

  void run(tally& sum) {
    ++sum.rounds;
    start();
    if (how_.starts_late) {
      auto const latest = clock::now() + std::chrono::seconds(asked_.limit_seconds);
      while (!are_all_working() && clock::now() < latest) wait_until(clock::now() + 50us);
      if (!are_all_working()) complain("a communicator takes too long");
    }
    wait_until(clock::now() + how_.delay);
    kill();
    auto const killed_at = clock::now();
    bool const is_over = wait_until(killed_at + std::chrono::seconds(asked_.limit_seconds));
    auto const took = clock::now() - killed_at;
    if (!is_over) {
      complain("hang");
      is_hung_ = true;
      for (pid_t const pid : pids_) {
        if (pid != 0) ::kill(pid, SIGKILL);
      }
      wait_until(clock::time_point::max());
    } else {
      sum.slowest = std::max(sum.slowest, took);
      if (took > 1s) ++sum.late;
    }
    if (!asked_.kills_all) {
      check_survivors();
      for (int r = 0; r < how_.ranks; ++r) {
        if (r == how_.victim) continue;
        ++sum.moments[std::string(name_of(area_.reports[r].failed_in))];
        break;
      }
    }
    check_directory();
    if (!complaints_.empty()) {
      ++sum.failed;
      for (auto const& kind : complaints_) ++sum.kinds[kind];
      print(took);
    }
  }

 private:
  static std::string_view name_of(step what) { return step_names[static_cast<std::size_t>(what)]; }

  void start() {
    auto const parent = ::getpid();
    for (int r = 0; r < how_.ranks; ++r) {
      pid_t const pid = shm_test::checked(::fork(), "fork");
      if (pid == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (::getppid() != parent) ::_exit(1);
        live(area_, how_, r, !asked_.kills_all);
      }
      pids_[static_cast<std::size_t>(r)] = pid;
    }
  }

  [[nodiscard]] bool are_all_working() {
    for (int r = 0; r < how_.ranks; ++r) {
      std::atomic_ref const doing(area_.reports[r].doing);
      if (doing.load(std::memory_order_acquire) <= step::communicator) return false;
    }
    return true;
  }

  void kill() const {
    for (int r = 0; r < how_.ranks; ++r) {
      pid_t const pid = pids_[static_cast<std::size_t>(r)];
      if (pid != 0 && (asked_.kills_all || r == how_.victim)) ::kill(pid, SIGKILL);
    }
  }

  /// Reaps ranks as they end, and marks them as gone; false where one still runs at `deadline`.
  bool wait_until(clock::time_point deadline) {
    sigset_t ends;
    ::sigemptyset(&ends);
    ::sigaddset(&ends, SIGCHLD);
    for (;;) {
      reap();
      if (std::ranges::all_of(pids_, [](pid_t pid) { return pid == 0; })) return true;
      auto const left = std::min<clock::duration>(deadline - clock::now(), 100ms);
      if (left <= clock::duration::zero()) return false;
      timespec const time{0, std::chrono::nanoseconds(left).count()};
      ::sigtimedwait(&ends, nullptr, &time);
    }
  }

  void reap() {
    for (int r = 0; r < how_.ranks; ++r) {
      pid_t& pid = pids_[static_cast<std::size_t>(r)];
      int status = 0;
      if (pid == 0 || ::waitpid(pid, &status, WNOHANG) != pid) continue;
      pid = 0;
      area_.bootstrap.mark_gone(r);
      bool const is_victim = asked_.kills_all || r == how_.victim;
      if (!is_hung_ && WIFSIGNALED(status) && (!is_victim || WTERMSIG(status) != SIGKILL)) {
        complain("a rank died of another signal");
      }
    }
  }

  void check_survivors() {
    std::optional<std::string> first;
    for (int r = 0; r < how_.ranks; ++r) {
      if (r == how_.victim) continue;
      auto const& own = area_.reports[r];
      std::string const text(own.error.view());
      if (own.cause != shm::errc::peer_lost) complain("not peer_lost");
      if (own.cause == shm::errc::peer_lost && own.rank != how_.victim) complain("wrong rank");
      if (first && *first != text) complain("survivors differ");
      if (!own.after.is_empty()) complain("no new group");
      first = text;
    }
  }

  /// A nameless file lives as long as a process has it: none is left, and no page of one.
  void check_directory() {
    if (directory_ == nullptr) return;
    if (!directory_->entries().empty()) complain("a name is left in /dev/shm");
    struct statfs status{};
    if (::statfs("/dev/shm", &status) == 0 && status.f_bfree != status.f_blocks) {
      complain("memory is left in /dev/shm");
    }
  }

  void complain(std::string_view kind) {
    if (std::ranges::find(complaints_, kind) == complaints_.end()) complaints_.emplace_back(kind);
  }

  void print(clock::duration took) {
    std::printf("round %llu:", static_cast<unsigned long long>(number_));
    for (auto const& kind : complaints_) std::printf(" %s;", kind.c_str());
    std::printf(" %d ranks, %s %d killed after %lld us, %lld ms to the end, fence %d%s\n",
                how_.ranks, asked_.kills_all ? "all, not only" : "rank", how_.victim,
                static_cast<long long>(how_.delay.count()), static_cast<long long>(took / 1ms),
                static_cast<int>(how_.fence), how_.keeps_handle ? ", handles kept" : "");
    for (int r = 0; r < how_.ranks; ++r) {
      auto const& own = area_.reports[r];
      std::printf(
          "  rank %d: in %s, failed in %s, %u iterations: %s%s%s\n", r,
          std::string(name_of(own.doing)).c_str(), std::string(name_of(own.failed_in)).c_str(),
          own.iterations, std::string(own.error.view()).c_str(),
          own.after.is_empty() ? "" : "; new group: ", std::string(own.after.view()).c_str());
    }
    std::printf("  repeat: random_kill --seed %llu --first %llu --rounds 1 --kill %s\n",
                static_cast<unsigned long long>(asked_.seed),
                static_cast<unsigned long long>(number_), asked_.kills_all ? "all" : "one");
    std::fflush(stdout);
  }

  options const& asked_;
  std::uint64_t number_;
  plan how_;
  round_area area_;
  shm_test::private_shm const* directory_;
  std::vector<pid_t> pids_;  ///< 0: reaped
  bool is_hung_ = false;     ///< the parent has killed what still ran
  std::vector<std::string> complaints_;
};

int run(options const& asked) {
  sigset_t ends;
  ::sigemptyset(&ends);
  ::sigaddset(&ends, SIGCHLD);
  shm_test::checked(::sigprocmask(SIG_BLOCK, &ends, nullptr), "sigprocmask");
  std::printf("seed %llu\n", static_cast<unsigned long long>(asked.seed));
  std::unique_ptr<shm_test::private_shm> directory;
  try {
    directory = std::make_unique<shm_test::private_shm>("size=64m");
  } catch (std::system_error const& refused) {
    std::printf("/dev/shm is not checked: %s\n", refused.what());
  }
  std::fflush(stdout);
  tally sum;
  for (std::uint64_t i = 0; i < asked.rounds; ++i) {
    round(asked, asked.first + i, directory.get()).run(sum);
  }
  std::printf("%llu rounds, %llu failed; slowest end %lld ms after the kill, %llu over a second\n",
              static_cast<unsigned long long>(sum.rounds),
              static_cast<unsigned long long>(sum.failed),
              static_cast<long long>(sum.slowest / 1ms), static_cast<unsigned long long>(sum.late));
  for (auto const& [kind, count] : sum.kinds) {
    std::printf("  failed, %s: %llu\n", kind.c_str(), static_cast<unsigned long long>(count));
  }
  for (auto const& [moment, count] : sum.moments) {
    std::printf("  survivors in %s: %llu\n", moment.c_str(),
                static_cast<unsigned long long>(count));
  }
  return sum.failed == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(parse(std::span(argv, static_cast<std::size_t>(argc)).subspan(1)));
  } catch (std::invalid_argument const& wrong) {
    std::fprintf(stderr, "random_kill: %s\n%s", wrong.what(), usage.data());
    return 2;
  } catch (std::exception const& failure) {
    std::fprintf(stderr, "random_kill: %s\n", failure.what());
    return 1;
  }
}
