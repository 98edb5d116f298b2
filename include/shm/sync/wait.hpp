#pragma once
/// @file Waiting for a word in shared memory: spins, then yields, then sleeps in timed steps.

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <concepts>
#include <cstdint>
#include <thread>

namespace shm::inline v1::sync {

/// How long a waiter spins before it yields its processor, and what it does then.
struct patience {
  std::uint32_t spins = 50;
  void (*meanwhile)(void*) noexcept = nullptr;  ///< called before each yield, with `context`
  void* context = nullptr;

  /// For ranks with a processor each: longer than any undisturbed exchange between two of them.
  static constexpr patience with_own_processor() noexcept { return {.spins = 1000}; }
  /// For more ranks than processors: whoever is waited for needs this processor.
  static constexpr patience with_shared_processor() noexcept { return {.spins = 50}; }
};

/// Tells the processor that the caller is spinning.
inline void pause_processor() noexcept {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");  // waits tens of cycles; `yield` is a no-op on most cores
#endif
}

namespace detail {

/// The part of waiting that follows spinning; apart, so that the fast path stays small.
template <std::predicate Ready, std::predicate Resolved>
[[gnu::noinline]] void wait_long(patience const& how, Ready const& ready,
                                 Resolved const& resolved) {
  using clock = std::chrono::steady_clock;
  using namespace std::chrono_literals;
  constexpr auto yielding = 1ms;
  constexpr auto longest_sleep = 1ms;
  constexpr auto first_look = 10ms;
  constexpr auto between_looks = 200ms;
  auto const start = clock::now();
  auto next_look = start + first_look;
  while (!ready()) {
    if (how.meanwhile != nullptr) how.meanwhile(how.context);
    auto const now = clock::now();
    if (now >= next_look) {
      if (resolved()) return;
      next_look = clock::now() + between_looks;
    }
    if (now - start < yielding) {
      ::sched_yield();
    } else {
      std::this_thread::sleep_for(std::min<clock::duration>((now - start) / 10, longest_sleep));
    }
  }
}

}  // namespace detail

/// Waits until `ready()` or `resolved()`.
///
/// `ready` is asked all the time and must be cheap. `resolved` is asked after 10 ms, and then five
/// times a second: there a waiter looks for the ranks that it waits for, and may find that it waits
/// for ever. Nobody is woken, so no wake-up can be lost, and a release is one store.
///
/// Ordering: that of the loads in `ready` and `resolved`.
template <std::predicate Ready, std::predicate Resolved>
void wait_until(patience const& how, Ready const& ready, Resolved const& resolved) {
  for (std::uint32_t spin = 0; spin < how.spins; ++spin) {
    if (ready()) return;
    pause_processor();
  }
  detail::wait_long(how, ready, resolved);
}

}  // namespace shm::inline v1::sync
