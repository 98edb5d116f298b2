#pragma once
/// @file The live handles of the C interface.

#include <cstddef>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

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
  bool remove(Object* handle, End const& end) noexcept {
    std::scoped_lock const guard(mutex_);
    auto const found = live_.find(handle);
    if (found == live_.end()) return false;
    end(*found->second);
    bury(live_.extract(found));
    return true;
  }

  /// Ends all handles whose objects satisfy `is_meant`.
  template <class Predicate, class End>
  void remove_if(Predicate const& is_meant, End const& end) noexcept {
    std::scoped_lock const guard(mutex_);
    for (auto at = live_.begin(); at != live_.end();) {
      auto const current = at++;
      if (!is_meant(*current->second)) continue;
      end(*current->second);
      bury(live_.extract(current));
    }
  }

 private:
  using map = std::unordered_map<Object*, std::unique_ptr<Object>>;

  void bury(typename map::node_type node) noexcept {
    buried_[next_] = std::move(node);
    next_ = (next_ + 1) % buried_.size();
  }

  std::mutex mutex_;
  map live_;
  std::vector<typename map::node_type> buried_{1024};
  std::size_t next_ = 0;
};

}  // namespace shm::inline v1::c
