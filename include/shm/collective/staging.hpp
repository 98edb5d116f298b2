#pragma once
/// @file Collectives on private memory, which goes through shared memory of the group piece by
/// piece.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "shm/base/hash.hpp"
#include "shm/collective/board.hpp"
#include "shm/error.hpp"
#include "shm/group.hpp"
#include "shm/group/control_block.hpp"
#include "shm/group/state.hpp"
#include "shm/sync/arrival.hpp"

namespace shm::inline v1::detail {

/// What one rank calls.
struct staged_call {
  operation where = operation::none;
  std::uint64_t signature = 0;  ///< of the type and the operation
  std::uint64_t count = 0;      ///< of elements; the same on all ranks
  int root = -1;
  bool is_refused = false;  ///< the buffers of this rank do not fit

  [[nodiscard]] board_remark remark() const noexcept {
    sequence_hash hash;
    hash.add(static_cast<std::uint64_t>(where));
    hash.add(signature);
    hash.add(static_cast<std::uint64_t>(root));
    auto const told = is_refused ? refused : count;
    return {.call = static_cast<std::uint32_t>(hash.value() ^ hash.value() >> 32),
            .count_low = static_cast<std::uint32_t>(told),
            .count_high = static_cast<std::uint32_t>(told >> 32)};
  }
  /// Stands for a count where the buffers do not fit; no buffer is as long.
  static constexpr std::uint64_t refused = ~std::uint64_t{0};
};

/// The board of a group through which private buffers go. Made at the first such call.
class staging {
 public:
  /// Bytes of each rank in one step. So much of all ranks should stay in their caches. Measured by
  /// bench/collectives_against_mpi.
  static constexpr std::size_t slot_bytes = std::size_t{64} * 1024;

  /// Returns the one of a group; makes it where there is none.
  ///
  /// Collective. Errors: the same on every rank; errc::empty.
  static staging& of(group& ranks, operation where) {
    if (!ranks.valid()) {
      throw error({.cause = errc::empty, .subject = "the group", .remedy = {}}, {.where = where});
    }
    ranks.state()->require_whole(where);
    // After an agreed error some ranks may have taken a step more than others: all begin anew.
    auto& made = ranks.staging();
    if (made && made->failed_agreements_ == ranks.state()->failed_agreements()) return *made;
    made.reset();
    std::shared_ptr<staging> next;
    failure cause;
    try {
      next = std::make_shared<staging>();
      next->sources_.resize(static_cast<std::size_t>(ranks.size()));
    } catch (...) {
      cause = failure_of_exception(errc::out_of_memory);
    }
    board room(ranks, slot_bytes, where, cause);
    next->board_ = std::move(room);
    next->failed_agreements_ = ranks.state()->failed_agreements();
    made = std::move(next);
    return *made;
  }

  [[nodiscard]] int rank() const noexcept { return board_.rank(); }
  [[nodiscard]] int size() const noexcept { return board_.size(); }

  /// Takes one step: announces what `fill(mine)` writes to `mine` [slot_bytes], and waits for the
  /// others.
  ///
  /// Errors: errc::mismatch, errc::invalid_argument where the ranks' calls do not go together, the
  ///         same on all ranks; errc::peer_lost, errc::peer_left.
  template <class Fill>
  void step(staged_call const& call, Fill const& fill) {
    board_.segment().require_whole(call.where);
    board_.begin();
    auto const mine = call.remark();
    board_.remark(rank()) = mine;
    sync::store(own_desk().staged, board_.number());  // whoever waits elsewhere sees it passed over
    if (!call.is_refused) fill(board_.data(rank()));
    board_.announce();
    board_.segment().await_all(call.where, {.is_in_order = true},
                               [this](int r) { return board_.has_announced(r); });
    require_alike(call);
  }

  /// What each rank has announced in this step. [ranks]
  [[nodiscard]] std::span<std::byte* const> sources() noexcept {
    for (int r = 0; r < size(); ++r) sources_[static_cast<std::size_t>(r)] = board_.data(r);
    return sources_;
  }
  [[nodiscard]] std::byte const* source(int rank) const noexcept { return board_.data(rank); }
  /// Where this rank may write already what it will announce in the next step.
  [[nodiscard]] std::byte* next_data() const noexcept { return board_.next_data(); }

 private:
  /// Compares what all ranks say of their calls. All see the same, and so end alike.
  void require_alike(staged_call const& call) const {
    auto const root = board_.remark(0);
    for (int r = 0; r < size(); ++r) {
      auto const theirs = board_.remark(r);
      failure found{.rank = r};
      if (theirs.count() == staged_call::refused) {
        found.cause = errc::invalid_argument;
        found.subject = "the lengths of the rank's buffers do not fit";
      } else if (theirs.call != root.call) {
        found.cause = errc::mismatch;
        found.subject =
            "the rank calls another collective, or with another type, operation or root";
        found.remedy = "make collective calls in the same order on every rank";
      } else if (theirs.count() != root.count()) {
        found.cause = errc::mismatch;
        found.subject = "the count of elements is " + std::to_string(theirs.count()) +
                        " there, and " + std::to_string(root.count()) + " on rank 0";
      } else {
        continue;
      }
      throw error(found, board_.segment().state().agreed_context(call.where));
    }
  }

  [[nodiscard]] desk& own_desk() const noexcept {
    return board_.segment().state().block().desk_of(rank());
  }

  board board_;
  std::uint32_t failed_agreements_ = 0;  ///< of the group, when this was made
  std::vector<std::byte*> sources_;
};

/// Asserts that elements can lie in a slot.
template <class T>
constexpr void require_stageable() noexcept {
  static_assert(alignof(T) <= board::data_at && sizeof(T) <= staging::slot_bytes,
                "collectives on private memory stage elements in shared memory, where they are "
                "aligned to 16 bytes and have room for 64 KiB; put larger ones into a window, and "
                "make a plan");
}

/// Calls `take(begin, count)` for pieces of up to `most` of `count` elements; once where there are
/// none, so that the ranks meet.
template <class Take>
void for_each_piece(std::size_t count, std::size_t most, Take const& take) {
  std::size_t at = 0;
  do {
    auto const n = std::min(most, count - at);
    take(at, n);
    at += n;
  } while (at < count);
}

}  // namespace shm::inline v1::detail
