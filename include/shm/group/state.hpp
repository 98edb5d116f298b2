#pragma once
/// @file What a process keeps of a group: shared by the group's handle and its windows.

#include <unistd.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "shm/base/settings.hpp"
#include "shm/base/size.hpp"
#include "shm/error.hpp"
#include "shm/group/control_block.hpp"
#include "shm/group/live_memory.hpp"
#include "shm/group/progress.hpp"
#include "shm/options.hpp"
#include "shm/os/attach.hpp"
#include "shm/os/control_group.hpp"
#include "shm/os/descriptor_passing.hpp"
#include "shm/os/file_descriptor.hpp"
#include "shm/os/liveness.hpp"
#include "shm/os/mapping.hpp"
#include "shm/os/process.hpp"
#include "shm/os/shared_object.hpp"
#include "shm/sync/arrival.hpp"
#include "shm/sync/fence.hpp"
#include "shm/sync/wait.hpp"

namespace shm::inline v1::detail {

/// Sockets to the ranks that cannot open rank 0's descriptors themselves.
struct descriptor_channel {
  std::vector<std::pair<int, os::file_descriptor>> peers;  ///< on rank 0: rank and socket
  os::file_descriptor to_root;                             ///< on such a rank: to rank 0
};

class segment;

/// In what memory can be lesser than was asked for.
enum class lesser : std::size_t { pages, memory, place };

/// The state of a group in one process. Lives as long as the group's handle or any of its windows,
/// and as long as it lives the rank counts as living.
class group_state {
 public:
  group_state(os::mapping block, int descriptor, int rank, int size)
      : mapping_(std::move(block)),
        block_(mapping_.bytes().data(), size),
        life_(descriptor, rank),
        rank_(rank),
        size_(size),
        owner_(::getpid()) {}

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return size_; }
  [[nodiscard]] control_block const& block() const noexcept { return block_; }
  [[nodiscard]] control_header& header() const noexcept { return block_.header(); }
  [[nodiscard]] shm::settings const& settings() const noexcept { return header().settings; }
  /// How the group and its windows wait for all ranks.
  [[nodiscard]] fence_algorithm fence_in_use() const noexcept { return header().fence_in_use; }
  /// How this rank waits: meanwhile it does what others may wait for.
  [[nodiscard]] sync::patience patience() const noexcept {
    return {.spins = header().spins, .meanwhile = advance_begun_work};
  }
  /// Whether every rank of the group has a processor of its own.
  [[nodiscard]] bool has_own_processor() const noexcept {
    return header().spins == sync::patience::with_own_processor().spins;
  }
  [[nodiscard]] descriptor_channel& channel() noexcept { return channel_; }
  /// The group's windows that are live in this process.
  [[nodiscard]] live_memory<segment>& windows() noexcept { return windows_; }

  /// Whether this process made the state: false in a forked child, which must leave no marks.
  [[nodiscard]] bool is_owner() const noexcept { return ::getpid() == owner_; }

  /// Marks that this rank's handle is gone.
  void leave() noexcept {
    if (is_owner()) sync::store(block_.line(rank_).left, 1);
  }

  /// Tells whether `rank` can be waited for, given the word where it marks that it has left.
  [[nodiscard]] sync::standing standing_of(int rank, std::uint32_t& left) const noexcept {
    if (sync::load(left) != 0) return sync::standing::left;
    if (rank == rank_ || life_.is_held_by(rank)) return sync::standing::present;
    // It may have left, in order, between the two questions.
    return sync::load(left) != 0 ? sync::standing::left : sync::standing::dead;
  }

  /// Whether `rank` has voted in an agreement that this rank has not come to: a rank that waits for
  /// it in a fence waits for ever, since collective calls come in one order.
  [[nodiscard]] bool has_voted_ahead(int rank) const noexcept {
    for (auto& ballot : block_.desk_of(rank).ballots) {
      if (reached(sync::load(ballot.epoch), epoch_ + 1)) return true;
    }
    return false;
  }
  /// Whether `rank` has entered a fence of the group that this rank has not come to.
  [[nodiscard]] bool has_fenced_ahead(int rank) const noexcept {
    return reached(sync::load(block_.line(rank).arrived),
                   sync::load_own(block_.line(rank_).arrived) + 1);
  }

  /// Whether `rank` has started an operation of a plan, or on private memory, that this rank has
  /// not come to.
  [[nodiscard]] bool has_started_ahead(int rank) const noexcept {
    return has_started(rank, started() + 1);
  }
  /// Whether `rank` has started as many as `count`.
  [[nodiscard]] bool has_started(int rank, std::uint32_t count) const noexcept {
    return reached(sync::load(block_.desk_of(rank).started), count);
  }
  /// How many this rank has started.
  [[nodiscard]] std::uint32_t started() const noexcept {
    return sync::load_own(block_.desk_of(rank_).started);
  }
  /// Counts one more, which has been announced; returns its number.
  std::uint32_t count_start() noexcept {
    auto const number = started() + 1;
    sync::store(block_.desk_of(rank_).started, number);
    return number;
  }
  /// Goes on from a common number, where ranks have started different ones before an agreed error.
  /// Whatever counts operations of its own begins anew after it.
  void level_starts(std::uint32_t count) noexcept {
    sync::store(block_.desk_of(rank_).started, count);
    ++levellings_;
  }
  /// How often that has happened: the same on all ranks.
  [[nodiscard]] std::uint32_t levellings() const noexcept { return levellings_; }

  /// Settles what all ranks report about the memory that `verdict` belongs to. After a death the
  /// group is lost for good, with all its windows.
  sync::absence settle(sync::verdict_word& verdict, sync::absence found) noexcept {
    if (found.why == sync::standing::dead) found = header().deaths.settle(found);
    found = verdict.settle(found);
    if (found.why == sync::standing::dead) lost_.settle(found);
    return found;
  }
  /// Settles on a death, where there is no memory that it is reported about.
  sync::absence settle_death(int rank) noexcept {
    auto const found = header().deaths.settle({sync::standing::dead, rank});
    lost_.settle(found);
    return found;
  }
  /// Settles what all ranks report about the group itself.
  sync::absence settle(sync::absence found) noexcept {
    missing_ = settle(header().verdict, found);
    return *missing_;
  }

  /// Throws where this rank has learnt of a death. It does not enter a collective call then; those
  /// that wait for it find the same death, since calls come in the same order on all ranks.
  void require_alive(operation where) {
    if (auto const lost = lost_.settled()) throw absence_error(*lost, where);
  }
  /// Whether no rank is known to be dead or to have left the group.
  [[nodiscard]] bool is_whole() noexcept { return !missing_ && !lost_.settled(); }
  /// Throws where the group itself can do nothing more, since a rank is dead or has left it.
  void require_whole(operation where) {
    require_alive(where);
    if (missing_) throw absence_error(*missing_, where);
  }

  /// The context of errors that all ranks get.
  [[nodiscard]] error_context agreed_context(operation where) const noexcept {
    return {.where = where, .size = size_, .agreed = true, .group = number()};
  }
  /// A number that tells the group from others.
  [[nodiscard]] std::uint64_t number() const noexcept { return header().nonce[0]; }

  /// Whether this rank is the one to tell the user of a missing rank: the first that finds it.
  [[nodiscard]] bool is_first_to_tell() noexcept {
    return lost_.settled() ? header().deaths.tell() : header().verdict.tell();
  }

  [[nodiscard]] error absence_error(sync::absence const& missing, operation where) const {
    if (missing.why == sync::standing::elsewhere) {
      return error({.cause = errc::mismatch,
                    .rank = missing.rank,
                    .subject = "the rank is in another collective call, and not in this one",
                    .remedy = "make collective calls in the same order on every rank"},
                   agreed_context(where));
    }
    return error({.cause = missing.why == sync::standing::dead ? errc::peer_lost : errc::peer_left,
                  .rank = missing.rank},
                 agreed_context(where));
  }

  /// What the control groups of this process allow now. Their paths are looked up at the first
  /// call, and where the process has been moved since.
  std::vector<os::memory_bound> memory_bounds() {
    auto where = os::read_kernel_file("/proc/self/cgroup");
    if (where != control_groups_ || memory_groups_.is_empty()) {
      control_groups_ = std::move(where);
      memory_groups_ =
          os::memory_groups(control_groups_, os::read_kernel_file("/proc/self/mountinfo"));
    }
    return memory_groups_.bounds();
  }

  /// Whether this is the first time that it is asked whether to warn of memory that is not as good
  /// as what was asked for.
  bool is_first_warning(lesser what) noexcept {
    return !std::exchange(has_warned_[static_cast<std::size_t>(what)], true);
  }

  /// Returns a new epoch: the number of the next agreement.
  std::uint32_t next_epoch() noexcept { return ++epoch_; }
  void start_epochs(std::uint32_t last) noexcept { epoch_ = last; }
  [[nodiscard]] std::uint32_t epoch() const noexcept { return epoch_; }

  /// Writes where an object of rank 0 is to be found. Rank 0 only, inside an agreement.
  void publish(os::shared_object const& object, os::identifier const& nonce, int attempt) {
    header().notice = {.address = os::address_of(object),
                       .nonce = nonce,
                       .page_bytes = object.page_bytes,
                       .attempt = attempt,
                       .pages = object.pages,
                       .must_be_huge = object.must_be_huge};
  }

  /// Sends the object that was published to the ranks that cannot open it themselves. Rank 0 only,
  /// inside the agreement after which all fetch it: what nobody fetches would fill the connections.
  void hand_over(os::shared_object const& object) {
    for (auto& [rank, socket] : channel_.peers) {
      if (!socket.is_open()) continue;
      try {
        os::send_parcel(socket.number(), {.nonce = header().notice.nonce},
                        object.descriptor.number());
      } catch (error const& refused) {
        // A peer that is gone is found by the next agreement, with its rank; one that is not sees
        // the end of the connection.
        if (!os::is_disconnected(refused)) throw;
        socket.reset();
      }
    }
  }

  /// Opens the object that rank 0 has published in the agreement that has just ended.
  os::file_descriptor fetch() {
    auto const& notice = header().notice;
    if (!channel_.to_root.is_open()) return os::attach(notice.address);
    int const socket = channel_.to_root.number();
    for (;;) {
      // A forked child of rank 0 may keep the connection open after rank 0 has died.
      if (!os::is_readable(socket, std::chrono::milliseconds(200))) {
        if (standing_of(0, block_.line(0).left) == sync::standing::present) continue;
        os::throw_disconnected();
      }
      auto parcel = os::receive_parcel(socket);
      if (!parcel) os::throw_disconnected();
      // Descriptors of creations that failed before they were received are dropped here.
      if (parcel->what.nonce != notice.nonce) continue;
      if (!parcel->descriptor.is_open()) {
        os::throw_no_room_for_descriptor();
      }
      return std::move(parcel->descriptor);
    }
  }

 private:
  os::mapping mapping_;
  control_block block_;
  os::life_lock life_;
  descriptor_channel channel_;
  live_memory<segment> windows_;
  int rank_;
  int size_;
  pid_t owner_;
  std::uint32_t epoch_ = 0;
  std::uint32_t levellings_ = 0;
  std::string control_groups_;  ///< /proc/self/cgroup, for which memory_groups_ was made
  os::memory_groups memory_groups_;
  std::array<bool, 3> has_warned_{};  ///< of each kind in `lesser`
  sync::verdict_word lost_;  ///< a death that this rank has learnt of, on any of its threads
  std::optional<sync::absence> missing_;  ///< why the group's own calls cannot succeed any more
};

/// The roll of a group, for waits in its control block.
struct control_roll {
  group_state const& state;
  sync::standing operator()(int rank) const noexcept {
    return state.standing_of(rank, state.block().line(rank).left);
  }
  [[nodiscard]] std::optional<sync::absence> verdict() const noexcept {
    if (auto const death = state.header().deaths.settled()) return death;
    return state.header().verdict.settled();
  }
};

/// The roll of a group, for its fences.
struct fence_roll : control_roll {
  sync::standing operator()(int rank) const noexcept {
    auto const why = control_roll::operator()(rank);
    bool const is_elsewhere = why == sync::standing::present &&
                              (state.has_voted_ahead(rank) || state.has_started_ahead(rank));
    return is_elsewhere ? sync::standing::elsewhere : why;
  }
};

/// The roll of a group, for its agreements. A rank that has passed over one in a collective on
/// private memory finds that out itself, and votes.
struct agreement_roll : control_roll {
  sync::standing operator()(int rank) const noexcept {
    auto const why = control_roll::operator()(rank);
    bool const is_elsewhere = why == sync::standing::present && state.has_fenced_ahead(rank);
    return is_elsewhere ? sync::standing::elsewhere : why;
  }
};

}  // namespace shm::inline v1::detail
