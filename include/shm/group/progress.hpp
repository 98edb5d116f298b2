#pragma once
/// @file What a rank has begun and others wait for: done on the side, while it waits elsewhere.

#include <utility>

namespace shm::inline v1::detail {

/// Work that other ranks may wait for, in a list of all that this thread has begun, in any group.
/// It ends on the thread that has begun it.
class begun_work {
 public:
  begun_work() noexcept = default;
  begun_work(begun_work const&) = delete;
  begun_work& operator=(begun_work const&) = delete;

  /// Does what can be done without waiting.
  virtual void advance() noexcept = 0;

 protected:
  ~begun_work() { end(); }

  /// Takes it into the list.
  void begin() noexcept {
    next_ = std::exchange(first(), this);
    place_ = &first();
    if (next_ != nullptr) next_->place_ = &next_;
  }
  /// Takes it out of the list, if it is there.
  void end() noexcept {
    if (place_ == nullptr) return;
    *place_ = next_;
    if (next_ != nullptr) next_->place_ = place_;
    place_ = nullptr;
    next_ = nullptr;
  }

 private:
  friend void advance_begun_work() noexcept;

  static begun_work*& first() noexcept {
    static thread_local begun_work* of_this_thread = nullptr;
    return of_this_thread;
  }

  begun_work* next_ = nullptr;
  begun_work** place_ = nullptr;  ///< what points to it
};

/// Does what can be done of all that this thread has begun, without waiting.
inline void advance_begun_work() noexcept {
  for (auto* one = begun_work::first(); one != nullptr; one = one->next_) one->advance();
}

}  // namespace shm::inline v1::detail
