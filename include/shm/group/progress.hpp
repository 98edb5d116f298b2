#pragma once
/// @file What a rank has begun and others wait for: done on the side, while it waits elsewhere.

#include <utility>

namespace shm::inline v1::detail {

/// Work that other ranks may wait for, in a list of all that this rank has begun. Used by the
/// thread that makes the group's collective calls.
class begun_work {
 public:
  begun_work() noexcept = default;
  begun_work(begun_work const&) = delete;
  begun_work& operator=(begun_work const&) = delete;

  /// Does what can be done without waiting.
  virtual void advance() noexcept = 0;

 protected:
  ~begun_work() { end(); }

  /// Takes it into a list.
  void begin_in(begun_work*& first) noexcept {
    next_ = std::exchange(first, this);
    place_ = &first;
    if (next_ != nullptr) next_->place_ = &next_;
  }
  /// Takes it out of its list, if it is in one.
  void end() noexcept {
    if (place_ == nullptr) return;
    *place_ = next_;
    if (next_ != nullptr) next_->place_ = place_;
    place_ = nullptr;
    next_ = nullptr;
  }

 private:
  friend void advance_all(begun_work* first) noexcept;

  begun_work* next_ = nullptr;
  begun_work** place_ = nullptr;  ///< what points to it
};

inline void advance_all(begun_work* first) noexcept {
  for (auto* one = first; one != nullptr; one = one->next_) one->advance();
}

}  // namespace shm::inline v1::detail
