/* Every process but the first copies the first one's block and checks it: the C interface with MPI.
 */

#include <kupl.h>
#include <mpi.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { count = 4 };

/* How the processes find each other: gather and wait through MPI. */
static int gather(void const* mine, void* all, int size, void* group, kupl_shm_datatype_t type) {
  if (type != KUPL_SHM_DATATYPE_CHAR) return KUPL_ERROR;
  return MPI_Allgather(mine, size, MPI_CHAR, all, size, MPI_CHAR, *(MPI_Comm*)group);
}

static int wait_for_all(void* group) { return MPI_Barrier(*(MPI_Comm*)group); }

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm world = MPI_COMM_WORLD;
  int rank, size;
  MPI_Comm_rank(world, &rank);
  MPI_Comm_size(world, &size);

  kupl_shm_oob_cb_t callbacks = {gather, wait_for_all};
  kupl_shm_comm_h comm;
  kupl_shm_win_h win = NULL;
  void* block = NULL;
  if (kupl_shm_comm_create(size, rank, getpid(), &callbacks, &world, &comm) != KUPL_OK ||
      kupl_shm_win_alloc(count * sizeof(int), comm, &block, &win) != KUPL_OK) {
    MPI_Abort(world, 1);
  }

  int* numbers = block;
  if (rank == 0) {
    for (int i = 0; i < count; i++) numbers[i] = i;
  }
  kupl_shm_fence(win); /* what was written before it can be read after it */

  if (rank != 0) {
    void* remote;
    kupl_shm_win_query(win, 0, &remote);
    memcpy(numbers, remote, count * sizeof(int));
    int wrong = 0;
    for (int i = 0; i < count; i++) wrong += numbers[i] != i;
    printf(wrong ? "check fail\n" : "check success\n");
  }

  kupl_shm_win_free(win);
  kupl_shm_comm_destroy(comm);
  MPI_Finalize();
  return 0;
}
