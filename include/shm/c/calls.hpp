#pragma once
/// @file What the functions of the C interface are made of: the objects behind the handles, and how
/// errors become lines on standard error. Included by c/kupl_shm.hpp.

#include <kupl.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "shm/base/size.hpp"
#include "shm/c/handles.hpp"
#include "shm/c/requests.hpp"
#include "shm/communicator.hpp"
#include "shm/error.hpp"
#include "shm/group.hpp"
#include "shm/oob/callback.hpp"
#include "shm/options.hpp"
#include "shm/window.hpp"

struct kupl_shm_comm {
  shm::group ranks = {};
};

struct kupl_shm_win {
  kupl_shm_comm* comm;
  shm::detail::untyped_window memory = {};
};

struct kupl_shm_request {
  kupl_shm_comm* comm;
  shm::c::planned plan = {};
};

namespace shm::inline v1::c {

/// More ranks than any machine has processors for, and few enough to count their bytes in an int.
inline constexpr int most_ranks = 1'000'000;

inline handle_set<kupl_shm_comm>& communicators() {
  static auto* const all = new handle_set<kupl_shm_comm>;  // outlives every static destructor
  return *all;
}

inline handle_set<kupl_shm_win>& windows() {
  static auto* const all = new handle_set<kupl_shm_win>;
  return *all;
}

inline handle_set<kupl_shm_request>& requests() {
  static auto* const all = new handle_set<kupl_shm_request>;
  return *all;
}

/// The layout of windows to come, chosen for the whole process.
inline std::atomic<layout>& chosen_layout() noexcept {
  static std::atomic<layout> chosen{layout::page_aligned};
  return chosen;
}

/// Prints one line on standard error; returns KUPL_ERROR.
inline int fail(std::string_view line) {
  std::string text(line);
  text.push_back('\n');
  std::fwrite(text.data(), 1, text.size(), stderr);
  return KUPL_ERROR;
}

/// Refuses an argument of the C function `function`: `what` names it, and says what is wrong.
[[gnu::cold]] inline int refuse(char const* function, std::string const& what, int rank = -1,
                                int size = 0) {
  std::string const who =
      rank < 0 ? "" : "rank " + std::to_string(rank) + " of " + std::to_string(size) + ": ";
  return fail("shm: " + who + function + ": invalid argument: " + what + "; correct the call");
}

/// Whether an error says that a rank is missing: no rank that it names can print it.
inline bool is_absence(error const& e) noexcept {
  return e.code() == errc::peer_lost || e.code() == errc::peer_left;
}

/// Runs `f` for the C function `function`; turns what it throws into KUPL_ERROR and its message, in
/// one line. Of an error that all ranks get, the failing rank prints it; of a missing rank, whoever
/// `is_first` says.
template <class F, class First>
int guarded(char const* function, int rank, F const& f, First const& is_first) noexcept {
  try {
    f();
    return KUPL_OK;
  } catch (error const& e) {
    bool const is_mine = !e.is_agreed() || e.rank() < 0 || e.rank() == rank;
    if (is_absence(e) ? !is_first() : !is_mine) return KUPL_ERROR;
    return fail(e.what());
  } catch (std::exception const& e) {
    return fail("shm: " + std::string(function) + ": " + e.what());
  } catch (...) {
    return fail("shm: " + std::string(function) + ": unknown exception of a callback");
  }
}

/// Bootstraps through the callbacks of a C program. Copies both pointers.
inline auto bootstrap(int size, int rank, kupl_shm_oob_cb_t callbacks, void* group) {
  return callback_oob(
      rank, size, [callbacks, group](std::span<std::byte const> mine, std::span<std::byte> all) {
        return callbacks.oob_allgather(mine.data(), all.data(), static_cast<int>(mine.size()),
                                       group, KUPL_SHM_DATATYPE_CHAR);
      });
}

/// Returns the failure of a call without a place for its results, if any.
inline failure null_result(char const* function, void** baseptr, kupl_shm_win_h* win) {
  if (baseptr != nullptr && win != nullptr) return {};
  return {
      .cause = errc::invalid_argument,
      .subject = std::string(function) + (baseptr == nullptr ? ": baseptr" : ": win") + " is NULL",
      .remedy = "pass the address of a variable"};
}

/// Returns whether `comm` is a live communicator; else refuses it for `function`.
inline bool require_live(char const* function, kupl_shm_comm* comm) {
  if (comm != nullptr && communicators().is_live(comm)) return true;
  refuse(function, comm == nullptr ? "comm is NULL" : "comm is no live communicator");
  return false;
}

/// Refuses a rank that a window does not have; or the window, where it has none at all.
[[gnu::cold]] inline int refuse_rank(char const* function, kupl_shm_win const& win, int rank) {
  if (!win.memory.valid()) return refuse(function, "win is no live window");
  return refuse(function,
                "remote_rank is " + std::to_string(rank) + ", and ranks are 0 to " +
                    std::to_string(win.memory.size() - 1),
                win.memory.rank(), win.memory.size());
}

/// Fences with `fence(segment)`.
template <class Fence>
int fence_guarded(char const* function, kupl_shm_win const& win, Fence const& fence) {
  if (!win.memory.valid()) return refuse(function, "win is no live window");
  auto& segment = *win.memory.segment();
  return guarded(
      function, segment.rank(), [&] { fence(segment); },
      [&] { return segment.is_first_to_tell(); });
}

/// Returns what is wrong with the arguments of an attachment; empty where nothing is.
inline std::string fault_of(kupl_shm_addr_t const& addr, std::size_t size) {
  if (addr.src_addr == nullptr) return "src_addr is NULL";
  if (addr.src_pid <= 0) {
    return "src_pid is " + std::to_string(addr.src_pid) + ", and must be that of a process";
  }
  if (size == 0) return "size is 0";
  if (!checked_add(reinterpret_cast<std::uintptr_t>(addr.src_addr), size)) {
    return "size is " + std::to_string(size) + ", which passes the end of the address space";
  }
  return {};
}

inline void end_window(kupl_shm_win& object) noexcept { object.memory = {}; }
inline void end_request(kupl_shm_request& object) noexcept { object.plan.reset(); }

/// Makes a request of `comm` with `make(ranks, check)`, for the C function `function`.
template <class Make>
int init_request(char const* function, kupl_shm_comm* comm, kupl_shm_request_h* request,
                 Make const& make) {
  if (!require_live(function, comm)) return KUPL_ERROR;
  if (request != nullptr) *request = nullptr;
  argument_check check(function);
  check.require(request != nullptr, "request is NULL");
  kupl_shm_request* handle = nullptr;
  try {
    handle = requests().add(std::make_unique<kupl_shm_request>(kupl_shm_request{.comm = comm}));
  } catch (...) {
    check.fail(failure_of_exception(errc::out_of_memory));
  }
  auto& state = *comm->ranks.state();
  auto const result = guarded(
      function, state.rank(),
      [&] {
        handle->plan = make(comm->ranks, check);
        *request = handle;
      },
      [&] { return state.is_first_to_tell(); });
  if (result != KUPL_OK) requests().remove(handle, end_request);
  return result;
}

/// Calls `act(plan)` on the plan of a request.
template <class Act>
int act_guarded(char const* function, kupl_shm_request& request, Act const& act) {
  auto& plan = *request.plan;
  return guarded(
      function, plan.rank(), [&] { act(plan); }, [&] { return plan.is_first_to_tell(); });
}

}  // namespace shm::inline v1::c
