#pragma once

/// @file
/// Gathers and spreads the blocks of all ranks, inside the launcher of failure tests.

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <optional>
#include <ranges>
#include <span>
#include <utility>
#include <vector>

#include <poll.h>
#include <sys/socket.h>

#include "launch_os.hpp"
#include "launch_protocol.hpp"

namespace shm_test {

/// Hub of the allgathers: one nonblocking socket per rank, served by the launcher's event loop.
///
/// A rank has at most one block in a round, since it waits for the answer. A rank is lost when its
/// process is dead or its socket is closed, once everything that it had sent is taken in. After a
/// loss no round succeeds until all others have asked to go on without the lost ones.
class hub {
 public:
  using clock = std::chrono::steady_clock;

  explicit hub(std::size_t ranks) : peers_(ranks) {}

  /// Makes the socket of a rank and returns the rank's end of it.
  descriptor connect(std::size_t rank) {
    int ends[2];
    checked(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), "socketpair");
    peers_[rank].socket = descriptor{ends[0]};
    descriptor rank_end{ends[1]};
    make_nonblocking(peers_[rank].socket);
    int const on = 1;
    checked(::setsockopt(ends[0], SOL_SOCKET, SO_PASSCRED, &on, sizeof on), "SO_PASSCRED");
    return rank_end;
  }

  /// What the event loop waits for on behalf of a rank.
  [[nodiscard]] pollfd interest(std::size_t rank) const noexcept {
    bool const must_write = !peers_[rank].outbox.empty();
    return {peers_[rank].socket.number(), static_cast<short>(POLLIN | (must_write ? POLLOUT : 0)),
            0};
  }

  /// The rank's process in the launcher's PID namespace, or 0 before its hello.
  [[nodiscard]] pid_t pid(std::size_t rank) const noexcept { return peers_[rank].pid; }

  /// When the ranks were let go, if they were.
  [[nodiscard]] std::optional<clock::time_point> go_time() const noexcept { return go_time_; }

  /// Reads and writes what a rank's socket can take without waiting.
  void serve(std::size_t rank) {
    if (take_in(peers_[rank]) == reading::ended) peers_[rank].socket.close();
    advance();
  }

  /// Counts a rank as lost after taking in what it sent before it died.
  void lose(std::size_t rank) {
    peer& dead = peers_[rank];
    while (dead.socket.is_open()) {
      if (take_in(dead) != reading::more) dead.socket.close();
    }
    advance();
  }

 private:
  using bytes = std::vector<std::byte>;

  enum class reading { more, drained, ended };

  struct peer {
    descriptor socket;  ///< closed: the rank is lost
    bytes inbox;        ///< an incomplete frame
    std::deque<std::shared_ptr<bytes const>> outbox;
    std::size_t sent_bytes = 0;  ///< of the first frame in the outbox
    std::optional<bytes> block;  ///< of the present round
    pid_t pid = 0;
    bool was_let_go = false;
    bool asks = false;      ///< to go on with the ranks that are left, and waits for the answer
    bool is_member = true;  ///< takes part in rounds; a lost rank does until the others go on

    [[nodiscard]] bool is_lost() const noexcept { return !socket.is_open(); }
    [[nodiscard]] bool waits() const noexcept { return block || asks; }
  };

  /// Reads once from a rank and handles the frames that are complete.
  static reading take_in(peer& from) {
    std::byte buffer[65536];
    iovec content{buffer, sizeof buffer};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(ucred))] = {};
    msghdr message{};
    message.msg_iov = &content;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    ssize_t const received =
        uninterrupted([&] { return ::recvmsg(from.socket.number(), &message, MSG_CMSG_CLOEXEC); });
    if (received < 0 && errno == EAGAIN) return reading::drained;
    if (received <= 0) return reading::ended;
    from.inbox.insert(from.inbox.end(), buffer, buffer + received);
    return parse(from, sender(message)) ? reading::more : reading::ended;
  }

  /// The process that sent a message, as the kernel vouches for it.
  static pid_t sender(msghdr& message) noexcept {
    ucred credentials{};
    for (cmsghdr* head = CMSG_FIRSTHDR(&message); head != nullptr;
         head = CMSG_NXTHDR(&message, head)) {
      if (head->cmsg_level == SOL_SOCKET && head->cmsg_type == SCM_CREDENTIALS) {
        std::memcpy(&credentials, CMSG_DATA(head), sizeof credentials);
      }
    }
    return credentials.pid;
  }

  /// Takes the complete frames out of an inbox; false where a rank breaks the protocol.
  static bool parse(peer& from, pid_t sender_pid) {
    frame_header header{};
    while (from.inbox.size() >= sizeof header) {
      std::memcpy(&header, from.inbox.data(), sizeof header);
      if (header.size_bytes > max_block_bytes) return false;
      std::size_t const frame_bytes = sizeof header + header.size_bytes;
      if (from.inbox.size() < frame_bytes) return true;
      auto const begin = from.inbox.begin();
      auto const end = begin + static_cast<std::ptrdiff_t>(frame_bytes);
      if (header.kind == frame_kind::hello && from.pid == 0) {
        from.pid = sender_pid;
      } else if (header.kind == frame_kind::block && from.pid != 0 && !from.waits()) {
        from.block.emplace(begin + sizeof header, end);
      } else if (header.kind == frame_kind::ask && from.pid != 0 && !from.waits()) {
        from.asks = true;
      } else {
        return false;
      }
      from.inbox.erase(begin, end);
    }
    return true;
  }

  /// Sends every answer that has become possible.
  void advance() {
    let_go();
    settle_round();
    settle_members();
    for (peer& each : peers_) flush(each);
  }

  void let_go() {
    auto const is_ready = [](peer const& each) { return each.pid != 0; };
    if (!go_time_) {
      if (!std::ranges::all_of(peers_, is_ready) && std::ranges::none_of(peers_, &peer::is_lost)) {
        return;
      }
      go_time_ = clock::now();
    }
    for (peer& each : peers_) {
      if (each.pid != 0 && !std::exchange(each.was_let_go, true)) {
        answer(each, frame({frame_kind::go, 0, 0}));
      }
    }
  }

  /// Answers the present round if all blocks are there, or the waiting ranks if one never comes.
  ///
  /// The rank that is named first stays named, so that late ranks see the same failure as early
  /// ones.
  void settle_round() {
    auto members = peers_ | std::views::filter(&peer::is_member);
    auto const has_block = [](peer const& each) { return each.block.has_value(); };
    if (std::ranges::none_of(members, has_block)) return;
    if (!missing_rank_) {
      auto const never_comes = std::ranges::find_if(
          members, [](peer const& each) { return !each.block && (each.asks || each.is_lost()); });
      if (never_comes != members.end()) missing_rank_ = index(*never_comes);
    }
    if (missing_rank_) {
      answer_round(frame({frame_kind::rank_lost, *missing_rank_, 0}));
    } else if (std::ranges::all_of(members, has_block)) {
      answer_round(gathered());
    }
  }

  /// The answer to a round for which every rank has sent its block.
  std::shared_ptr<bytes const> gathered() {
    auto members = peers_ | std::views::filter(&peer::is_member);
    std::size_t const block_bytes = members.front().block->size();
    bytes payload;
    for (peer const& each : members) {
      if (each.block->size() != block_bytes) return frame({frame_kind::unequal, index(each), 0});
      payload.insert(payload.end(), each.block->begin(), each.block->end());
    }
    return frame({frame_kind::all, 0, payload.size()}, payload);
  }

  /// Leaves lost ranks out of all further rounds, once every other rank has asked for that.
  void settle_members() {
    if (!std::ranges::all_of(peers_,
                             [](peer const& each) { return each.asks || each.is_lost(); }) ||
        std::ranges::none_of(peers_, &peer::asks)) {
      return;
    }
    std::vector<std::uint32_t> left;
    for (peer& each : peers_) {
      each.is_member = !each.is_lost();
      if (each.is_member) left.push_back(index(each));
    }
    missing_rank_.reset();
    auto const list = std::as_bytes(std::span{left});
    auto const reply = frame({frame_kind::survivors, 0, list.size()}, list);
    for (peer& each : peers_) {
      if (std::exchange(each.asks, false)) answer(each, reply);
    }
  }

  /// Sends one frame to every rank that waits in the present round.
  void answer_round(std::shared_ptr<bytes const> const& reply) {
    for (peer& each : peers_) {
      if (each.block) answer(each, reply);
      each.block.reset();
    }
  }

  static void answer(peer& to, std::shared_ptr<bytes const> reply) {
    if (!to.is_lost()) to.outbox.push_back(std::move(reply));
  }

  /// Writes as much of an outbox as the socket takes; a closed socket is noticed by reading it.
  static void flush(peer& to) {
    while (!to.outbox.empty() && to.socket.is_open()) {
      auto const rest = std::span{*to.outbox.front()}.subspan(to.sent_bytes);
      ssize_t const sent = uninterrupted([&] {
        return ::send(to.socket.number(), rest.data(), rest.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      });
      if (sent < 0 && errno == EAGAIN) return;
      if (sent >= 0) to.sent_bytes += static_cast<std::size_t>(sent);
      if (sent < 0 || to.sent_bytes == to.outbox.front()->size()) {
        to.outbox.pop_front();
        to.sent_bytes = 0;
      }
    }
  }

  static std::shared_ptr<bytes const> frame(frame_header const& header,
                                            std::span<std::byte const> payload = {}) {
    auto const head = std::as_bytes(std::span{&header, 1});
    auto made = std::make_shared<bytes>(head.size() + payload.size());
    auto const after_head = std::ranges::copy(head, made->begin()).out;
    std::ranges::copy(payload, after_head);
    return made;
  }

  [[nodiscard]] std::uint32_t index(peer const& of) const noexcept {
    return static_cast<std::uint32_t>(&of - peers_.data());
  }

  std::vector<peer> peers_;
  std::optional<clock::time_point> go_time_;
  std::optional<std::uint32_t> missing_rank_;
};

}  // namespace shm_test
