#pragma once
/// @file A bootstrap made of any function that gathers.

#include <concepts>
#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

#include "shm/error.hpp"

namespace shm::inline v1 {

/// Bootstraps through `allgather(mine, all)`, a function of the shape that `out_of_band` describes.
/// Where it returns an integer or an enumerator, any but 0 is a failure.
template <std::invocable<std::span<std::byte const>, std::span<std::byte>> Allgather>
class callback_oob {
 public:
  callback_oob(int rank, int size, Allgather gather)
      : rank_(rank), size_(size), allgather_(std::move(gather)) {}

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return size_; }

  /// Errors: errc::bootstrap_failed with the function's return code.
  void allgather(std::span<std::byte const> mine, std::span<std::byte> all) {
    using result = std::invoke_result_t<Allgather&, decltype(mine), decltype(all)>;
    static_assert(std::is_void_v<result> || std::is_enum_v<result> ||
                      (std::integral<result> && !std::same_as<result, bool>),
                  "callback_oob: the function must return void, or 0 where it succeeds; a bool "
                  "would say the reverse");
    if constexpr (!std::is_void_v<result>) {
      if (auto const code = static_cast<long long>(std::invoke(allgather_, mine, all)); code != 0) {
        throw error({.cause = errc::bootstrap_failed,
                     .subject = "the allgather callback returned " + std::to_string(code),
                     .remedy = {}});
      }
    } else {
      std::invoke(allgather_, mine, all);
    }
  }

 private:
  int rank_;
  int size_;
  Allgather allgather_;
};

}  // namespace shm::inline v1
