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
  void (*meanwhile)() noexcept = nullptr;  ///< called before each yield

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

/// The clock of waits.
using wait_clock = std::chrono::steady_clock;

/// How long a waiter that looks for the ranks it waits for leaves it at that.
inline constexpr std::chrono::milliseconds between_looks{200};

/// Returns when a wait of `timeout`, more than zero, ends: not before it is over, and never where
/// it is longer than the clock can tell.
template <class Rep, class Period>
wait_clock::time_point deadline_after(std::chrono::duration<Rep, Period> timeout) {
  constexpr double longest_s = 1e9;  // 31 years: in no duration a number that overflows
  if (std::chrono::duration<double>(timeout).count() > longest_s) {
    return wait_clock::time_point::max();
  }
  return wait_clock::now() + std::chrono::ceil<wait_clock::duration>(timeout);
}

namespace detail {

/// The part of waiting that follows spinning; apart, so that the fast path stays small.
template <std::predicate Ready, std::predicate Resolved>
[[gnu::noinline]] void wait_long(patience const& how, Ready const& ready, Resolved const& resolved,
                                 wait_clock::time_point deadline) {
  using clock = wait_clock;
  using namespace std::chrono_literals;
  constexpr auto yielding = 1ms;
  constexpr auto longest_sleep = 1ms;
  constexpr auto first_look = 10ms;
  auto const start = clock::now();
  auto next_look = start + first_look;
  while (!ready()) {
    if (how.meanwhile != nullptr) how.meanwhile();
    auto const now = clock::now();
    if (now >= deadline) {
      // What makes it ready may have come in time, while this thread did not run.
      static_cast<void>(ready());
      return;
    }
    if (now >= next_look) {
      if (resolved()) return;
      next_look = clock::now() + between_looks;
    }
    if (now - start < yielding) {
      ::sched_yield();
    } else {
      std::this_thread::sleep_for(
          std::min<clock::duration>({(now - start) / 10, longest_sleep, deadline - now}));
    }
  }
}

}  // namespace detail

/// Waits until `ready()` or `resolved()`, or until the deadline has passed, where there is one.
///
/// `ready` is asked all the time and must be cheap. `resolved` is asked after 10 ms, and then five
/// times a second: there a waiter looks for the ranks that it waits for, and may find that it waits
/// for ever. Nobody is woken, so no wake-up can be lost, and a release is one store. The deadline
/// is heeded once the waiter has spun; `ready` is asked a last time after it.
///
/// Ordering: that of the loads in `ready` and `resolved`.
template <std::predicate Ready, std::predicate Resolved>
void wait_until(patience const& how, Ready const& ready, Resolved const& resolved,
                wait_clock::time_point deadline = wait_clock::time_point::max()) {
  for (std::uint32_t spin = 0; spin < how.spins; ++spin) {
    if (ready()) return;
    pause_processor();
  }
  detail::wait_long(how, ready, resolved, deadline);
}

}  // namespace shm::inline v1::sync
