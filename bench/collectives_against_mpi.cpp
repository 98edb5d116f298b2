/// @file Collectives against those of MPI, by size, with what the machine allows as the limit.
///
///     mpiexec -n RANKS collectives_against_mpi [--quick] [--only NAME]… [--bytes N]… [--batches N]
///                                              [--tsv FILE]
///
/// MPI works on private memory. Ours works on windows, through plans; and on private memory too.
/// The size is that of each rank's send buffer (of the buffer, for bcast). All run in one process,
/// in turn, batch by batch; a number is the median over the batches of the slowest rank's time for
/// one operation. Before each operation each rank writes to every line of its send buffer, in all
/// lanes alike, and the time for that is part of the number. After every batch the result is
/// verified. The limit is a copy of as many bytes within each rank, all ranks at once, after the
/// same writing; up to a line, with two ranks, a flag each. KUPL_SHM_ALLREDUCE_ALGORITHM and the
/// like choose how plans hand over: run it with each to see where the staged way ends being the
/// faster one.

#include <mpi.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "comparison.hpp"
#include "handshake.hpp"
#include "shm/collective/allgather.hpp"
#include "shm/collective/allreduce.hpp"
#include "shm/collective/alltoall.hpp"
#include "shm/collective/bcast.hpp"
#include "shm/collective/reduce_scatter.hpp"
#include "shm/communicator.hpp"
#include "shm/oob/mpi.hpp"
#include "shm/window.hpp"
#include "statistics.hpp"

namespace {

constexpr std::string_view usage =
    "usage: mpiexec -n RANKS collectives_against_mpi [options]\n"
    "  --quick      shorter and fewer batches, and three sizes\n"
    "  --only NAME  this operation; may be repeated: allreduce, bcast, alltoall, allgather,\n"
    "               reduce_scatter\n"
    "  --bytes N    this size of a rank's send buffer; may be repeated\n"
    "  --batches N  how many batches (11; quick: 5)\n"
    "  --tsv FILE   writes the table there too, as tab-separated values\n";

struct options {
  bench::pace pace = {};
  std::vector<std::string> only = {};
  std::vector<std::size_t> bytes = {};
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
    } else if (i + 1 == arguments.size()) {
      return std::nullopt;
    } else if (name == "--only") {
      result.only.emplace_back(arguments[++i]);
    } else if (name == "--bytes") {
      result.bytes.push_back(std::strtoull(arguments[++i], nullptr, 10));
      if (result.bytes.back() < sizeof(double)) return std::nullopt;
    } else if (name == "--tsv") {
      result.tsv = arguments[++i];
    } else if (name == "--batches") {
      batches = std::atoi(arguments[++i]);
      if (batches < 1) return std::nullopt;
    } else {
      return std::nullopt;
    }
  }
  constexpr std::size_t kib = 1024;
  if (is_quick) result.pace = {.batch_us = 20e3, .batches = 5};
  if (batches != 0) result.pace.batches = batches;
  if (result.bytes.empty() && is_quick) result.bytes = {16, 8 * kib, kib * kib};
  if (result.bytes.empty()) {
    result.bytes = {16,       128,       kib,           4 * kib,       8 * kib,
                    64 * kib, kib * kib, 8 * kib * kib, 64 * kib * kib};
  }
  return result;
}

enum class kind { allreduce, bcast, alltoall, allgather, reduce_scatter };
constexpr std::pair<std::string_view, kind> kinds[] = {{"allreduce", kind::allreduce},
                                                       {"bcast", kind::bcast},
                                                       {"alltoall", kind::alltoall},
                                                       {"allgather", kind::allgather},
                                                       {"reduce_scatter", kind::reduce_scatter}};

/// The lengths of buffers in elements, for a send buffer of `count` elements.
struct shape {
  std::size_t send;
  std::size_t receive;
};

shape shape_of(kind what, std::size_t count, std::size_t ranks) {
  switch (what) {
    case kind::alltoall:
      count = std::max<std::size_t>(count / ranks, 1) * ranks;
      return {count, count};
    case kind::allgather:
      return {count, count * ranks};
    case kind::reduce_scatter:
      count = std::max<std::size_t>(count / ranks, 1) * ranks;
      return {count, count / ranks};
    default:
      return {count, count};
  }
}

/// Two buffers of a rank and what is in them.
struct buffers {
  kind what;
  int rank;
  int ranks;
  std::span<double> send;
  std::span<double> receive;
  std::uint64_t turn = 0;

  /// The element that a rank sends in this turn: a small integer, so that sums are exact.
  [[nodiscard]] double element(int of, std::size_t at) const {
    return static_cast<double>(at % 4093) + of + static_cast<double>(turn % 1000);
  }
  [[nodiscard]] bool is_sender() const { return what != kind::bcast || rank == 0; }

  /// Writes to every line of the send buffer.
  void touch() {
    ++turn;
    if (!is_sender()) return;
    constexpr std::size_t in_line = 8;
    for (std::size_t at = 0; at < send.size(); at += in_line) send[at] = element(rank, at);
  }
  void fill() {
    for (std::size_t at = 0; at < send.size(); ++at) send[at] = element(rank, at);
  }
  /// Whether the result is that of what all ranks have filled in.
  [[nodiscard]] bool is_right() const {
    auto const sum = [&](std::size_t at) {
      double result = 0;
      for (int r = 0; r < ranks; ++r) result += element(r, at);
      return result;
    };
    auto const own = static_cast<std::size_t>(rank);
    auto const n = static_cast<std::size_t>(ranks);
    for (std::size_t at = 0; at < receive.size(); ++at) {
      double wanted = 0;
      switch (what) {
        case kind::allreduce:
          wanted = sum(at);
          break;
        case kind::bcast:
          wanted = element(0, at);
          break;
        case kind::alltoall: {
          auto const block = receive.size() / n;
          wanted = element(static_cast<int>(at / block), own * block + at % block);
          break;
        }
        case kind::allgather:
          wanted = element(static_cast<int>(at / send.size()), at % send.size());
          break;
        case kind::reduce_scatter:
          wanted = sum(own * receive.size() + at);
          break;
      }
      if (receive[at] != wanted) return false;
    }
    return true;
  }
};

/// Makes a lane of `operate`, which is to bring about the result in the buffers.
bench::lane operating(std::string name, std::shared_ptr<buffers> data,
                      std::function<void()> operate) {
  return {.name = std::move(name),
          .run =
              [=](int iterations) {
                for (int i = 0; i < iterations; ++i) {
                  data->touch();
                  operate();
                }
              },
          .is_right =
              [=] {
                ++data->turn;
                data->fill();
                operate();
                return data->is_right();
              }};
}

/// What the lanes of one row own.
struct memory {
  shm::window<double> send;
  shm::window<double> receive;
  std::vector<double> private_send;
  std::vector<double> private_receive;
  std::vector<double> copy;
};

std::function<void()> planned(kind what, shm::group& node, buffers const& data) {
  std::span<double const> const send = data.send;
  auto const run = [](auto plan) -> std::function<void()> {
    auto const shared = std::make_shared<decltype(plan)>(std::move(plan));
    return [shared] {
      shared->start();
      shared->wait();
    };
  };
  switch (what) {
    case kind::allreduce:
      return run(shm::allreduce_plan(node, send, data.receive));
    case kind::bcast:
      return run(shm::bcast_plan(node, data.receive, 0));
    case kind::alltoall:
      return run(shm::alltoall_plan(node, send, data.receive));
    case kind::allgather:
      return run(shm::allgather_plan(node, send, data.receive));
    case kind::reduce_scatter:
      break;
  }
  return run(shm::reduce_scatter_plan(node, send, data.receive));
}

std::function<void()> on_private_memory(kind what, shm::group& node, buffers const& data) {
  std::span<double const> const send = data.send;
  auto const receive = data.receive;
  switch (what) {
    case kind::allreduce:
      return [=, &node] { shm::allreduce(node, send, receive); };
    case kind::bcast:
      return [=, &node] { shm::bcast(node, receive, 0); };
    case kind::alltoall:
      return [=, &node] { shm::alltoall(node, send, receive); };
    case kind::allgather:
      return [=, &node] { shm::allgather(node, send, receive); };
    case kind::reduce_scatter:
      break;
  }
  return [=, &node] { shm::reduce_scatter(node, send, receive); };
}

std::function<void()> by_mpi(kind what, MPI_Comm comm, buffers const& data) {
  auto const* const send = data.send.data();
  auto* const receive = data.receive.data();
  auto const n = static_cast<int>(data.send.size());
  switch (what) {
    case kind::allreduce:
      return [=] { MPI_Allreduce(send, receive, n, MPI_DOUBLE, MPI_SUM, comm); };
    case kind::bcast:
      return [=] { MPI_Bcast(receive, n, MPI_DOUBLE, 0, comm); };
    case kind::alltoall: {
      int const block = n / data.ranks;
      return [=] { MPI_Alltoall(send, block, MPI_DOUBLE, receive, block, MPI_DOUBLE, comm); };
    }
    case kind::allgather:
      return [=] { MPI_Allgather(send, n, MPI_DOUBLE, receive, n, MPI_DOUBLE, comm); };
    case kind::reduce_scatter:
      break;
  }
  int const block = n / data.ranks;
  return [=] { MPI_Reduce_scatter_block(send, receive, block, MPI_DOUBLE, MPI_SUM, comm); };
}

/// Runs the lanes of one operation and size; returns a row for windows and one for private memory.
std::vector<bench::row> compare(kind what, std::string const& name, std::size_t bytes,
                                MPI_Comm comm, shm::group& node, bench::pace pace) {
  auto const ranks = static_cast<std::size_t>(node.size());
  auto const [n_send, n_receive] = shape_of(what, bytes / sizeof(double), ranks);
  auto const own =
      std::make_shared<memory>(memory{.send = {node, n_send},
                                      .receive = {node, n_receive},
                                      .private_send = std::vector<double>(n_send),
                                      .private_receive = std::vector<double>(n_receive),
                                      .copy = std::vector<double>(std::max(n_send, n_receive))});
  // A broadcast has one buffer.
  auto const make = [&](std::span<double> send, std::span<double> receive) {
    return std::make_shared<buffers>(buffers{.what = what,
                                             .rank = node.rank(),
                                             .ranks = node.size(),
                                             .send = what == kind::bcast ? receive : send,
                                             .receive = receive});
  };
  auto const in_windows = make(own->send.local(), own->receive.local());
  auto const in_private = make(own->private_send, own->private_receive);
  auto const staged = make(own->private_send, own->private_receive);
  auto const flags = std::make_shared<bench::handshake>(node, node.rank() ^ 1);
  constexpr std::size_t line = 128;
  bool const has_flags = bytes <= line && node.size() == 2;
  std::vector<bench::lane> lanes;
  lanes.push_back(operating("plan on windows", in_windows, planned(what, node, *in_windows)));
  lanes.push_back(
      operating("function on private memory", staged, on_private_memory(what, node, *staged)));
  lanes.push_back(operating("MPI on private memory", in_private, by_mpi(what, comm, *in_private)));
  lanes.push_back(
      {.name = has_flags ? "a flag each" : "memcpy in each rank", .run = [=](int iterations) {
         for (int i = 0; i < iterations; ++i) {
           in_private->touch();
           if (has_flags) {
             flags->meet();
           } else {
             std::memcpy(
                 own->copy.data(),
                 n_send > n_receive ? own->private_send.data() : own->private_receive.data(),
                 own->copy.size() * sizeof(double));
             asm volatile("" ::"r"(own->copy.data()) : "memory");
           }
         }
       }});
  if (bytes >= (std::size_t{8} << 20)) pace.least = 1;
  auto const us = bench::interleave(node, lanes, pace);
  auto const titled = [&](std::string const& form) {
    return name +
           (bytes >= 1024 * 1024 ? " " + std::to_string(bytes >> 20) + " MiB"
            : bytes >= 1024      ? " " + std::to_string(bytes >> 10) + " KiB"
                                 : " " + std::to_string(bytes) + " B") +
           form;
  };
  own->copy = {};
  return {{titled(", window"), node.size(), us[0], "MPI", us[2], lanes[3].name, us[3]},
          {titled(", private"), node.size(), us[1], "MPI", us[2], lanes[3].name, us[3]}};
}

void run(options const& wanted, MPI_Comm comm) {
  shm::communicator node{shm::mpi_oob{comm}};
  bool const is_speaker = node.rank() == 0;
  std::vector<bench::row> rows;
  if (is_speaker) bench::print_head();
  for (auto const& [name, what] : kinds) {
    if (!wanted.only.empty() && std::ranges::count(wanted.only, name) == 0) continue;
    for (auto const bytes : wanted.bytes) {
      if (is_speaker) std::fprintf(stderr, "collectives: %s %zu\n", name.data(), bytes);
      for (auto& row : compare(what, std::string(name), bytes, comm, node, wanted.pace)) {
        if (is_speaker) bench::print(row);
        rows.push_back(std::move(row));
      }
    }
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
        return std::ranges::count(kinds, name, [](auto const& one) { return one.first; }) != 0;
      });
  int status = 0;
  if (is_help || !is_known) {
    if (rank == 0) std::fputs(usage.data(), is_help ? stdout : stderr);
    status = is_help ? 0 : 2;
  } else {
    try {
      run(*wanted, comm);
    } catch (std::exception const& e) {
      std::fprintf(stderr, "collectives: %s\n", e.what());
      MPI_Abort(MPI_COMM_WORLD, 1);
    }
  }
  MPI_Comm_free(&comm);
  MPI_Finalize();
  return status;
}
