/// @file
/// Creates and frees windows and communicators for a long time, in C++ and in C, and checks that
/// nothing grows: descriptors, mappings, resident memory, the shared-memory file system.

#include <kupl.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <sys/statfs.h>

#include "shm/shm.hpp"
#include "support/launch_shm.hpp"

namespace {

constexpr std::string_view usage =
    R"(usage: soak [--windows N] [--communicators N] [--c-windows N]

On two ranks. Exit status: 0 all well; 1 something has grown or failed; 2 usage; 77 cannot mount.
)";

struct counts {
  std::uint64_t windows = 100'000;
  std::uint64_t communicators = 200;
  std::uint64_t c_windows = 20'000;
};

counts parse(std::span<char* const> words) {
  counts result;
  for (std::size_t i = 0; i < words.size(); i += 2) {
    std::string_view const name = words[i];
    auto* const number = name == "--windows"         ? &result.windows
                         : name == "--communicators" ? &result.communicators
                         : name == "--c-windows"     ? &result.c_windows
                                                     : nullptr;
    if (number == nullptr || i + 1 == words.size()) throw std::invalid_argument(std::string(name));
    std::string_view const value = words[i + 1];
    if (std::from_chars(value.data(), value.data() + value.size(), *number).ec != std::errc{}) {
      throw std::invalid_argument(std::string(value));
    }
  }
  return result;
}

/// What one process holds of the system.
struct holdings {
  std::int64_t descriptors = 0;
  std::int64_t mappings = 0;
  std::int64_t resident_kib = 0;
  std::int64_t shm_blocks = 0;  ///< in use in /dev/shm
  std::int64_t shm_inodes = 0;

  static holdings now() {
    holdings result;
    namespace fs = std::filesystem;
    result.descriptors = std::distance(fs::directory_iterator("/proc/self/fd"), {});
    result.mappings = static_cast<std::int64_t>(shm::os::mapping_count());
    auto const status = shm::os::read_kernel_file("/proc/self/status");
    constexpr std::string_view label = "VmRSS:";
    auto const digits = status.find_first_of("0123456789", status.find(label));
    std::from_chars(status.data() + digits, status.data() + status.size(), result.resident_kib);
    struct statfs shm{};
    ::statfs("/dev/shm", &shm);
    result.shm_blocks = static_cast<std::int64_t>(shm.f_blocks - shm.f_bfree);
    result.shm_inodes = static_cast<std::int64_t>(shm.f_files - shm.f_ffree);
    return result;
  }
  [[nodiscard]] std::string in_words() const {
    return std::to_string(descriptors) + " descriptors, " + std::to_string(mappings) +
           " mappings, " + std::to_string(resident_kib) + " KiB resident, " +
           std::to_string(shm_blocks) + " pages and " + std::to_string(shm_inodes) +
           " inodes of /dev/shm";
  }
};

/// Throws where a process holds more than before. Resident memory may move by what an allocator
/// and the first use of code take; a page for each window would be a hundred times as much.
void require_flat(std::string_view what, holdings const& before, holdings const& after) {
  constexpr std::int64_t noise_kib = 1024;
  std::string const words =
      std::string(what) + ": before: " + before.in_words() + "; after: " + after.in_words();
  std::printf("%s\n", words.c_str());
  if (after.descriptors != before.descriptors || after.mappings != before.mappings ||
      after.resident_kib > before.resident_kib + noise_kib ||
      after.shm_blocks != before.shm_blocks || after.shm_inodes != before.shm_inodes) {
    throw std::runtime_error("not flat: " + words);
  }
}

/// Runs `round` a few times, and then `rounds` times, between which nothing may grow. Collective.
template <class Round>
void soak(shm::group& node, std::string_view what, std::uint64_t rounds, Round const& round) {
  constexpr std::uint64_t first_rounds = 1100;  // the C interface keeps 1024 freed handles
  for (std::uint64_t i = 0; i < std::min(first_rounds, rounds); ++i) round(i);
  node.barrier();
  auto const before = holdings::now();
  node.barrier();
  for (std::uint64_t i = 0; i < rounds; ++i) round(i);
  node.barrier();
  auto const after = holdings::now();
  node.barrier();
  require_flat(std::to_string(rounds) + " " + std::string(what), before, after);
}

template <class Policy>
void make_window(shm::group& node, std::uint64_t i) {
  auto const how = i % 3 == 0 ? shm::layout::contiguous : shm::layout::page_aligned;
  shm::window<char, Policy> w(node, i * 977 % 20000, shm::window_options{.layout = how});
  if (!w.local().empty()) w.local().back() = 'x';
  if (i % 16 == 0) w.fence();
}

void soak_cpp(shm::group& node, counts const& asked) {
  soak(node, "windows", asked.windows, [&](std::uint64_t i) {
    i % 2 == 0 ? make_window<shm::posix_policy>(node, i) : make_window<shm::sls_policy>(node, i);
  });
  soak(node, "windows of 1 MiB", asked.windows / 50, [&](std::uint64_t i) {
    constexpr std::size_t half = 512 * 1024;
    i % 2 == 0 ? void(shm::window<char, shm::posix_policy>(node, half))
               : void(shm::window<char, shm::sls_policy>(node, half));
  });
  soak(node, "communicators destroyed before their windows", asked.communicators,
       [&](std::uint64_t) {
         std::vector<shm::window<char>> windows;
         {
           shm::communicator inner{node};
           for (int i = 0; i < 4; ++i) windows.emplace_back(inner, 5000);
         }
         windows.back().fence();
       });
}

int gather(void const* send, void* receive, int size, void* group, kupl_shm_datatype_t) {
  auto& node = *static_cast<shm::group*>(group);
  auto const bytes = static_cast<std::size_t>(size);
  node.allgather({static_cast<std::byte const*>(send), bytes},
                 {static_cast<std::byte*>(receive), bytes * static_cast<std::size_t>(node.size())});
  return 0;
}
int meet(void* group) {
  static_cast<shm::group*>(group)->barrier();
  return 0;
}

void require(int result, std::string_view what) {
  if (result != KUPL_OK) throw std::runtime_error(std::string(what));
}

void soak_c(shm::group& node, counts const& asked) {
  kupl_shm_oob_cb_t callbacks = {gather, meet};
  auto const make = [&] {
    kupl_shm_comm_h comm = nullptr;
    require(kupl_shm_comm_create(node.size(), node.rank(), 0, &callbacks, &node, &comm),
            "kupl_shm_comm_create");
    return comm;
  };
  auto const allocate = [](kupl_shm_comm_h comm, std::size_t size) {
    void* base = nullptr;
    kupl_shm_win_h win = nullptr;
    require(kupl_shm_win_alloc(size, comm, &base, &win), "kupl_shm_win_alloc");
    return win;
  };
  kupl_shm_comm_h const comm = make();
  soak(node, "windows in C", asked.c_windows, [&](std::uint64_t i) {
    auto const win = allocate(comm, i * 977 % 20000);
    if (i % 16 == 0) require(kupl_shm_fence(win), "kupl_shm_fence");
    require(kupl_shm_win_free(win), "kupl_shm_win_free");
  });
  require(kupl_shm_comm_destroy(comm), "kupl_shm_comm_destroy");
  soak(node, "communicators in C, destroyed with live windows", asked.communicators,
       [&](std::uint64_t) {
         kupl_shm_comm_h const inner = make();
         for (int i = 0; i < 4; ++i) allocate(inner, 5000);
         node.barrier();
         require(kupl_shm_comm_destroy(inner), "kupl_shm_comm_destroy");
       });
}

}  // namespace

int main(int argc, char** argv) {
  counts asked;
  try {
    asked = parse(std::span(argv, static_cast<std::size_t>(argc)).subspan(1));
  } catch (std::exception const& wrong) {
    std::fprintf(stderr, "soak: %s\n%s", wrong.what(), usage.data());
    return 2;
  }
  std::optional<shm_test::private_shm> mount;
  try {
    mount.emplace("");
  } catch (std::exception const& refused) {
    std::printf("skipped: %s\n", refused.what());
    return 77;
  }
  try {
    shm::fork_ranks(2, [&](shm::group& node) {
      soak_cpp(node, asked);
      soak_c(node, asked);
    });
  } catch (std::exception const& failed) {
    std::fprintf(stderr, "%s\n", failed.what());
    return 1;
  }
  if (auto const left = mount->entries(); !left.empty()) {
    std::fprintf(stderr, "left in /dev/shm: %s\n", left.front().c_str());
    return 1;
  }
}
