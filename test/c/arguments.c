/* One process, no MPI: what every function does with arguments that are no good, what a block of
 * memory is like, and what is left after the end. */

#define _GNU_SOURCE

#include <kupl.h>

#include <stdint.h>
#include <sys/mman.h>

#include "check.h"

static int gather_alone(void const* sendbuf, void* recvbuf, int size, void* group,
                        kupl_shm_datatype_t datatype) {
  char const* const send = sendbuf;
  char* const receive = recvbuf;
  CHECK(group == &failed_checks);
  CHECK(datatype == KUPL_SHM_DATATYPE_CHAR);
  CHECK(send != NULL && size > 0);
  CHECK(send + size <= receive || send >= receive + size);
  memcpy(recvbuf, sendbuf, (size_t)size);
  return 0;
}

static int meet_alone(void* group) { return group == &failed_checks ? 0 : 1; }

static void* const some_group = &failed_checks;

/* Creates a communicator through a struct that is gone when this returns. */
static kupl_shm_comm_h make_comm(void) {
  kupl_shm_oob_cb_t callbacks = {gather_alone, meet_alone};
  kupl_shm_comm_h comm = NULL;
  CHECK(kupl_shm_comm_create(1, 0, 0, &callbacks, some_group, &comm) == KUPL_OK);
  memset(&callbacks, 0xff, sizeof callbacks);
  if (comm == NULL) {
    printf("no communicator: %s", captured_stderr());
    exit(1);
  }
  return comm;
}

/* A refusal: KUPL_ERROR, and one line that names the function and the argument. */
static void expect_refusal(int line, int result, char const* function, char const* argument) {
  char const* const said = captured_stderr();
  if (result == KUPL_ERROR && count_lines(said) == 1 && strncmp(said, "shm: ", 5) == 0 &&
      strstr(said, "; ") != NULL && strstr(said, function) != NULL &&
      strstr(said, argument) != NULL) {
    return;
  }
  printf("%s:%d: %s should refuse '%s' in one line; it returned %d and said:\n%s\n", __FILE__, line,
         function, argument, result, said);
  failed_checks++;
}
#define REFUSED(function, argument, ...) \
  expect_refusal(__LINE__, function(__VA_ARGS__), #function, argument)
/* An error of the library itself: its message names the operation. */
#define FAILED(operation, cause, call) expect_refusal(__LINE__, call, operation, cause)
#define ACCEPTED(call)                   \
  do {                                   \
    CHECK((call) == KUPL_OK);            \
    CHECK(captured_stderr()[0] == '\0'); \
  } while (0)

static void creating_checks_its_arguments(void) {
  kupl_shm_oob_cb_t good = {gather_alone, meet_alone};
  kupl_shm_oob_cb_t no_gather = {NULL, meet_alone};
  kupl_shm_oob_cb_t no_barrier = {gather_alone, NULL};
  kupl_shm_comm_h comm = NULL;
  REFUSED(kupl_shm_comm_create, "size", 0, 0, 1, &good, some_group, &comm);
  REFUSED(kupl_shm_comm_create, "size", -1, 0, 1, &good, some_group, &comm);
  REFUSED(kupl_shm_comm_create, "rank", 1, -1, 1, &good, some_group, &comm);
  REFUSED(kupl_shm_comm_create, "rank", 1, 1, 1, &good, some_group, &comm);
  REFUSED(kupl_shm_comm_create, "pid", 1, 0, -1, &good, some_group, &comm);
  REFUSED(kupl_shm_comm_create, "cbs", 1, 0, 1, NULL, some_group, &comm);
  REFUSED(kupl_shm_comm_create, "oob_allgather", 1, 0, 1, &no_gather, some_group, &comm);
  REFUSED(kupl_shm_comm_create, "oob_barrier", 1, 0, 1, &no_barrier, some_group, &comm);
  REFUSED(kupl_shm_comm_create, "group", 1, 0, 1, &good, NULL, &comm);
  REFUSED(kupl_shm_comm_create, "comm", 1, 0, 1, &good, some_group, NULL);
  CHECK(comm == NULL);
  ACCEPTED(kupl_shm_comm_create(1, 0, 0, &good, some_group, &comm));
  ACCEPTED(kupl_shm_comm_destroy(comm));
}

static void a_communicator_knows_live_handles(void) {
  kupl_shm_comm_h const comm = make_comm();
  int number = -1;
  int garbage[64] = {0};
  ACCEPTED(kupl_shm_comm_rank(comm, &number));
  CHECK(number == 0);
  ACCEPTED(kupl_shm_comm_size(comm, &number));
  CHECK(number == 1);
  REFUSED(kupl_shm_comm_rank, "comm", NULL, &number);
  REFUSED(kupl_shm_comm_rank, "rank", comm, NULL);
  REFUSED(kupl_shm_comm_size, "comm", NULL, &number);
  REFUSED(kupl_shm_comm_size, "size", comm, NULL);
  REFUSED(kupl_shm_comm_destroy, "comm", NULL);
  REFUSED(kupl_shm_comm_destroy, "comm", (kupl_shm_comm_h)(void*)garbage);
  ACCEPTED(kupl_shm_comm_destroy(comm));
  REFUSED(kupl_shm_comm_destroy, "comm", comm);
  REFUSED(kupl_shm_comm_rank, "comm", comm, &number);
  REFUSED(kupl_shm_comm_size, "comm", comm, &number);
}

static void allocating_checks_its_arguments(void) {
  kupl_shm_comm_h const comm = make_comm();
  kupl_shm_win_h win = NULL;
  void* base = NULL;
  REFUSED(kupl_shm_win_alloc, "comm", 8, NULL, &base, &win);
  REFUSED(kupl_shm_win_alloc, "baseptr", 8, comm, NULL, &win);
  REFUSED(kupl_shm_win_alloc, "win", 8, comm, &base, NULL);
  FAILED("creating a window", "size too large", kupl_shm_win_alloc((size_t)-1, comm, &base, &win));
  FAILED("creating a window", "size too large",
         kupl_shm_win_alloc((size_t)-1 - 4096, comm, &base, &win));
  CHECK(win == NULL && base == NULL);
  ACCEPTED(kupl_shm_win_alloc(0, comm, &base, &win));
  ACCEPTED(kupl_shm_fence(win));
  ACCEPTED(kupl_shm_win_free(win));
  ACCEPTED(kupl_shm_comm_destroy(comm));
  REFUSED(kupl_shm_win_alloc, "comm", 8, comm, &base, &win);
}

static void using_a_window_checks_arguments(void) {
  kupl_shm_comm_h const comm = make_comm();
  kupl_shm_win_h win = NULL;
  void* base = NULL;
  void* own = NULL;
  int garbage[64] = {0};
  ACCEPTED(kupl_shm_win_alloc(100, comm, &base, &win));
  ACCEPTED(kupl_shm_win_query(win, 0, &own));
  CHECK(own == base && base != NULL);
  REFUSED(kupl_shm_win_query, "win", NULL, 0, &own);
  REFUSED(kupl_shm_win_query, "remote_rank", win, 1, &own);
  REFUSED(kupl_shm_win_query, "remote_rank", win, -1, &own);
  REFUSED(kupl_shm_win_query, "baseptr", win, 0, NULL);
  ACCEPTED(kupl_shm_fence(win));
  REFUSED(kupl_shm_fence, "win", NULL);
  ACCEPTED(kupl_shm_peer_fence(win, 0));
  REFUSED(kupl_shm_peer_fence, "win", NULL, 0);
  REFUSED(kupl_shm_peer_fence, "remote_rank", win, 1);
  REFUSED(kupl_shm_peer_fence, "remote_rank", win, -1);
  REFUSED(kupl_shm_win_free, "win", NULL);
  REFUSED(kupl_shm_win_free, "win", (kupl_shm_win_h)(void*)garbage);
  REFUSED(kupl_shm_win_free, "win", (kupl_shm_win_h)(void*)comm);
  ACCEPTED(kupl_shm_win_free(win));
  REFUSED(kupl_shm_win_free, "win", win);
  ACCEPTED(kupl_shm_comm_destroy(comm));
}

static void a_block_is_zero_and_begins_on_a_page(void) {
  static size_t const sizes[] = {0, 1, 63, 64, 65, 4095, 4096, 4097, 100000};
  uintptr_t const page = (uintptr_t)sysconf(_SC_PAGESIZE);
  kupl_shm_comm_h const comm = make_comm();
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    kupl_shm_win_h win = NULL;
    unsigned char* base = NULL;
    size_t dirty = 0;
    ACCEPTED(kupl_shm_win_alloc(sizes[i], comm, (void**)&base, &win));
    CHECK((uintptr_t)base % page == 0);
    for (size_t at = 0; at < sizes[i]; at++) dirty += base[at] != 0;
    CHECK(dirty == 0);
    if (sizes[i] > 0) memset(base, 0xff, sizes[i]); /* so that memory used again is not zero */
    ACCEPTED(kupl_shm_win_free(win));
  }
  ACCEPTED(kupl_shm_comm_destroy(comm));
}

static void a_window_is_one_mapping_and_destroying_frees_what_leaked(void) {
  struct holdings before, with_windows;
  kupl_shm_comm_h comm;
  kupl_shm_win_h win[3];
  void* base;
  before = count_holdings();
  comm = make_comm();
  with_windows = count_holdings();
  for (int i = 0; i < 3; i++) {
    ACCEPTED(kupl_shm_win_alloc(1000, comm, &base, &win[i]));
    CHECK(count_holdings().shared_mappings == with_windows.shared_mappings + i + 1);
  }
  ACCEPTED(kupl_shm_win_free(win[1]));
  CHECK(count_holdings().shared_mappings == with_windows.shared_mappings + 2);
  ACCEPTED(kupl_shm_comm_destroy(comm));
  CHECK(same_holdings(before, count_holdings()));
  for (int i = 0; i < 3; i++) REFUSED(kupl_shm_win_free, "win", win[i]);
}

static void failed_calls_leave_nothing(void) {
  struct holdings before;
  kupl_shm_comm_h const comm = make_comm();
  kupl_shm_win_h win = NULL;
  void* base = NULL;
  before = count_holdings();
  CHECK(kupl_shm_win_alloc((size_t)-1, comm, &base, &win) == KUPL_ERROR);
  CHECK(kupl_shm_win_alloc((size_t)1 << 60, comm, &base, &win) == KUPL_ERROR);
  CHECK(kupl_shm_win_alloc(8, comm, NULL, &win) == KUPL_ERROR);
  CHECK(count_lines(captured_stderr()) == 3);
  CHECK(same_holdings(before, count_holdings()));
  ACCEPTED(kupl_shm_win_alloc(8, comm, &base, &win));
  ACCEPTED(kupl_shm_comm_destroy(comm));
}

static void choosing_the_layout_checks_its_arguments(void) {
  REFUSED(kupl_shm_info_set, "flag", (kupl_info_flag_t)1, 1);
  REFUSED(kupl_shm_info_set, "flag", (kupl_info_flag_t)-1, 0);
  REFUSED(kupl_shm_info_set, "value", KUPL_SHM_INFO_IS_CONTIG, 2);
  REFUSED(kupl_shm_info_set, "value", KUPL_SHM_INFO_IS_CONTIG, -1);
  ACCEPTED(kupl_shm_info_set(KUPL_SHM_INFO_IS_CONTIG, 1));
  ACCEPTED(kupl_shm_info_set(KUPL_SHM_INFO_IS_CONTIG, 0));
}

static kupl_shm_addr_t address_of(void* memory, int process) {
  kupl_shm_addr_t const address = {memory, process, 0};
  return address;
}

/* As expect_refusal, of a call that returns a pointer or nothing. */
#define NOT_ATTACHED(what, ...)                                                                   \
  expect_refusal(__LINE__, kupl_shm_attach(__VA_ARGS__) == NULL ? KUPL_ERROR : KUPL_OK, "attach", \
                 what)
#define NOT_DETACHED(pointer) \
  expect_refusal(__LINE__, (kupl_shm_detach(pointer), KUPL_ERROR), "kupl_shm_detach", "ptr")

static void attaching_checks_its_arguments(void) {
  size_t const page = (size_t)sysconf(_SC_PAGESIZE);
  int const self = (int)getpid();
  char* const shared = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  char private[16] = "";
  char* attached;
  struct holdings before;
  NOT_ATTACHED("src_addr is NULL", address_of(NULL, self), 1);
  NOT_ATTACHED("src_pid", address_of(shared, 0), 1);
  NOT_ATTACHED("src_pid", address_of(shared, -1), 1);
  NOT_ATTACHED("size is 0", address_of(shared, self), 0);
  NOT_ATTACHED("end of the address space", address_of(shared, self), (size_t)-1);
  NOT_ATTACHED("does not exist", address_of(shared, 0x7fffffff), 1);
  NOT_ATTACHED("private memory", address_of(private, self), sizeof private);
  NOT_DETACHED(NULL);
  NOT_DETACHED(shared);
  before = count_holdings();
  attached = kupl_shm_attach(address_of(shared + 10, self), 20);
  CHECK(captured_stderr()[0] == '\0');
  CHECK(attached != NULL && attached != shared + 10);
  if (attached == NULL) return;
  CHECK(count_holdings().shared_mappings == before.shared_mappings + 1);
  attached[3] = 'x';
  CHECK(shared[13] == 'x');
  NOT_DETACHED(attached + 1);
  kupl_shm_detach(attached);
  CHECK(captured_stderr()[0] == '\0');
  CHECK(same_holdings(before, count_holdings()));
  NOT_DETACHED(attached);
  munmap(shared, page);
}

static void attaching_and_detaching_leaves_nothing(void) {
  size_t const page = (size_t)sysconf(_SC_PAGESIZE);
  char* const shared = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  kupl_shm_addr_t const address = {shared, (int)getpid(), (int)getpid()};
  struct holdings before = count_holdings();
  for (int i = 0; i < 200; i++) {
    void* const first = kupl_shm_attach(address, page);
    void* const second = kupl_shm_attach(address, page);
    CHECK(first != NULL && second != NULL && first != second);
    kupl_shm_detach(first);
    kupl_shm_detach(second);
  }
  CHECK(captured_stderr()[0] == '\0');
  CHECK(same_holdings(before, count_holdings()));
  munmap(shared, page);
}

int main(void) {
  capture_stderr();
  creating_checks_its_arguments();
  a_communicator_knows_live_handles();
  allocating_checks_its_arguments();
  using_a_window_checks_arguments();
  a_block_is_zero_and_begins_on_a_page();
  a_window_is_one_mapping_and_destroying_frees_what_leaked();
  failed_calls_leave_nothing();
  choosing_the_layout_checks_its_arguments();
  attaching_checks_its_arguments();
  attaching_and_detaching_leaves_nothing();
  printf("%d checks failed\n", failed_checks);
  return failed_checks == 0 ? 0 : 1;
}
