#pragma once
/// @file A file descriptor that closes itself.

#include <unistd.h>

#include <utility>

namespace shm::inline v1::os {

/// Owns one file descriptor. Moved-from and default-constructed objects own none.
class file_descriptor {
 public:
  file_descriptor() noexcept = default;
  explicit file_descriptor(int number) noexcept : number_(number) {}
  file_descriptor(file_descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  file_descriptor& operator=(file_descriptor&& other) noexcept {
    if (this != &other) {
      reset();
      number_ = std::exchange(other.number_, -1);
    }
    return *this;
  }
  ~file_descriptor() { reset(); }

  [[nodiscard]] int number() const noexcept { return number_; }
  [[nodiscard]] bool is_open() const noexcept { return number_ >= 0; }

  /// Closes now. An error of close(2) is of no consequence: nothing is written through descriptors.
  void reset() noexcept {
    if (is_open()) ::close(std::exchange(number_, -1));
  }

 private:
  int number_ = -1;
};

}  // namespace shm::inline v1::os
