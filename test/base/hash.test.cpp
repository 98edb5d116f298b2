#include "shm/base/hash.hpp"

#include <string_view>

#include "support/catch.hpp"

namespace {

std::uint64_t hash_of(std::string_view text) {
  shm::sequence_hash hash;
  hash.add_each(text);
  return hash.value();
}

}  // namespace

TEST_CASE("sequences that differ in a word, in order or in length have other hashes") {
  CHECK(hash_of("abc") == hash_of("abc"));
  CHECK(hash_of("abc") != hash_of("abd"));
  CHECK(hash_of("abc") != hash_of("acb"));
  CHECK(hash_of("abc") != hash_of("ab"));
  CHECK(hash_of("") != 0);
}

TEST_CASE("the hash of bytes is that of FNV-1a") { CHECK(hash_of("a") == 0xaf63dc4c8601ec8cU); }
