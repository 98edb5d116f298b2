#pragma once
/// @file What a backend must offer: one function that makes one shared object.

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>

#include "shm/base/settings.hpp"
#include "shm/os/mapping.hpp"
#include "shm/os/shared_object.hpp"

namespace shm::inline v1 {

/// What the library asks of a policy.
struct segment_request {
  std::size_t bytes = 0;       ///< size of the object, a multiple of page_bytes
  std::size_t page_bytes = 0;  ///< page size that the window was laid out for
  int attempt = 0;             ///< counts up where the ranks agree that an earlier one failed
  shm::settings settings{};    ///< the group's
};

/// A backend: where a window's memory comes from.
///
/// Required: `name`, a constant text; `create(request)`, run by rank 0 alone, returns an object of
/// `request.bytes` bytes that reads as zero, or throws `shm::error`.
///
/// Optional, each called where it is there:
/// - `place(std::span<std::byte> mine)`: run by every rank on its own block before it is populated.
/// - `attempts()`: how many kinds of memory `create` can try, best first. Where attempt k fails on
///   any rank, all ranks give it up together and try k + 1.
/// - `page_bytes(attempt)`: page size in bytes that attempt comes in; else the base page size.
/// - `name_in(settings)`: the name of what is really taken, where settings decide.
/// - `signature()`: a number that is equal for equal options; else the options' bytes are compared.
template <class Policy>
concept segment_policy =
    std::copy_constructible<Policy> &&
    requires(Policy const& policy, segment_request const& request) {
      typename std::integral_constant<std::size_t, std::string_view{Policy::name}.size()>;
      { policy.create(request) } -> std::same_as<os::shared_object>;
    };

/// Refers to a policy of any type. Does not own it.
class segment_policy_ref {
 public:
  template <segment_policy Policy>
  segment_policy_ref(Policy const& policy, shm::settings const& values)
      : policy_(&policy), name_(Policy::name), signature_(signature_of(policy)) {
    if constexpr (requires { policy.name_in(values); }) {
      static_assert(noexcept(policy.name_in(values)),
                    "a segment policy's name_in must be noexcept");
      name_ = policy.name_in(values);
    }
    if constexpr (requires { policy.attempts(); }) {
      static_assert(noexcept(policy.attempts()), "a segment policy's attempts() must be noexcept");
      attempts_ = policy.attempts();
    }
    if constexpr (requires { policy.page_bytes(0); }) {
      page_bytes_ = [](void const* p, int attempt) -> std::size_t {
        return static_cast<Policy const*>(p)->page_bytes(attempt);
      };
    }
    create_ = [](void const* p, segment_request const& request) {
      return static_cast<Policy const*>(p)->create(request);
    };
    if constexpr (requires(std::span<std::byte> mine) { policy.place(mine); }) {
      place_ = [](void const* p, std::span<std::byte> mine) {
        static_cast<Policy const*>(p)->place(mine);
      };
    }
  }

  [[nodiscard]] std::string_view name() const noexcept { return name_; }
  [[nodiscard]] int attempts() const noexcept { return attempts_; }
  /// A number that is the same for policies of one type with the same options.
  [[nodiscard]] std::uint64_t signature() const noexcept { return signature_; }
  [[nodiscard]] std::size_t page_bytes(int attempt) const {
    return page_bytes_ == nullptr ? os::base_page_bytes() : page_bytes_(policy_, attempt);
  }
  [[nodiscard]] os::shared_object create(segment_request const& request) const {
    return create_(policy_, request);
  }
  void place(std::span<std::byte> mine) const {
    if (place_ != nullptr && !mine.empty()) place_(policy_, mine);
  }

 private:
  /// Source: the FNV-1a hash (Fowler, Noll, Vo), 64 bits.
  static constexpr std::uint64_t mix(std::uint64_t hash, unsigned char byte) noexcept {
    return (hash ^ byte) * 0x100000001b3U;
  }

  template <class Policy>
  static std::uint64_t signature_of(Policy const& policy) noexcept {
    std::uint64_t hash = 0xcbf29ce484222325U;
    for (char const c : std::string_view{Policy::name}) {
      hash = mix(hash, static_cast<unsigned char>(c));
    }
    if constexpr (requires { policy.signature(); }) {
      static_assert(noexcept(policy.signature()),
                    "a segment policy's signature() must be noexcept");
      return hash ^ policy.signature();
    } else if constexpr (!std::is_empty_v<Policy>) {
      static_assert(std::has_unique_object_representations_v<Policy>,
                    "a segment policy with options needs either no padding among them, or a member "
                    "signature(), so that the ranks can compare their options");
      for (auto const byte : std::as_bytes(std::span(&policy, 1))) {
        hash = mix(hash, static_cast<unsigned char>(byte));
      }
    }
    return hash;
  }

  void const* policy_;
  std::string_view name_;
  std::uint64_t signature_;
  int attempts_ = 1;
  std::size_t (*page_bytes_)(void const*, int) = nullptr;
  os::shared_object (*create_)(void const*, segment_request const&) = nullptr;
  void (*place_)(void const*, std::span<std::byte>) = nullptr;
};

}  // namespace shm::inline v1
