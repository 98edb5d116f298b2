#pragma once
/// @file Which memory of this process belongs to live windows of a group.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

namespace shm::inline v1::detail {

/// The mappings of a group's live windows, by which a pointer of this process becomes a place that
/// all ranks know. May be used by several threads: windows are destroyed by any.
///
/// `Object` is what owns a mapping; it outlives its entry unless it is being destroyed.
template <class Object>
class live_memory {
 public:
  /// Makes room for one more, so that `add` cannot fail.
  void reserve() {
    std::scoped_lock const guard(mutex_);
    entries_.reserve(entries_.size() + 1);
  }
  void add(std::span<std::byte const> memory, std::uint64_t number,
           std::weak_ptr<Object> owner) noexcept {
    std::scoped_lock const guard(mutex_);
    entries_.push_back({memory, number, std::move(owner)});
  }
  /// Takes out what begins at `begin`, if anything.
  void remove(std::byte const* begin) noexcept {
    std::scoped_lock const guard(mutex_);
    std::erase_if(entries_, [&](entry const& one) { return one.memory.data() == begin; });
  }

  /// Returns the window in which `address` lies; null where there is none.
  [[nodiscard]] std::shared_ptr<Object> at(std::byte const* address) const {
    std::scoped_lock const guard(mutex_);
    for (auto const& one : entries_) {
      std::less<> const before;
      if (before(address, one.memory.data())) continue;
      if (before(address, one.memory.data() + one.memory.size())) return one.owner.lock();
    }
    return nullptr;
  }
  /// Returns the window with this number; null where this process has it no more.
  [[nodiscard]] std::shared_ptr<Object> numbered(std::uint64_t number) const {
    std::scoped_lock const guard(mutex_);
    auto const found = std::ranges::find(entries_, number, &entry::number);
    return found == entries_.end() ? nullptr : found->owner.lock();
  }

 private:
  struct entry {
    std::span<std::byte const> memory;
    std::uint64_t number;
    std::weak_ptr<Object> owner;
  };

  mutable std::mutex mutex_;
  std::vector<entry> entries_;
};

}  // namespace shm::inline v1::detail
