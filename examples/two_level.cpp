// Sums a field over all machines of a job: each machine in shared memory, their leaders over MPI.
// One machine for two: MPIR_CVAR_NUM_CLIQUES=2 mpiexec -n 4 two_level

#include <cstdio>
#include <numeric>

#include <mpi.h>
#include <shm/oob/mpi.hpp>
#include <shm/shm.hpp>

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  {
    shm::communicator node{shm::mpi_oob::node_of(MPI_COMM_WORLD)};  // the ranks of this machine
    MPI_Comm leaders = MPI_COMM_NULL;                               // rank 0 of every machine
    MPI_Comm_split(MPI_COMM_WORLD, node.rank() == 0 ? 0 : MPI_UNDEFINED, rank, &leaders);

    constexpr int cells = 1000;
    shm::window<double> field{node, cells};                        // each rank's own part
    shm::window<double> sums{node, node.rank() == 0 ? cells : 0};  // one result for the machine
    shm::allreduce_plan within{node, field.local(), sums[0]};      // all read it where it is

    for (int step = 1; step <= 3; ++step) {
      std::iota(field.local().begin(), field.local().end(), rank * step);
      within.start();
      within.wait();
      if (node.rank() == 0) {
        auto const sum = sums[0];
        MPI_Allreduce(MPI_IN_PLACE, sum.data(), cells, MPI_DOUBLE, MPI_SUM, leaders);
      }
      sums.fence();  // the leader has finished; all see the sum over all machines
      int ranks = 0;
      MPI_Comm_size(MPI_COMM_WORLD, &ranks);
      double const wanted = step * ranks * (ranks - 1) / 2.0 + 7.0 * ranks;  // of cell 7
      std::printf("%s\n", sums[0][7] == wanted ? "check success" : "check fail");
      sums.fence();  // all have read, before the next step writes
    }
    if (leaders != MPI_COMM_NULL) MPI_Comm_free(&leaders);
  }
  MPI_Finalize();
}
