// What windows do, on the ranks of an MPI job: the same behaviours as on forked ranks.

#include <cstdio>
#include <exception>
#include <string>

#include "shm/oob/mpi.hpp"
#include "window/behaviours.hpp"

namespace {

/// Runs all behaviours; returns how many have failed on this rank.
int run(shm::group& node) {
  int failed = 0;
  for (auto const& one : shm_test::window_behaviours<shm::runtime_policy>()) {
    shm_test::findings found;
    node.agree([&] { one.body(node, found); });
    if (found.all().empty()) continue;
    ++failed;
    std::fprintf(stderr, "rank %d: %s: %s\n", node.rank(), one.sentence, found.all().c_str());
  }
  return failed;
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int failed = 1;
  try {
    shm::communicator node{shm::mpi_oob::node_of(MPI_COMM_WORLD)};
    failed = run(node);
  } catch (std::exception const& e) {
    std::fprintf(stderr, "%s\n", e.what());
  }
  int all = 0;
  MPI_Allreduce(&failed, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  MPI_Finalize();
  return all == 0 ? 0 : 1;
}
