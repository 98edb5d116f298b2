#pragma once

/// @file
/// Reads the command line of the launcher of failure tests.

#include <algorithm>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "launch_protocol.hpp"

namespace shm_test {

inline constexpr std::string_view usage_text =
    R"(usage: launch -n RANKS [OPTIONS] -- PROGRAM ARGS...

Starts RANKS processes of PROGRAM (1 to 256), each in reach of the others through launch_oob, and
prints what they write as `RANK| text` (standard output) and `RANK! text` (standard error).

  --limit SECONDS          kill everything after this time (20)
  --shm MOUNT_OPTIONS      options of the private /dev/shm, such as ro or size=16m,nr_inodes=2
  --no-private-shm         use the /dev/shm that is there
  --prefix RANK 'COMMAND'  put a command in front of PROGRAM for one rank, or for `all` (outermost);
                           split at blanks, quotes '...' and "..." hold blanks together. A command
                           that mounts needs `unshare -m` in front, or it mounts for all ranks.
  --kill RANK:MICROSECONDS  send SIGKILL to a rank this long after all ranks have said hello
  --stop RANK:MICROSECONDS  likewise SIGSTOP
  --cont RANK:MICROSECONDS  likewise SIGCONT

Exit status: 0 all ranks exited 0 and nothing is left in the private /dev/shm; 1 otherwise; 2 wrong
usage; 3 the limit passed; 77 cannot set up; 128 + n ended by signal n.
)";

/// Says what is wrong with the command line.
struct usage_error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Signal to a rank at a time after the go.
struct timed_signal {
  std::chrono::microseconds after;
  std::size_t rank;
  int number;
};

/// What the command line asks for.
struct options {
  std::size_t ranks = 0;
  std::chrono::duration<double> limit{20};
  bool is_shm_private = true;
  std::string shm_options;
  std::vector<std::vector<std::string>> commands;  ///< prefixes and program, one per rank
  std::vector<timed_signal> signals;               ///< in order of time
  bool wants_help = false;
};

namespace detail {

template <typename Number>
Number parse_number(std::string_view text, std::string_view what) {
  Number value{};
  auto const [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || stop != text.data() + text.size()) {
    throw usage_error{std::string{what} + ": not a number: '" + std::string{text} + "'"};
  }
  return value;
}

/// Splits a command at blanks; quotes of either kind hold blanks together and are taken away.
inline std::vector<std::string> split_words(std::string_view text) {
  std::vector<std::string> words;
  bool is_in_word = false;
  char quote = '\0';
  for (char const letter : text) {
    bool const is_blank = letter == ' ' || letter == '\t' || letter == '\n';
    if (quote == '\0' && is_blank) {
      is_in_word = false;
      continue;
    }
    if (!std::exchange(is_in_word, true)) words.emplace_back();
    if (letter == quote) {
      quote = '\0';
    } else if (quote == '\0' && (letter == '\'' || letter == '"')) {
      quote = letter;
    } else {
      words.back() += letter;
    }
  }
  if (quote != '\0') throw usage_error{"--prefix: open quote in: " + std::string{text}};
  if (words.empty()) throw usage_error{"--prefix: empty command"};
  return words;
}

}  // namespace detail

/// Reads a command line; prefixes may precede -n, so that ranks are checked at the end.
class options_parser {
 public:
  explicit options_parser(std::span<char* const> arguments) : rest_{arguments} {}

  /// Returns what the command line asks for; throws usage_error.
  options parse() {
    while (!rest_.empty() && std::string_view{rest_.front()} != "--") {
      parse_option(take("option"));
      if (options_.wants_help) return options_;
    }
    if (options_.ranks == 0) throw usage_error{"-n RANKS is missing"};
    if (rest_.size() < 2) throw usage_error{"-- PROGRAM is missing"};
    if (!options_.is_shm_private && !options_.shm_options.empty()) {
      throw usage_error{"--shm and --no-private-shm exclude each other"};
    }
    build_commands(rest_.subspan(1));
    for (timed_signal const& each : options_.signals) check_rank(each.rank);
    std::ranges::stable_sort(options_.signals, {}, &timed_signal::after);
    return std::move(options_);
  }

 private:
  struct prefix {
    std::string rank;
    std::vector<std::string> words;
  };

  std::string take(std::string_view what) {
    if (rest_.empty()) throw usage_error{std::string{what} + ": value is missing"};
    std::string value = rest_.front();
    rest_ = rest_.subspan(1);
    return value;
  }

  void parse_option(std::string const& name) {
    if (name == "-n") {
      options_.ranks = detail::parse_number<std::size_t>(take(name), name);
      if (options_.ranks < 1 || options_.ranks > max_ranks) {
        throw usage_error{"-n: 1 to " + std::to_string(max_ranks) + " ranks"};
      }
    } else if (name == "--limit") {
      options_.limit = std::chrono::duration<double>{parse_limit(take(name))};
    } else if (name == "--shm") {
      options_.shm_options = take(name);
    } else if (name == "--no-private-shm") {
      options_.is_shm_private = false;
    } else if (name == "--prefix") {
      std::string rank = take(name);
      prefixes_.push_back({std::move(rank), detail::split_words(take(name))});
    } else if (name == "--kill") {
      parse_signal(name, SIGKILL);
    } else if (name == "--stop") {
      parse_signal(name, SIGSTOP);
    } else if (name == "--cont") {
      parse_signal(name, SIGCONT);
    } else if (name == "-h" || name == "--help") {
      options_.wants_help = true;
    } else {
      throw usage_error{"unknown option '" + name + "'"};
    }
  }

  static double parse_limit(std::string const& text) {
    auto const seconds = detail::parse_number<double>(text, "--limit");
    if (!(seconds > 0 && seconds <= 1e6)) throw usage_error{"--limit: 0 < SECONDS <= 1000000"};
    return seconds;
  }

  void parse_signal(std::string const& name, int number) {
    std::string const text = take(name);
    std::size_t const colon = text.find(':');
    if (colon == std::string::npos) throw usage_error{name + ": not RANK:MICROSECONDS: " + text};
    auto const rank = detail::parse_number<std::size_t>(text.substr(0, colon), name);
    auto const after = detail::parse_number<std::uint32_t>(text.substr(colon + 1), name);
    options_.signals.push_back({std::chrono::microseconds{after}, rank, number});
  }

  void check_rank(std::size_t rank) const {
    if (rank >= options_.ranks) throw usage_error{"no such rank: " + std::to_string(rank)};
  }

  void build_commands(std::span<char* const> program) {
    options_.commands.resize(options_.ranks);
    for (prefix const& each : prefixes_) {
      if (each.rank != "all") continue;
      for (auto& command : options_.commands) append(command, each.words);
    }
    for (prefix const& each : prefixes_) {
      if (each.rank == "all") continue;
      auto const rank = detail::parse_number<std::size_t>(each.rank, "--prefix");
      check_rank(rank);
      append(options_.commands[rank], each.words);
    }
    for (auto& command : options_.commands) append(command, program);
  }

  static void append(std::vector<std::string>& command, auto const& words) {
    command.insert(command.end(), words.begin(), words.end());
  }

  std::span<char* const> rest_;
  std::vector<prefix> prefixes_;
  options options_;
};

}  // namespace shm_test
