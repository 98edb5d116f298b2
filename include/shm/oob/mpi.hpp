#pragma once
/// @file The bootstrap through MPI. The only header that includes mpi.h.

#include <mpi.h>

#include <cstddef>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "shm/base/size.hpp"
#include "shm/error.hpp"

namespace shm::inline v1 {

/// Bootstraps through a duplicate of an MPI communicator, which it frees when it is destroyed. MPI
/// errors become `shm::error`; the error handler of the caller's communicator is not touched.
class mpi_oob {
 public:
  /// Duplicates `comm`, whose processes must all run on one machine.
  ///
  /// Collective: all processes of comm.
  explicit mpi_oob(MPI_Comm comm)
      : mpi_oob([comm](MPI_Comm* made) { return MPI_Comm_dup(comm, made); }, "MPI_Comm_dup") {}

  /// Returns the bootstrap of the processes of `comm` that share a machine with the caller, in the
  /// order of their ranks.
  ///
  /// Collective: all processes of comm.
  /// Source:     MPI 3.1, section 6.4.2, MPI_COMM_TYPE_SHARED.
  static mpi_oob node_of(MPI_Comm comm) {
    return mpi_oob(
        [comm](MPI_Comm* made) {
          return MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, made);
        },
        "MPI_Comm_split_type");
  }

  mpi_oob(mpi_oob&& other) noexcept
      : comm_(std::exchange(other.comm_, MPI_COMM_NULL)), rank_(other.rank_), size_(other.size_) {}
  mpi_oob& operator=(mpi_oob&& other) noexcept {
    mpi_oob taken(std::move(other));
    std::swap(comm_, taken.comm_);
    std::swap(rank_, taken.rank_);
    std::swap(size_, taken.size_);
    return *this;
  }
  ~mpi_oob() {
    if (comm_ == MPI_COMM_NULL) return;
    int finalized = 0;
    MPI_Finalized(&finalized);
    if (finalized == 0) MPI_Comm_free(&comm_);
  }

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return size_; }

  void allgather(std::span<std::byte const> mine, std::span<std::byte> all) {
    if (mine.size() > std::size_t{std::numeric_limits<int>::max()}) {
      throw error({.cause = errc::size_overflow,
                   .subject = "gathering " + bytes_in_words(mine.size()) + " from each rank",
                   .remedy = {}});
    }
    auto const n = static_cast<int>(mine.size());
    check(MPI_Allgather(mine.data(), n, MPI_BYTE, all.data(), n, MPI_BYTE, comm_), "MPI_Allgather");
  }

 private:
  template <class Make>
  mpi_oob(Make make, std::string_view call) {
    int ready = 0;
    MPI_Initialized(&ready);
    if (ready == 0) {
      throw error({.cause = errc::bootstrap_failed,
                   .subject = "MPI is not initialised",
                   .remedy = "call MPI_Init first"});
    }
    check(make(&comm_), call);
    MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
    MPI_Comm_rank(comm_, &rank_);
    MPI_Comm_size(comm_, &size_);
  }

  static void check(int code, std::string_view call) {
    if (code == MPI_SUCCESS) return;
    char text[MPI_MAX_ERROR_STRING] = {};
    int length = 0;
    MPI_Error_string(code, text, &length);
    throw error({.cause = errc::bootstrap_failed,
                 .subject = std::string(call) + ": " + text,
                 .remedy = {}});
  }

  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0;
  int size_ = 1;
};

}  // namespace shm::inline v1
