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

#include "shm/collective/board.hpp"
#include "shm/error.hpp"
#include "shm/group.hpp"
#include "shm/group/control_block.hpp"
#include "shm/group/state.hpp"
#include "shm/sync/arrival.hpp"

namespace shm::inline v1::detail {

/// Why a rank cannot take part in its call with what it has.
enum class staged_refusal : std::uint64_t {
  none,
  lengths,  ///< its buffers do not fit each other
  root,     ///< there is no such root
};

/// What one rank calls.
struct staged_call {
  operation where = operation::none;
  std::uint64_t signature = 0;  ///< of the type and the operation
  std::uint64_t count = 0;      ///< of elements; the same on all ranks
  int root = -1;
  staged_refusal refusal = staged_refusal::none;

  [[nodiscard]] board_remark remark() const noexcept {
    // A refusal stands in the place of a count that no buffer has.
    auto const told = refusal == staged_refusal::none ? count : told_for(refusal);
    bool const has_root = refusal != staged_refusal::root;
    return board_remark::of(where, signature, told, has_root ? root : -1);
  }
  static constexpr std::uint64_t told_for(staged_refusal why) noexcept {
    return board_remark::most_count - static_cast<std::uint64_t>(why);
  }
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
    // Where some ranks have taken a step more than others before an agreed error, all begin anew.
    auto& made = ranks.staging();
    if (made && made->levellings_ == ranks.state()->levellings()) return *made;
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
    next->levellings_ = ranks.state()->levellings();
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
    if (call.refusal == staged_refusal::none) fill(board_.data(rank()));
    board_.announce();
    auto const start = board_.segment().state().count_start();
    board_.segment().await_all(call.where,
                               {.of = segment::wait_rules::phase::starting, .start = start},
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
      if (theirs.where() != root.where()) {
        found.cause = errc::mismatch;
        found.subject = "the call is " + std::string(words_for(theirs.where())) + " there, and " +
                        std::string(words_for(root.where())) + " on rank 0";
        found.remedy = "make collective calls in the same order on every rank";
      } else if (theirs.count() == staged_call::told_for(staged_refusal::lengths)) {
        found.cause = errc::invalid_argument;
        found.subject = "the lengths of what the rank sends and receives do not fit";
      } else if (theirs.count() == staged_call::told_for(staged_refusal::root)) {
        found.cause = errc::invalid_argument;
        found.subject = "there is no such root; ranks are 0 to " + std::to_string(size() - 1);
      } else if (theirs.root() != root.root()) {
        found.cause = errc::mismatch;
        found.subject = "the root is " + std::to_string(theirs.root()) + " there, and " +
                        std::to_string(root.root()) + " on rank 0";
      } else if (theirs.call != root.call) {
        found.cause = errc::mismatch;
        found.subject =
            "the type of the elements or their operation is another one there than on "
            "rank 0";
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

  board board_;
  std::uint32_t levellings_ = 0;  ///< of the group, when this was made
  std::vector<std::byte*> sources_;
};

/// Returns whether lengths that must fit each other do, as a refusal.
constexpr staged_refusal refusal_unless(bool do_lengths_fit) noexcept {
  return do_lengths_fit ? staged_refusal::none : staged_refusal::lengths;
}

/// Asserts that elements can lie in a slot.
template <class T>
constexpr void require_stageable() noexcept {
  static_assert(alignof(T) <= board::data_at && sizeof(T) <= staging::slot_bytes,
                "collectives on private memory stage elements in shared memory, where they are "
                "aligned to 16 bytes and have room for 64 KiB; put larger ones into a window, and "
                "make a plan (reductions take up to 64 KiB there too)");
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
