#pragma once
/// @file Arithmetic on sizes in bytes, checked for overflow, and their form in messages.

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>

namespace shm::inline v1 {

/// Distance in bytes that keeps two words from sharing a cache line on any supported machine: the
/// largest line (128 bytes on some Arm processors), and a pair of lines that x86 prefetches
/// together. A constant, since the layout of shared memory must not depend on compiler options.
inline constexpr std::size_t line_bytes = 128;

/// Returns a + b, or nothing where the sum does not fit.
constexpr std::optional<std::size_t> checked_add(std::size_t a, std::size_t b) noexcept {
  std::size_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum)) return std::nullopt;
  return sum;
}

/// Returns a * b, or nothing where the product does not fit.
constexpr std::optional<std::size_t> checked_multiply(std::size_t a, std::size_t b) noexcept {
  std::size_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) return std::nullopt;
  return product;
}

/// Returns the largest multiple of `unit`, a power of two, that is not above `bytes`.
constexpr std::size_t round_down(std::size_t bytes, std::size_t unit) noexcept {
  return bytes & ~(unit - 1);
}

/// Returns the smallest multiple of `unit`, a power of two, that is not below `bytes`; nothing
/// where that does not fit.
constexpr std::optional<std::size_t> round_up(std::size_t bytes, std::size_t unit) noexcept {
  auto const sum = checked_add(bytes, unit - 1);
  if (!sum) return std::nullopt;
  return round_down(*sum, unit);
}

/// Whether `a` comes at or after `b` in a sequence of counters that wraps around. Right as long as
/// the two are less than 2^31 steps apart.
constexpr bool reached(std::uint32_t a, std::uint32_t b) noexcept {
  return static_cast<std::int32_t>(a - b) >= 0;
}

/// Returns a size in words, to six digits: "4097 bytes", "16 MiB", "40.0039 MiB".
inline std::string bytes_in_words(std::uint64_t bytes) {
  constexpr std::uint64_t unit = 1024;
  constexpr char const* names[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (bytes < unit || (bytes < 100 * unit && bytes % unit != 0)) {
    return std::to_string(bytes) + (bytes == 1 ? " byte" : " bytes");
  }
  std::size_t name = 0;
  auto value = static_cast<double>(bytes) / static_cast<double>(unit);
  for (; value >= static_cast<double>(unit); ++name) value /= static_cast<double>(unit);
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.6g %s", value, names[name]);
  return text.data();
}

}  // namespace shm::inline v1
