/// @file
/// Checks, in a control group of version 2 with 64 MiB, that a window that it has no room for is
/// refused, also from a group within it, and that one that fits is not.

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <string_view>

#include <unistd.h>

#include "shm/shm.hpp"

namespace {

constexpr std::size_t mib = std::size_t{1} << 20U;

void check(bool holds, std::string const& what) {
  if (!holds) throw std::runtime_error(what);
}

/// Moves this process into a new control group within its own one, and without a limit of its own.
void enter_inner_group(std::string_view name) {
  std::string line;
  std::getline(std::ifstream("/proc/self/cgroup") >> std::ws, line);
  auto const inner = "/sys/fs/cgroup" + line.substr(line.rfind(':') + 1) + "/" + std::string(name);
  std::filesystem::create_directory(inner);
  std::ofstream(inner + "/cgroup.procs") << ::getpid() << std::flush;
  std::ifstream now("/proc/self/cgroup");
  std::getline(now, line);
  check(line.ends_with(name), "could not enter " + inner);
}

std::string refusal(shm::group& node, std::size_t bytes) {
  try {
    shm::window<unsigned char> const w(node, bytes);
  } catch (shm::error const& e) {
    check(e.code() == shm::errc::limit_reached, e.what());
    return e.what();
  }
  return "none";
}

void try_windows(shm::group& node) {
  auto const text = refusal(node, 40 * mib);
  if (node.rank() == 0) std::printf("%s\n", text.c_str());
  for (auto const* const part :
       {"2 ranks need 80 MiB in the control group ", "left of 64 MiB", "memory.max"}) {
    check(text.find(part) != std::string::npos, "the refusal does not say: " + std::string(part));
  }
  shm::window<unsigned char> fits(node, 20 * mib);
  std::ranges::fill(fits.local(), static_cast<unsigned char>(1));
  fits.fence();
  check(refusal(node, 20 * mib) != "none", "a second window of 40 MiB was not refused");
}

}  // namespace

int main() {
  try {
    shm::fork_ranks(2, try_windows);
    shm::fork_ranks(2, [](shm::group& node) {
      enter_inner_group(node.rank() == 0 ? "a" : "b");
      node.barrier();
      try_windows(node);
    });
  } catch (std::exception const& failed) {
    std::printf("FAILED: %s\n", failed.what());
    return 1;
  }
}
