#pragma once
/// @file How the ranks of a bootstrap become a group.

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "shm/base/settings.hpp"
#include "shm/base/warning.hpp"
#include "shm/error.hpp"
#include "shm/group/agreement.hpp"
#include "shm/group/control_block.hpp"
#include "shm/group/greeting.hpp"
#include "shm/group/state.hpp"
#include "shm/oob/out_of_band.hpp"
#include "shm/os/attach.hpp"
#include "shm/os/descriptor_passing.hpp"
#include "shm/os/file_descriptor.hpp"
#include "shm/os/mapping.hpp"
#include "shm/os/memory_node.hpp"
#include "shm/os/process.hpp"
#include "shm/os/shared_object.hpp"
#include "shm/os/topology.hpp"
#include "shm/sync/arrival.hpp"
#include "shm/sync/fence.hpp"
#include "shm/sync/wait.hpp"

namespace shm::inline v1::detail {

/// Makes one group. Collective; used once.
///
///     rank 0: makes the control block               all: exchange 1, greetings: who is where
///     all: attach, or ask rank 0 for a descriptor   all: exchange 2, how that went
///     rank 0: says in the block, and on the sockets, whether all are attached
///     where not: receive and attach                 all: exchange 3
///     all: an agreement in the block, which speaks the last word
///
/// Every rank takes part in exchanges 1 and 2 whatever has happened to it, since the others would
/// wait for it. A third takes place unless rank 0 has seen that all are attached: a rank that is
/// not knows that it does, and one that is hears it from rank 0. An exchange that fails on one rank
/// is that rank's failure; see `greeting_exchange` for how it keeps its turn.
class handshake {
 public:
  /// `where` is what errors say that was going on.
  handshake(out_of_band_ref oob, std::optional<shm::settings> given,
            operation where = operation::create_communicator)
      : oob_(oob),
        given_(given),
        where_(where),
        exchange_(oob, [this](std::uint32_t stage) { return has_anyone_passed(stage); }) {}
  handshake(handshake const&) = delete;
  handshake& operator=(handshake const&) = delete;

  /// Returns the group's state.
  ///
  /// Errors: the same on every rank, except on a rank whose bootstrap does not work at all.
  std::shared_ptr<group_state> run() {
    environment const environment = given_ ? shm::environment{*given_, {}} : read_environment();
    auto& mine = exchange_.mine();
    mine.settings = environment.values.digest();
    attempt([&] { mine.boot = os::boot_identifier(); });
    if (rank() == 0) attempt([&] { make_block(environment.values); });
    exchange_.run(1);
    if (!exchange_.first_failure()) join();
    exchange_.run(2);
    auto next = after_second();
    if (next == phase::passing) {
      receive_descriptor();
      exchange_.run(3);
      next = after_third();
    }
    if (next != phase::ready) throw_first_failure();
    finish(environment);
    return std::move(state_);
  }

 private:
  [[nodiscard]] int rank() const noexcept { return oob_.rank(); }
  [[nodiscard]] int size() const noexcept { return oob_.size(); }
  [[nodiscard]] bool is_attached() const noexcept { return state_ != nullptr; }

  /// Runs one step of this rank; a failure is told to the others with the next exchange.
  template <class Step>
  void attempt(Step step) {
    try {
      step();
    } catch (...) {
      exchange_.fail(failure_of_exception(errc::system_failure));
    }
  }

  void make_block(shm::settings const& values) {
    auto const bytes = control_block::size_bytes(size());
    object_ = make_control_object(bytes);
    os::mapping map(object_.descriptor.number(), bytes);
    os::populate(map.bytes(), map.bytes().first(sizeof(control_header)),
                 object_.descriptor.number());
    auto& mine = exchange_.mine();
    mine.nonce = os::random_identifier();
    mine.object = os::address_of(object_);
    auto& header = control_block(map.bytes().data(), size()).header();
    header.layout = layout_version;
    header.ranks = size();
    header.nonce = mine.nonce;
    header.settings = values;
    header.decisions.fill(decision::encode(values.first_number, decision::kind::done, 0));
    header.magic = control_magic;
    try {
      mine.listener = os::random_identifier();
      listener_ = os::listen_at(mine.listener);
    } catch (error const&) {
      // Only ranks that cannot use /proc need it, and they will say so.
    }
    attach(std::move(map), object_.descriptor.number());
  }

  /// Anonymous memory, or a file in /dev/shm where the system refuses that.
  static os::shared_object make_control_object(std::size_t bytes) {
    try {
      return os::make_anonymous("shm control block", bytes);
    } catch (error const& refused) {
      if (refused.code() == errc::limit_reached) throw;
      return os::make_unnamed("/dev/shm", bytes);
    }
  }

  /// Makes this rank's state over a mapped block: from here on it counts as living.
  void attach(os::mapping map, int descriptor) {
    auto const whole = map.bytes();
    control_block const block(whole.data(), size());
    auto& desk = block.desk_of(rank());
    os::populate(whole, std::as_writable_bytes(std::span(&block.line(rank()), 1)), descriptor);
    os::populate(whole, std::as_writable_bytes(std::span(&desk, 1)), descriptor);
    desk.processors = os::processor_set::usable();
    auto const first = block.header().settings.first_number;
    for (auto& one : desk.ballots) one.epoch = first;
    desk.started = first;
    state_ = std::make_shared<group_state>(std::move(map), descriptor, rank(), size());
    state_->start_epochs(first);
    exchange_.observe(state_->block());
  }

  void attach(os::file_descriptor const& descriptor) {
    auto const& root = exchange_.from(0);
    os::mapping map(descriptor.number(), root.object.bytes);
    if (!control_block(map.bytes().data(), size()).is_of(root.nonce)) {
      throw error({.cause = errc::not_shareable,
                   .subject = "the control block is not the one that rank 0 made",
                   .remedy = "run the same version of the library on every rank"});
    }
    attach(std::move(map), descriptor.number());
  }

  /// Opens rank 0's block through /proc, or asks rank 0 to send its descriptor.
  void join() {
    if (rank() == 0) return;
    attempt([&] {
      os::file_descriptor descriptor;
      try {
        descriptor = os::attach(exchange_.from(0).object);
      } catch (error const& refused) {
        ask(refused.details());
        return;
      }
      attach(descriptor);
    });
  }

  void ask(failure refused) {
    try {
      auto const& root = exchange_.from(0);
      to_root_ = os::ask_for_descriptors(root.listener, root.nonce, rank());
      exchange_.await_descriptor();
    } catch (error const&) {
      if (refused.cause != errc::limit_reached) refused.cause = errc::not_shareable;
      throw error(refused);
    }
  }

  /// Rank 0 says what follows the second exchange; the others hear it.
  phase after_second() {
    if (rank() != 0) return is_attached() ? hear(phase::exchanging) : phase::passing;
    auto const next =
        exchange_.is_everyone_attached() && !exchange_.has_missed() ? phase::ready : phase::passing;
    announce(next);
    if (next == phase::passing) attempt([&] { serve(); });
    asking_.clear();  // whoever has not been served sees the end of the connection
    listener_.reset();
    return next;
  }

  void announce(phase next) {
    if (!is_attached()) return;
    auto& header = state_->header();
    if (next == phase::aborted) header.rulings[0] = exchange_.first_failure().value_or(failure{});
    sync::store(header.stage, next);
  }

  /// Waits, attached, until rank 0 has said what follows `seen`.
  phase hear(phase seen) {
    auto& header = state_->header();
    sync::wait_until(
        sync::patience::with_shared_processor(), [&] { return sync::load(header.stage) != seen; },
        [&] { return control_roll{*state_}(0) != sync::standing::present; });
    auto const next = sync::load(header.stage);
    if (next == phase::aborted) exchange_.rule(header.rulings[0]);
    if (next != seen) return next;
    exchange_.lose_root();
    return phase::aborted;
  }

  /// Takes up one rank that has asked for a descriptor; returns false where none has until the
  /// timeout. Whoever does not show the nonce at once is no rank of this group. Rank 0 only.
  bool admit(std::chrono::milliseconds timeout) {
    auto const deadline = std::chrono::steady_clock::now() + timeout;
    do {
      auto socket = os::accept_one(listener_.number(), timeout);
      if (!socket) return false;
      // A rank sends right after it has connected; a stranger is given little time.
      auto const hello = os::is_readable(socket->number(), std::chrono::milliseconds(100))
                             ? os::receive_parcel(socket->number())
                             : std::nullopt;
      if (hello && hello->what.nonce == exchange_.mine().nonce) {
        asking_.emplace_back(static_cast<int>(hello->what.number), std::move(*socket));
        return true;
      }
    } while (std::chrono::steady_clock::now() < deadline);
    return false;
  }

  /// Whether another rank is known to have come out of exchange `stage`.
  bool has_anyone_passed(std::uint32_t stage) {
    if (is_attached()) {
      int failed = 0;
      int attached = 0;
      for (int r = 0; r < size(); ++r) {
        auto& desk = state_->block().desk_of(r);
        if (r == rank() || sync::load(desk.entered) == 0) continue;
        if (sync::load(desk.passed) >= stage) return true;
        ++attached;
        failed += sync::load(desk.failed) >= stage ? 1 : 0;
      }
      if (attached > 0 && failed == attached) return true;  // with a failure, and so have all
    }
    if (to_root_.is_open()) return os::is_readable(to_root_.number(), std::chrono::milliseconds(0));
    try {
      if (listener_.is_open()) admit(std::chrono::milliseconds(0));
    } catch (error const&) {
      // Whoever cannot be taken up now is still there when it is served.
    }
    return std::ranges::any_of(asking_, [](auto const& peer) {
      return os::is_readable(peer.second.number(), std::chrono::milliseconds(0));
    });
  }

  /// Whether every rank that says it waits for a descriptor is among those taken up.
  [[nodiscard]] bool has_all_asked() const {
    for (int r = 0; r < size(); ++r) {
      if (exchange_.from(r).state != greeting::state::waiting) continue;
      auto const is_it = [r](auto const& peer) { return peer.first == r; };
      if (std::ranges::none_of(asking_, is_it)) return false;
    }
    return true;
  }

  /// Sends a descriptor to each rank that asks for one. Rank 0 only.
  void serve() {
    if (!is_attached() || exchange_.has_missed()) return;
    while (!has_all_asked()) {
      if (!admit(std::chrono::seconds(10))) throw error({.cause = errc::not_shareable});
    }
    for (auto const& [rank, socket] : asking_) {
      try {
        os::send_parcel(socket.number(), {.nonce = exchange_.mine().nonce},
                        object_.descriptor.number());
      } catch (error const& refused) {
        if (!os::is_disconnected(refused)) throw;  // that rank is gone, which comes to light
      }
    }
    state_->channel().peers = std::move(asking_);
  }

  /// Waits, where this rank has asked, for the descriptor or the end of the connection.
  void receive_descriptor() {
    if (!to_root_.is_open()) return;
    attempt([&] {
      try {
        // Says that this rank has come out of the second exchange.
        os::send_parcel(to_root_.number(), {.nonce = exchange_.from(0).nonce});
      } catch (error const&) {
        // The end of the connection shows below.
      }
      std::optional<os::received_parcel> parcel;
      if (os::is_readable(to_root_.number(), std::chrono::minutes(1))) {
        parcel = os::receive_parcel(to_root_.number());
      }
      is_cut_off_ = !parcel;
      if (!parcel) throw error({.cause = errc::not_shareable});
      if (!parcel->descriptor.is_open()) os::throw_no_room_for_descriptor();
      attach(parcel->descriptor);
      state_->channel().to_root = std::move(to_root_);
    });
  }

  phase after_third() {
    if (rank() == 0) {
      auto const next = exchange_.first_failure() ? phase::aborted : phase::ready;
      announce(next);
      return next;
    }
    if (is_attached()) return hear(phase::passing);
    // Rank 0 has closed the connection, and does not come to the exchange either.
    if (is_cut_off_ && exchange_.has_missed()) exchange_.lose_root();
    return phase::aborted;
  }

  /// The last word: an agreement in the block. Rank 0 fixes what was left to be chosen.
  void finish(environment const& environment) {
    proposal mine{.where = where_};
    if (auto const& own = exchange_.own_failure()) mine.cause = *own;
    auto& header = state_->header();
    auto const first = header.settings.first_number;
    agreement last(*state_);
    auto failed = last.settle(mine, [&] {
      os::processor_set processors;
      for (int r = 0; r < size(); ++r) processors |= state_->block().desk_of(r).processors;
      int const count = processors.count();
      header.fence_in_use = sync::choose_fence(header.settings.fence, size(), count);
      header.spins = (size() <= count ? sync::patience::with_own_processor()
                                      : sync::patience::with_shared_processor())
                         .spins;
      for (auto& line : state_->block().lines()) {
        line.arrived = first;
        line.rounds.fill(first);
      }
      header.fence.count.value = first * static_cast<std::uint32_t>(size());
      header.fence.release.value = first;
      object_ = {};
      report(environment);
    });
    if (failed) throw std::move(*failed);
  }

  /// Warns of values in the environment that have no meaning, or that differ. Rank 0 only.
  void report(environment const& environment) const {
    if (where_ == operation::split) return;  // the settings are the parent's, which has told
    for (auto const& remark : environment.remarks) warn(0, size(), remark);
    if (auto const list = environment.values.high_bandwidth_nodes.view(); !list.empty()) {
      auto const remark = os::memory_nodes("/sys", list).remark();
      if (!remark.empty()) warn(0, size(), remark);
    }
    for (int r = 1; r < size(); ++r) {
      if (exchange_.from(r).settings == exchange_.from(0).settings) continue;
      warn(0, size(),
           "the settings of rank " + std::to_string(r) +
               " differ from those of rank 0, which are taken; export the same "
               "KUPL_SHM_… and SHM_… variables to every rank");
      return;
    }
  }

  [[noreturn]] void throw_first_failure() const {
    throw error(exchange_.first_failure().value_or(failure{.cause = errc::bootstrap_failed}),
                {.where = where_, .size = size(), .agreed = true});
  }

  out_of_band_ref oob_;
  std::optional<shm::settings> given_;
  operation where_;
  greeting_exchange exchange_;
  os::shared_object object_;
  os::file_descriptor listener_;
  std::vector<std::pair<int, os::file_descriptor>> asking_;  ///< on rank 0: rank and socket
  os::file_descriptor to_root_;
  bool is_cut_off_ = false;  ///< rank 0 has ended the connection without a descriptor
  std::shared_ptr<group_state> state_;
};

}  // namespace shm::inline v1::detail
