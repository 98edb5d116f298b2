// What a user of the C++ library writes first: two ranks, one window.

#include <shm/shm.hpp>

#include <cstdio>

int main() {
  auto const sums = shm::fork_ranks(2, [](shm::group& node) {
    shm::window<int> numbers{node, 3};
    for (int& number : numbers.local()) number = node.rank() + 1;
    numbers.fence();
    int sum = 0;
    for (int rank = 0; rank < node.size(); ++rank) {
      for (int const number : numbers[rank]) sum += number;
    }
    numbers.fence();
    return sum;
  });
  std::printf("%d %d\n", sums[0], sums[1]);
  return sums[0] == 9 && sums[1] == 9 ? 0 : 1;
}
