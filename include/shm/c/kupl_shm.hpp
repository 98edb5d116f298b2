#pragma once
/// @file The C interface over the library: translates, and keeps the set of live handles. Included
/// by the one translation unit of libkupl_shm, and by nothing else.

#include <kupl.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "shm/c/attach.hpp"
#include "shm/c/calls.hpp"
#include "shm/c/requests.hpp"
#include "shm/communicator.hpp"
#include "shm/error.hpp"
#include "shm/options.hpp"
#include "shm/policy/runtime.hpp"
#include "shm/window.hpp"
#include "shm/window/creation.hpp"

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
    shm::c::requests().remove_if(
        [comm](kupl_shm_request const& request) { return request.comm == comm; },
        shm::c::end_request);
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

int kupl_shm_allreduce_init(void const* sendbuf, void* recvbuf, int count,
                            kupl_shm_datatype_t datatype, kupl_shm_reduce_op_t op,
                            kupl_shm_comm_h comm, kupl_shm_request_h* request) {
  return shm::c::init_request(__func__, comm, request, [&](auto& ranks, auto& check) {
    return shm::c::plan_allreduce(ranks, sendbuf, recvbuf, count, datatype, op, check);
  });
}

int kupl_shm_bcast_init(void* buffer, int count, kupl_shm_datatype_t datatype, int root,
                        kupl_shm_comm_h comm, kupl_shm_request_h* request) {
  return shm::c::init_request(__func__, comm, request, [&](auto& ranks, auto& check) {
    return shm::c::plan_bcast(ranks, buffer, count, datatype, root, check);
  });
}

int kupl_shm_alltoall_init(void const* sendbuf, int sendcount, kupl_shm_datatype_t sendtype,
                           void* recvbuf, int recvcount, kupl_shm_datatype_t recvtype,
                           kupl_shm_comm_h comm, kupl_shm_request_h* request) {
  return shm::c::init_request(__func__, comm, request, [&](auto& ranks, auto& check) {
    return shm::c::plan_alltoall(ranks, sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype,
                                 check);
  });
}

int kupl_shm_request_start(kupl_shm_request_h request) {
  if (request == nullptr) return shm::c::refuse(__func__, "request is NULL");
  if (!shm::c::requests().is_live(request)) {
    return shm::c::refuse(__func__, "request is no live request");
  }
  return shm::c::act_guarded(__func__, *request, [](auto& plan) { plan.start(); });
}

int kupl_shm_request_wait(kupl_shm_request_h request) {
  if (request == nullptr) return shm::c::refuse(__func__, "request is NULL");
  if (request->plan == nullptr) return shm::c::refuse(__func__, "request is no live request");
  return shm::c::act_guarded(__func__, *request, [](auto& plan) { plan.wait(); });
}

int kupl_shm_request_free(kupl_shm_request_h request) {
  if (request == nullptr) return shm::c::refuse(__func__, "request is NULL");
  bool const was_live = shm::c::requests().remove(request, shm::c::end_request);
  return was_live ? KUPL_OK : shm::c::refuse(__func__, "request is no live request");
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
