#pragma once
/// @file Whether ranks see the same.

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "shm/base/text.hpp"
#include "shm/group.hpp"

namespace shm_test {

/// Whether every rank of `node` passes the same text, up to 1000 characters. Collective.
inline bool is_same_everywhere(shm::group& node, std::string_view text) {
  using line = shm::fixed_text<1024>;
  line const mine(text);
  std::vector<line> all(static_cast<std::size_t>(node.size()));
  node.allgather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)));
  for (auto const& one : all) {
    if (one.view() != mine.view()) return false;
  }
  return true;
}

}  // namespace shm_test
