#pragma once
/// @file The C interface over the library: translates, and keeps the set of live handles. Included
/// by the one translation unit of libkupl_shm, and by nothing else.

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
#include "shm/c/attach.hpp"
#include "shm/c/handles.hpp"
#include "shm/communicator.hpp"
#include "shm/error.hpp"
#include "shm/group.hpp"
#include "shm/oob/callback.hpp"
#include "shm/options.hpp"
#include "shm/policy/runtime.hpp"
#include "shm/window.hpp"
#include "shm/window/creation.hpp"

struct kupl_shm_comm {
  shm::group ranks = {};
};

struct kupl_shm_win {
  kupl_shm_comm* comm;
  shm::detail::untyped_window memory = {};
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

}  // namespace shm::inline v1::c

extern "C" {

int kupl_shm_comm_create(int size, int rank, int pid, kupl_shm_oob_cb_h cbs, void* group,
                         kupl_shm_comm_h* comm) {
  if (comm == nullptr) return shm::c::refuse(__func__, "comm is NULL");
  *comm = nullptr;
  if (size <= 0 || size > shm::c::most_ranks) {
    return shm::c::refuse(__func__, "size is " + std::to_string(size) + ", and must be 1 to " +
                                        std::to_string(shm::c::most_ranks));
  }
  if (rank < 0 || rank >= size) {
    return shm::c::refuse(__func__, "rank is " + std::to_string(rank) + ", and must be 0 to " +
                                        std::to_string(size - 1));
  }
  auto const refuse = [rank, size, function = __func__](std::string const& what) {
    return shm::c::refuse(function, what, rank, size);
  };
  if (pid < 0) return refuse("pid is " + std::to_string(pid) + ", and must not be negative");
  if (cbs == nullptr) return refuse("cbs is NULL");
  if (cbs->oob_allgather == nullptr) return refuse("oob_allgather is NULL");
  if (cbs->oob_barrier == nullptr) return refuse("oob_barrier is NULL");
  if (group == nullptr) return refuse("group is NULL");
  // Without a communicator there is no shared word to say who has told of a missing rank.
  auto const is_first = [] { return true; };
  return shm::c::guarded(
      __func__, rank,
      [&] {
        auto made = std::make_unique<kupl_shm_comm>();
        auto oob = shm::c::bootstrap(size, rank, *cbs, group);
        made->ranks = shm::communicator(oob);
        *comm = shm::c::communicators().add(std::move(made));
      },
      is_first);
}

int kupl_shm_comm_destroy(kupl_shm_comm_h comm) {
  if (comm == nullptr) return shm::c::refuse(__func__, "comm is NULL");
  bool const was_live = shm::c::communicators().remove(comm, [comm](kupl_shm_comm& object) {
    shm::c::windows().remove_if([comm](kupl_shm_win const& win) { return win.comm == comm; },
                                shm::c::end_window);
    object.ranks = {};
  });
  return was_live ? KUPL_OK : shm::c::refuse(__func__, "comm is no live communicator");
}

int kupl_shm_comm_rank(kupl_shm_comm_h comm, int* rank) {
  if (!shm::c::require_live(__func__, comm)) return KUPL_ERROR;
  if (rank == nullptr) {
    return shm::c::refuse(__func__, "rank is NULL", comm->ranks.rank(), comm->ranks.size());
  }
  *rank = comm->ranks.rank();
  return KUPL_OK;
}

int kupl_shm_comm_size(kupl_shm_comm_h comm, int* size) {
  if (!shm::c::require_live(__func__, comm)) return KUPL_ERROR;
  if (size == nullptr) {
    return shm::c::refuse(__func__, "size is NULL", comm->ranks.rank(), comm->ranks.size());
  }
  *size = comm->ranks.size();
  return KUPL_OK;
}

int kupl_shm_win_alloc(size_t size, kupl_shm_comm_h comm, void** baseptr, kupl_shm_win_h* win) {
  if (!shm::c::require_live(__func__, comm)) return KUPL_ERROR;
  if (baseptr != nullptr) *baseptr = nullptr;
  if (win != nullptr) *win = nullptr;
  // The other ranks are in this call too, so whatever fails on this rank is voted.
  kupl_shm_win* handle = nullptr;
  // Programs copied from the documentation read rank 0's block after this call without a fence.
  shm::detail::segment_wish wish{
      .block_bytes = size, .has_equal_blocks = true, .has_head_start = true};
  // relaxed: it orders nothing, and a call of another thread comes before or after this one
  wish.options.layout = shm::c::chosen_layout().load(std::memory_order_relaxed);
  try {
    // Everything that allocates comes before the window: rank 0 leaves without a system call.
    handle = shm::c::windows().add(std::make_unique<kupl_shm_win>(kupl_shm_win{.comm = comm}));
    wish.cause = shm::c::null_result(__func__, baseptr, win);
  } catch (...) {
    wish.cause = shm::failure_of_exception(shm::errc::out_of_memory);
  }
  auto& state = *comm->ranks.state();
  auto const result = shm::c::guarded(
      __func__, state.rank(),
      [&] {
        shm::runtime_policy const policy;
        auto made =
            shm::detail::untyped_window::create(comm->ranks, {policy, state.settings()}, wish);
        handle->memory = std::move(made);
        *baseptr = handle->memory.local().data();
        *win = handle;
      },
      [&] { return state.is_first_to_tell(); });
  if (result != KUPL_OK) shm::c::windows().remove(handle, shm::c::end_window);
  return result;
}

int kupl_shm_win_query(kupl_shm_win_h win, int remote_rank, void** baseptr) {
  if (win == nullptr) return shm::c::refuse(__func__, "win is NULL");
  if (baseptr == nullptr) {
    return shm::c::refuse(__func__, "baseptr is NULL", win->memory.rank(), win->memory.size());
  }
  if (remote_rank < 0 || remote_rank >= win->memory.size()) {
    return shm::c::refuse_rank(__func__, *win, remote_rank);
  }
  *baseptr = win->memory.block(remote_rank).data();
  return KUPL_OK;
}

int kupl_shm_win_free(kupl_shm_win_h win) {
  if (win == nullptr) return shm::c::refuse(__func__, "win is NULL");
  bool const was_live = shm::c::windows().remove(win, shm::c::end_window);
  return was_live ? KUPL_OK : shm::c::refuse(__func__, "win is no live window");
}

int kupl_shm_fence(kupl_shm_win_h win) {
  if (win == nullptr) return shm::c::refuse(__func__, "win is NULL");
  return shm::c::fence_guarded(__func__, *win, [](auto& segment) { segment.fence(); });
}

int kupl_shm_peer_fence(kupl_shm_win_h win, int remote_rank) {
  if (win == nullptr) return shm::c::refuse(__func__, "win is NULL");
  if (remote_rank < 0 || remote_rank >= win->memory.size()) {
    return shm::c::refuse_rank(__func__, *win, remote_rank);
  }
  return shm::c::fence_guarded(
      __func__, *win, [remote_rank](auto& segment) { segment.fence(std::span(&remote_rank, 1)); });
}

int kupl_shm_info_set(kupl_info_flag_t flag, int value) {
  if (auto const number = static_cast<int>(flag); number != KUPL_SHM_INFO_IS_CONTIG) {
    return shm::c::refuse(
        __func__, "flag is " + std::to_string(number) + ", and must be KUPL_SHM_INFO_IS_CONTIG");
  }
  if (value != 0 && value != 1) {
    return shm::c::refuse(__func__, "value is " + std::to_string(value) + ", and must be 0 or 1");
  }
  auto const chosen = value == 1 ? shm::layout::contiguous : shm::layout::page_aligned;
  shm::c::chosen_layout().store(chosen, std::memory_order_relaxed);  // as for the load
  return KUPL_OK;
}

void* kupl_shm_attach(kupl_shm_addr_t addr, size_t size) {
  void* address = nullptr;
  shm::c::guarded(
      __func__, -1,
      [&, function = __func__] {
        if (auto const fault = shm::c::fault_of(addr, size); !fault.empty()) {
          shm::c::refuse(function, fault);
          return;
        }
        address =
            shm::c::attachments().add({.process = addr.src_pid,
                                       .begin = reinterpret_cast<std::uintptr_t>(addr.src_addr),
                                       .bytes = size});
      },
      [] { return true; });
  return address;
}

void kupl_shm_detach(void* ptr) {
  if (ptr == nullptr) {
    shm::c::refuse(__func__, "ptr is NULL");
  } else if (!shm::c::attachments().remove(ptr)) {
    shm::c::refuse(__func__, "ptr is not attached, or not any more");
  }
}

}  // extern "C"
