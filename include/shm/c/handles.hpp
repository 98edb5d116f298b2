#pragma once
/// @file The live handles of the C interface.

#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>

namespace shm::inline v1::c {

/// Owns the objects behind C handles, and tells live handles from freed ones and from garbage
/// without touching what they point to.
///
/// The memory of a freed handle is kept until many others have been freed after it, so that a
/// second free is not mistaken for a free of a new handle at the same address.
template <class Object>
class handle_set {
 public:
  /// Takes an object over; its address is the handle. Allocates, so that nothing later has to.
  Object* add(std::unique_ptr<Object> object) {
    std::scoped_lock const guard(mutex_);
    auto* const handle = object.get();
    live_.emplace(handle, std::move(object));
    return handle;
  }

  [[nodiscard]] bool is_live(Object* handle) {
    std::scoped_lock const guard(mutex_);
    return live_.contains(handle);
  }

  /// Ends a handle: calls `end(object)` on its object. Returns false where it was not live.
  template <class End>
  bool remove(Object* handle, End const& end) {
    std::scoped_lock const guard(mutex_);
    auto const found = live_.find(handle);
    if (found == live_.end()) return false;
    end(*found->second);
    freed_.push_back(std::move(found->second));
    live_.erase(found);
    constexpr std::size_t most_kept = 1024;
    if (freed_.size() > most_kept) freed_.pop_front();
    return true;
  }

 private:
  std::mutex mutex_;
  std::unordered_map<Object*, std::unique_ptr<Object>> live_;
  std::deque<std::unique_ptr<Object>> freed_;
};

}  // namespace shm::inline v1::c
