// Every process but the first copies the first one's block and checks it: no MPI, forked ranks.

#include <algorithm>
#include <iostream>
#include <numeric>
#include <utility>

#include <shm/shm.hpp>

int main() {
  auto const sums = shm::fork_ranks(4, [](shm::group& node) {
    shm::window<int> numbers{node, 4};

    auto const mine = numbers.local();
    if (node.rank() == 0) std::iota(mine.begin(), mine.end(), 0);
    numbers.fence();  // what was written before it can be read after it

    if (node.rank() != 0) std::ranges::copy(std::as_const(numbers)[0], mine.begin());
    return std::accumulate(mine.begin(), mine.end(), 0);
  });
  for (std::size_t rank = 1; rank < sums.size(); ++rank) {
    std::cout << (sums[rank] == 6 ? "check success\n" : "check fail\n");
  }
}
