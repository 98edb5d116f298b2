#pragma once
/// @file The C interface over the library: translates, and keeps the set of live handles. Included
/// by the one translation unit of libkupl_shm, and by nothing else.

#include <kupl.h>

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "shm/c/handles.hpp"
#include "shm/communicator.hpp"
#include "shm/error.hpp"
#include "shm/group.hpp"
#include "shm/oob/callback.hpp"
#include "shm/policy/runtime.hpp"
#include "shm/window.hpp"
#include "shm/window/creation.hpp"

struct kupl_shm_comm {
  shm::group ranks;
  std::unordered_set<kupl_shm_win*> windows = {};  ///< live ones; freed with the communicator
};

struct kupl_shm_win {
  kupl_shm_comm* comm;
  shm::detail::untyped_window memory = {};
};

namespace shm::inline v1::c {

/// Programs copied from the documentation read rank 0's block after win_alloc without a fence. With
/// more runnable processes than processors rank 0 can lose its processor on its way out: with one
/// yield of the others, 6 of 1200 such programs went wrong under a load of 10 on 2 processors; with
/// this, none.
inline constexpr std::chrono::microseconds head_start{50};

inline handle_set<kupl_shm_comm>& communicators() {
  static auto* const all = new handle_set<kupl_shm_comm>;  // outlives every static destructor
  return *all;
}

inline handle_set<kupl_shm_win>& windows() {
  static auto* const all = new handle_set<kupl_shm_win>;
  return *all;
}

/// Prints one line on standard error; returns KUPL_ERROR.
inline int fail(std::string_view line) {
  std::string text(line);
  text.push_back('\n');
  std::fwrite(text.data(), 1, text.size(), stderr);
  return KUPL_ERROR;
}

/// Refuses an argument of the C function `function`.
[[gnu::cold]] inline int refuse(char const* function, char const* argument, char const* what) {
  return fail(std::string("shm: ") + function + ": " + argument + ": " + what);
}

/// Whether this rank is the one that prints an agreed error: the failing rank, or where that rank
/// cannot, the lowest other one.
inline bool is_speaker(error const& e, int rank) {
  if (!e.is_agreed() || e.rank() < 0) return true;
  auto const cause = e.details().cause;
  if (cause != errc::peer_lost && cause != errc::peer_left) return e.rank() == rank;
  return rank == (e.rank() == 0 ? 1 : 0);
}

/// Runs `f` for the C function `function`; turns what it throws into KUPL_ERROR and a line.
template <class F>
int guarded(char const* function, int rank, F const& f) noexcept {
  try {
    f();
    return KUPL_OK;
  } catch (error const& e) {
    if (!is_speaker(e, rank)) return KUPL_ERROR;
    std::string_view text = e.what();
    text.remove_prefix(std::string_view("shm: ").size());
    return fail("shm: " + std::string(function) + ": " + std::string(text));
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
inline failure null_result(void** baseptr, kupl_shm_win_h* win) {
  if (baseptr != nullptr && win != nullptr) return {};
  return {.cause = errc::invalid_argument,
          .subject = std::string_view(baseptr == nullptr ? "baseptr is NULL" : "win is NULL"),
          .remedy = "pass the address of a variable"};
}

/// Ends a window's handle; the window has been taken out of its communicator's list already.
inline void end_window(kupl_shm_win* win) {
  windows().remove(win, [](kupl_shm_win& object) { object.memory = {}; });
}

}  // namespace shm::inline v1::c

extern "C" {

int kupl_shm_comm_create(int size, int rank, int pid, kupl_shm_oob_cb_h cbs, void* group,
                         kupl_shm_comm_h* comm) {
  if (comm == nullptr) return shm::c::refuse(__func__, "comm", "is NULL");
  *comm = nullptr;
  if (size <= 0) return shm::c::refuse(__func__, "size", "must be 1 or more");
  if (rank < 0 || rank >= size) return shm::c::refuse(__func__, "rank", "must be 0 to size - 1");
  if (pid < 0) return shm::c::refuse(__func__, "pid", "must not be negative");
  if (cbs == nullptr) return shm::c::refuse(__func__, "cbs", "is NULL");
  if (cbs->oob_allgather == nullptr) return shm::c::refuse(__func__, "oob_allgather", "is NULL");
  if (cbs->oob_barrier == nullptr) return shm::c::refuse(__func__, "oob_barrier", "is NULL");
  if (group == nullptr) return shm::c::refuse(__func__, "group", "is NULL");
  return shm::c::guarded(__func__, rank, [&] {
    auto oob = shm::c::bootstrap(size, rank, *cbs, group);
    shm::communicator made(oob);
    *comm = shm::c::communicators().add(
        std::make_unique<kupl_shm_comm>(kupl_shm_comm{.ranks = std::move(made)}));
  });
}

int kupl_shm_comm_destroy(kupl_shm_comm_h comm) {
  if (comm == nullptr) return shm::c::refuse(__func__, "comm", "is NULL");
  bool const was_live = shm::c::communicators().remove(comm, [](kupl_shm_comm& object) {
    for (auto* const win : std::exchange(object.windows, {})) shm::c::end_window(win);
    object.ranks = {};
  });
  return was_live ? KUPL_OK : shm::c::refuse(__func__, "comm", "is no live communicator");
}

int kupl_shm_comm_rank(kupl_shm_comm_h comm, int* rank) {
  if (comm == nullptr) return shm::c::refuse(__func__, "comm", "is NULL");
  if (rank == nullptr) return shm::c::refuse(__func__, "rank", "is NULL");
  if (!shm::c::communicators().is_live(comm)) {
    return shm::c::refuse(__func__, "comm", "is no live communicator");
  }
  *rank = comm->ranks.rank();
  return KUPL_OK;
}

int kupl_shm_comm_size(kupl_shm_comm_h comm, int* size) {
  if (comm == nullptr) return shm::c::refuse(__func__, "comm", "is NULL");
  if (size == nullptr) return shm::c::refuse(__func__, "size", "is NULL");
  if (!shm::c::communicators().is_live(comm)) {
    return shm::c::refuse(__func__, "comm", "is no live communicator");
  }
  *size = comm->ranks.size();
  return KUPL_OK;
}

int kupl_shm_win_alloc(size_t size, kupl_shm_comm_h comm, void** baseptr, kupl_shm_win_h* win) {
  // The other ranks are in this call too, so arguments are voted on wherever this rank can vote.
  if (comm == nullptr) return shm::c::refuse(__func__, "comm", "is NULL");
  if (!shm::c::communicators().is_live(comm)) {
    return shm::c::refuse(__func__, "comm", "is no live communicator");
  }
  if (baseptr != nullptr) *baseptr = nullptr;
  if (win != nullptr) *win = nullptr;
  return shm::c::guarded(__func__, comm->ranks.rank(), [&] {
    // Everything that allocates comes before the window: rank 0 leaves without a system call.
    kupl_shm_win* handle = nullptr;
    shm::detail::segment_wish wish{
        .block_bytes = size, .has_equal_blocks = true, .head_start = shm::c::head_start};
    try {
      handle = shm::c::windows().add(std::make_unique<kupl_shm_win>(kupl_shm_win{.comm = comm}));
      comm->windows.insert(handle);
      wish.cause = shm::c::null_result(baseptr, win);
    } catch (std::exception const& e) {
      wish.cause = {.cause = shm::errc::out_of_memory, .subject = std::string_view(e.what())};
    }
    try {
      shm::runtime_policy const policy;
      handle->memory = shm::detail::untyped_window::create(
          comm->ranks, {policy, comm->ranks.state()->settings()}, wish);
    } catch (...) {
      comm->windows.erase(handle);
      shm::c::end_window(handle);
      throw;
    }
    *baseptr = handle->memory.local().data();
    *win = handle;
  });
}

int kupl_shm_win_query(kupl_shm_win_h win, int remote_rank, void** baseptr) {
  if (win == nullptr) return shm::c::refuse(__func__, "win", "is NULL");
  if (baseptr == nullptr) return shm::c::refuse(__func__, "baseptr", "is NULL");
  if (remote_rank < 0 || remote_rank >= win->memory.size()) {
    return shm::c::refuse(__func__, "remote_rank", "is no rank of the window");
  }
  *baseptr = win->memory.block(remote_rank).data();
  return KUPL_OK;
}

int kupl_shm_win_free(kupl_shm_win_h win) {
  if (win == nullptr) return shm::c::refuse(__func__, "win", "is NULL");
  if (!shm::c::windows().is_live(win)) return shm::c::refuse(__func__, "win", "is no live window");
  win->comm->windows.erase(win);
  shm::c::end_window(win);
  return KUPL_OK;
}

int kupl_shm_fence(kupl_shm_win_h win) {
  if (win == nullptr) return shm::c::refuse(__func__, "win", "is NULL");
  return shm::c::guarded(__func__, win->memory.rank(),
                         [&] { win->memory.segment_for(shm::operation::fence).fence(); });
}

int kupl_shm_peer_fence(kupl_shm_win_h win, int remote_rank) {
  if (win == nullptr) return shm::c::refuse(__func__, "win", "is NULL");
  if (remote_rank < 0 || remote_rank >= win->memory.size()) {
    return shm::c::refuse(__func__, "remote_rank", "is no rank of the window");
  }
  return shm::c::guarded(__func__, win->memory.rank(), [&] {
    win->memory.segment_for(shm::operation::fence_peers).fence(std::span(&remote_rank, 1));
  });
}

}  // extern "C"
