#pragma once
/// @file The memory of other processes that a C program has attached.

#include <mutex>
#include <unordered_map>
#include <utility>

#include "shm/error.hpp"
#include "shm/os/foreign_memory.hpp"

namespace shm::inline v1::c {

/// Owns attached memory by the address at which its user knows it. Any thread may call.
class attachment_set {
 public:
  /// Attaches memory and returns where it is. Errors: those of os::foreign_mapping.
  void* add(os::foreign_range const& source) {
    auto made = attach(source);  // before the lock: it reads files
    void* const address = made.address();
    std::scoped_lock const guard(mutex_);
    live_.emplace(address, std::move(made));
    return address;
  }

  /// Detaches what is attached at an address; returns false where nothing is.
  bool remove(void* address) noexcept {
    std::scoped_lock const guard(mutex_);
    return live_.erase(address) > 0;
  }

 private:
  static os::foreign_mapping attach(os::foreign_range const& source) try {
    return os::foreign_mapping(source);
  } catch (error const& e) {
    throw error(e.details(), {.where = operation::attach_memory});
  }

  std::mutex mutex_;
  std::unordered_map<void*, os::foreign_mapping> live_;
};

inline attachment_set& attachments() {
  static auto* const all = new attachment_set;  // outlives every static destructor
  return *all;
}

}  // namespace shm::inline v1::c
