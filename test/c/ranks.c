/* Several processes, no MPI: windows of many sizes, fences of nested communicators, and failures of
 * one rank that all must learn of. The argument is the number of ranks. */

#define _GNU_SOURCE

#include <kupl.h>

#include <stdint.h>

#include "check.h"
#include "forked.h"

#define OK(call) CHECK((call) == KUPL_OK)
#define FAILS(call) CHECK((call) == KUPL_ERROR)

static unsigned char mark_of(int rank, int round, size_t at) {
  return (unsigned char)(1 + rank * 37 + round * 11 + (int)(at % 97));
}

static void fill(unsigned char* block, size_t size, int rank, int round) {
  for (size_t at = 0; at < size; at++) block[at] = mark_of(rank, round, at);
}

static int is_filled(unsigned char const* block, size_t size, int rank, int round) {
  size_t wrong = 0;
  for (size_t at = 0; at < size; at++) wrong += block[at] != mark_of(rank, round, at);
  return wrong == 0;
}

static void try_size(kupl_shm_comm_h comm, size_t size, int rank, int ranks) {
  uintptr_t const page = (uintptr_t)sysconf(_SC_PAGESIZE);
  int const next = (rank + 1) % ranks;
  int const previous = (rank + ranks - 1) % ranks;
  kupl_shm_win_h win = NULL;
  unsigned char* base = NULL;
  unsigned char* blocks[most_ranks] = {NULL};
  size_t dirty = 0;
  OK(kupl_shm_win_alloc(size, comm, (void**)&base, &win));
  if (win == NULL) return;
  for (size_t at = 0; at < size; at++) dirty += base[at] != 0;
  CHECK(dirty == 0);
  for (int r = 0; r < ranks; r++) {
    OK(kupl_shm_win_query(win, r, (void**)&blocks[r]));
    CHECK((uintptr_t)blocks[r] % page == 0);
  }
  CHECK(blocks[rank] == base);

  fill(base, size, rank, 0);
  OK(kupl_shm_fence(win));
  for (int r = 0; r < ranks; r++) CHECK(is_filled(blocks[r], size, r, 0));
  OK(kupl_shm_fence(win));

  /* To the right, into the neighbour's block; only neighbours wait for each other. */
  fill(blocks[next], size, rank, 1);
  if (rank % 2 == 0) {
    OK(kupl_shm_peer_fence(win, next));
    OK(kupl_shm_peer_fence(win, previous));
  } else {
    OK(kupl_shm_peer_fence(win, previous));
    OK(kupl_shm_peer_fence(win, next));
  }
  CHECK(is_filled(base, size, previous, 1));
  OK(kupl_shm_win_free(win));
}

static void windows_of_many_sizes(struct meeting* meetings, int rank, int ranks,
                                  int volatile* words) {
  static size_t const mib2 = (size_t)2 << 20;
  size_t const sizes[] = {0, 1, 63, 64, 65, 4095, 4096, 4097, mib2 - 1, mib2, mib2 + 1};
  kupl_shm_comm_h const comm = join(meetings, rank, ranks, 0);
  int number = -1;
  (void)words;
  OK(kupl_shm_comm_rank(comm, &number));
  CHECK(number == rank);
  OK(kupl_shm_comm_size(comm, &number));
  CHECK(number == ranks);
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) try_size(comm, sizes[i], rank, ranks);
  OK(kupl_shm_comm_destroy(comm));
}

/* After a failed call the same communicator goes on. */
static void expect_whole(kupl_shm_comm_h comm, struct holdings before, int rank, int ranks) {
  CHECK(same_holdings(before, count_holdings()));
  try_size(comm, 100, rank, ranks);
  CHECK(same_holdings(before, count_holdings()));
  OK(kupl_shm_comm_destroy(comm));
}

static void different_sizes_fail_on_all(struct meeting* meetings, int rank, int ranks,
                                        int volatile* words) {
  kupl_shm_comm_h const comm = join(meetings, rank, ranks, 0);
  struct holdings const before = count_holdings();
  kupl_shm_win_h win = NULL;
  void* base = NULL;
  (void)words;
  FAILS(kupl_shm_win_alloc(64 + (size_t)(rank == ranks - 1), comm, &base, &win));
  CHECK(win == NULL);
  expect_whole(comm, before, rank, ranks);
}

static void a_null_baseptr_on_one_rank_fails_on_all(struct meeting* meetings, int rank, int ranks,
                                                    int volatile* words) {
  kupl_shm_comm_h const comm = join(meetings, rank, ranks, 0);
  struct holdings const before = count_holdings();
  kupl_shm_win_h win = NULL;
  void* base = NULL;
  (void)words;
  FAILS(kupl_shm_win_alloc(64, comm, rank == ranks - 1 ? NULL : &base, &win));
  expect_whole(comm, before, rank, ranks);
}

static void a_null_win_on_rank_0_fails_on_all(struct meeting* meetings, int rank, int ranks,
                                              int volatile* words) {
  kupl_shm_comm_h const comm = join(meetings, rank, ranks, 0);
  struct holdings const before = count_holdings();
  kupl_shm_win_h win = NULL;
  void* base = NULL;
  (void)words;
  FAILS(kupl_shm_win_alloc(64, comm, &base, rank == 0 ? NULL : &win));
  expect_whole(comm, before, rank, ranks);
}

static void a_size_that_cannot_be_fails_on_all(struct meeting* meetings, int rank, int ranks,
                                               int volatile* words) {
  kupl_shm_comm_h const comm = join(meetings, rank, ranks, 0);
  struct holdings const before = count_holdings();
  kupl_shm_win_h win = NULL;
  void* base = NULL;
  (void)words;
  FAILS(kupl_shm_win_alloc((size_t)-1, comm, &base, &win));
  expect_whole(comm, before, rank, ranks);
}

static void fail_to_join(struct meeting* meetings, int rank, int ranks, int failing,
                         int gathering) {
  struct holdings const before = count_holdings();
  kupl_shm_comm_h comm = join(&meetings[0], rank, ranks, rank == failing ? gathering : 0);
  CHECK(comm == NULL);
  CHECK(same_holdings(before, count_holdings()));
  comm = join(&meetings[1], rank, ranks, 0);
  CHECK(comm != NULL);
  OK(kupl_shm_comm_destroy(comm));
}

static void a_failing_first_callback_fails_on_all(struct meeting* meetings, int rank, int ranks,
                                                  int volatile* words) {
  (void)words;
  fail_to_join(meetings, rank, ranks, ranks - 1, 1);
}

static void a_failing_second_callback_fails_on_all(struct meeting* meetings, int rank, int ranks,
                                                   int volatile* words) {
  (void)words;
  fail_to_join(meetings, rank, ranks, ranks - 1, 2);
}

static void a_failing_callback_of_rank_0_fails_on_all(struct meeting* meetings, int rank, int ranks,
                                                      int volatile* words) {
  (void)words;
  fail_to_join(meetings, rank, ranks, 0, 1);
}

/* Plain words of our own, ordered by nothing but windows of one byte. */
static void small_windows_are_fences_of_nested_communicators(struct meeting* meetings, int rank,
                                                             int ranks, int volatile* words) {
  int const pair = rank / 2;
  int const pair_size = 2 * pair + 2 <= ranks ? 2 : 1;
  int const partner = pair_size == 2 ? rank ^ 1 : rank;
  kupl_shm_comm_h const all = join(&meetings[0], rank, ranks, 0);
  kupl_shm_comm_h const two = join(&meetings[1 + pair], rank % 2, pair_size, 0);
  kupl_shm_comm_h const one = join(&(struct meeting){.arrived = 0}, 0, 1, 0);
  kupl_shm_win_h all_first, all_second, of_two, of_one;
  void* base;
  int wrong = 0;
  OK(kupl_shm_win_alloc(1, all, &base, &all_first));
  OK(kupl_shm_win_alloc(1, two, &base, &of_two));
  OK(kupl_shm_win_alloc(1, one, &base, &of_one));
  OK(kupl_shm_win_alloc(1, all, &base, &all_second));
  for (int i = 1; i <= 300; i++) {
    words[rank] = i;
    wrong += kupl_shm_fence(of_two) != KUPL_OK;
    wrong += words[partner] != i;
    wrong += kupl_shm_fence(of_one) != KUPL_OK;
    wrong += kupl_shm_fence(all_first) != KUPL_OK;
    for (int r = 0; r < ranks; r++) wrong += words[r] != i;
    wrong += kupl_shm_fence(all_second) != KUPL_OK;
  }
  CHECK(wrong == 0);
  OK(kupl_shm_win_free(of_two));
  OK(kupl_shm_comm_destroy(all));
  OK(kupl_shm_comm_destroy(one));
  OK(kupl_shm_comm_destroy(two));
}

static void destroying_frees_what_leaked(struct meeting* meetings, int rank, int ranks,
                                         int volatile* words) {
  struct holdings const before = count_holdings();
  kupl_shm_comm_h const comm = join(meetings, rank, ranks, 0);
  (void)words;
  for (int i = 0; i < 5; i++) {
    kupl_shm_win_h win;
    void* base;
    OK(kupl_shm_win_alloc(5000, comm, &base, &win));
  }
  OK(kupl_shm_comm_destroy(comm));
  CHECK(same_holdings(before, count_holdings()));
}

static void fencing_with_a_window_freed_elsewhere_fails(struct meeting* meetings, int rank,
                                                        int ranks, int volatile* words) {
  kupl_shm_comm_h const comm = join(meetings, rank, ranks, 0);
  kupl_shm_win_h win;
  void* base;
  (void)words;
  OK(kupl_shm_win_alloc(1, comm, &base, &win));
  if (rank == ranks - 1) {
    OK(kupl_shm_win_free(win));
  } else {
    FAILS(kupl_shm_fence(win));
  }
  OK(kupl_shm_comm_destroy(comm));
}

static void fencing_with_the_dead_fails(struct meeting* meetings, int rank, int ranks,
                                        int volatile* words) {
  kupl_shm_comm_h const comm = join(meetings, rank, ranks, 0);
  kupl_shm_win_h win;
  void* base;
  (void)words;
  OK(kupl_shm_win_alloc(1, comm, &base, &win));
  if (rank == ranks - 1) raise(SIGKILL);
  FAILS(kupl_shm_fence(win));
  OK(kupl_shm_comm_destroy(comm));
}

static void fencing_with_two_dead_fails_and_is_told_by_one(struct meeting* meetings, int rank,
                                                           int ranks, int volatile* words) {
  kupl_shm_comm_h const comm = join(meetings, rank, ranks, 0);
  kupl_shm_win_h win;
  void* base;
  (void)words;
  OK(kupl_shm_win_alloc(1, comm, &base, &win));
  OK(kupl_shm_fence(win));
  if (rank < 2) raise(SIGKILL);
  FAILS(kupl_shm_fence(win));
  FAILS(kupl_shm_fence(win));
  FAILS(kupl_shm_win_alloc(1, comm, &base, &win));
  OK(kupl_shm_comm_destroy(comm));
}

static void a_pair_fence_with_the_dead_is_told_by_its_partner(struct meeting* meetings, int rank,
                                                              int ranks, int volatile* words) {
  kupl_shm_comm_h const comm = join(meetings, rank, ranks, 0);
  kupl_shm_win_h win;
  void* base;
  (void)words;
  OK(kupl_shm_win_alloc(1, comm, &base, &win));
  if (rank == ranks - 1) raise(SIGKILL);
  if (rank == ranks - 2) FAILS(kupl_shm_peer_fence(win, ranks - 1));
  OK(kupl_shm_comm_destroy(comm));
}

static void a_pair_fence_with_one_that_has_left_is_told_by_its_partner(struct meeting* meetings,
                                                                       int rank, int ranks,
                                                                       int volatile* words) {
  kupl_shm_comm_h const comm = join(meetings, rank, ranks, 0);
  kupl_shm_win_h win;
  void* base;
  (void)words;
  OK(kupl_shm_win_alloc(1, comm, &base, &win));
  if (rank == ranks - 1) OK(kupl_shm_win_free(win));
  if (rank == ranks - 2) FAILS(kupl_shm_peer_fence(win, ranks - 1));
  OK(kupl_shm_comm_destroy(comm));
}

/* Sizes without a common divisor with a page, so that padding would show. */
static void contiguous_blocks_follow_each_other(struct meeting* meetings, int rank, int ranks,
                                                int volatile* words) {
  static size_t const sizes[] = {0, 1, 100, 4096, 5000, 1000003};
  uintptr_t const page = (uintptr_t)sysconf(_SC_PAGESIZE);
  kupl_shm_comm_h const comm = join(meetings, rank, ranks, 0);
  (void)words;
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    size_t const size = sizes[i];
    kupl_shm_win_h win = NULL;
    unsigned char* base = NULL;
    unsigned char* blocks[most_ranks] = {NULL};
    OK(kupl_shm_info_set(KUPL_SHM_INFO_IS_CONTIG, 1));
    OK(kupl_shm_win_alloc(size, comm, (void**)&base, &win));
    if (win == NULL) continue;
    for (int r = 0; r < ranks; r++) {
      OK(kupl_shm_win_query(win, r, (void**)&blocks[r]));
      CHECK(blocks[r] == blocks[0] + (size_t)r * size);
    }
    CHECK(blocks[rank] == base);
    CHECK((uintptr_t)blocks[0] % page == 0);
    fill(base, size, rank, 0);
    OK(kupl_shm_fence(win));
    for (int r = 0; r < ranks; r++) CHECK(is_filled(blocks[r], size, r, 0));
    OK(kupl_shm_fence(win));
    OK(kupl_shm_win_free(win));
    OK(kupl_shm_info_set(KUPL_SHM_INFO_IS_CONTIG, 0));
    try_size(comm, size, rank, ranks);
  }
  OK(kupl_shm_comm_destroy(comm));
}

static void choosing_a_layout_leaves_earlier_windows(struct meeting* meetings, int rank, int ranks,
                                                     int volatile* words) {
  kupl_shm_comm_h const comm = join(meetings, rank, ranks, 0);
  kupl_shm_win_h win = NULL;
  void* base = NULL;
  void* after = NULL;
  (void)words;
  OK(kupl_shm_win_alloc(100, comm, &base, &win));
  OK(kupl_shm_info_set(KUPL_SHM_INFO_IS_CONTIG, 1));
  OK(kupl_shm_win_query(win, rank, &after));
  CHECK(after == base);
  OK(kupl_shm_info_set(KUPL_SHM_INFO_IS_CONTIG, 0));
  OK(kupl_shm_comm_destroy(comm));
}

static void different_layouts_fail_on_all(struct meeting* meetings, int rank, int ranks,
                                          int volatile* words) {
  kupl_shm_comm_h const comm = join(meetings, rank, ranks, 0);
  struct holdings const before = count_holdings();
  kupl_shm_win_h win = NULL;
  void* base = NULL;
  (void)words;
  OK(kupl_shm_info_set(KUPL_SHM_INFO_IS_CONTIG, rank == ranks - 1));
  FAILS(kupl_shm_win_alloc(64, comm, &base, &win));
  CHECK(win == NULL);
  OK(kupl_shm_info_set(KUPL_SHM_INFO_IS_CONTIG, 0));
  expect_whole(comm, before, rank, ranks);
}

/* Each attaches the last bytes of the block to its right. */
static void a_block_of_another_rank_is_attached(struct meeting* meetings, int rank, int ranks,
                                                int volatile* words) {
  size_t const size = 3 * 4096 + 100;
  int const next = (rank + 1) % ranks;
  int const previous = (rank + ranks - 1) % ranks;
  kupl_shm_comm_h const comm = join(meetings, rank, ranks, 0);
  kupl_shm_win_h win, addresses;
  unsigned char* base;
  kupl_shm_addr_t* mine;
  kupl_shm_addr_t* its;
  struct holdings before;
  (void)words;
  OK(kupl_shm_win_alloc(size, comm, (void**)&base, &win));
  OK(kupl_shm_win_alloc(sizeof *mine, comm, (void**)&mine, &addresses));
  mine->src_addr = base + size - 5000;
  mine->src_pid = (int)getpid();
  fill(base, size, rank, 0);
  OK(kupl_shm_fence(addresses));
  OK(kupl_shm_win_query(addresses, next, (void**)&its));
  before = count_holdings();
  for (int dst = -1; dst <= 1; dst++) { /* programs pass whatever they like */
    kupl_shm_addr_t const address = {its->src_addr, its->src_pid, dst};
    unsigned char* const attached = kupl_shm_attach(address, 5000);
    CHECK(attached != NULL);
    if (attached == NULL) continue;
    CHECK(attached[0] == mark_of(next, 0, size - 5000));
    CHECK(attached[4000] == mark_of(next, 0, size - 1000));
    OK(kupl_shm_fence(win));
    attached[4999] = (unsigned char)(200 + rank + dst);
    OK(kupl_shm_fence(win));
    CHECK(base[size - 1] == 200 + previous + dst);
    kupl_shm_detach(attached);
    CHECK(same_holdings(before, count_holdings()));
  }
  OK(kupl_shm_fence(win));
  OK(kupl_shm_comm_destroy(comm));
}

/* Memory that only its maker has mapped, and has open. */
static void memory_of_another_rank_is_attached(struct meeting* meetings, int rank, int ranks,
                                               int volatile* words) {
  size_t const size = 10000;
  int const next = (rank + 1) % ranks;
  kupl_shm_comm_h const comm = join(meetings, rank, ranks, 0);
  int const file = memfd_create("ranks", MFD_CLOEXEC);
  unsigned char* own;
  unsigned char* attached;
  kupl_shm_win_h addresses;
  kupl_shm_addr_t* mine;
  kupl_shm_addr_t* its;
  (void)words;
  CHECK(file >= 0 && ftruncate(file, (off_t)size) == 0);
  own = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  fill(own, size, rank, 3);
  OK(kupl_shm_win_alloc(sizeof *mine, comm, (void**)&mine, &addresses));
  mine->src_addr = own;
  mine->src_pid = (int)getpid();
  OK(kupl_shm_fence(addresses));
  OK(kupl_shm_win_query(addresses, next, (void**)&its));
  attached = kupl_shm_attach(*its, size);
  CHECK(attached != NULL && is_filled(attached, size, next, 3));
  OK(kupl_shm_fence(addresses));
  fill(attached, size, rank, 4);
  OK(kupl_shm_fence(addresses));
  CHECK(is_filled(own, size, (rank + ranks - 1) % ranks, 4));
  kupl_shm_detach(attached);
  OK(kupl_shm_comm_destroy(comm));
  munmap(own, size);
  close(file);
}

int main(int argc, char** argv) {
  int const n = argc == 2 ? atoi(argv[1]) : 0;
  if (n < 1 || n > most_ranks) {
    printf("usage: ranks 1..%d\n", most_ranks);
    return 2;
  }
  capture_stderr();
#define RUN(name, dying, least, most) run_ranks(#name, name, n, dying, least, most)
  RUN(windows_of_many_sizes, 0, 0, 0);
  RUN(small_windows_are_fences_of_nested_communicators, 0, 0, 0);
  RUN(destroying_frees_what_leaked, 0, 0, 0);
  RUN(contiguous_blocks_follow_each_other, 0, 0, 0);
  RUN(choosing_a_layout_leaves_earlier_windows, 0, 0, 0);
  RUN(a_block_of_another_rank_is_attached, 0, 0, 0);
  RUN(memory_of_another_rank_is_attached, 0, 0, 0);
  RUN(a_null_baseptr_on_one_rank_fails_on_all, 0, 1, 1);
  RUN(a_null_win_on_rank_0_fails_on_all, 0, 1, 1);
  RUN(a_size_that_cannot_be_fails_on_all, 0, 1, 1);
  RUN(a_failing_first_callback_fails_on_all, 0, 1, n);
  RUN(a_failing_second_callback_fails_on_all, 0, 1, n);
  RUN(a_failing_callback_of_rank_0_fails_on_all, 0, 1, n);
  if (n > 1) {
    RUN(different_sizes_fail_on_all, 0, 1, 1);
    RUN(different_layouts_fail_on_all, 0, 1, 1);
    RUN(fencing_with_a_window_freed_elsewhere_fails, 0, 1, 1);
    RUN(fencing_with_the_dead_fails, 1U << (n - 1), 1, 1);
    RUN(a_pair_fence_with_the_dead_is_told_by_its_partner, 1U << (n - 1), 1, 1);
    RUN(a_pair_fence_with_one_that_has_left_is_told_by_its_partner, 0, 1, 1);
  }
  if (n > 2) RUN(fencing_with_two_dead_fails_and_is_told_by_one, 3U, 1, 1);
  printf("%d checks failed\n", failed_checks);
  return failed_checks == 0 ? 0 : 1;
}
