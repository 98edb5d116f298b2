#pragma once
/// @file How the ranks of a bootstrap become a group.

#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

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
#include "shm/os/mapping.hpp"
#include "shm/os/process.hpp"
#include "shm/os/shared_object.hpp"
#include "shm/os/topology.hpp"
#include "shm/sync/arrival.hpp"
#include "shm/sync/fence.hpp"
#include "shm/sync/wait.hpp"

namespace shm::inline v1::detail {

/// Makes one group. Collective; used once.
///
///     rank 0: makes the control block          all: exchange 1, greetings: who is where
///     all: attach, or ask rank 0 for a descriptor   all: exchange 2, how that went
///     rank 0: says in the block, and on the sockets, what follows: ready, passing or aborted
///     where passing: receive and attach        all: exchange 3
///     all: an agreement in the block, which speaks the last word
///
/// Every rank takes part in exchanges 1 and 2 whatever has happened to it, since the others would
/// wait for it; rank 0 alone decides about a third. An exchange that fails on one rank is that
/// rank's failure; see `greeting_exchange` for how it keeps its turn.
class handshake {
 public:
  handshake(out_of_band_ref oob, std::optional<shm::settings> given)
      : oob_(oob), given_(given), exchange_(oob) {}

  /// Returns the group's state.
  ///
  /// Errors: the same on every rank, except on a rank whose bootstrap does not work at all.
  std::shared_ptr<group_state> run() {
    environment const environment = given_ ? shm::environment{*given_, {}} : read_environment();
    auto& mine = exchange_.mine();
    mine.settings = environment.values;
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
    } catch (error const& e) {
      exchange_.fail(e.details());
    } catch (std::exception const& e) {
      exchange_.fail(
          {.cause = errc::out_of_memory, .subject = std::string_view(e.what()), .remedy = {}});
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
    header.magic = control_magic;
    try {
      listener_ = os::listen_at(mine.nonce);
    } catch (error const&) {
      // Only ranks that cannot use /proc need it, and they will say so.
    }
    attach(std::move(map), os::reopen(::getpid(), object_.descriptor.number()));
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
  void attach(os::mapping map, os::file_descriptor description) {
    auto const whole = map.bytes();
    control_block const block(whole.data(), size());
    auto& desk = block.desk_of(rank());
    os::populate(whole, std::as_writable_bytes(std::span(&block.line(rank()), 1)),
                 description.number());
    os::populate(whole, std::as_writable_bytes(std::span(&desk, 1)), description.number());
    desk.processors = os::processor_set::usable();
    state_ = std::make_shared<group_state>(std::move(map), std::move(description), rank(), size());
    exchange_.observe(state_->block());
  }

  void attach(os::file_descriptor description) {
    auto const& root = exchange_.from(0);
    os::mapping map(description.number(), root.object.bytes);
    if (!control_block(map.bytes().data(), size()).is_of(root.nonce)) {
      throw error({.cause = errc::not_shareable,
                   .subject = "the control block is not the one that rank 0 made",
                   .remedy = "run the same version of the library on every rank"});
    }
    attach(std::move(map), std::move(description));
  }

  /// Opens rank 0's block through /proc, or asks rank 0 to send its descriptor.
  void join() {
    if (rank() == 0) return;
    attempt([&] {
      auto const& root = exchange_.from(0);
      os::file_descriptor description;
      try {
        description = os::attach(root.object);
      } catch (error const& refused) {
        ask(refused.details());
        return;
      }
      attach(std::move(description));
    });
  }

  void ask(failure refused) {
    try {
      to_root_ = os::ask_for_descriptors(exchange_.from(0).nonce, rank());
      exchange_.await(to_root_.number());
    } catch (error const&) {
      refused.cause = refused.system == EMFILE ? errc::limit_reached : errc::not_shareable;
      refused.remedy = "run all ranks as one user in one PID or network namespace";
      throw error(refused);
    }
  }

  /// Rank 0 says what follows the second exchange; the others hear it.
  phase after_second() {
    if (rank() == 0) {
      auto next = exchange_.first_failure() || !is_attached() ? phase::aborted : phase::ready;
      if (next == phase::ready && exchange_.count_waiting() > 0) {
        attempt([&] { serve(); });
        next = exchange_.first_failure() ? phase::aborted : phase::passing;
      }
      announce(next);
      if (next != phase::passing) listener_.reset();
      return next;
    }
    if (is_attached()) return hear(phase::exchanging);
    if (!to_root_.is_open()) return phase::aborted;
    return hear_on_socket();
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
    sync::absence missing;
    sync::wait_until(sync::patience::with_shared_processor(),
                     [&] { return sync::load(header.stage) != seen; },
                     [&] {
                       missing = {control_roll{*state_}(0), 0};
                       return missing.why != sync::standing::present;
                     });
    auto const next = sync::load(header.stage);
    if (next == phase::aborted) exchange_.rule(header.rulings[0]);
    if (next != seen) return next;
    exchange_.rule({.cause = errc::peer_lost, .rank = 0});
    return phase::aborted;
  }

  /// Waits, not attached, for the descriptor or the end of the connection.
  phase hear_on_socket() {
    attempt([&] {
      auto parcel = os::receive_parcel(to_root_.number());
      if (!parcel) {
        throw error({.cause = errc::not_shareable,
                     .subject = "rank 0 sent no descriptor",
                     .remedy = {}});
      }
      description_ = std::move(parcel->descriptor);
    });
    return description_.is_open() ? phase::passing : phase::aborted;
  }

  /// Sends each rank that asks for one an open file description of its own. Rank 0 only.
  void serve() {
    auto& peers = state_->channel().peers;
    for (int left = exchange_.count_waiting(); left > 0; --left) {
      auto socket = os::accept_one(listener_.number(), std::chrono::seconds(10));
      auto const hello = socket.is_open() ? os::receive_parcel(socket.number()) : std::nullopt;
      if (!hello || hello->what.nonce != exchange_.from(0).nonce) {
        throw error({.cause = errc::not_shareable,
                     .subject = "a rank that needs a descriptor cannot be reached",
                     .remedy = {}});
      }
      auto const own = os::reopen(::getpid(), object_.descriptor.number());
      os::send_parcel(socket.number(), hello->what, own.number());
      peers.emplace_back(static_cast<int>(hello->what.number), std::move(socket));
    }
  }

  void receive_descriptor() {
    if (!description_.is_open()) return;
    attempt([&] {
      attach(std::move(description_));
      state_->channel().to_root = std::move(to_root_);
    });
  }

  phase after_third() {
    if (rank() == 0) {
      auto const next = exchange_.first_failure() ? phase::aborted : phase::ready;
      announce(next);
      listener_.reset();
      return next;
    }
    return is_attached() ? hear(phase::passing) : phase::aborted;
  }

  /// The last word: an agreement in the block. Rank 0 fixes what was left to be chosen.
  void finish(environment const& environment) {
    proposal mine{.where = operation::create_communicator};
    if (auto const& own = exchange_.own_failure()) mine.cause = *own;
    auto& header = state_->header();
    auto const first = header.settings.first_number;
    state_->start_epochs(first);
    agreement last(*state_);
    auto failed = last.settle(mine, [&] {
      os::processor_set processors;
      for (int r = 0; r < size(); ++r) processors |= state_->block().desk_of(r).processors;
      int const count = processors.count();
      header.settings.fence = sync::choose_fence(header.settings.fence, size(), count);
      header.patience = size() <= count ? sync::patience::with_own_processor()
                                        : sync::patience::with_shared_processor();
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
    for (auto const& remark : environment.remarks) warn(0, size(), remark);
    for (int r = 1; r < size(); ++r) {
      if (exchange_.from(r).settings == exchange_.from(0).settings) continue;
      warn(0, size(), "the settings of rank " + std::to_string(r) +
                          " differ from those of rank 0, which are taken; export the same "
                          "KUPL_SHM_… variables to every rank");
      return;
    }
  }

  [[noreturn]] void throw_first_failure() const {
    throw error(exchange_.first_failure().value_or(failure{.cause = errc::bootstrap_failed}),
                {.where = operation::create_communicator, .size = size(), .agreed = true});
  }

  out_of_band_ref oob_;
  std::optional<shm::settings> given_;
  greeting_exchange exchange_;
  os::shared_object object_;
  os::file_descriptor listener_;
  os::file_descriptor to_root_;
  os::file_descriptor description_;
  std::shared_ptr<group_state> state_;
};

}  // namespace shm::inline v1::detail
