#pragma once
/// @file The persistent collectives of the C interface over plans. Included by c/kupl_shm.hpp.

#include <kupl.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "shm/base/size.hpp"
#include "shm/collective/allreduce.hpp"
#include "shm/collective/alltoall.hpp"
#include "shm/collective/bcast.hpp"
#include "shm/collective/operation.hpp"
#include "shm/collective/plan.hpp"
#include "shm/collective/plan_core.hpp"
#include "shm/error.hpp"
#include "shm/group.hpp"

namespace shm::inline v1::c {

/// Calls `make(T{})` with the type that a datatype stands for; with char for one that is none.
template <class Make>
auto with_type(kupl_shm_datatype_t datatype, Make const& make) {
  switch (datatype) {
    case KUPL_SHM_DATATYPE_INT:
      return make(int{});
    case KUPL_SHM_DATATYPE_LONG:
      return make(long{});
    case KUPL_SHM_DATATYPE_FLOAT:
      return make(float{});
    case KUPL_SHM_DATATYPE_DOUBLE:
      return make(double{});
    case KUPL_SHM_DATATYPE_CHAR:
      break;
  }
  return make(char{});
}

/// Calls `make(op)` with the operation that a number stands for; with the sum for one that is none.
template <class Make>
auto with_operation(kupl_shm_reduce_op_t op, Make const& make) {
  switch (op) {
    case KUPL_SHM_REDUCE_OP_MAX:
      return make(shm::op::max{});
    case KUPL_SHM_REDUCE_OP_MIN:
      return make(shm::op::min{});
    case KUPL_SHM_REDUCE_OP_SUM:
      break;
  }
  return make(shm::op::sum{});
}

/// Collects what is wrong with the arguments of a collective call. It is told to all ranks by the
/// vote, not early: the others are in the call too.
class argument_check {
 public:
  explicit argument_check(std::string_view function) : function_(function) {}

  void require(bool is_good, std::string const& what) {
    if (is_good || cause_.is_failure()) return;
    cause_ = {.cause = errc::invalid_argument,
              .subject = std::string(function_) + ": " + what,
              .remedy = {}};
  }
  void fail(failure const& cause) { cause_ = cause; }
  void require_datatype(std::string const& name, kupl_shm_datatype_t datatype) {
    auto const number = static_cast<long>(datatype);
    require(number >= KUPL_SHM_DATATYPE_CHAR && number <= KUPL_SHM_DATATYPE_DOUBLE,
            name + " is " + std::to_string(number) + ", and datatypes are 0 to " +
                std::to_string(KUPL_SHM_DATATYPE_DOUBLE));
  }
  void require_operation(kupl_shm_reduce_op_t op) {
    auto const number = static_cast<long>(op);
    require(number >= KUPL_SHM_REDUCE_OP_MAX && number <= KUPL_SHM_REDUCE_OP_SUM,
            "op is " + std::to_string(number) + ", and operations are 0 to " +
                std::to_string(KUPL_SHM_REDUCE_OP_SUM));
  }
  void require_count(std::string const& name, int count) {
    require(count >= 0, name + " is " + std::to_string(count) + ", and must not be negative");
  }

  [[nodiscard]] failure const& cause() const noexcept { return cause_; }

  /// Returns `count` elements at `buffer`; none where that is no good.
  template <class T>
  std::span<T> buffer(std::string const& name, void* buffer, int count) {
    require(buffer != nullptr || count <= 0, name + " is NULL");
    require(
        reinterpret_cast<std::uintptr_t>(buffer) % alignof(T) == 0,
        name + " is not aligned to the " + std::to_string(alignof(T)) + " bytes of its datatype");
    if (cause_.is_failure()) return {};
    return {static_cast<T*>(buffer), static_cast<std::size_t>(count)};
  }
  template <class T>
  std::span<T const> buffer(std::string const& name, void const* from, int count) {
    return buffer<T>(name, const_cast<void*>(from), count);
  }

 private:
  std::string_view function_;
  failure cause_;
};

using planned = std::unique_ptr<detail::plan_core>;

/// Makes a plan with a request that the C function's own findings go before.
template <class Work, class MayLie>
planned plan_with(group& ranks, detail::plan_request request, argument_check const& found,
                  MayLie const& may_lie, Work work) {
  if (found.cause().is_failure()) request.cause = found.cause();
  return std::make_unique<detail::working_plan<Work>>(ranks, request, may_lie, std::move(work));
}

inline planned plan_allreduce(group& ranks, void const* sendbuf, void* recvbuf, int count,
                              kupl_shm_datatype_t datatype, kupl_shm_reduce_op_t op,
                              argument_check& check) {
  check.require_count("count", count);
  check.require_datatype("datatype", datatype);
  check.require_operation(op);
  return with_type(datatype, [&]<class T>(T) {
    return with_operation(op, [&]<class Op>(Op combine) {
      auto const send = check.buffer<T>("sendbuf", sendbuf, count);
      auto const receive = check.buffer<T>("recvbuf", recvbuf, count);
      return plan_with(ranks, detail::allreduce_request<T, Op>(ranks, send, receive), check,
                       detail::failure_of_allreduce,
                       detail::allreduce_work<T, Op>{.count = send.size(), .op = combine});
    });
  });
}

inline planned plan_bcast(group& ranks, void* buffer, int count, kupl_shm_datatype_t datatype,
                          int root, argument_check& check) {
  check.require_count("count", count);
  check.require_datatype("datatype", datatype);
  return with_type(datatype, [&]<class T>(T) {
    auto const data = check.buffer<T>("buffer", buffer, count);
    return plan_with(ranks, detail::bcast_request<T>(ranks, data, root), check,
                     detail::failure_of_bcast,
                     detail::bcast_work{.bytes = data.size_bytes(), .root = root});
  });
}

inline planned plan_alltoall(group& ranks, void const* sendbuf, int sendcount,
                             kupl_shm_datatype_t sendtype, void* recvbuf, int recvcount,
                             kupl_shm_datatype_t recvtype, argument_check& check) {
  check.require_count("sendcount", sendcount);
  check.require_count("recvcount", recvcount);
  check.require_datatype("sendtype", sendtype);
  check.require_datatype("recvtype", recvtype);
  check.require(sendtype == recvtype, "sendtype and recvtype differ");
  check.require(sendcount == recvcount, "sendcount and recvcount differ");
  return with_type(sendtype, [&]<class T>(T) {
    auto const whole = [&](auto block) {  // one block for each rank
      auto const n = block.size() * static_cast<std::size_t>(ranks.size());
      return decltype(block)(block.data(), n);
    };
    auto const send = check.buffer<T>("sendbuf", sendbuf, sendcount);
    auto const receive = check.buffer<T>("recvbuf", recvbuf, recvcount);
    return plan_with(ranks, detail::alltoall_request<T>(ranks, whole(send), whole(receive)), check,
                     detail::failure_of_alltoall,
                     detail::alltoall_work{.block_bytes = send.size_bytes()});
  });
}

}  // namespace shm::inline v1::c
