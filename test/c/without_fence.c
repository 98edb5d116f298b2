/* A program as users copy it from the documentation of the interface: rank 0 writes into its block
 * as soon as it has it, the others read as soon as they have theirs, and nothing orders the two.
 * Not an example to follow (kupl_shm_fence belongs between them), but one that must work: rank 0 is
 * the first to leave kupl_shm_win_alloc. Ranks other than 0 print one verdict each. */

#include <kupl.h>
#include <mpi.h>

#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { numbers = 4 };

static int gather_through_mpi(void const* sendbuf, void* recvbuf, int size, void* group,
                              kupl_shm_datatype_t datatype) {
  if (datatype != KUPL_SHM_DATATYPE_CHAR) return 1;
  return MPI_Allgather(sendbuf, size, MPI_CHAR, recvbuf, size, MPI_CHAR, (MPI_Comm)(intptr_t)group);
}

static int meet_through_mpi(void* group) { return MPI_Barrier((MPI_Comm)(intptr_t)group); }

int main(int argc, char** argv) {
  static int const expected[numbers] = {0, 1, 2, 3};
  int rank, size, status = 1;
  kupl_shm_comm_h comm;
  kupl_shm_win_h win;
  void* mine;

  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);

  kupl_shm_oob_cb_t callbacks = {gather_through_mpi, meet_through_mpi};
  void* const group = (void*)(intptr_t)MPI_COMM_WORLD;
  if (kupl_shm_comm_create(size, rank, (int)getpid(), &callbacks, group, &comm) != KUPL_OK) {
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  if (kupl_shm_win_alloc(sizeof expected, comm, &mine, &win) != KUPL_OK) {
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  if (rank == 0) {
    int* const block = mine;
    for (int i = 0; i < numbers; i++) block[i] = i;
    status = 0;
  } else {
    int copy[numbers];
    void* block_of_0;
    if (kupl_shm_win_query(win, 0, &block_of_0) != KUPL_OK) MPI_Abort(MPI_COMM_WORLD, 1);
    memcpy(copy, block_of_0, sizeof copy);
    status = memcmp(copy, expected, sizeof copy) != 0;
    printf(status == 0 ? "check success\n" : "check fail\n");
  }
  bool const ended = kupl_shm_win_free(win) == KUPL_OK && kupl_shm_comm_destroy(comm) == KUPL_OK;
  MPI_Finalize();
  return ended ? status : 1;
}
