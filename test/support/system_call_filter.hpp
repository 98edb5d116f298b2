#pragma once
/// @file A kernel that answers one system call otherwise, for the rest of a child's life.

#include <cstddef>
#include <cstdint>

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "support/skipped.hpp"

namespace shm_test {

/// Which calls are answered: those whose `argument` has `value` under `mask`. A mask of 0 with a
/// value of 0 means all.
struct filtered_call {
  long number = 0;
  unsigned argument = 0;
  std::uint32_t mask = 0;
  std::uint32_t value = 0;
};

/// From here on the kernel does nothing for such a call; it fails with `error`, or succeeds where
/// that is 0. Only in a child. Throws `skipped` where the kernel has no seccomp.
///
/// Source: seccomp(2), SECCOMP_SET_MODE_FILTER. Arguments are little-endian 64-bit words, of which
///         the low half is compared.
inline void answer(filtered_call const& call, int error) {
  auto const number = static_cast<std::uint32_t>(call.number);
  auto const low_half =
      static_cast<std::uint32_t>(offsetof(seccomp_data, args) + call.argument * 8U);
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 4),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, low_half),
      BPF_STMT(BPF_ALU | BPF_AND | BPF_K, call.mask),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call.value, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<std::uint32_t>(error)),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  sock_fprog const filter{.len = sizeof program / sizeof program[0], .filter = program};
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0) {
    throw skipped{"no seccomp"};
  }
}

}  // namespace shm_test
