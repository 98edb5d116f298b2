#ifndef KUPL_H
#define KUPL_H
/**
 * @file
 * Shared memory between the processes of one machine, for C programs: the documented kupl_shm
 * interface. Functions return KUPL_OK or KUPL_ERROR; why a call failed is said in one line on
 * standard error. Link libkupl_shm (pkg-config: kupl_shm).
 */

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#define KUPL_OK 0
#define KUPL_ERROR (-1)

typedef struct kupl_shm_comm* kupl_shm_comm_h;
typedef struct kupl_shm_win* kupl_shm_win_h;
typedef struct kupl_shm_request* kupl_shm_request_h;

typedef enum {
  KUPL_SHM_DATATYPE_CHAR = 0,
  KUPL_SHM_DATATYPE_INT = 1,
  KUPL_SHM_DATATYPE_LONG = 2,
  KUPL_SHM_DATATYPE_FLOAT = 3,
  KUPL_SHM_DATATYPE_DOUBLE = 4
} kupl_shm_datatype_t;

typedef enum {
  KUPL_SHM_REDUCE_OP_MAX = 0,
  KUPL_SHM_REDUCE_OP_MIN = 1,
  KUPL_SHM_REDUCE_OP_SUM = 2
} kupl_shm_reduce_op_t;

/** What kupl_shm_info_set sets. */
typedef enum {
  KUPL_SHM_INFO_IS_CONTIG = 0 /**< whether the blocks of a window follow each other, 0 or 1 */
} kupl_info_flag_t;

/**
 * Gathers `size` elements of `datatype` from every process into `recvbuf`, in rank order. Returns 0
 * where it succeeds. The library passes KUPL_SHM_DATATYPE_CHAR only.
 */
typedef int (*kupl_shm_oob_allgather_cb_t)(void const* sendbuf, void* recvbuf, int size,
                                           void* group, kupl_shm_datatype_t datatype);
/** Waits until every process has called it. The library needs no call of it. */
typedef int (*kupl_shm_oob_barrier_cb_t)(void* group);

/** How the processes find each other, through MPI or anything else. */
typedef struct {
  kupl_shm_oob_allgather_cb_t oob_allgather;
  kupl_shm_oob_barrier_cb_t oob_barrier;
} kupl_shm_oob_cb_t;
typedef kupl_shm_oob_cb_t* kupl_shm_oob_cb_h;

/** Memory of a process, and who attaches it. */
typedef struct {
  void* src_addr; /**< an address there, on any boundary */
  int src_pid;    /**< the process, by its getpid() */
  int dst_pid;    /**< this process; not looked at, since memory comes to whoever attaches it */
} kupl_shm_addr_t;

/**
 * Creates a communicator of `size` processes on this machine, of which this one is `rank`.
 *
 * Collective. The callbacks are called from here only, and `cbs` may be destroyed afterwards;
 * `group` is passed to them unchanged and is not NULL. `pid` is not negative; what it is does not
 * matter.
 */
int kupl_shm_comm_create(int size, int rank, int pid, kupl_shm_oob_cb_h cbs, void* group,
                         kupl_shm_comm_h* comm);

/** Destroys a communicator, and frees its windows and requests that are still live. Local: never
 * waits. */
int kupl_shm_comm_destroy(kupl_shm_comm_h comm);

/** Tells this process's rank in `comm`. */
int kupl_shm_comm_rank(kupl_shm_comm_h comm, int* rank);

/** Tells the number of processes of `comm`. */
int kupl_shm_comm_size(kupl_shm_comm_h comm, int* size);

/**
 * Allocates a block of `size` bytes of shared memory for each process of `comm`.
 *
 * Collective; `size` is the same everywhere and may be 0. Blocks are page aligned, unless
 * kupl_shm_info_set says otherwise, and read as zero.
 * `baseptr` receives this process's block. Rank 0 is the first to return. Without memory for it,
 * all processes return KUPL_ERROR and nothing is left.
 */
int kupl_shm_win_alloc(size_t size, kupl_shm_comm_h comm, void** baseptr, kupl_shm_win_h* win);

/**
 * Tells where the block of `remote_rank` lies in this process. Takes no lock; any thread may call
 * it. `win` must be live.
 */
int kupl_shm_win_query(kupl_shm_win_h win, int remote_rank, void** baseptr);

/** Frees this process's end of a window. Local: never waits; the others keep theirs. */
int kupl_shm_win_free(kupl_shm_win_h win);

/**
 * Waits until every process of the window has called it: what any of them wrote before is then
 * visible to all. KUPL_ERROR where one has died or freed its end. `win` must be live.
 */
int kupl_shm_fence(kupl_shm_win_h win);

/** Waits until this process and `remote_rank` have called it for each other. `win` must be live. */
int kupl_shm_peer_fence(kupl_shm_win_h win, int remote_rank);

/**
 * Plans to combine the `count` elements in `sendbuf` of all processes; every process receives all
 * results in `recvbuf`. Both lie in live windows of `comm`, at any place, which may differ between
 * processes; recvbuf may be sendbuf.
 *
 * Collective, like the two that follow; where a buffer or an argument of any process is no good,
 * all return KUPL_ERROR. Sums are taken in the order of the ranks: they have the same bits on every
 * process and in every run. Sums of integers wrap around.
 */
int kupl_shm_allreduce_init(void const* sendbuf, void* recvbuf, int count,
                            kupl_shm_datatype_t datatype, kupl_shm_reduce_op_t op,
                            kupl_shm_comm_h comm, kupl_shm_request_h* request);

/** Plans to copy the `count` elements in `buffer` of process `root` to those of all others. */
int kupl_shm_bcast_init(void* buffer, int count, kupl_shm_datatype_t datatype, int root,
                        kupl_shm_comm_h comm, kupl_shm_request_h* request);

/**
 * Plans to copy `sendcount` elements from each process to each: block s in `sendbuf` of process r
 * to block r in `recvbuf` of process s. The counts are of one block; types and counts are equal.
 */
int kupl_shm_alltoall_init(void const* sendbuf, int sendcount, kupl_shm_datatype_t sendtype,
                           void* recvbuf, int recvcount, kupl_shm_datatype_t recvtype,
                           kupl_shm_comm_h comm, kupl_shm_request_h* request);

/**
 * Begins what a request plans; the buffers are not to be changed until it is waited for. Several
 * requests may be under way, and be waited for in any order. Never waits.
 */
int kupl_shm_request_start(kupl_shm_request_h request);

/**
 * Waits until it is complete: the result is there, the buffers may be changed, and the request may
 * be started again at once. KUPL_OK where it is complete already, KUPL_ERROR where it has never
 * been started. `request` must be live.
 */
int kupl_shm_request_wait(kupl_shm_request_h request);

/** Frees a request, also one that is under way or has failed. Local: never waits. */
int kupl_shm_request_free(kupl_shm_request_h request);

/**
 * Chooses, for windows that this process creates from now on, whether their blocks follow each
 * other without padding: KUPL_SHM_INFO_IS_CONTIG, 1 or 0 (at first). Then only rank 0's block is
 * page aligned, and the block of rank r begins r * size bytes after it, also as kupl_shm_win_query
 * tells. All processes of a window must have chosen the same. Any thread may call it.
 */
int kupl_shm_info_set(kupl_info_flag_t flag, int value);

/**
 * Attaches `size` bytes of memory of another process, and returns where they are in this one; NULL
 * where that fails. What either process writes there, the other one sees; it lives until both have
 * let go of it. What that process may only read is read-only here too.
 *
 * The memory lies in windows or in mappings with MAP_SHARED, several of them if need be; private
 * memory (malloc, the stack) only on machines with the driver /dev/zdax. Both processes are of one
 * user, and one of these holds: this process has the same object mapped too (a window of both), the
 * other one has a descriptor of it open, or this one has the capability CAP_CHECKPOINT_RESTORE or
 * CAP_SYS_ADMIN. Any thread may call it.
 */
void* kupl_shm_attach(kupl_shm_addr_t addr, size_t size);

/** Detaches what kupl_shm_attach has returned. Any thread may call it. */
void kupl_shm_detach(void* ptr);

#ifdef __cplusplus
}
#endif

#endif
