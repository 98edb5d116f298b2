#pragma once
/// @file Descriptors sent from process to process over a Unix socket.

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>

#include "shm/os/call.hpp"
#include "shm/os/file_descriptor.hpp"
#include "shm/os/process.hpp"

namespace shm::inline v1::os {

/// What travels beside a descriptor, or alone as a greeting.
struct parcel {
  identifier nonce{};        ///< a secret of the group, or of the window
  std::uint32_t number = 0;  ///< from a rank that asks: its rank
  std::uint32_t reserved = 0;
};

namespace detail {

/// Fills the abstract address named by `name`; returns its length.
///
/// Source: unix(7): an abstract address begins with a zero byte and leaves nothing in a directory.
inline socklen_t abstract_address(identifier const& name, sockaddr_un& address) noexcept {
  address = {};
  address.sun_family = AF_UNIX;
  constexpr char digits[] = "0123456789abcdef";
  std::size_t at = 1;
  for (char const c : std::string_view{"shm."}) address.sun_path[at++] = c;
  for (auto const word : name) {
    for (int shift = 60; shift >= 0; shift -= 4)
      address.sun_path[at++] = digits[word >> shift & 15];
  }
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + at);
}

inline file_descriptor open_socket(int flags = 0) {
  file_descriptor result{::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | flags, 0)};
  if (!result.is_open()) throw_last("opening a Unix socket");
  return result;
}

}  // namespace detail

/// Opens the socket at which ranks ask for descriptors. Anybody on the machine can see `name`.
inline file_descriptor listen_at(identifier const& name) {
  auto result = detail::open_socket();
  sockaddr_un address;
  auto const length = detail::abstract_address(name, address);
  auto const* const generic = reinterpret_cast<sockaddr const*>(&address);
  if (::bind(result.number(), generic, length) != 0) throw_last("binding a Unix socket");
  if (::listen(result.number(), 4096) != 0) throw_last("listening on a Unix socket");
  return result;
}

/// Sends a parcel, with `descriptor` where it is not negative. Never raises SIGPIPE.
inline void send_parcel(int socket, parcel const& what, int descriptor = -1) {
  iovec part{const_cast<parcel*>(&what), sizeof what};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (descriptor >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* const head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(head), &descriptor, sizeof descriptor);
  }
  if (retry([&] { return ::sendmsg(socket, &message, MSG_NOSIGNAL); }) < 0) {
    throw_last("sending a descriptor");
  }
}

/// Whether an error of `send_parcel` says that the other end is closed.
inline bool is_disconnected(error const& refused) noexcept {
  int const number = refused.details().system;
  return number == EPIPE || number == ECONNRESET;
}

/// A received parcel, with the descriptor that came with it, if any.
struct received_parcel {
  parcel what;
  file_descriptor descriptor;
};

/// Throws the error of a parcel that has lost its descriptor on the way.
[[noreturn]] inline void throw_no_room_for_descriptor() {
  throw_refused(EMFILE, "receiving a descriptor");
}

/// Throws the error of a connection that has ended before the parcel that was waited for.
[[noreturn]] inline void throw_disconnected() {
  throw_refused(ECONNRESET, "receiving a descriptor from rank 0");
}

/// Receives the next parcel; nothing where the other end is closed or sent something else. The
/// descriptor is missing where this process has no room for it, or where there was not just one.
///
/// Errors: as recvmsg(2) says, where this process cannot receive.
inline std::optional<received_parcel> receive_parcel(int socket) {
  received_parcel result;
  iovec part{&result.what, sizeof result.what};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = CMSG_LEN(sizeof(int));  // no room for a second one, which would leak
  auto const got = retry([&] { return ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC); });
  if (got < 0 && errno != ECONNRESET) throw_last("receiving a descriptor");
  cmsghdr const* const head = got < 0 ? nullptr : CMSG_FIRSTHDR(&message);
  if (head != nullptr && head->cmsg_level == SOL_SOCKET && head->cmsg_type == SCM_RIGHTS) {
    int number = -1;
    std::memcpy(&number, CMSG_DATA(head), sizeof number);
    result.descriptor = file_descriptor{number};
  }
  bool const is_whole = (message.msg_flags & MSG_TRUNC) == 0;
  if (got != static_cast<ssize_t>(sizeof result.what) || !is_whole) return std::nullopt;
  if ((message.msg_flags & MSG_CTRUNC) != 0) result.descriptor.reset();
  return result;
}

/// Whether `socket` has something to read, or its other end is closed, within `timeout`.
inline bool is_readable(int socket, std::chrono::milliseconds timeout) noexcept {
  using clock = std::chrono::steady_clock;
  auto const end = clock::now() + timeout;
  pollfd wait{.fd = socket, .events = POLLIN, .revents = 0};
  for (auto left = timeout;;
       left = std::chrono::ceil<std::chrono::milliseconds>(end - clock::now())) {
    auto const ready = ::poll(&wait, 1, static_cast<int>(std::max<std::int64_t>(left.count(), 0)));
    if (ready != -1 || errno != EINTR) return ready > 0;
  }
}

/// Connects to the socket at `name` and asks for descriptors as `rank`, which knows `nonce`. Does
/// not wait: the request lies in the kernel until it is accepted.
inline file_descriptor ask_for_descriptors(identifier const& name, identifier const& nonce,
                                           int rank) {
  auto result = detail::open_socket(SOCK_NONBLOCK);
  sockaddr_un address;
  auto const length = detail::abstract_address(name, address);
  if (retry([&] {
        return ::connect(result.number(), reinterpret_cast<sockaddr const*>(&address), length);
      }) != 0) {
    int const number = errno;
    throw_refused(number, "connecting to rank 0",
                  number == EAGAIN ? "raise the length of queues (sysctl net.core.somaxconn)" : "");
  }
  ::fcntl(result.number(), F_SETFL, 0);  // from here on it may wait
  send_parcel(result.number(), {.nonce = nonce, .number = static_cast<std::uint32_t>(rank)});
  return result;
}

/// Accepts one rank that has asked; nothing where nobody is waiting within `timeout`.
inline std::optional<file_descriptor> accept_one(int listener, std::chrono::milliseconds timeout) {
  if (!is_readable(listener, timeout)) return std::nullopt;
  file_descriptor socket{
      retry([&] { return ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC); })};
  if (!socket.is_open()) throw_last("accepting a connection");
  return socket;
}

}  // namespace shm::inline v1::os
