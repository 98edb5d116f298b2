#ifndef FORKED_H
#define FORKED_H
/**
 * @file
 * Ranks forked from a test in C, and the callbacks through which they find each other: as weak as a
 * program's own may be, and strict about how they are called.
 */

#include <kupl.h>

#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "check.h"

enum { most_ranks = 5, slot_bytes = 8192, time_limit_s = 120 };

/** Memory of the processes that gather through it: one slot for each. */
struct meeting {
  atomic_uint arrived;
  char slots[most_ranks][slot_bytes];
};

/** What a rank's callbacks get as `group`. */
struct member {
  struct meeting* meeting;
  int rank;
  int size;
  unsigned met;       /**< how often this rank has met the others */
  int gathers;        /**< how often it has gathered */
  int failing_gather; /**< the gathering, counted from 1, that reports a failure; 0: none */
};

static inline int meet(void* group) {
  struct member* const me = group;
  unsigned const all = ++me->met * (unsigned)me->size;
  atomic_fetch_add(&me->meeting->arrived, 1);
  while (atomic_load(&me->meeting->arrived) < all) sched_yield();
  return 0;
}

static inline int gather(void const* sendbuf, void* recvbuf, int size, void* group,
                         kupl_shm_datatype_t datatype) {
  struct member* const me = group;
  char const* const send = sendbuf;
  char* const receive = recvbuf;
  size_t const bytes = (size_t)size;
  CHECK(datatype == KUPL_SHM_DATATYPE_CHAR);
  CHECK(send != NULL && receive != NULL && size > 0 && size <= slot_bytes);
  CHECK(send + bytes <= receive || send >= receive + bytes * (size_t)me->size);
  memcpy(me->meeting->slots[me->rank], send, bytes);
  meet(me);
  for (int r = 0; r < me->size; r++) {
    memcpy(receive + (size_t)r * bytes, me->meeting->slots[r], bytes);
  }
  meet(me);
  return ++me->gathers == me->failing_gather ? 13 : 0;
}

/** Memory that this process and its later children share, zero at first. */
static inline void* shared_memory(size_t bytes) {
  void* const memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) abort();
  return memory;
}

/** Creates a communicator of `size` ranks that meet at `where`; NULL where that fails. */
static inline kupl_shm_comm_h join(struct meeting* where, int rank, int size, int failing_gather) {
  struct member me = {where, rank, size, 0, 0, failing_gather};
  kupl_shm_oob_cb_t callbacks = {gather, meet};
  kupl_shm_comm_h comm = NULL;
  int const result = kupl_shm_comm_create(size, rank, rank, &callbacks, &me, &comm);
  CHECK((result == KUPL_OK) == (comm != NULL));
  CHECK(result == KUPL_OK || result == KUPL_ERROR);
  return comm;
}

/** What runs in each rank. `meetings` holds most_ranks unused ones, `words` an int for each rank.
 */
typedef void scenario(struct meeting* meetings, int rank, int ranks, int volatile* words);

/**
 * Runs a scenario in `ranks` processes; checks that all end well, but for those whose bits are set
 * in `dying`, which are killed, and that together they print between `least` and `most` lines on
 * standard error.
 */
static inline void run_ranks(char const* name, scenario* run, int ranks, unsigned dying, int least,
                             int most) {
  struct meeting* const meetings = shared_memory(most_ranks * sizeof *meetings);
  int* const words = shared_memory(most_ranks * sizeof *words);
  pid_t children[most_ranks];
  int const failed_before = failed_checks;
  char const* said;
  fflush(stdout);
  for (int rank = 0; rank < ranks; rank++) {
    children[rank] = fork();
    if (children[rank] < 0) abort();
    if (children[rank] == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      alarm(time_limit_s); /* a rank that hangs */
      failed_checks = 0;
      run(meetings, rank, ranks, words);
      fflush(stdout);
      _exit(failed_checks == 0 ? 0 : 1);
    }
  }
  for (int rank = 0; rank < ranks; rank++) {
    int status = -1;
    CHECK(waitpid(children[rank], &status, 0) == children[rank]);
    if ((dying >> rank & 1U) != 0) {
      CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    } else if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
      printf("rank %d ended with status 0x%x%s\n", rank, (unsigned)status,
             WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM ? ": it hung" : "");
      failed_checks++;
    }
  }
  said = captured_stderr();
  if (count_lines(said) < least || count_lines(said) > most) {
    printf("%d to %d lines were expected on standard error, not:\n%s\n", least, most, said);
    failed_checks++;
  }
  if (failed_checks != failed_before) printf("FAILED with %d ranks: %s\n", ranks, name);
  munmap(meetings, most_ranks * sizeof *meetings);
  munmap(words, most_ranks * sizeof *words);
}

#endif
