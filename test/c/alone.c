/* The smallest program: one process, one window. */

#include <kupl.h>

#include <stdio.h>
#include <string.h>

static int gather_alone(void const* sendbuf, void* recvbuf, int size, void* group,
                        kupl_shm_datatype_t datatype) {
  (void)group;
  if (datatype != KUPL_SHM_DATATYPE_CHAR) return 1;
  memcpy(recvbuf, sendbuf, (size_t)size);
  return 0;
}

static int meet_alone(void* group) {
  (void)group;
  return 0;
}

int main(void) {
  kupl_shm_oob_cb_t callbacks = {gather_alone, meet_alone};
  kupl_shm_comm_h comm;
  kupl_shm_win_h win;
  void* base;
  void* same;
  if (kupl_shm_comm_create(1, 0, 0, &callbacks, &callbacks, &comm) != KUPL_OK) return 1;
  if (kupl_shm_win_alloc(100, comm, &base, &win) != KUPL_OK) return 2;
  strcpy(base, "shared");
  if (kupl_shm_fence(win) != KUPL_OK) return 3;
  if (kupl_shm_win_query(win, 0, &same) != KUPL_OK || strcmp(same, "shared") != 0) return 4;
  if (kupl_shm_win_free(win) != KUPL_OK) return 5;
  if (kupl_shm_comm_destroy(comm) != KUPL_OK) return 6;
  puts("works");
  return 0;
}
