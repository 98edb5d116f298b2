#pragma once
/// @file In which order a window's kinds of memory are tried, and which failure counts in the end.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "shm/error.hpp"
#include "shm/options.hpp"
#include "shm/os/mapping.hpp"
#include "shm/policy/segment_policy.hpp"
#include "shm/window/segment_layout.hpp"

namespace shm::inline v1::detail {

/// Whether another kind of memory could succeed where one has failed, in the operation `where`.
inline bool is_worth_another(error const& failed, operation where) noexcept {
  if (failed.where() != where && failed.where() != operation::none) return false;
  switch (failed.details().cause) {
    case errc::out_of_memory:
    case errc::no_space:
    case errc::limit_reached:
    case errc::permission_denied:
    case errc::unsupported:
    case errc::system_failure:
      return true;
    default:
      return false;
  }
}

/// Whether alignment to pages of this size would add more to the blocks than they have.
///
/// Errors: errc::size_overflow.
inline bool is_mostly_padding(std::span<std::uint64_t const> sizes, layout how,
                              std::size_t page_bytes) {
  std::vector<block_entry> entries(sizes.size());
  segment_layout blocks;
  blocks.place(sizes, entries, how, page_bytes);
  std::size_t data = 0;  // no overflow: less than the total
  for (auto const bytes : sizes) data += bytes;
  return data == 0 || blocks.total - data > data;
}

/// The kinds of memory that a policy offers for one window, in the order in which rank 0 tries
/// them, and why those that were given up are not to be had.
class fallback {
 public:
  /// Settles the order, at the first call: as the policy has them, but kinds with larger pages than
  /// the last one, in which blocks would mostly be padding, come after it, or not at all where the
  /// last one is base pages.
  ///
  /// Errors: errc::size_overflow.
  void plan(segment_policy_ref const& policy, std::span<std::uint64_t const> sizes, layout how) {
    if (!attempts_.empty()) return;
    int const last = std::max(policy.attempts(), 1) - 1;
    auto const last_page_bytes = policy.page_bytes(last);
    std::vector<kind> padded;
    for (int attempt = 0; attempt <= last; ++attempt) {
      auto const page_bytes = policy.page_bytes(attempt);
      bool const is_padded =
          page_bytes > last_page_bytes && is_mostly_padding(sizes, how, page_bytes);
      (is_padded ? padded : attempts_).push_back({attempt, page_bytes});
    }
    if (last_page_bytes <= os::base_page_bytes()) return;
    attempts_.insert(attempts_.end(), padded.begin(), padded.end());
  }

  /// The policy's number of the kind whose turn it is.
  ///
  /// Errors: what counts of what has failed, where none is left.
  [[nodiscard]] int attempt() const {
    if (at_ >= attempts_.size()) throw error(why_);
    return attempts_[at_].attempt;
  }

  /// Gives up the kind whose turn it is.
  void pass_over(failure const& why) noexcept {
    // That the machine has no such memory tells less than why it has not given what it has.
    auto const is_missing = [](failure const& one) {
      return one.cause == errc::unsupported && one.system == 0;
    };
    if (!why_.is_failure() || is_missing(why_) || !is_missing(why)) why_ = why;
    ++at_;
  }

  /// Why no better memory was to be had; no failure where none was given up.
  [[nodiscard]] failure const& why() const noexcept { return why_; }

  /// The size in bytes of the largest pages that were tried.
  [[nodiscard]] std::size_t largest_page_bytes() const noexcept {
    std::size_t largest = 0;
    for (std::size_t i = 0; i <= at_ && i < attempts_.size(); ++i) {
      largest = std::max(largest, attempts_[i].page_bytes);
    }
    return largest;
  }

 private:
  struct kind {
    int attempt = 0;
    std::size_t page_bytes = 0;
  };

  std::vector<kind> attempts_;
  std::size_t at_ = 0;
  failure why_{};
};

}  // namespace shm::inline v1::detail
