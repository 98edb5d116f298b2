// Every process but the first copies the first one's block and checks it: the C++ types with MPI.

#include <algorithm>
#include <iostream>
#include <numeric>
#include <utility>

#include <shm/oob/mpi.hpp>
#include <shm/shm.hpp>

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  {
    shm::communicator node{shm::mpi_oob::node_of(MPI_COMM_WORLD)};  // the ranks of this machine
    shm::window<int> numbers{node, 4};                              // four from every rank, zero

    auto const mine = numbers.local();
    if (node.rank() == 0) std::iota(mine.begin(), mine.end(), 0);
    numbers.fence();  // what was written before it can be read after it

    if (node.rank() != 0) {
      auto const theirs = std::as_const(numbers)[0];
      std::ranges::copy(theirs, mine.begin());
      bool const is_right = mine[0] == 0 && mine[1] == 1 && mine[2] == 2 && mine[3] == 3;
      std::cout << (is_right ? "check success\n" : "check fail\n");
    }
  }
  MPI_Finalize();
}
