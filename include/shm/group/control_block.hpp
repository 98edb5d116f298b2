#pragma once
/// @file Layout of the control block: the shared memory through which a group talks.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "shm/base/settings.hpp"
#include "shm/base/size.hpp"
#include "shm/error.hpp"
#include "shm/options.hpp"
#include "shm/os/attach.hpp"
#include "shm/os/control_group.hpp"
#include "shm/os/process.hpp"
#include "shm/os/shared_object.hpp"
#include "shm/os/topology.hpp"
#include "shm/sync/arrival.hpp"
#include "shm/sync/fence.hpp"
#include "shm/version.hpp"

namespace shm::inline v1::detail {

/// "shm ctrl" in ASCII.
inline constexpr std::uint64_t control_magic = 0x6c727463206d6873U;

/// Arguments of a collective call that must be the same on every rank, or that all must know.
using call_arguments = std::array<std::uint64_t, 12>;

/// One rank's vote in one agreement.
struct alignas(line_bytes) ballot {
  std::uint32_t epoch = 0;  ///< stored last: the vote is cast
  operation where = operation::none;
  std::uint32_t started = 0;  ///< as on the desk, when the rank voted
  call_arguments arguments{};
  failure cause{};
};

/// Where the object of the window in creation is to be found. Written by rank 0 alone.
struct object_notice {
  os::object_address address{};
  os::identifier nonce{};
  std::uint64_t page_bytes = 0;  ///< that the window is laid out for
  std::int32_t attempt = 0;
  os::page_kind pages = os::page_kind::base;
  bool must_be_huge = false;
};

/// What rank 0 says while a communicator is made.
enum class phase : std::uint32_t {
  exchanging,  ///< nothing yet
  passing,     ///< not all ranks are attached yet: one more exchange follows
  ready,       ///< all ranks are attached: the last word is an agreement
  aborted,     ///< see the ruling
};

/// The part of the control block that belongs to no rank.
struct control_header {
  std::uint64_t magic = 0;
  std::uint32_t layout = 0;
  std::int32_t ranks = 0;
  os::identifier nonce{};
  shm::settings settings{};        ///< rank 0's, as they were given
  fence_algorithm fence_in_use{};  ///< decided by the first agreement, as are `spins`
  std::uint32_t spins = 0;         ///< see sync::patience
  alignas(line_bytes) phase stage = phase::exchanging;
  /// Of even and odd epochs; see agreement.hpp. Two, since a death can decide the next epoch before
  /// every rank has read this one's.
  alignas(line_bytes) std::array<std::uint64_t, 2> decisions{};
  sync::verdict_word deaths;   ///< the first rank found dead by anyone
  sync::verdict_word verdict;  ///< why no collective call of the group can succeed any more
  sync::fence_words fence;
  object_notice notice;
  std::array<failure, 2> rulings{};  ///< of even and odd epochs: what rank 0 has found wrong
};

/// What one rank brings to a gathering.
struct alignas(line_bytes) scratch {
  std::uint32_t number = 0;  ///< of the group's fence that makes it visible
  operation where = operation::none;
  std::uint32_t is_refused = 0;  ///< 1: the rank cannot take the result
  std::uint64_t length = 0;      ///< of the whole block in bytes
  std::array<std::byte, 1024> bytes{};
};

/// What a rank shows of the control groups that bound its memory, tightest first.
struct memory_table {
  std::uint32_t count = 0;
  std::array<os::memory_bound, 16> bounds{};
};

/// What one rank writes beside its arrival line.
struct alignas(line_bytes) desk {
  static constexpr std::size_t scratch_bytes = sizeof(detail::scratch::bytes);

  std::array<ballot, 2> ballots{};  ///< of even and odd epochs
  alignas(line_bytes) std::uint32_t entered =
      0;                     ///< the bootstrap exchange that the rank has entered
  std::uint32_t passed = 0;  ///< the last one that has succeeded for it
  std::uint32_t failed = 0;  ///< the last one that has failed for it
  /// How many operations of plans, and steps on private memory, the rank has started: those of all
  /// ranks in one order. Stored after each is announced.
  std::uint32_t started = 0;
  os::processor_set processors{};
  memory_table memory{};  ///< written before the vote on the room for a large window
  std::array<detail::scratch, 2> scratch{};
};

/// One process's view of a control block:
///
///     control_header
///     arrival_line [ranks]
///     desk         [ranks]
class control_block {
 public:
  static constexpr std::size_t size_bytes(int ranks) noexcept {
    return sizeof(control_header) +
           static_cast<std::size_t>(ranks) * (sizeof(sync::arrival_line) + sizeof(desk));
  }

  control_block(std::byte* address, int ranks) noexcept
      : header_(reinterpret_cast<control_header*>(address)), ranks_(ranks) {}

  [[nodiscard]] control_header& header() const noexcept { return *header_; }
  [[nodiscard]] std::span<sync::arrival_line> lines() const noexcept {
    return {reinterpret_cast<sync::arrival_line*>(header_ + 1), static_cast<std::size_t>(ranks_)};
  }
  [[nodiscard]] sync::arrival_line& line(int rank) const noexcept {
    return lines()[static_cast<std::size_t>(rank)];
  }
  [[nodiscard]] detail::desk& desk_of(int rank) const noexcept {
    auto* const desks = reinterpret_cast<detail::desk*>(lines().data() + ranks_);
    return desks[rank];
  }
  [[nodiscard]] ballot& ballot_of(int rank, std::uint32_t epoch) const noexcept {
    return desk_of(rank).ballots[epoch & 1U];
  }

  /// Whether this is the block that `nonce` names, in a layout that this code knows.
  [[nodiscard]] bool is_of(os::identifier const& nonce) const noexcept {
    return header_->magic == control_magic && header_->layout == layout_version &&
           header_->ranks == ranks_ && header_->nonce == nonce;
  }

 private:
  control_header* header_;
  int ranks_;
};

}  // namespace shm::inline v1::detail
