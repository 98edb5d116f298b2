/// @file Fences and windows against those of MPI, with what the machine allows as the limit.
///
///     mpiexec -n RANKS window_against_mpi [--quick] [--only NAME]… [--batches N] [--large]
///                                         [--tsv FILE]
///
/// All rivals run in one process, in turn, batch by batch. A number is the median over the batches
/// of the slowest rank's time for one operation. Windows are of the backend that the environment
/// names (KUPL_SHM_TYPE, KUPL_SHM_ENABLE_HUGEPAGE). After every batch the result is verified.
/// Blocks are new memory in each iteration, and are written with other values.

#include <fcntl.h>
#include <mpi.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "comparison.hpp"
#include "handshake.hpp"
#include "shm/communicator.hpp"
#include "shm/group.hpp"
#include "shm/oob/mpi.hpp"
#include "shm/window.hpp"
#include "statistics.hpp"

namespace {

constexpr std::string_view usage =
    "usage: mpiexec -n RANKS window_against_mpi [options]\n"
    "  --quick      shorter and fewer batches\n"
    "  --only NAME  this operation; may be repeated: fence, peer_fence, create, create_write, "
    "medium,\n"
    "               large\n"
    "  --batches N  how many batches (11; quick: 5)\n"
    "  --large      also windows of 64 MiB per rank\n"
    "  --tsv FILE   writes the table there too, as tab-separated values\n";

constexpr std::size_t page_bytes = 4096;

struct options {
  bench::pace pace = {};
  std::vector<std::string> only = {};
  bool has_large = false;
  std::string tsv = {};
};

/// Returns nothing where the arguments make no sense, or ask for help.
std::optional<options> parse(std::span<char const* const> arguments) {
  options result;
  bool is_quick = false;
  int batches = 0;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    std::string_view const name = arguments[i];
    if (name == "--quick") {
      is_quick = true;
    } else if (name == "--large") {
      result.has_large = true;
    } else if (i + 1 == arguments.size()) {
      return std::nullopt;
    } else if (name == "--only") {
      result.only.emplace_back(arguments[++i]);
    } else if (name == "--tsv") {
      result.tsv = arguments[++i];
    } else if (name == "--batches") {
      batches = std::atoi(arguments[++i]);
      if (batches < 1) return std::nullopt;
    } else {
      return std::nullopt;
    }
  }
  if (is_quick) result.pace = {.batch_us = 20e3, .batches = 5};
  if (batches != 0) result.pace.batches = batches;
  return result;
}

/// The processes of one machine, as MPI and as the library see them.
struct machine {
  MPI_Comm comm;
  shm::group& node;

  [[nodiscard]] int next() const { return (node.rank() + 1) % node.size(); }
  /// The other rank of this rank's pair; negative for the last of an odd number.
  [[nodiscard]] int partner() const {
    int const other = node.rank() ^ 1;
    return other < node.size() ? other : -1;
  }
};

void write(std::span<std::uint64_t> block, int rank, std::uint64_t seed) {
  auto value = seed + static_cast<std::uint64_t>(rank) * 1000003U;
  for (auto& element : block) element = value++;
}

bool is_written(std::span<std::uint64_t const> block, int rank, std::uint64_t seed) {
  auto value = seed + static_cast<std::uint64_t>(rank) * 1000003U;
  return std::ranges::all_of(block, [&](std::uint64_t element) { return element == value++; });
}

// ---- fences

/// A number of each rank that shows whether others have passed a fence.
class marks {
 public:
  explicit marks(machine const& on) : numbers_(on.node, 1) {}

  /// Writes, meets, looks at what `seen` have written, and meets again before it writes anew.
  bool are_seen(std::function<void()> const& meet, std::span<int const> seen) {
    ++turn_;
    numbers_.local()[0] = turn_;
    meet();
    bool const right = std::ranges::all_of(
        seen, [&](int rank) { return std::as_const(numbers_)[rank][0] == turn_; });
    meet();
    return right;
  }

 private:
  shm::window<std::uint64_t> numbers_;
  std::uint64_t turn_ = 0;
};

/// Makes a lane of a meeting after which this rank sees what `seen` have written.
template <class Meet>
bench::lane meeting(std::string name, std::shared_ptr<marks> proof, std::vector<int> seen,
                    Meet meet) {
  return {.name = std::move(name),
          .run =
              [meet](int iterations) {
                for (int i = 0; i < iterations; ++i) meet();
              },
          .is_right = [=] { return proof->are_seen(meet, seen); }};
}

bench::comparison fence(machine const& on) {
  auto const proof = std::make_shared<marks>(on);
  auto const window = std::make_shared<shm::window<std::byte>>(on.node, 1);
  auto const flags = std::make_shared<bench::handshake>(on.node, on.partner());
  std::vector<int> all;
  for (int rank = 0; rank < on.node.size(); ++rank) all.push_back(rank);
  bench::comparison result{
      .operation = "fence",
      .ours = meeting("window::fence", proof, all, [window] { window->fence(); }),
      .rival = meeting("MPI_Barrier", proof, all, [comm = on.comm] { MPI_Barrier(comm); })};
  if (on.node.size() == 2) {
    result.limit = meeting("a flag each", proof, all, [flags] { flags->meet(); });
  }
  return result;
}

bench::comparison peer_fence(machine const& on) {
  auto const proof = std::make_shared<marks>(on);
  auto const window = std::make_shared<shm::window<std::byte>>(on.node, 1);
  auto const flags = std::make_shared<bench::handshake>(on.node, on.partner());
  int const peer = on.partner();
  std::vector<int> seen;
  if (peer >= 0) seen.push_back(peer);
  return {.operation = "peer_fence",
          .ours = meeting("window::fence(peer)", proof, seen,
                          [window, peer] {
                            if (peer >= 0) window->fence(peer);
                          }),
          .rival = meeting("MPI_Sendrecv, 0 bytes", proof, seen,
                           [comm = on.comm, peer] {
                             if (peer < 0) return;
                             MPI_Sendrecv(nullptr, 0, MPI_BYTE, peer, 0, nullptr, 0, MPI_BYTE, peer,
                                          0, comm, MPI_STATUS_IGNORE);
                           }),
          .limit = meeting("a flag each", proof, seen, [flags] { flags->meet(); })};
}

// ---- creation

/// A window of MPI with a block of equal length for each rank.
class mpi_window {
 public:
  mpi_window(MPI_Comm comm, std::size_t count) : count_(count) {
    MPI_Win_allocate_shared(static_cast<MPI_Aint>(count * sizeof(std::uint64_t)),
                            sizeof(std::uint64_t), MPI_INFO_NULL, comm, &mine_, &window_);
  }
  mpi_window(mpi_window const&) = delete;
  mpi_window& operator=(mpi_window const&) = delete;
  ~mpi_window() { MPI_Win_free(&window_); }

  [[nodiscard]] std::span<std::uint64_t> local() const { return {mine_, count_}; }
  [[nodiscard]] std::span<std::uint64_t const> block(int rank) const {
    MPI_Aint bytes = 0;
    int unit = 0;
    std::uint64_t const* theirs = nullptr;
    MPI_Win_shared_query(window_, rank, &bytes, &unit, static_cast<void*>(&theirs));
    return {theirs, static_cast<std::size_t>(bytes) / sizeof(std::uint64_t)};
  }
  void fence() const { MPI_Win_fence(0, window_); }

 private:
  std::size_t count_;
  std::uint64_t* mine_ = nullptr;
  MPI_Win window_ = MPI_WIN_NULL;
};

int checked(int result, char const* call) {
  if (result < 0) throw std::runtime_error(std::string(call) + " failed");
  return result;
}

/// Does what a creation asks of the kernel for an object of `bytes` bytes, the first `own` of them
/// this rank's. Writes them where `is_written`.
void call_system(std::size_t bytes, std::size_t own, bool is_written, std::uint64_t seed) {
#if defined(MADV_POPULATE_WRITE)
  constexpr int populate_write = MADV_POPULATE_WRITE;
#else
  constexpr int populate_write = 23;  // madvise(2), since Linux 5.14
#endif
  int const file =
      checked(::open("/dev/shm", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600), "open with O_TMPFILE");
  checked(::ftruncate(file, static_cast<off_t>(bytes)), "ftruncate");
  void* const address = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (address == MAP_FAILED) throw std::runtime_error("mmap failed");
  checked(::madvise(address, own, populate_write), "madvise");
  if (is_written) write({static_cast<std::uint64_t*>(address), own / sizeof(seed)}, 0, seed);
  ::close(file);
  ::munmap(address, bytes);
}

/// What the lanes of one creation share.
struct creation {
  std::size_t count;       ///< elements of each rank
  bool is_written;         ///< whether each rank writes its block
  std::uint64_t seed = 0;  ///< another one for each window
};

/// Makes one window with `make`, and a second one afterwards whose blocks are looked at.
template <class Make, class See>
bench::lane creating(std::string name, machine const& on, std::shared_ptr<creation> what, Make make,
                     See see) {
  int const rank = on.node.rank();
  int const next = on.next();
  return {.name = std::move(name),
          .run =
              [=](int iterations) {
                for (int i = 0; i < iterations; ++i) {
                  auto made = make();
                  if (what->is_written) write(made.local(), rank, ++what->seed);
                }
              },
          .is_right =
              [=] {
                // The seeds of the ranks are equal: every rank has made as many windows.
                auto made = make();
                write(made.local(), rank, ++what->seed);
                made.fence();
                auto const theirs = see(made, next);
                bool const right =
                    theirs.size() == what->count && is_written(theirs, next, what->seed);
                made.fence();
                return right;
              }};
}

bench::comparison create(machine const& on, std::string operation, std::size_t bytes,
                         bool is_written) {
  auto const what = std::make_shared<creation>(
      creation{.count = bytes / sizeof(std::uint64_t), .is_written = is_written});
  auto const written = std::string(is_written ? ", write" : "");
  auto const ranks = static_cast<std::size_t>(on.node.size());
  bool const is_alone = !is_written;
  bool const takes_part = !is_alone || on.node.rank() == 0;
  return {.operation = std::move(operation),
          .ours = creating(
              "window" + written, on, what,
              [&node = on.node, what] { return shm::window<std::uint64_t>(node, what->count); },
              [](shm::window<std::uint64_t> const& made, int rank) { return made[rank]; }),
          .rival = creating(
              "MPI_Win_allocate_shared" + written, on, what,
              [comm = on.comm, what] { return mpi_window(comm, what->count); },
              [](mpi_window const& made, int rank) { return made.block(rank); }),
          // Alone: all of the window's object, the header and one block populated. Else each rank
          // makes an object of its own, at the same time.
          .limit = {
              .name = is_alone ? "system calls, rank 0 alone" : "system calls, write, on each rank",
              .run = [=](int iterations) {
                if (!takes_part) return;
                for (int i = 0; i < iterations; ++i) {
                  if (is_alone) {
                    call_system(page_bytes + ranks * bytes, page_bytes + bytes, false, 0);
                  } else {
                    call_system(bytes, bytes, true, static_cast<std::uint64_t>(i));
                  }
                }
              }}};
}

// ---- all of it

using maker = std::function<bench::comparison(machine const&)>;

std::vector<std::pair<std::string, maker>> operations() {
  return {{"fence", fence},
          {"peer_fence", peer_fence},
          {"create", [](machine const& on) { return create(on, "create", page_bytes, false); }},
          {"create_write",
           [](machine const& on) { return create(on, "create_write", page_bytes, true); }},
          {"medium",
           [](machine const& on) { return create(on, "medium", std::size_t{1} << 20, true); }},
          {"large",
           [](machine const& on) { return create(on, "large", std::size_t{64} << 20, true); }}};
}

bool is_wanted(options const& wanted, std::string const& name) {
  if (!wanted.only.empty()) return std::ranges::count(wanted.only, name) != 0;
  return name != "large" || wanted.has_large;
}

void run(options const& wanted, MPI_Comm comm) {
  shm::communicator node{shm::mpi_oob{comm}};
  machine const on{comm, node};
  bool const is_speaker = node.rank() == 0;
  std::vector<bench::row> rows;
  if (is_speaker) bench::print_head();
  for (auto const& [name, make] : operations()) {
    if (!is_wanted(wanted, name)) continue;
    if (is_speaker) std::fprintf(stderr, "window_against_mpi: %s\n", name.c_str());
    auto pace = wanted.pace;
    if (name == "large") pace.least = 1;
    rows.push_back(bench::measure(node, make(on), pace));
    if (is_speaker) bench::print(rows.back());
  }
  if (is_speaker && !wanted.tsv.empty()) bench::write_tsv(wanted.tsv, rows);
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm comm = MPI_COMM_NULL;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &comm);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  std::vector<char const*> const arguments(argv + 1, argv + argc);
  bool const is_help = std::ranges::count(arguments, std::string_view("--help")) != 0;
  auto const wanted = parse(arguments);
  bool const is_known =
      wanted && std::ranges::all_of(wanted->only, [](std::string const& name) {
        return std::ranges::count(operations(), name, [](auto const& o) { return o.first; }) != 0;
      });
  int status = 0;
  if (is_help || !is_known) {
    if (rank == 0) std::fputs(usage.data(), is_help ? stdout : stderr);
    status = is_help ? 0 : 2;
  } else {
    try {
      run(*wanted, comm);
    } catch (std::exception const& e) {
      std::fprintf(stderr, "window_against_mpi: %s\n", e.what());
      MPI_Abort(MPI_COMM_WORLD, 1);
    }
  }
  MPI_Comm_free(&comm);
  MPI_Finalize();
  return status;
}
