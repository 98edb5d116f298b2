#pragma once
/// @file The loops of collectives: combining elements of several ranks, and copying them.

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>

#include "shm/base/size.hpp"

namespace shm::inline v1::detail {

/// From this size in bytes on, what one rank writes in one step goes past its caches.
inline constexpr std::size_t stream_bytes = std::size_t{4} << 20;

/// Copies bytes that do not overlap. `is_streamed`: with stores that go past the caches, which
/// neither read the lines that they fill nor displace others.
inline void copy_bytes(std::byte* to, std::byte const* from, std::size_t bytes,
                       [[maybe_unused]] bool is_streamed) noexcept {
  if (bytes == 0 || to == from) return;
#if defined(__x86_64__)
  if (is_streamed) {
    auto const before = std::min(bytes, -reinterpret_cast<std::uintptr_t>(to) % sizeof(__m128i));
    std::memcpy(to, from, before);
    std::size_t at = before;
    for (; at + 4 * sizeof(__m128i) <= bytes; at += 4 * sizeof(__m128i)) {
      auto const* const source = reinterpret_cast<__m128i const*>(from + at);
      auto* const target = reinterpret_cast<__m128i*>(to + at);
      auto const a = _mm_loadu_si128(source);
      auto const b = _mm_loadu_si128(source + 1);
      auto const c = _mm_loadu_si128(source + 2);
      auto const d = _mm_loadu_si128(source + 3);
      _mm_stream_si128(target, a);
      _mm_stream_si128(target + 1, b);
      _mm_stream_si128(target + 2, c);
      _mm_stream_si128(target + 3, d);
    }
    std::memcpy(to + at, from + at, bytes - at);
    return;
  }
#endif
  std::memcpy(to, from, bytes);
}

/// Makes streamed stores visible as others are: before the release that announces them.
inline void end_streaming() noexcept {
#if defined(__x86_64__)
  _mm_sfence();
#endif
}

/// Copies what one rank moves in one operation.
inline void copy_block(std::byte* to, std::byte const* from, std::size_t bytes) noexcept {
  bool const is_streamed = bytes >= stream_bytes;
  copy_bytes(to, from, bytes, is_streamed);
  if (is_streamed) end_streaming();
}

/// One rank's part of `count` elements that are divided among ranks: whole lines, as evenly as that
/// goes.
struct slice {
  std::size_t begin = 0;
  std::size_t count = 0;

  static constexpr slice of(std::size_t count, std::size_t element_bytes, int rank,
                            int ranks) noexcept {
    auto const unit = std::max<std::size_t>(line_bytes / element_bytes, 1);
    auto const units = count / unit + (count % unit != 0 ? 1 : 0);
    auto const r = static_cast<std::size_t>(rank);
    auto const n = static_cast<std::size_t>(ranks);
    auto const most = units % n;  // so many ranks have a unit more
    auto const first = r * (units / n) + std::min(r, most);
    auto const own = units / n + (r < most ? 1 : 0);
    slice result{.begin = std::min(first * unit, count)};
    result.count = std::min(own * unit, count - result.begin);
    return result;
  }
};

/// Elements of one pass of the loops below: a constant, which lets compilers use vectors without
/// asking for more than -O2.
template <class T>
inline constexpr std::size_t pass = std::max<std::size_t>(256 / sizeof(T), 1);

/// Alignment of each pass over the sums.
template <class T>
inline constexpr std::size_t sums_alignment =
    std::has_single_bit(sizeof(T)) && sizeof(T) <= 64 ? std::max<std::size_t>(64, alignof(T))
                                                      : alignof(T);

/// Writes a[i] op b[i] to `sums`, which overlaps neither. [n] elements each
template <class T, class Op>
void combine_two(T* __restrict sums, T const* __restrict a, T const* __restrict b, std::size_t n,
                 Op const& op) {
  std::size_t at = 0;
  for (; at + pass<T> <= n; at += pass<T>) {
    T* const to = std::assume_aligned<sums_alignment<T>>(sums + at);
    for (std::size_t i = 0; i < pass<T>; ++i) std::construct_at(to + i, op(a[at + i], b[at + i]));
  }
  for (; at < n; ++at) std::construct_at(sums + at, op(a[at], b[at]));
}

/// Writes sums[i] op next[i] to `sums`, which `next` does not overlap. [n] elements each
template <class T, class Op>
void combine_next(T* __restrict sums, T const* __restrict next, std::size_t n, Op const& op) {
  std::size_t at = 0;
  for (; at + pass<T> <= n; at += pass<T>) {
    T* const to = std::assume_aligned<sums_alignment<T>>(sums + at);
    for (std::size_t i = 0; i < pass<T>; ++i) std::construct_at(to + i, op(to[i], next[at + i]));
  }
  for (; at < n; ++at) std::construct_at(sums + at, op(sums[at], next[at]));
}

/// Combines elements of several ranks in rank order, ((x0 op x1) op x2) …, and writes the results.
///
/// Shapes:   in [ranks] and out [any number] begin at arrays of T, of which `part` is taken.
/// Requires: an array of `out` is one of `in`, or overlaps none; all are aligned for T.
/// Cost:     each element is loaded and stored once, as far as memory beyond the first-level cache
///           is concerned.
template <class T, class Op>
void combine(std::span<std::byte* const> in, std::span<std::byte* const> out, slice part,
             Op const& op) {
  static_assert(
      sizeof(T) <= 64 * 1024,
      "reductions keep results of a piece on the stack: combine elements of up to 64 KiB");
  auto const source = [&](std::size_t r, std::size_t at) {
    return reinterpret_cast<T const*>(in[r]) + part.begin + at;
  };
  bool const is_streamed = part.count * sizeof(T) * out.size() >= stream_bytes;
  // Whole results of a piece lie here before any is written, since `out` may be one of `in`.
  constexpr std::size_t piece = std::max<std::size_t>(4096 / sizeof(T), 1);
  alignas(std::max<std::size_t>(alignof(T), 64)) std::byte storage[piece * sizeof(T)];
  auto* const sums = reinterpret_cast<T*>(storage);
  for (std::size_t at = 0; at < part.count; at += piece) {
    auto const n = std::min(piece, part.count - at);
    T const* result = source(0, at);
    if (in.size() > 1) {
      combine_two(sums, result, source(1, at), n, op);
      result = sums;
    }
    for (std::size_t r = 2; r < in.size(); ++r) combine_next(sums, source(r, at), n, op);
    for (std::byte* const to : out) {
      copy_bytes(to + (part.begin + at) * sizeof(T), reinterpret_cast<std::byte const*>(result),
                 n * sizeof(T), is_streamed);
    }
  }
  if (is_streamed) end_streaming();
}

}  // namespace shm::inline v1::detail
