#pragma once
/// @file What ranks tell each other through the bootstrap while they become a group.

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "shm/base/text.hpp"
#include "shm/error.hpp"
#include "shm/group/control_block.hpp"
#include "shm/oob/out_of_band.hpp"
#include "shm/os/attach.hpp"
#include "shm/os/call.hpp"
#include "shm/os/process.hpp"
#include "shm/sync/arrival.hpp"
#include "shm/version.hpp"

namespace shm::inline v1::detail {

/// "shm oob1" in ASCII.
inline constexpr std::uint64_t greeting_magic = 0x31626f6f206d6873U;

/// One rank's message in every exchange: 256 bytes in all versions, the version first.
struct greeting {
  enum class state : std::uint32_t { idle, attached, waiting, failed };

  std::uint64_t magic = greeting_magic;
  std::uint32_t layout = layout_version;
  std::uint32_t stage = 0;  ///< which exchange the sender is in
  std::int32_t rank = -1;
  std::int32_t size = 0;
  greeting::state state = state::idle;
  std::int32_t system = 0;     ///< where failed: errno
  errc cause{};                ///< where failed
  std::int32_t blamed = -1;    ///< where failed: the rank that it is about
  std::uint64_t settings = 0;  ///< their digest
  os::identifier boot{};
  os::identifier nonce{};       ///< rank 0: of the control block; known to the group alone
  os::identifier listener{};    ///< rank 0: the name of its socket
  os::object_address object{};  ///< rank 0: the control block
  fixed_text<128> subject{};    ///< where failed

  [[nodiscard]] failure as_failure() const {
    return {.cause = cause,
            .system = system,
            .rank = blamed >= 0 ? blamed : rank,
            .subject = subject.view(),
            .remedy = os::remedy_for(system)};
  }
};
static_assert(sizeof(greeting) == 256 && std::is_trivially_copyable_v<greeting>);

/// Says which ranks are on which machine: "one machine has ranks 0 to 1, 4; one machine has …".
inline std::string machines_in_words(std::span<greeting const> all) {
  std::vector<os::identifier> machines;
  for (auto const& one : all) {
    if (std::ranges::find(machines, one.boot) == machines.end()) machines.push_back(one.boot);
  }
  std::string text;
  for (auto const& machine : machines) {
    if (!text.empty()) text += "; ";
    text += "one machine has ranks ";
    bool is_first = true;
    for (std::size_t r = 0; r < all.size(); ++r) {
      if (all[r].boot != machine) continue;
      std::size_t last = r;
      while (last + 1 < all.size() && all[last + 1].boot == machine) ++last;
      if (!is_first) text += ", ";
      text += std::to_string(r);
      if (last > r) text.append(" to ").append(std::to_string(last));
      is_first = false;
      r = last;
    }
  }
  return text;
}

/// Whether two ranks are known to be on different machines.
inline bool are_apart(greeting const& one, greeting const& other) noexcept {
  constexpr os::identifier unknown{};
  return one.boot != unknown && other.boot != unknown && one.boot != other.boot;
}

/// The exchanges of greetings, and what they have brought to light so far.
///
/// An allgather that fails on this rank may have taken its turn, or not; if not, the others still
/// wait for it. Every greeting names its exchange, so a rank that has moved on sees that the others
/// are one exchange behind, and repeats. After the last one a rank asks the control block whether
/// any other has come out of it, and repeats its call if after two seconds none has.
///
/// A bootstrap that itself reports the same error on every rank has nothing more to exchange.
class greeting_exchange {
 public:
  /// `has_anyone_passed(stage)` tells whether another rank has come out of that exchange, as far as
  /// this rank can see.
  greeting_exchange(out_of_band_ref oob, std::function<bool(std::uint32_t)> has_anyone_passed)
      : oob_(oob),
        has_anyone_passed_(std::move(has_anyone_passed)),
        all_(static_cast<std::size_t>(oob.size())) {
    mine_.rank = oob.rank();
    mine_.size = oob.size();
  }

  [[nodiscard]] greeting& mine() noexcept { return mine_; }
  [[nodiscard]] greeting const& from(int rank) const noexcept {
    return all_[static_cast<std::size_t>(rank)];
  }

  /// Makes this rank's progress through exchanges seen in the control block.
  void observe(control_block const& block) noexcept {
    block_ = block;
    if (!own_failure_) mine_.state = greeting::state::attached;
  }

  /// Marks this rank as waiting for a descriptor from rank 0.
  void await_descriptor() noexcept {
    is_waiting_ = true;
    mine_.state = greeting::state::waiting;
  }

  /// Marks this rank as failed, from the next exchange on. The first failure counts, unless it may
  /// come of rank 0's death: a bootstrap that fails after it is the better reason.
  void fail(failure const& why) {
    if (own_failure_ && !may_be_death(*own_failure_)) return;
    own_failure_ = why;
    if (why.rank < 0) own_failure_->rank = mine_.rank;
    mine_.state = greeting::state::failed;
    mine_.blamed = own_failure_->rank;
    mine_.cause = why.cause;
    mine_.system = why.system;
    mine_.subject = why.subject.view();
  }

  /// Takes rank 0's word for the failure of the whole.
  void rule(failure const& why) noexcept { ruling_ = why; }

  /// Takes rank 0 for dead, which is the failure of the whole unless the exchanges have brought
  /// another that does not come of it: that one is known to all, also to those that cannot see the
  /// death.
  void lose_root() noexcept {
    auto const* const told = told_failure();
    if (told != nullptr && !may_be_death(*told)) return;
    ruling_ = failure{.cause = errc::peer_lost, .rank = 0};
  }

  /// The failure that all ranks report, as far as this rank knows.
  [[nodiscard]] std::optional<failure> first_failure() const {
    if (ruling_) return ruling_;
    auto const* const told = told_failure();
    bool const has_better_reason = told != nullptr && may_be_death(*told) && own_failure_ &&
                                   own_failure_->cause != errc::not_shareable;
    if (told != nullptr && !has_better_reason) return worded(told->as_failure());
    if (own_failure_) return worded(*own_failure_);
    return std::nullopt;
  }
  [[nodiscard]] bool is_everyone_attached() const noexcept {
    return std::ranges::all_of(
        all_, [](greeting const& one) { return one.state == greeting::state::attached; });
  }
  /// Whether this rank's last exchange has failed.
  [[nodiscard]] bool has_missed() const noexcept { return has_missed_; }
  [[nodiscard]] std::optional<failure> const& own_failure() const noexcept { return own_failure_; }

  /// Exchanges greetings. Never throws: a failure of the bootstrap becomes this rank's own.
  void run(std::uint32_t stage) {
    if (is_over_) return;
    mine_.stage = stage;
    if (block_) sync::store(own_desk().entered, stage);
    constexpr int most_calls = 3;
    for (int call = 0; call < most_calls; ++call) {
      has_missed_ = !gather();
      if (!has_missed_) {
        if (is_anyone_behind()) continue;
        if (block_) sync::store(own_desk().passed, stage);
        examine();
        return;
      }
      if (block_) sync::store(own_desk().failed, stage);
      if (is_over_ || stage == 1 || !is_awaited(stage)) return;
    }
  }

 private:
  /// Whether the system has refused access to rank 0's memory, as it does too where rank 0 is dead.
  template <class Found>
  [[nodiscard]] static bool may_be_death(Found const& found) noexcept {
    return found.cause == errc::not_shareable && found.system != 0;
  }

  /// The first greeting that tells of a failure; null where none does.
  [[nodiscard]] greeting const* told_failure() const noexcept {
    auto const found = std::ranges::find(all_, greeting::state::failed, &greeting::state);
    return found == all_.end() ? nullptr : &*found;
  }

  /// Adds what the greetings of all say about a failure of one.
  [[nodiscard]] failure worded(failure found) const {
    if (found.cause == errc::not_shareable) found.subject = strangers_in_words();
    return found;
  }

  /// Says which ranks cannot share memory with which.
  [[nodiscard]] std::string strangers_in_words() const {
    for (auto const& one : all_) {
      if (are_apart(one, all_.front())) return machines_in_words(all_);
    }
    std::string ranks;
    for (auto const& one : all_) {
      if (one.state != greeting::state::failed || one.cause != errc::not_shareable) continue;
      if (!ranks.empty()) ranks += ", ";
      ranks += std::to_string(one.rank);
    }
    return "these cannot open rank 0's memory through /proc, nor connect to it: " + ranks;
  }

  [[nodiscard]] desk& own_desk() const noexcept { return block_->desk_of(mine_.rank); }

  bool gather() {
    std::vector<greeting> incoming(all_.size(), greeting{.magic = 0});
    try {
      oob_.allgather(std::as_bytes(std::span(&mine_, 1)),
                     std::as_writable_bytes(std::span(incoming)));
    } catch (error const& e) {
      is_over_ = e.is_agreed();
      is_over_ ? rule(e.details()) : fail(e.details());
      return false;
    } catch (...) {
      fail(failure_of_exception(errc::bootstrap_failed));
      return false;
    }
    all_ = std::move(incoming);
    return true;
  }

  /// Whether another rank was in an earlier exchange: this rank's last call took no turn.
  [[nodiscard]] bool is_anyone_behind() const noexcept {
    return std::ranges::any_of(all_, [&](greeting const& one) {
      return one.magic == greeting_magic && one.stage < mine_.stage;
    });
  }

  /// Whether the others still wait for this rank in exchange `stage`, as far as can be seen.
  [[nodiscard]] bool is_awaited(std::uint32_t stage) {
    using namespace std::chrono_literals;
    bool const can_see = block_ || is_waiting_;
    if (oob_.size() == 1 || !can_see) return false;
    using clock = std::chrono::steady_clock;
    if (!deadline_) deadline_ = clock::now() + 2s;  // for all exchanges together
    while (clock::now() < *deadline_) {
      if (has_anyone_passed_(stage)) return false;
      std::this_thread::sleep_for(1ms);
    }
    return true;
  }

  [[nodiscard]] bool is_rank_taken_twice(int rank) const noexcept {
    auto const is_it = [rank](greeting const& one) {
      return one.magic == greeting_magic && one.rank == rank;
    };
    return std::ranges::count_if(all_, is_it) > 1;
  }

  /// Compares the greetings with rank 0's.
  void examine() {
    auto const& root = all_.front();
    for (std::size_t r = 0; r < all_.size() && !own_failure_; ++r) {
      auto const& one = all_[r];
      failure found{.rank = static_cast<int>(r)};
      bool const is_greeting = one.magic == greeting_magic;
      if (is_greeting && one.rank != static_cast<int>(r) && is_rank_taken_twice(one.rank)) {
        found.cause = errc::mismatch;
        found.rank = one.rank;  // one that can tell the user, whichever place it has
        found.subject = "two processes say that they are rank " + std::to_string(one.rank);
        found.remedy = "give every process a rank of its own";
      } else if (!is_greeting || one.rank != static_cast<int>(r)) {
        found.cause = errc::bootstrap_failed;
        found.rank = mine_.rank;  // who has received it so
        found.subject = "the allgather did not bring the message of rank " + std::to_string(r) +
                        " to its place";
      } else if (one.layout != root.layout) {
        found.cause = errc::mismatch;
        found.subject = "the layout of shared memory is version " + std::to_string(one.layout) +
                        " there, and " + std::to_string(root.layout) + " on rank 0";
        found.remedy = "build all ranks with the same version of the library";
      } else if (one.size != root.size) {
        found.cause = errc::mismatch;
        found.subject = "the number of ranks is " + std::to_string(one.size) + " there, and " +
                        std::to_string(root.size) + " on rank 0";
      } else if (are_apart(one, root)) {
        found.cause = errc::not_shareable;
      } else {
        continue;
      }
      fail(found);
    }
  }

  out_of_band_ref oob_;
  std::function<bool(std::uint32_t)> has_anyone_passed_;
  greeting mine_;
  std::vector<greeting> all_;
  std::optional<control_block> block_;
  bool is_waiting_ = false;
  std::optional<std::chrono::steady_clock::time_point> deadline_;
  bool has_missed_ = false;
  bool is_over_ = false;
  std::optional<failure> own_failure_;
  std::optional<failure> ruling_;
};

}  // namespace shm::inline v1::detail
