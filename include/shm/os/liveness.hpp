#pragma once
/// @file Death of processes, as the kernel sees it: locks that end with their holder.

#include <fcntl.h>
#include <pthread.h>

#include <cerrno>
#include <mutex>
#include <string>
#include <vector>

#include "shm/os/attach.hpp"
#include "shm/os/call.hpp"
#include "shm/os/file_descriptor.hpp"

namespace shm::inline v1::os {

/// Holds a write lock on byte `rank` of an object as long as it lives, and asks whether other ranks
/// hold theirs.
///
/// The lock belongs to an open file description: the kernel drops it when the process dies (also
/// while it is a zombie), keeps it while the process is stopped, and sees it from every PID
/// namespace. A forked child shares the description, and would keep the lock beyond its parent's
/// death: the child's copy of the descriptor is closed as it is forked. Nothing may be mapped
/// through the description, since the child's mapping would keep it too. A child
/// that is made without fork(3), by a raw system call, keeps the lock until it ends or executes.
///
/// Source: fcntl(2), "Open file description locks".
class life_lock {
 public:
  /// Takes the lock of `rank` through a description of its own of the object behind `descriptor`.
  ///
  /// Errors: errc::mismatch where another process holds the lock of this rank.
  life_lock(int descriptor, int rank) {
    registry::instance().add(*this, descriptor);
    auto range = byte(F_WRLCK, rank);
    if (::fcntl(file_.number(), F_OFD_SETLK, &range) == 0) return;
    int const number = errno;
    registry::instance().remove(*this);
    if (number == EAGAIN || number == EACCES) {
      throw error(
          {.cause = errc::mismatch, .subject = "two processes have rank " + std::to_string(rank)});
    }
    throw_refused(number, "locking a byte of the control block");
  }
  life_lock(life_lock const&) = delete;
  life_lock& operator=(life_lock const&) = delete;
  ~life_lock() { registry::instance().remove(*this); }

  /// Whether `rank`, not the caller's own, holds its lock. A refused question counts as yes: a
  /// living rank must never be taken for dead.
  [[nodiscard]] bool is_held_by(int rank) const noexcept {
    auto range = byte(F_WRLCK, rank);
    return ::fcntl(file_.number(), F_OFD_GETLK, &range) != 0 || range.l_type != F_UNLCK;
  }

  /// The descriptor that the lock is held through; -1 in a forked child.
  [[nodiscard]] int descriptor() const noexcept { return file_.number(); }

 private:
  /// The live locks of this process, for the handler that runs in a forked child. Descriptors are
  /// opened and closed under the mutex, which is held across fork(2): the child finds all of them.
  class registry {
   public:
    static registry& instance() {
      static registry* const only = new registry;  // never destroyed: used by late destructors
      return *only;
    }
    void add(life_lock& lock, int descriptor) {
      std::scoped_lock const guard(mutex_);
      locks_.reserve(locks_.size() + 1);
      lock.file_ = reopen(descriptor);
      locks_.push_back(&lock);
    }
    void remove(life_lock& lock) noexcept {
      std::scoped_lock const guard(mutex_);
      std::erase(locks_, &lock);
      lock.file_.reset();
    }

   private:
    registry() {
      int const number =
          ::pthread_atfork([] { instance().mutex_.lock(); }, [] { instance().mutex_.unlock(); },
                           [] { instance().close_in_child(); });
      if (number != 0) throw_refused(number, "registering what forked children close");
    }
    void close_in_child() noexcept {
      for (auto* const lock : locks_) lock->file_.reset();
      locks_.clear();
      mutex_.unlock();
    }

    std::mutex mutex_;
    std::vector<life_lock*> locks_;
  };

  static struct flock byte(short type, int rank) noexcept {
    struct flock range{};
    range.l_type = type;
    range.l_whence = SEEK_SET;
    range.l_start = rank;
    range.l_len = 1;
    return range;
  }

  file_descriptor file_;
};

}  // namespace shm::inline v1::os
