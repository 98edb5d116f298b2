#pragma once
/// @file The bootstrap of processes that one process has forked.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <new>
#include <optional>
#include <span>
#include <string>

#include "shm/base/size.hpp"
#include "shm/error.hpp"
#include "shm/options.hpp"
#include "shm/os/mapping.hpp"
#include "shm/sync/arrival.hpp"
#include "shm/sync/fence.hpp"
#include "shm/sync/wait.hpp"

namespace shm::inline v1 {

/// Memory that a process and its later children share: where they gather. Made before forking.
///
///     fence_words                    the words of one fence
///     verdict_word                   the rank whose death all report
///     arrival_line [ranks]
///     gone         [ranks] line      1: the parent has reaped this rank
///     blocks       [2][ranks][256]   what is gathered; two sets, used in turn
class fork_area {
 public:
  static constexpr std::size_t block_bytes = 256;

  /// Errors: errc::invalid_argument for fewer than one rank; as `os::mapping`.
  explicit fork_area(int ranks)
      : ranks_(ranks), memory_(os::mapping::shared_with_children(size_bytes(ranks))) {
    auto const n = static_cast<std::size_t>(ranks);
    words_ = ::new (memory_.bytes().data()) sync::fence_words;
    verdict_ = ::new (words_ + 1) sync::verdict_word;
    lines_ = {::new (verdict_ + 1) sync::arrival_line[n], n};
    gone_ = {::new (lines_.data() + n) sync::lone_word[n], n};
    blocks_ = reinterpret_cast<std::byte*>(gone_.data() + n);
  }
  fork_area(fork_area const&) = delete;
  fork_area& operator=(fork_area const&) = delete;

  [[nodiscard]] int size() const noexcept { return ranks_; }
  [[nodiscard]] sync::fence_words& words() noexcept { return *words_; }
  [[nodiscard]] sync::verdict_word& verdict() noexcept { return *verdict_; }
  [[nodiscard]] std::span<sync::arrival_line> lines() noexcept { return lines_; }
  [[nodiscard]] std::span<std::byte> block(std::uint32_t set, int rank) noexcept {
    auto const index = (set & 1U) * lines_.size() + static_cast<std::size_t>(rank);
    return {blocks_ + index * block_bytes, block_bytes};
  }

  /// Tells all ranks that `rank` has ended. Called by the parent as it reaps.
  void mark_gone(int rank) noexcept { sync::store(gone(rank), 1); }
  [[nodiscard]] bool is_gone(int rank) noexcept { return sync::load(gone(rank)) != 0; }

 private:
  [[nodiscard]] std::uint32_t& gone(int rank) noexcept {
    return gone_[static_cast<std::size_t>(rank)].value;
  }

  static std::size_t size_bytes(int ranks) {
    if (ranks < 1) {
      throw error({.cause = errc::invalid_argument,
                   .subject = std::to_string(ranks) + " ranks",
                   .remedy = "ask for at least one"});
    }
    return sizeof(sync::fence_words) + sizeof(sync::verdict_word) +
           static_cast<std::size_t>(ranks) *
               (sizeof(sync::arrival_line) + sizeof(sync::lone_word) + 2 * block_bytes);
  }

  int ranks_;
  os::mapping memory_;
  sync::fence_words* words_ = nullptr;
  sync::verdict_word* verdict_ = nullptr;
  std::span<sync::arrival_line> lines_;
  std::span<sync::lone_word> gone_;
  std::byte* blocks_ = nullptr;
};

/// Bootstraps through memory inherited from the parent. Survives the death of ranks: the others get
/// errc::peer_lost once the parent has reaped the dead.
class fork_oob {
 public:
  fork_oob(fork_area& area, int rank) noexcept : area_(&area), rank_(rank) {}

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return area_->size(); }

  void allgather(std::span<std::byte const> mine, std::span<std::byte> all) {
    if (missing_) fail();
    auto const n = mine.size();
    // Of this call alone: copies of this bootstrap share the words.
    sync::fence fence(area_->lines(), area_->words(), rank_, fence_algorithm::counter,
                      sync::patience::with_shared_processor());
    for (std::size_t at = 0; at < n; at += fork_area::block_bytes) {
      auto const part = mine.subspan(at, std::min(n - at, fork_area::block_bytes));
      // The two sets are used in turn: the next fence says that all have read this one.
      auto const set = sync::load_own(area_->lines()[static_cast<std::size_t>(rank_)].arrived);
      std::ranges::copy(part, area_->block(set, rank_).begin());
      if (auto const missing = fence.cross(roll{*area_})) {
        missing_ = area_->verdict().settle(*missing);
        fail();
      }
      for (int rank = 0; rank < size(); ++rank) {
        auto const from = area_->block(set, rank).first(part.size());
        std::ranges::copy(from, all.subspan(static_cast<std::size_t>(rank) * n + at).begin());
      }
    }
  }

 private:
  struct roll {
    fork_area& area;
    sync::standing operator()(int rank) const noexcept {
      return area.is_gone(rank) ? sync::standing::dead : sync::standing::present;
    }
    static std::optional<sync::absence> verdict() noexcept { return std::nullopt; }
  };

  [[noreturn]] void fail() const {
    throw error({.cause = errc::peer_lost, .rank = missing_->rank},
                {.where = operation::none, .size = size(), .agreed = true});
  }

  fork_area* area_;
  int rank_;
  std::optional<sync::absence> missing_;
};

}  // namespace shm::inline v1
