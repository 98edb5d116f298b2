#pragma once
/// @file The limit of any fence of two ranks: a flag each. For the benches.

#include <sched.h>

#include <atomic>
#include <cstdint>

#include "shm/base/size.hpp"
#include "shm/group.hpp"
#include "shm/sync/wait.hpp"
#include "shm/window.hpp"

namespace bench {

/// Two ranks that tell each other the number of their meeting, in a cache line each. Nothing is
/// looked after: who waits for a dead rank waits for ever.
class handshake {
 public:
  /// Collective: all ranks of the group. A negative peer: this rank meets nobody.
  handshake(shm::group& node, int peer) : flags_(node, 1), peer_(peer) {}

  void meet() noexcept {
    if (peer_ < 0) return;
    ++number_;
    std::atomic_ref(flags_.local()[0].value).store(number_, std::memory_order_release);
    std::atomic_ref theirs(flags_[peer_][0].value);
    int spins = 0;
    // The peer may be one meeting ahead. More spins than any undisturbed meeting takes, then a
    // yield, since with more ranks than processors the peer needs this one.
    while (!shm::reached(theirs.load(std::memory_order_acquire), number_)) {
      if (++spins % 1000 == 0) ::sched_yield();
      shm::sync::pause_processor();
    }
  }

 private:
  struct alignas(shm::line_bytes) flag {
    std::uint32_t value;
  };
  shm::window<flag> flags_;
  int peer_;
  std::uint32_t number_ = 0;
};

}  // namespace bench
