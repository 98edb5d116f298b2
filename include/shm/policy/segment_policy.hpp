#pragma once
/// @file What a backend must offer: one function that makes one shared object.

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "shm/base/hash.hpp"
#include "shm/base/settings.hpp"
#include "shm/error.hpp"
#include "shm/options.hpp"
#include "shm/os/mapping.hpp"
#include "shm/os/memory_node.hpp"
#include "shm/os/placement.hpp"
#include "shm/os/shared_object.hpp"

namespace shm::inline v1 {

/// What the library asks of a policy.
struct segment_request {
  std::size_t bytes = 0;       ///< size of the object, a multiple of page_bytes
  std::size_t page_bytes = 0;  ///< page size that the window was laid out for
  int attempt = 0;             ///< counts up where an earlier one has failed
  shm::place place{};          ///< what the window asks for
  shm::settings settings{};    ///< the group's
};

/// One rank's block, before it is populated.
struct block_request {
  std::span<std::byte> mine{};
  std::size_t page_bytes = 0;  ///< that the window was laid out for
  int attempt = 0;             ///< as in segment_request
  shm::place place{};          ///< what the window asks for
  shm::settings settings{};    ///< the group's
};

/// The NUMA nodes that a policy prefers, or why there are none.
struct node_preference {
  os::node_set nodes{};
  failure shortfall{};
};

/// A backend: where a window's memory comes from.
///
/// Required: `name`, a constant text; `create(request)`, run by rank 0 alone, returns an object of
/// `request.bytes` bytes that reads as zero, or throws `shm::error`.
///
/// Optional, each called where it is there:
/// - `place(block_request)`: run by every rank on its own block before it is populated, to choose
///   the block's NUMA nodes; else `place_block` is.
/// - `attempts(settings)`: how many kinds of memory `create` can try, best first. Where attempt k
///   fails on any rank, all ranks give it up together and try k + 1.
/// - `page_bytes(attempt, settings)`: page size in bytes that attempt comes in; else the base page
///   size. An attempt with larger pages than the last one's, in which the blocks would mostly be
///   padding, is tried after the last one, or not at all where that has base pages.
/// - `name_in(settings)`: the name of what is really taken, where settings decide.
/// - `in_words(settings)`: what it asks for, for messages; else its name.
/// - `preferred_nodes(settings)`: where it prefers memory, so that a warning can tell of others.
/// - `signature()`: a number that is equal for equal options; else the options' bytes are compared.
template <class Policy>
concept segment_policy =
    std::copy_constructible<Policy> &&
    requires(Policy const& policy, segment_request const& request) {
      typename std::integral_constant<std::size_t, std::string_view{Policy::name}.size()>;
      { policy.create(request) } -> std::same_as<os::shared_object>;
    };

/// Returns what the machine says of its NUMA nodes, read once unless the settings name some.
inline os::memory_nodes machine_nodes(settings const& values) {
  static os::memory_nodes const plain;
  auto const list = values.high_bandwidth_nodes.view();
  return list.empty() ? plain : os::memory_nodes("/sys", list);
}

/// Returns those of `nodes` that this thread may take memory from.
inline os::node_set usable_of(os::node_set const& nodes) {
  auto const usable = os::usable_nodes();
  return usable.is_empty() ? nodes : nodes & usable;
}

/// Prefers nodes for memory, or interleaves it over them. A system that does not let this process
/// choose is no error: it is a wish, of which a warning and `window::residency` tell.
inline void wish_for_nodes(std::span<std::byte> pages, os::memory_policy how,
                           os::node_set const& nodes, std::size_t page_bytes) {
  if (nodes.is_empty()) return;
  try {
    os::set_memory_policy(pages, how, nodes, page_bytes);
  } catch (error const& refused) {
    if (refused.code() != errc::permission_denied && refused.code() != errc::unsupported) throw;
  }
}

/// Returns the nodes that a window is interleaved over where its policy prefers none: those of
/// ordinary memory that this thread may use.
inline os::node_set nodes_to_interleave(settings const& values) {
  auto const machine = machine_nodes(values);
  auto const ordinary = usable_of(machine.ordinary());
  return ordinary.is_empty() ? usable_of(machine.with_memory()) : ordinary;
}

/// Errors: errc::invalid_argument for a node that does not exist or has no memory.
inline void require_place(shm::place where, settings const& values) {
  if (where.number() < 0) return;
  auto const machine = machine_nodes(values);
  if (machine.with_memory().contains(where.number())) return;
  throw error({.cause = errc::invalid_argument,
               .subject = "window_options::place is node " + std::to_string(where.number()) +
                          ", and memory is on " + machine.with_memory().named(),
               .remedy = "choose one of these (ls /sys/devices/system/node; numactl --hardware)"});
}

/// Puts a block where its window asks for it, among the nodes with ordinary memory. Without a wish
/// nothing is done: memory comes from the node of the rank that populates it, or from where the
/// thread's own policy says.
///
/// Requires: a node that is named has memory.
inline void place_block(block_request const& block) {
  if (block.place == place::owner) return;
  if (block.place.is_interleaved()) {
    return wish_for_nodes(block.mine, os::memory_policy::interleaved,
                          nodes_to_interleave(block.settings), block.page_bytes);
  }
  wish_for_nodes(block.mine, os::memory_policy::preferred,
                 usable_of(os::node_set{block.place.number()}), block.page_bytes);
}

/// Refers to a policy of any type. Does not own it.
class segment_policy_ref {
 public:
  template <segment_policy Policy>
  segment_policy_ref(Policy const& policy, shm::settings const& values)
      : policy_(&policy), name_(Policy::name), signature_(signature_of(policy)), settings_(values) {
    if constexpr (requires { policy.name_in(values); }) {
      static_assert(noexcept(policy.name_in(values)),
                    "a segment policy's name_in must be noexcept");
      name_ = policy.name_in(values);
    }
    if constexpr (requires { policy.attempts(values); }) {
      static_assert(noexcept(policy.attempts(values)),
                    "a segment policy's attempts must be noexcept");
      attempts_ = policy.attempts(values);
    }
    if constexpr (requires { policy.page_bytes(0, values); }) {
      page_bytes_ = [](void const* p, int attempt, shm::settings const& of) -> std::size_t {
        return static_cast<Policy const*>(p)->page_bytes(attempt, of);
      };
    }
    create_ = [](void const* p, segment_request const& request) {
      return static_cast<Policy const*>(p)->create(request);
    };
    if constexpr (requires { policy.in_words(values); }) {
      asked_ = [](void const* p, shm::settings const& of) {
        return static_cast<Policy const*>(p)->in_words(of);
      };
    } else {
      asked_ = [](void const*, shm::settings const&) { return std::string(Policy::name); };
    }
    if constexpr (requires { policy.preferred_nodes(values); }) {
      preferred_nodes_ = [](void const* p, shm::settings const& of) {
        return static_cast<Policy const*>(p)->preferred_nodes(of);
      };
    }
    if constexpr (requires(block_request const& block) { policy.place(block); }) {
      place_ = [](void const* p, block_request const& block) {
        static_cast<Policy const*>(p)->place(block);
      };
    }
  }

  [[nodiscard]] std::string_view name() const noexcept { return name_; }
  [[nodiscard]] int attempts() const noexcept { return attempts_; }
  /// A number that is the same for policies of one type with the same options.
  [[nodiscard]] std::uint64_t signature() const noexcept { return signature_; }
  [[nodiscard]] std::size_t page_bytes(int attempt) const {
    return page_bytes_ == nullptr ? os::base_page_bytes()
                                  : page_bytes_(policy_, attempt, settings_);
  }
  /// Errors: errc::invalid_argument for a place that is none; those of the policy.
  [[nodiscard]] os::shared_object create(segment_request request) const {
    request.settings = settings_;
    require_place(request.place, settings_);
    return create_(policy_, request);
  }
  void place(block_request block) const {
    if (block.mine.empty()) return;
    block.settings = settings_;
    place_(policy_, block);
  }
  /// What is asked for, in words.
  [[nodiscard]] std::string asked() const { return asked_(policy_, settings_); }
  /// The NUMA nodes that are preferred.
  [[nodiscard]] node_preference preferred_nodes() const {
    return preferred_nodes_ == nullptr ? node_preference{} : preferred_nodes_(policy_, settings_);
  }

 private:
  template <class Policy>
  static std::uint64_t signature_of(Policy const& policy) noexcept {
    sequence_hash hash;
    hash.add_each(std::string_view{Policy::name});
    if constexpr (requires { policy.signature(); }) {
      static_assert(noexcept(policy.signature()),
                    "a segment policy's signature() must be noexcept");
      return hash.value() ^ policy.signature();
    } else if constexpr (!std::is_empty_v<Policy>) {
      static_assert(std::has_unique_object_representations_v<Policy>,
                    "a segment policy with options needs either no padding among them, or a member "
                    "signature(), so that the ranks can compare their options");
      hash.add_each(std::as_bytes(std::span(&policy, 1)));
    }
    return hash.value();
  }

  void const* policy_;
  std::string_view name_;
  std::uint64_t signature_;
  int attempts_ = 1;
  shm::settings settings_;
  std::size_t (*page_bytes_)(void const*, int, shm::settings const&) = nullptr;
  os::shared_object (*create_)(void const*, segment_request const&) = nullptr;
  std::string (*asked_)(void const*, shm::settings const&) = nullptr;
  node_preference (*preferred_nodes_)(void const*, shm::settings const&) = nullptr;
  void (*place_)(void const*, block_request const&) = [](void const*, block_request const& block) {
    place_block(block);
  };
};

}  // namespace shm::inline v1
