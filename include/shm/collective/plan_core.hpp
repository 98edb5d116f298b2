#pragma once
/// @file How persistent collectives are planned, started and completed, whatever they do with data.

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shm/collective/board.hpp"
#include "shm/collective/kernel.hpp"
#include "shm/collective/operation.hpp"
#include "shm/collective/places.hpp"
#include "shm/error.hpp"
#include "shm/group.hpp"
#include "shm/group/agreement.hpp"
#include "shm/group/progress.hpp"
#include "shm/group/state.hpp"
#include "shm/options.hpp"

namespace shm::inline v1::detail {

/// Up to how many bytes of each rank are copied beside the flag that announces them, where the way
/// is chosen automatically. Waiting once instead of twice is worth more where a rank gives up its
/// processor to wait.
struct staged_limits {
  std::size_t own_processor = 0;     ///< where each rank has a processor
  std::size_t shared_processor = 0;  ///< where there are more ranks than processors
};

/// What one rank brings to the making of a plan.
struct plan_request {
  operation where = operation::none;
  std::size_t element_bytes = 1;
  std::size_t alignment = 1;
  std::uint64_t signature = 0;  ///< of the type and the operation
  std::uint64_t count = 0;      ///< of elements that each sender sends; the same on all ranks
  int root = -1;                ///< where only this rank sends
  std::span<std::byte const> send;
  std::span<std::byte> receive;  ///< may be empty on the root
  collective_algorithm algorithm = collective_algorithm::automatic;
  staged_limits limits{};  ///< where automatic
  failure cause{};         ///< where the arguments of this rank are no good
};

/// Returns what one rank brings to a plan in which all send and receive. `Op` as the type has one.
template <class T, class... Op>
plan_request request_of(operation where, std::span<T const> send, std::span<T> receive,
                        staged_limits const& limits) {
  return {.where = where,
          .element_bytes = sizeof(T),
          .alignment = alignof(T),
          .signature = type_signature<T, Op...>(),
          .count = send.size(),
          .send = std::as_bytes(send),
          .receive = std::as_writable_bytes(receive),
          .limits = limits};
}

/// The part of a plan that knows nothing of its type. One of three things happens to data: where it
/// is *staged*, each sender copies it into its slot of the board as it starts, and all read it
/// there; it can be sent anew once all have started the next operation. Where it is *direct*, ranks
/// read it where it lies, and an operation ends when all are done with it.
///
///     start   staged: copy into the slot.  Announce the step.
///     test    wait for the announcements of the senders; do this rank's work;
///             direct, or one sends to all: say that it is done, and wait for the others
///
/// Ordering: an announcement is a release, and seeing it an acquire; so is being done. What a rank
/// wrote before its start is visible to all that complete the operation.
class plan_core : public begun_work {
 public:
  /// Makes a plan. `may_lie(layout)` says what is wrong with how the buffers lie, if anything.
  ///
  /// Collective. Errors: the same on every rank.
  template <class MayLie>
  plan_core(group& ranks, plan_request const& mine, MayLie const& may_lie) : where_(mine.where) {
    if (!ranks.valid()) {
      throw error({.cause = errc::empty, .subject = "the group", .remedy = {}}, {.where = where_});
    }
    auto& state = *ranks.state();
    state.require_whole(where_);
    root_ = mine.root;
    bytes_ = mine.count * mine.element_bytes;  // no overflow: some rank has such a buffer
    plan_layout layout;
    exchange(state, mine, layout, may_lie);
    failure cause;
    try {
      find(state, layout);
    } catch (...) {
      cause = failure_of_exception(errc::out_of_memory);
    }
    board_ = board(ranks, is_staged_ ? bytes_ : 0, where_, cause);
    levellings_ = state.levellings();
  }

  virtual ~plan_core() { end(); }  // before the group that it is listed in can go

  [[nodiscard]] int rank() const noexcept { return board_.rank(); }
  [[nodiscard]] int size() const noexcept { return board_.size(); }
  /// Whether this rank is the one to tell the user of a missing rank: the first that finds it.
  [[nodiscard]] bool is_first_to_tell() const noexcept {
    return board_.segment().is_first_to_tell();
  }
  [[nodiscard]] bool is_staged() const noexcept { return is_staged_; }
  [[nodiscard]] bool is_one_result() const noexcept { return is_one_result_; }
  /// Where what each rank sends is to be read in this operation. [ranks]
  [[nodiscard]] std::span<std::byte* const> sources() noexcept {
    if (is_staged_) {
      for (int r = 0; r < size(); ++r) sources_[static_cast<std::size_t>(r)] = board_.data(r);
    }
    return sources_;
  }
  /// Where each rank receives. [ranks]
  [[nodiscard]] std::span<std::byte* const> results() const noexcept { return receive_; }
  /// Where this rank receives.
  [[nodiscard]] std::byte* own_result() const noexcept { return receive_[index()]; }

  /// Announces the next operation. Never waits.
  void start() {
    board_.segment().require_whole(where_);
    if (levellings_ != state().levellings()) fail_to_align();
    if (is_started_) {
      throw error({.cause = errc::invalid_argument,
                   .rank = rank(),
                   .subject = "the plan has been started already",
                   .remedy = "wait for it first"},
                  {.where = where_, .size = size(), .agreed = false});
    }
    board_.begin();
    if (is_sender(rank())) {
      if (is_staged_) copy_bytes(board_.data(rank()), own_, bytes_, false);
      board_.announce();
    }
    start_ = state().count_start();
    is_started_ = true;
    has_worked_ = false;
    next_look_.reset();
    if (!is_staged_ || root_ >= 0) begin();
  }

  /// Does what can be done without waiting. Returns whether the last operation is complete.
  bool test() {
    require_started_once();
    if (!is_started_) return true;
    advance();
    require_aligned();
    if (!has_worked_) return look(when_sending(), [this](int rank) { return has_sent(rank); });
    for (int r = 0; r < size(); ++r) {
      if (!has_finished(r))
        return look(when_finishing(), [this](int rank) { return has_finished(rank); });
    }
    complete();
    return true;
  }

  /// Completes the operation.
  void wait() {
    require_started_once();
    if (!is_started_) return;
    auto& segment = board_.segment();
    segment.require_whole(where_);
    require_aligned();
    segment.await_all(where_, when_sending(), [this](int r) { return has_sent(r); });
    advance();
    segment.await_all(where_, when_finishing(), [this](int r) { return has_finished(r); });
    complete();
  }

  /// Does this rank's work, once all that it needs has been sent.
  void advance() noexcept final {
    if (has_worked_) return;
    for (int r = 0; r < size(); ++r) {
      if (!has_sent(r)) return;
    }
    work();
    if (!is_staged_ || root_ >= 0) board_.finish();
    has_worked_ = true;
  }

 protected:
  /// Moves and combines: this rank's part of the operation.
  virtual void work() noexcept = 0;

 private:
  [[nodiscard]] std::size_t index() const noexcept { return static_cast<std::size_t>(rank()); }
  using rules = segment::wait_rules;
  [[nodiscard]] rules when_sending() const noexcept {
    return {.is_of_all = root_ < 0, .of = rules::phase::starting, .start = start_};
  }
  [[nodiscard]] rules when_finishing() const noexcept {
    return {.is_of_all = root_ < 0, .of = rules::phase::finishing, .start = start_};
  }
  [[nodiscard]] bool is_sender(int rank) const noexcept { return root_ < 0 || rank == root_; }
  /// Whether what `rank` sends can be read.
  [[nodiscard]] bool has_sent(int rank) const noexcept {
    // The one who sends to all waits for nobody here.
    return root_ >= 0 && (rank != root_ || rank == this->rank()) ? true
                                                                 : board_.has_announced(rank);
  }
  /// Whether this rank need not wait for `rank` any more.
  [[nodiscard]] bool has_finished(int rank) const noexcept {
    if (root_ < 0) return is_staged_ || board_.has_finished(rank);
    // A receiver waits for nobody; the root until its buffer, or the slot that it will write next,
    // has been read by all that are still there.
    if (this->rank() != root_ || rank == root_) return true;
    return board_.has_finished(rank, is_staged_ ? 1 : 0) || board_.has_left(rank);
  }

  [[nodiscard]] group_state& state() const noexcept { return board_.segment().state(); }

  /// Throws where a rank has failed, in an agreement, before it started what this rank has started.
  void require_aligned() const {
    if (levellings_ == state().levellings() || has_worked_) return;
    for (int r = 0; r < size(); ++r) {
      if (!has_sent(r)) fail_to_align();
    }
  }
  [[noreturn]] void fail_to_align() const {
    throw error({.cause = errc::mismatch,
                 .rank = rank(),
                 .subject = "a rank has failed before it started a plan that others did start, so "
                            "that they count their operations differently",
                 .remedy = "make the plan anew, on every rank"},
                {.where = where_, .size = size(), .agreed = false});
  }

  void require_started_once() const {
    if (is_started_ || board_.number() != board_.segment().state().settings().first_number) return;
    throw error({.cause = errc::invalid_argument,
                 .rank = rank(),
                 .subject = "the plan has not been started",
                 .remedy = "start it first"},
                {.where = where_, .size = size(), .agreed = false});
  }

  void complete() noexcept {
    is_started_ = false;
    end();
  }

  /// Looks now and then whether those that have not come still can. Returns false.
  template <class HasCome>
  bool look(rules const& how, HasCome const& has_come) {
    using namespace std::chrono_literals;
    advance_begun_work();  // others may be asking for that first
    board_.segment().require_whole(where_);
    auto const now = std::chrono::steady_clock::now();
    if (!next_look_) next_look_ = now + 10ms;
    if (now < *next_look_) return false;
    board_.segment().require_hope(where_, how, has_come);
    next_look_ = now + 200ms;
    return false;
  }

  /// Agrees on the arguments, and tells all ranks where the buffers of all lie.
  template <class MayLie>
  void exchange(group_state& state, plan_request const& mine, plan_layout& layout,
                MayLie const& may_lie) {
    static constexpr std::array<std::string_view, 5> equal = {
        "the size of an element in bytes", "the type with the operation (as a hash)",
        "the count of elements", "the root", "the algorithm"};
    constexpr std::size_t send_argument = 5;
    constexpr std::size_t receive_argument = 8;
    proposal vote{.where = where_,
                  .arguments = {mine.element_bytes, mine.signature, mine.count,
                                static_cast<std::uint64_t>(mine.root),
                                static_cast<std::uint64_t>(mine.algorithm)},
                  .equal = equal,
                  .cause = mine.cause};
    auto const write = [&](std::size_t at, window_range const& range) {
      vote.arguments[at] = range.window;
      vote.arguments[at + 1] = range.offset;
      vote.arguments[at + 2] = range.bytes;
    };
    try {
      auto const n = static_cast<std::size_t>(state.size());
      layout.send.resize(n);
      layout.receive.resize(n);
      sources_.resize(n);
      receive_.resize(n);
      if (!vote.cause.is_failure()) {
        write(send_argument, locate(state, mine.send, "send"));
        write(receive_argument, locate(state, mine.receive, "receive"));
      }
    } catch (...) {
      vote.cause = failure_of_exception(errc::out_of_memory);
    }
    agreement wishes(state);
    auto const read = [&] {
      for (int r = 0; r < state.size(); ++r) {
        auto const& arguments = state.block().ballot_of(r, wishes.epoch()).arguments;
        auto const range = [&](std::size_t at) {
          return window_range{arguments[at], arguments[at + 1], arguments[at + 2]};
        };
        layout.send[static_cast<std::size_t>(r)] = range(send_argument);
        layout.receive[static_cast<std::size_t>(r)] = range(receive_argument);
      }
    };
    auto failed = wishes.settle(vote, [&] {
      read();
      if (auto const found = may_lie(layout)) throw error(*found);
    });
    if (failed) throw std::move(*failed);
    if (state.rank() != 0) read();
    is_one_result_ = root_ < 0 && layout.is_one_result();
    auto const most =
        state.has_own_processor() ? mine.limits.own_processor : mine.limits.shared_processor;
    is_staged_ = is_to_be_staged(mine, most) && !layout.is_shared();
  }

  [[nodiscard]] bool is_to_be_staged(plan_request const& mine,
                                     std::size_t automatic_bytes) noexcept {
    constexpr std::size_t most_staged = 1024 * 1024;
    if (mine.alignment > board::data_at) return false;
    switch (mine.algorithm) {
      case collective_algorithm::staged:
        return bytes_ <= most_staged;
      case collective_algorithm::direct:
        return false;
      case collective_algorithm::automatic:
        break;
    }
    return bytes_ <= automatic_bytes;
  }

  void find(group_state& state, plan_layout const& layout) {
    for (std::size_t r = 0; r < sources_.size(); ++r) {
      auto const owner = static_cast<int>(r);
      sources_[r] = held_.address_of(state, layout.send[r], owner);
      // Where a way is staged, or one sends to all, each rank writes to its own buffer alone.
      bool const is_written = owner == state.rank() || (!is_staged_ && root_ < 0);
      receive_[r] = is_written ? held_.writable_address_of(state, layout.receive[r], owner)
                               : held_.address_of(state, layout.receive[r], owner);
    }
    own_ = sources_[static_cast<std::size_t>(state.rank())];
  }

  operation where_ = operation::none;
  int root_ = -1;
  std::size_t bytes_ = 0;
  bool is_staged_ = false;
  bool is_one_result_ = false;
  bool is_started_ = false;
  bool has_worked_ = false;
  std::optional<std::chrono::steady_clock::time_point> next_look_;
  board board_;
  window_holder held_;
  std::uint32_t start_ = 0;       ///< of the operation under way, among all that this rank starts
  std::uint32_t levellings_ = 0;  ///< of the group, when the plan was made
  std::byte* own_ = nullptr;      ///< what this rank sends
  std::vector<std::byte*> sources_;
  std::vector<std::byte*> receive_;
};

}  // namespace shm::inline v1::detail
