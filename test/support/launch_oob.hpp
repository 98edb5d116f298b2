#pragma once

/// @file
/// Bootstraps a rank that `launch` started, for failure tests whose ranks may die at any moment.

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "launch_os.hpp"
#include "launch_protocol.hpp"

namespace shm_test {

namespace detail {

/// Reads a number in [0, end) from the environment that `launch` gives its ranks.
inline int launch_number(char const* variable, int end) {
  char const* const text = std::getenv(variable);
  if (text == nullptr) {
    throw std::runtime_error{std::string{"launch_oob: "} + variable +
                             " is not set; start this program with launch"};
  }
  std::string_view const digits{text};
  int number = -1;
  auto const [stop, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (error != std::errc{} || stop != digits.data() + digits.size() || number < 0 ||
      number >= end) {
    throw std::runtime_error{std::string{"launch_oob: "} + variable + "=" + text +
                             " is not a number below " + std::to_string(end)};
  }
  return number;
}

}  // namespace detail

/// Out-of-band bootstrap over the socket to the launcher, the hub of all ranks.
///
/// One object per process: it owns the socket and closes it at the end of its life, after which the
/// launcher counts this rank as lost. A forked child shares the socket but must not use it.
class launch_oob {
 public:
  /// Connects this rank to the others.
  ///
  /// Effects:    says hello to the launcher and waits until all ranks have, or until one is lost:
  /// then
  ///             the constructor returns all the same and the first allgather fails. From now on
  ///             the process dies with its parent, be that the launcher or a prefix such as strace.
  /// Errors:     std::runtime_error without the environment of `launch`, or where the launcher is
  /// gone.
  launch_oob()
      : size_{detail::launch_number(size_variable, static_cast<int>(max_ranks) + 1)},
        rank_{detail::launch_number(rank_variable, size_)},
        number_{static_cast<std::uint32_t>(rank_)},
        socket_{detail::launch_number(socket_variable, 1 << 20)} {
    checked(::fcntl(socket_.number(), F_SETFD, FD_CLOEXEC), "launch_oob: socket of the launcher");
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    say_hello();
    expect(receive_header(), frame_kind::go, 0);
  }

  launch_oob(launch_oob const&) = delete;
  launch_oob& operator=(launch_oob const&) = delete;

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return size_; }

  /// Gathers one block of equal length from every rank.
  ///
  /// Shapes:     mine [n] bytes; all [size() * n] bytes, block r belongs to rank r.
  /// Requires:   n is at most max_block_bytes.
  /// Collective: all ranks, in the same order as their other calls.
  /// Errors:     std::runtime_error on every rank where a rank was lost before it sent its block
  /// (this
  ///             and all later calls) or where the lengths differ (this call only); on this rank
  ///             alone where `all` has the wrong length or the launcher is gone.
  void allgather(std::span<std::byte const> mine, std::span<std::byte> all) {
    auto const ranks = static_cast<std::size_t>(size_);
    if (mine.size() > max_block_bytes || all.size() != ranks * mine.size()) {
      throw std::runtime_error{"launch_oob: allgather of " + std::to_string(mine.size()) +
                               " bytes into " + std::to_string(all.size()) + " on " +
                               std::to_string(size_) + " ranks"};
    }
    frame_header const header{frame_kind::block, number_, mine.size()};
    send(std::as_bytes(std::span{&header, 1}));
    send(mine);
    expect(receive_header(), frame_kind::all, all.size());
    receive(all);
  }

  /// Goes on with the ranks that are left, in their order: rank() and size() count only these.
  ///
  /// Collective: all ranks that are not lost; waits until each other one has called this or is
  ///             lost. An allgather that waits for a rank which has called this fails.
  /// Errors:     std::runtime_error where the launcher is gone.
  void go_on_with_survivors() {
    frame_header const question{frame_kind::ask, number_, 0};
    send(std::as_bytes(std::span{&question, 1}));
    auto const answer = receive_header();
    std::vector<std::uint32_t> left(answer.size_bytes / sizeof number_);
    expect(answer, frame_kind::survivors, left.size() * sizeof number_);
    receive(std::as_writable_bytes(std::span{left}));
    rank_ = static_cast<int>(std::ranges::find(left, number_) - left.begin());
    size_ = static_cast<int>(left.size());
  }

 private:
  /// Sends the hello with this process's credentials, which the kernel translates for the launcher.
  void say_hello() {
    frame_header header{frame_kind::hello, number_, 0};
    iovec content{&header, sizeof header};
    ucred const self{::getpid(), ::getuid(), ::getgid()};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof self)] = {};
    msghdr message{};
    message.msg_iov = &content;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* const ancillary = CMSG_FIRSTHDR(&message);
    ancillary->cmsg_level = SOL_SOCKET;
    ancillary->cmsg_type = SCM_CREDENTIALS;
    ancillary->cmsg_len = CMSG_LEN(sizeof self);
    std::memcpy(CMSG_DATA(ancillary), &self, sizeof self);
    checked(uninterrupted([&] { return ::sendmsg(socket_.number(), &message, MSG_NOSIGNAL); }),
            "launch_oob: sendmsg");
  }

  void send(std::span<std::byte const> bytes) {
    while (!bytes.empty()) {
      ssize_t const sent =
          checked(uninterrupted([&] {
                    return ::send(socket_.number(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
                  }),
                  "launch_oob: send");
      bytes = bytes.subspan(static_cast<std::size_t>(sent));
    }
  }

  void receive(std::span<std::byte> bytes) {
    while (!bytes.empty()) {
      ssize_t const received = checked(
          uninterrupted([&] { return ::recv(socket_.number(), bytes.data(), bytes.size(), 0); }),
          "launch_oob: recv");
      if (received == 0) throw std::runtime_error{"launch_oob: the launcher is gone"};
      bytes = bytes.subspan(static_cast<std::size_t>(received));
    }
  }

  frame_header receive_header() {
    frame_header header{};
    receive(std::as_writable_bytes(std::span{&header, 1}));
    return header;
  }

  /// Throws unless the launcher answers with the given kind and length.
  static void expect(frame_header const& header, frame_kind kind, std::size_t size_bytes) {
    std::string const rank = std::to_string(header.rank);
    if (header.kind == frame_kind::rank_lost) {
      throw std::runtime_error{"launch_oob: rank " + rank + " was lost before this allgather"};
    }
    if (header.kind == frame_kind::unequal) {
      throw std::runtime_error{"launch_oob: allgather: the blocks of ranks 0 and " + rank +
                               " differ in length"};
    }
    if (header.kind != kind || header.size_bytes != size_bytes) {
      throw std::runtime_error{"launch_oob: the launcher sent an unexpected answer"};
    }
  }

  int size_;
  int rank_;
  std::uint32_t number_;  ///< the rank among all that were started, as errors name it
  descriptor socket_;
};

}  // namespace shm_test
