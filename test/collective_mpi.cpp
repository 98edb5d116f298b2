// Collectives on the ranks of an MPI job, bit for bit against MPI's own, where its order of
// operations does not show: of integers, and minima and maxima of all numbers. Sums of
// floating-point numbers against the sum in rank order, which is stated.

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "collective/kinds.hpp"
#include "shm/oob/mpi.hpp"

namespace {

using shm_test::findings;

template <class T>
MPI_Datatype datatype() {
  if constexpr (std::is_same_v<T, signed char>) return MPI_SIGNED_CHAR;
  if constexpr (std::is_same_v<T, int>) return MPI_INT;
  if constexpr (std::is_same_v<T, long>) return MPI_LONG;
  if constexpr (std::is_same_v<T, float>) return MPI_FLOAT;
  return MPI_DOUBLE;
}

template <class T>
bool have_same_bits(std::span<T const> a, std::span<T const> b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size_bytes()) == 0);
}

template <class T, class Op>
void compare_allreduce(shm::group& node, findings& found, std::size_t count, Op op, MPI_Op theirs) {
  shm::window<T> send(node, count);
  shm::window<T> receive(node, count);
  shm::allreduce_plan plan(node, send.local(), receive.local(), op);
  std::vector<T> expected(count);
  std::vector<T> own(count);
  for (int round = 0; round < 2; ++round) {
    shm_test::fill(send.local(), node.rank(), round);
    MPI_Allreduce(send.local().data(), expected.data(), static_cast<int>(count), datatype<T>(),
                  theirs, MPI_COMM_WORLD);
    plan.start();
    plan.wait();
    shm::allreduce(node, send.local(), std::span(own), op);
    std::span<T const> const wanted = expected;
    if (std::is_integral_v<T> || theirs != MPI_SUM) {
      RANK_CHECK(found, have_same_bits<T>(receive.local(), wanted));
      RANK_CHECK(found, have_same_bits<T>(own, wanted));
    } else {
      RANK_CHECK(found, shm_test::is_combined<T>(receive.local(), 0, node.size(), round, op));
      RANK_CHECK(found, have_same_bits<T>(own, receive.local()));
    }
  }
}

template <class T>
void compare_moves(shm::group& node, findings& found, std::size_t count) {
  auto const n = static_cast<std::size_t>(node.size());
  auto const length = static_cast<int>(count);
  shm::window<T> send(node, n * count);
  shm::window<T> receive(node, n * count);
  shm_test::fill(send.local(), node.rank(), 0);
  std::vector<T> expected(n * count);
  auto const is_as = [&](auto&& plan) {
    plan.start();
    plan.wait();
    return have_same_bits<T>(receive.local(), expected);
  };
  MPI_Alltoall(send.local().data(), length, datatype<T>(), expected.data(), length, datatype<T>(),
               MPI_COMM_WORLD);
  RANK_CHECK(found, is_as(shm::alltoall_plan(node, send.local(), receive.local())));
  MPI_Allgather(send.local().data(), length, datatype<T>(), expected.data(), length, datatype<T>(),
                MPI_COMM_WORLD);
  RANK_CHECK(found, is_as(shm::allgather_plan(node, send.local().first(count), receive.local())));
  int const root = node.size() - 1;
  expected.assign(send.local().begin(), send.local().end());
  MPI_Bcast(expected.data(), length * node.size(), datatype<T>(), root, MPI_COMM_WORLD);
  std::ranges::copy(send.local(), receive.local().begin());
  RANK_CHECK(found, is_as(shm::bcast_plan(node, receive.local(), root)));
  if constexpr (std::is_integral_v<T>) {
    std::vector<T> block(count);
    MPI_Reduce_scatter_block(send.local().data(), block.data(), length, datatype<T>(), MPI_SUM,
                             MPI_COMM_WORLD);
    auto const own = receive.local().first(count);
    shm::reduce_scatter_plan plan(node, send.local(), own);
    plan.start();
    plan.wait();
    RANK_CHECK(found, have_same_bits<T>(own, block));
  }
}

template <class T>
void compare_type(shm::group& node, findings& found) {
  for (std::size_t const count : {1U, 2U, 17U, 600U, 5000U, 100'000U}) {
    compare_allreduce<T>(node, found, count, shm::op::sum{}, MPI_SUM);
    compare_allreduce<T>(node, found, count, shm::op::min{}, MPI_MIN);
    compare_allreduce<T>(node, found, count, shm::op::max{}, MPI_MAX);
    if (count <= 5000) compare_moves<T>(node, found, count);
  }
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int failed = 1;
  try {
    shm::communicator node{shm::mpi_oob::node_of(MPI_COMM_WORLD)};
    findings found;
    compare_type<signed char>(node, found);
    compare_type<int>(node, found);
    compare_type<long>(node, found);
    compare_type<float>(node, found);
    compare_type<double>(node, found);
    failed = found.all().empty() ? 0 : 1;
    if (failed != 0) std::fprintf(stderr, "rank %d: %s\n", node.rank(), found.all().c_str());
  } catch (std::exception const& e) {
    std::fprintf(stderr, "%s\n", e.what());
  }
  int all = 0;
  MPI_Allreduce(&failed, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  MPI_Finalize();
  return all == 0 ? 0 : 1;
}
