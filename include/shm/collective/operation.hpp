#pragma once
/// @file What reductions combine elements with.

#include <concepts>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "shm/base/hash.hpp"
#include "shm/window.hpp"

namespace shm::inline v1 {

/// A function object that combines two elements. It must be associative and commutative up to
/// rounding, the same on every rank, must not throw, and have no effects: the library applies it in
/// rank order, on whichever rank it likes, to some elements before others. Ranks compare the types
/// of their operations by name, in which lambdas of one function may be alike.
template <class Op, class T>
concept reduction = shareable<T> && std::copy_constructible<Op> &&
                    requires(Op const& combine, T const& a, T const& b) {
                      { combine(a, b) } -> std::convertible_to<T>;
                    };

namespace detail {

/// An integer as a type in which arithmetic wraps around; anything else as it is.
template <class T>
constexpr auto wrapping(T value) noexcept {
  if constexpr (std::integral<T> && !std::same_as<T, bool>) {
    return static_cast<std::common_type_t<std::make_unsigned_t<T>, unsigned>>(value);
  } else {
    return value;
  }
}

/// Returns a number that differs between types of different names, and is the same in every process
/// that runs the same program.
template <class... Types>
consteval std::uint64_t type_signature() noexcept {
  sequence_hash hash;
  hash.add_each(std::string_view{__PRETTY_FUNCTION__});
  return hash.value();
}

}  // namespace detail

/// The operations of reductions. Sums and products of integers wrap around.
namespace op {

struct sum {
  template <class T>
    requires requires(T a, T b) { a + b; }
  constexpr T operator()(T const& a, T const& b) const {
    return static_cast<T>(detail::wrapping(a) + detail::wrapping(b));
  }
};

struct product {
  template <class T>
    requires requires(T a, T b) { a* b; }
  constexpr T operator()(T const& a, T const& b) const {
    return static_cast<T>(detail::wrapping(a) * detail::wrapping(b));
  }
};

/// Of a number and a NaN, takes the one of the lower rank.
struct min {
  template <std::totally_ordered T>
  constexpr T operator()(T const& a, T const& b) const {
    return b < a ? b : a;
  }
};

/// As `min`.
struct max {
  template <std::totally_ordered T>
  constexpr T operator()(T const& a, T const& b) const {
    return a < b ? b : a;
  }
};

struct bit_and {
  template <std::integral T>
  constexpr T operator()(T const& a, T const& b) const {
    return static_cast<T>(a & b);
  }
};

struct bit_or {
  template <std::integral T>
  constexpr T operator()(T const& a, T const& b) const {
    return static_cast<T>(a | b);
  }
};

struct bit_xor {
  template <std::integral T>
  constexpr T operator()(T const& a, T const& b) const {
    return static_cast<T>(a ^ b);
  }
};

}  // namespace op

}  // namespace shm::inline v1
