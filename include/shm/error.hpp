#pragma once
/// @file What can go wrong: a closed list of causes, and the exception that carries one.

#include <cstdint>
#include <exception>
#include <new>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>

#include "shm/base/text.hpp"

namespace shm::inline v1 {

/// The causes of every error of the library.
enum class errc : std::uint32_t {
  invalid_argument = 1,  ///< an argument that no call of this kind can take
  size_overflow,         ///< sizes whose sum or product cannot be represented
  mismatch,              ///< the ranks' arguments differ where they must be equal
  empty,                 ///< a default-constructed or moved-from object
  out_of_memory,         ///< the kernel has no memory or address space for it
  no_space,              ///< the shared-memory file system is full
  limit_reached,         ///< a limit of the process or of the kernel
  permission_denied,     ///< the kernel does not allow it to this process
  unsupported,           ///< this system cannot do it
  bootstrap_failed,      ///< the out-of-band bootstrap reported a failure
  not_shareable,         ///< ranks that cannot reach each other's memory
  rank_failed,           ///< a rank's own function threw in `agree`
  peer_lost,             ///< a rank died
  peer_left,             ///< a rank has destroyed its end
  ranks_failed,          ///< ranks of `fork_ranks` threw or died
  system_failure,        ///< any other refusal of a system call
};

/// The operations that messages name.
enum class operation : std::uint32_t {
  none,
  create_communicator,
  agree,
  allgather,
  barrier,
  split,
  create_window,
  use_window,
  fence,
  fence_peers,
  post,
  wait,
  fork_ranks,
  allreduce,
  bcast,
  alltoall,
  reduce_scatter,
  attach_memory,
};

/// One failure as ranks tell it each other: trivially copyable, without pointers.
struct failure {
  errc cause{};               ///< zero: no failure
  std::int32_t system = 0;    ///< errno of the refused call, or 0
  std::int32_t rank = -1;     ///< the first failing rank, or -1 where it is the caller itself
  fixed_text<180> subject{};  ///< what was refused, in words with numbers
  fixed_text<180> remedy{};   ///< what the user can do; empty: the usual remedy of the cause

  [[nodiscard]] bool is_failure() const noexcept { return cause != errc{}; }
};
static_assert(std::is_trivially_copyable_v<failure>);

namespace detail {

struct wording {
  std::string_view cause;
  std::string_view remedy;
};

constexpr wording words_for(errc cause) noexcept {
  switch (cause) {
    case errc::invalid_argument:
      return {"invalid argument", "correct the call"};
    case errc::size_overflow:
      return {"size too large", "ask for less"};
    case errc::mismatch:
      return {"the ranks' arguments differ", "pass the same on every rank"};
    case errc::empty:
      return {"empty object", "construct it first, and do not use it after moving from it"};
    case errc::out_of_memory:
      return {"out of memory", "ask for less, or free memory on this machine"};
    case errc::no_space:
      return {
          "no space in the shared-memory file system",
          "enlarge it (mount -o remount,size=…), remove files from it, or take anonymous memory "
          "instead (KUPL_SHM_TYPE=sls, shm::sls_policy)"};
    case errc::limit_reached:
      return {"limit reached", "raise the limit (ulimit -a)"};
    case errc::permission_denied:
      return {"permission denied", "run all ranks as the same user, and check the permissions"};
    case errc::unsupported:
      return {"not supported here", "choose another backend (KUPL_SHM_TYPE)"};
    case errc::bootstrap_failed:
      return {"the bootstrap failed",
              "see what the bootstrap itself reports; it must gather equal blocks of bytes, in the "
              "order of the ranks"};
    case errc::not_shareable:
      return {"ranks cannot share memory",
              "split the communicator by machine first (shm::mpi_oob::node_of, or "
              "MPI_Comm_split_type); "
              "on one machine run all ranks as one user, or in one PID or network namespace"};
    case errc::rank_failed:
      return {"a rank's function failed", "see the rank's own error"};
    case errc::peer_lost:
      return {"the rank died", "see how it ended; the others can go on in a new group"};
    case errc::peer_left:
      return {"the rank has destroyed its end while others still wait for it",
              "keep it until all ranks are done, or wrap what may throw in group.agree"};
    case errc::ranks_failed:
      return {"ranks failed", "see each rank's own error"};
    case errc::system_failure:
      return {"system call refused", "see the system's documentation of the call"};
  }
  return {"unknown cause", "report it"};
}

constexpr std::string_view words_for(operation where) noexcept {
  switch (where) {
    case operation::create_communicator:
      return "creating a communicator";
    case operation::agree:
      return "agreeing";
    case operation::allgather:
      return "gathering from all";
    case operation::barrier:
      return "barrier";
    case operation::split:
      return "splitting a group";
    case operation::create_window:
      return "creating a window";
    case operation::use_window:
      return "using a window";
    case operation::fence:
      return "fence";
    case operation::fence_peers:
      return "fence with peers";
    case operation::post:
      return "posting";
    case operation::wait:
      return "waiting for a post";
    case operation::fork_ranks:
      return "forking ranks";
    case operation::allreduce:
      return "allreduce";
    case operation::bcast:
      return "bcast";
    case operation::alltoall:
      return "alltoall";
    case operation::reduce_scatter:
      return "reduce_scatter";
    case operation::attach_memory:
      return "attaching memory";
    case operation::none:
      break;
  }
  return "";
}

class category final : public std::error_category {
 public:
  [[nodiscard]] char const* name() const noexcept override { return "shm"; }
  [[nodiscard]] std::string message(int value) const override {
    return std::string(words_for(static_cast<errc>(value)).cause);
  }
};

}  // namespace detail

/// The category of the library's error codes.
inline std::error_category const& error_category() noexcept {
  static detail::category const category;
  return category;
}

/// Makes `errc` comparable with `std::error_code`.
inline std::error_code make_error_code(errc cause) noexcept {
  return {static_cast<int>(cause), error_category()};
}

/// Where an error arose, in the words of its message.
struct error_context {
  operation where = operation::none;
  int size = 0;             ///< ranks of the group, 0 where there is none
  bool agreed = false;      ///< every rank of the group gets this same error
  std::uint64_t group = 0;  ///< where agreed: a number that tells the group from others
};

/// The library's exception. Its message is one line:
/// `shm: rank r of n: operation: cause: subject (errno in words); remedy`.
class error : public std::system_error {
 public:
  explicit error(failure const& what, error_context const& context = {})
      : std::system_error(make_error_code(what.cause)),
        failure_(what),
        where_(context.where),
        agreed_(context.agreed),
        group_(context.group) {
    compose(context);
  }

  [[nodiscard]] char const* what() const noexcept override { return text_.c_str(); }
  /// The first failing rank, or -1 where the error is not tied to a rank.
  [[nodiscard]] int rank() const noexcept { return failure_.rank; }
  /// The operation that failed.
  [[nodiscard]] operation where() const noexcept { return where_; }
  /// Whether every rank of the group got this same error.
  [[nodiscard]] bool is_agreed() const noexcept { return agreed_; }
  /// Whether every rank of the group with this number got this same error.
  [[nodiscard]] bool is_agreed_in(std::uint64_t group) const noexcept {
    return agreed_ && group_ == group;
  }
  /// The failure without the words around it, as ranks tell it each other.
  [[nodiscard]] failure const& details() const noexcept { return failure_; }

 private:
  void compose(error_context const& context) {
    auto const [cause, usual_remedy] = detail::words_for(failure_.cause);
    text_.append("shm: ");
    if (failure_.rank >= 0) {
      text_.append("rank " + std::to_string(failure_.rank));
      if (context.size > 0) text_.append(" of " + std::to_string(context.size));
      text_.append(": ");
    }
    if (context.where != operation::none) {
      text_.append(detail::words_for(context.where));
      text_.append(": ");
    }
    text_.append(cause);
    if (!failure_.subject.is_empty()) {
      text_.append(": ");
      text_.append(failure_.subject.view());
    }
    if (failure_.system != 0) {
      text_.append(" (" + std::generic_category().message(failure_.system) + ")");
    }
    text_.append("; ");
    text_.append(failure_.remedy.is_empty() ? usual_remedy : failure_.remedy.view());
    text_.make_one_line();
  }

  failure failure_;
  operation where_;
  bool agreed_;
  std::uint64_t group_;
  fixed_text<640> text_;  // in the object, so that copies cannot throw
};

namespace detail {

/// The text of an exception, which one that is not well made may lack.
inline std::string_view text_of(std::exception const& e) noexcept {
  char const* const text = e.what();
  return text == nullptr ? "an exception without a text" : text;
}

}  // namespace detail

/// Returns the exception that is being handled as ranks tell it each other; `otherwise` is the
/// cause of one that is no `shm::error`.
inline failure failure_of_exception(errc otherwise) noexcept {
  try {
    throw;
  } catch (error const& e) {
    auto found = e.details();
    if (!found.is_failure()) found.cause = otherwise;
    return found;
  } catch (std::bad_alloc const& e) {
    return {.cause = errc::out_of_memory, .subject = detail::text_of(e)};
  } catch (std::exception const& e) {
    return {.cause = otherwise, .subject = detail::text_of(e)};
  } catch (...) {
    return {.cause = otherwise, .subject = "an exception that is not a std::exception"};
  }
}

}  // namespace shm::inline v1

template <>
struct std::is_error_code_enum<shm::errc> : std::true_type {};
