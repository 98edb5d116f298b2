/* Several processes, no MPI: the persistent collectives. The argument is the number of ranks. */

#define _GNU_SOURCE

#include <kupl.h>

#include <stdint.h>
#include <string.h>

#include "check.h"
#include "forked.h"

#define OK(call) CHECK((call) == KUPL_OK)
#define FAILS(call) CHECK((call) == KUPL_ERROR)

static kupl_shm_datatype_t const types[] = {KUPL_SHM_DATATYPE_CHAR, KUPL_SHM_DATATYPE_INT,
                                            KUPL_SHM_DATATYPE_LONG, KUPL_SHM_DATATYPE_FLOAT,
                                            KUPL_SHM_DATATYPE_DOUBLE};
static size_t const type_bytes[] = {1, sizeof(int), sizeof(long), sizeof(float), sizeof(double)};
static kupl_shm_reduce_op_t const ops[] = {KUPL_SHM_REDUCE_OP_MAX, KUPL_SHM_REDUCE_OP_MIN,
                                           KUPL_SHM_REDUCE_OP_SUM};

/* What a rank sends; small enough for a sum of all in a char. */
static int number_of(int rank, int at, int round) {
  return (at * 7 + rank * 5 + round * 3) % 15 - 7;
}

static void put(void* buffer, kupl_shm_datatype_t type, int at, double value) {
  switch (type) {
    case KUPL_SHM_DATATYPE_CHAR:
      ((char*)buffer)[at] = (char)value;
      break;
    case KUPL_SHM_DATATYPE_INT:
      ((int*)buffer)[at] = (int)value;
      break;
    case KUPL_SHM_DATATYPE_LONG:
      ((long*)buffer)[at] = (long)value;
      break;
    case KUPL_SHM_DATATYPE_FLOAT:
      ((float*)buffer)[at] = (float)value;
      break;
    case KUPL_SHM_DATATYPE_DOUBLE:
      ((double*)buffer)[at] = value;
      break;
  }
}

static void fill(void* buffer, kupl_shm_datatype_t type, int count, int rank, int round) {
  for (int at = 0; at < count; at++) put(buffer, type, at, number_of(rank, at, round));
}

static double combined(kupl_shm_reduce_op_t op, int ranks, int at, int round) {
  double result = number_of(0, at, round);
  for (int rank = 1; rank < ranks; rank++) {
    double const next = number_of(rank, at, round);
    if (op == KUPL_SHM_REDUCE_OP_SUM) result += next;
    if (op == KUPL_SHM_REDUCE_OP_MAX && next > result) result = next;
    if (op == KUPL_SHM_REDUCE_OP_MIN && next < result) result = next;
  }
  return result;
}

static int differs(void const* buffer, kupl_shm_datatype_t type, int at, double value) {
  double wanted = 0;
  put(&wanted, type, 0, value);
  return memcmp((char const*)buffer + (size_t)at * type_bytes[type], &wanted, type_bytes[type]) !=
         0;
}

struct space {
  kupl_shm_comm_h comm;
  kupl_shm_win_h win;
  char* base;
};

static struct space make_space(struct meeting* meetings, int rank, int ranks, size_t bytes) {
  struct space made = {join(meetings, rank, ranks, 0), NULL, NULL};
  OK(kupl_shm_win_alloc(bytes, made.comm, (void**)&made.base, &made.win));
  return made;
}

static void run(kupl_shm_request_h request) {
  OK(kupl_shm_request_start(request));
  OK(kupl_shm_request_wait(request));
}

static void every_type_operation_and_count_is_combined(struct meeting* meetings, int rank,
                                                       int ranks, int volatile* words) {
  static int const counts[] = {0, 1, 2, 15, 16, 17, 513, 4096, 100000};
  struct space const at = make_space(meetings, rank, ranks, 2000000);
  (void)words;
  for (size_t t = 0; t < 5; t++) {
    for (size_t o = 0; o < 3; o++) {
      for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
        int const count = counts[c];
        /* At another place on each rank; in place at odd ones. */
        char* const send = at.base + rank * 64;
        char* const receive = c % 2 == 1 ? send : at.base + 1000000 + rank * 8;
        kupl_shm_request_h request = NULL;
        OK(kupl_shm_allreduce_init(send, receive, count, types[t], ops[o], at.comm, &request));
        for (int round = 0; round < 2; round++) {
          int wrong = 0;
          fill(send, types[t], count, rank, round);
          run(request);
          for (int i = 0; i < count; i++) {
            wrong += differs(receive, types[t], i, combined(ops[o], ranks, i, round));
          }
          CHECK(wrong == 0);
        }
        OK(kupl_shm_request_free(request));
      }
    }
  }
  OK(kupl_shm_comm_destroy(at.comm));
}

static void blocks_are_exchanged_and_copied(struct meeting* meetings, int rank, int ranks,
                                            int volatile* words) {
  static int const counts[] = {0, 1, 3, 100, 5000};
  struct space const at = make_space(meetings, rank, ranks, 2000000);
  (void)words;
  for (size_t t = 0; t < 5; t++) {
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
      int const count = counts[c];
      kupl_shm_datatype_t const type = types[t];
      kupl_shm_request_h exchange = NULL;
      kupl_shm_request_h copy = NULL;
      char* const receive = at.base + 1000000;
      OK(kupl_shm_alltoall_init(at.base, count, type, receive, count, type, at.comm, &exchange));
      OK(kupl_shm_bcast_init(at.base + rank * 64, count, type, ranks - 1, at.comm, &copy));
      for (int round = 0; round < 3; round++) {
        int wrong = 0;
        fill(at.base, type, count * ranks, rank, round);
        run(exchange);
        for (int from = 0; from < ranks; from++) {
          for (int i = 0; i < count; i++) {
            wrong +=
                differs(receive, type, from * count + i, number_of(from, rank * count + i, round));
          }
        }
        CHECK(wrong == 0);
        fill(at.base + rank * 64, type, count, rank, round);
        run(copy);
        for (int i = 0; i < count; i++) {
          wrong += differs(at.base + rank * 64, type, i, number_of(ranks - 1, i, round));
        }
        CHECK(wrong == 0);
      }
      OK(kupl_shm_request_free(exchange));
      OK(kupl_shm_request_free(copy));
    }
  }
  OK(kupl_shm_comm_destroy(at.comm));
}

/* Two requests on two halves of one window, started again at once; the root changes its buffer
 * right after it has waited. */
static void requests_on_one_window_do_not_disturb_each_other(struct meeting* meetings, int rank,
                                                             int ranks, int volatile* words) {
  enum { half = 700 };
  struct space const at = make_space(meetings, rank, ranks, 2 * half * sizeof(int));
  int* const low = (int*)at.base;
  int* const high = low + half;
  kupl_shm_request_h first = NULL;
  kupl_shm_request_h second = NULL;
  int wrong = 0;
  (void)words;
  OK(kupl_shm_bcast_init(low, half, KUPL_SHM_DATATYPE_INT, 0, at.comm, &first));
  OK(kupl_shm_bcast_init(high, half, KUPL_SHM_DATATYPE_INT, ranks - 1, at.comm, &second));
  for (int round = 1; round <= 500; round++) {
    for (int i = 0; i < half && rank == 0; i++) low[i] = round;
    for (int i = 0; i < half && rank == ranks - 1; i++) high[i] = -round;
    OK(kupl_shm_request_start(first));
    OK(kupl_shm_request_start(second));
    OK(kupl_shm_request_wait(rank % 2 == 0 ? first : second));
    OK(kupl_shm_request_wait(rank % 2 == 0 ? second : first));
    for (int i = 0; i < half; i++) wrong += low[i] != round || high[i] != -round;
    for (int i = 0; i < half && rank == 0; i++) low[i]++;
    for (int i = 0; i < half && rank == ranks - 1; i++) high[i]--;
  }
  CHECK(wrong == 0);
  OK(kupl_shm_request_free(second));
  OK(kupl_shm_comm_destroy(at.comm)); /* which frees the first */
}

static void sums_have_the_same_bits_everywhere(struct meeting* meetings, int rank, int ranks,
                                               int volatile* words) {
  static double const values[] = {1e16, 1, -1e16, 1};
  static int const counts[] = {1, 40, 3000};
  struct space const at = make_space(meetings, rank, ranks, 100000);
  double* const send = (double*)at.base;
  double* const receive = send + 4000;
  double wanted = values[0];
  (void)words;
  for (int r = 1; r < ranks; r++) wanted += values[r % 4];
  for (size_t c = 0; c < 3; c++) {
    kupl_shm_request_h request = NULL;
    int wrong = 0;
    for (int i = 0; i < counts[c]; i++) send[i] = values[rank % 4];
    OK(kupl_shm_allreduce_init(send, receive, counts[c], KUPL_SHM_DATATYPE_DOUBLE,
                               KUPL_SHM_REDUCE_OP_SUM, at.comm, &request));
    run(request);
    for (int i = 0; i < counts[c]; i++) wrong += memcmp(&receive[i], &wanted, sizeof wanted) != 0;
    CHECK(wrong == 0);
    OK(kupl_shm_request_free(request));
  }
  OK(kupl_shm_comm_destroy(at.comm));
}

/* One bad argument of the last rank fails on all; afterwards the communicator goes on. */
static void failing_init(struct meeting* meetings, int rank, int ranks,
                         int init(struct space const* at, int is_bad,
                                  kupl_shm_request_h* request)) {
  struct space const at = make_space(meetings, rank, ranks, 80000);
  kupl_shm_request_h request = (kupl_shm_request_h)&request;
  FAILS(init(&at, rank == ranks - 1, &request));
  CHECK(request == NULL);
  OK(kupl_shm_allreduce_init(at.base, at.base, 100, KUPL_SHM_DATATYPE_INT, KUPL_SHM_REDUCE_OP_MAX,
                             at.comm, &request));
  *(int*)(void*)at.base = rank;
  run(request);
  CHECK(*(int*)(void*)at.base == ranks - 1);
  OK(kupl_shm_request_free(request));
  OK(kupl_shm_comm_destroy(at.comm));
}

#define FAILING_INIT(name, call)                                                            \
  static int init_##name(struct space const* at, int is_bad, kupl_shm_request_h* request) { \
    static double outside[100];                                                             \
    (void)outside, (void)is_bad;                                                            \
    return call;                                                                            \
  }                                                                                         \
  static void name(struct meeting* meetings, int rank, int ranks, int volatile* words) {    \
    (void)words;                                                                            \
    failing_init(meetings, rank, ranks, init_##name);                                       \
  }

FAILING_INIT(private_memory_is_refused,
             kupl_shm_allreduce_init(is_bad ? (void*)outside : at->base, at->base, 100,
                                     KUPL_SHM_DATATYPE_DOUBLE, KUPL_SHM_REDUCE_OP_SUM, at->comm,
                                     request))
FAILING_INIT(a_buffer_that_ends_outside_is_refused,
             kupl_shm_bcast_init(at->base + (is_bad ? 79208 : 0), 100, KUPL_SHM_DATATYPE_DOUBLE, 0,
                                 at->comm, request))
FAILING_INIT(more_than_there_is_is_refused,
             kupl_shm_allreduce_init(at->base, at->base, (1 << 29) + 1, KUPL_SHM_DATATYPE_DOUBLE,
                                     KUPL_SHM_REDUCE_OP_SUM, at->comm, request))
FAILING_INIT(a_negative_count_is_refused,
             kupl_shm_allreduce_init(at->base, at->base, is_bad ? -1 : 1, KUPL_SHM_DATATYPE_DOUBLE,
                                     KUPL_SHM_REDUCE_OP_SUM, at->comm, request))
FAILING_INIT(an_unknown_operation_is_refused,
             kupl_shm_allreduce_init(at->base, at->base, 1, KUPL_SHM_DATATYPE_DOUBLE,
                                     is_bad ? (kupl_shm_reduce_op_t)3 : KUPL_SHM_REDUCE_OP_SUM,
                                     at->comm, request))
FAILING_INIT(an_unknown_datatype_is_refused,
             kupl_shm_bcast_init(at->base, 1,
                                 is_bad ? (kupl_shm_datatype_t)5 : KUPL_SHM_DATATYPE_DOUBLE, 0,
                                 at->comm, request))
FAILING_INIT(a_root_that_does_not_exist_is_refused,
             kupl_shm_bcast_init(at->base, 1, KUPL_SHM_DATATYPE_INT, is_bad ? -1 : 0, at->comm,
                                 request))
FAILING_INIT(different_types_of_an_exchange_are_refused,
             kupl_shm_alltoall_init(at->base, 2, KUPL_SHM_DATATYPE_INT, at->base + 4000, 2,
                                    is_bad ? KUPL_SHM_DATATYPE_FLOAT : KUPL_SHM_DATATYPE_INT,
                                    at->comm, request))
FAILING_INIT(a_null_buffer_is_refused,
             kupl_shm_bcast_init(is_bad ? NULL : at->base, 1, KUPL_SHM_DATATYPE_INT, 0, at->comm,
                                 request))
FAILING_INIT(a_misaligned_buffer_is_refused,
             kupl_shm_bcast_init(at->base + (is_bad ? 2 : 0), 1, KUPL_SHM_DATATYPE_INT, 0, at->comm,
                                 request))

static void a_request_is_freed_once_started_or_not(struct meeting* meetings, int rank, int ranks,
                                                   int volatile* words) {
  struct space const at = make_space(meetings, rank, ranks, 8000);
  kupl_shm_request_h request = NULL;
  (void)words;
  OK(kupl_shm_allreduce_init(at.base, at.base, 10, KUPL_SHM_DATATYPE_INT, KUPL_SHM_REDUCE_OP_SUM,
                             at.comm, &request));
  FAILS(kupl_shm_request_wait(request)); /* a line each */
  OK(kupl_shm_request_start(request));
  OK(kupl_shm_win_free(at.win)); /* the request keeps the memory */
  OK(kupl_shm_request_wait(request));
  OK(kupl_shm_request_wait(request)); /* complete already */
  OK(kupl_shm_request_start(request));
  OK(kupl_shm_request_free(request));
  if (rank == 0) { /* lines for these three */
    FAILS(kupl_shm_request_free(request));
    FAILS(kupl_shm_request_start(request));
    FAILS(kupl_shm_request_wait(request));
  }
  OK(kupl_shm_comm_destroy(at.comm));
}

static void waiting_for_the_dead_fails_and_is_told_by_one(struct meeting* meetings, int rank,
                                                          int ranks, int volatile* words) {
  struct space const at = make_space(meetings, rank, ranks, 8000);
  kupl_shm_request_h request = NULL;
  (void)words;
  OK(kupl_shm_allreduce_init(at.base, at.base, 10, KUPL_SHM_DATATYPE_INT, KUPL_SHM_REDUCE_OP_SUM,
                             at.comm, &request));
  run(request);
  if (rank == ranks - 1) raise(SIGKILL);
  OK(kupl_shm_request_start(request));
  FAILS(kupl_shm_request_wait(request));
  FAILS(kupl_shm_request_start(request));
  OK(kupl_shm_request_free(request));
  OK(kupl_shm_comm_destroy(at.comm));
}

int main(int argc, char** argv) {
  int const n = argc == 2 ? atoi(argv[1]) : 0;
  if (n < 1 || n > most_ranks) {
    printf("usage: collectives 1..%d\n", most_ranks);
    return 2;
  }
  capture_stderr();
#define RUN(name, dying, least, most) run_ranks(#name, name, n, dying, least, most)
  RUN(every_type_operation_and_count_is_combined, 0, 0, 0);
  RUN(blocks_are_exchanged_and_copied, 0, 0, 0);
  RUN(requests_on_one_window_do_not_disturb_each_other, 0, 0, 0);
  RUN(sums_have_the_same_bits_everywhere, 0, 0, 0);
  RUN(private_memory_is_refused, 0, 1, 1);
  RUN(a_buffer_that_ends_outside_is_refused, 0, 1, 1);
  RUN(more_than_there_is_is_refused, 0, 1, 1);
  RUN(a_negative_count_is_refused, 0, 1, 1);
  RUN(an_unknown_operation_is_refused, 0, 1, 1);
  RUN(an_unknown_datatype_is_refused, 0, 1, 1);
  RUN(a_root_that_does_not_exist_is_refused, 0, 1, 1);
  RUN(different_types_of_an_exchange_are_refused, 0, 1, 1);
  RUN(a_null_buffer_is_refused, 0, 1, 1);
  RUN(a_misaligned_buffer_is_refused, 0, 1, 1);
  RUN(a_request_is_freed_once_started_or_not, 0, n + 3, n + 3);
  if (n > 1) RUN(waiting_for_the_dead_fails_and_is_told_by_one, 1U << (n - 1), 1, 1);
  printf("%d checks failed\n", failed_checks);
  return failed_checks == 0 ? 0 : 1;
}
