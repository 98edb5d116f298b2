#include "shm/os/node_set.hpp"

#include <limits>
#include <optional>
#include <vector>

#include "support/catch.hpp"

namespace {

using shm::os::node_set;

constexpr int word_bits = std::numeric_limits<unsigned long>::digits;

TEST_CASE("a list of the kernel is read with and without the line feed at its end") {
  CHECK(node_set::parse("0,2-5") == node_set{0, 2, 3, 4, 5});
  CHECK(node_set::parse("0,2-5\n") == node_set{0, 2, 3, 4, 5});
  CHECK(node_set::parse("7") == node_set{7});
  CHECK(node_set::parse("3-3,1023") == node_set{3, 1023});
  CHECK(node_set::parse("5,1-2,2") == node_set{1, 2, 5});
}

TEST_CASE("an empty list is the empty set, not a malformed one") {
  CHECK(node_set::parse("") == node_set{});
  CHECK(node_set::parse("\n") == node_set{});
}

TEST_CASE("a text that is no list of nodes is not read in part") {
  for (auto const* const text :
       {"a",     "0,",  ",0",  "0,,1", "1-",  "-1",   "+1",     "5-2",
        "0-1-2", "0 ",  " 0",  "0, 1", "0;1", "1024", "0-1024", "99999999999999999999",
        "0\n\n", "0x1", "0-a", "3\n4"}) {
    INFO(text);
    CHECK(node_set::parse(text) == std::nullopt);
  }
}

TEST_CASE("a set knows its members in ascending order, over any number of words") {
  node_set set{200, 0, word_bits - 1, word_bits};
  CHECK(set.members() == std::vector{0, word_bits - 1, word_bits, 200});
  CHECK(set.count() == 4);
  CHECK(set.contains(word_bits));
  CHECK_FALSE(set.contains(word_bits + 1));
  CHECK_FALSE(set.contains(5000));
  CHECK_FALSE(set.contains(-1));
  set.add(1023);
  CHECK(set.contains(1023));
  CHECK(node_set{}.is_empty());
  CHECK(node_set{}.members().empty());
  CHECK(node_set{}.words().empty());
}

TEST_CASE("a mask of the kernel has the bit of each member, and is read back") {
  node_set const set{1, word_bits + 3};
  REQUIRE(set.words().size() == 2);
  CHECK(set.words()[0] == 2);
  CHECK(set.words()[1] == 8);
  std::vector<unsigned long> const mask{2, 8, 0, 0};
  CHECK(node_set::of_words(mask) == set);
  CHECK(node_set::of_words({}) == node_set{});
}

TEST_CASE("sets that were made in different ways are equal where their members are") {
  node_set const small{1};
  node_set const large{1, 900};
  CHECK((large - node_set{900}) == small);
  CHECK((large & small) == small);
  CHECK((small & large) == small);
  CHECK((small | large) == large);
  CHECK((large | small) == large);
  CHECK((small - large).is_empty());
  CHECK((large & node_set{2}).is_empty());
  CHECK(small != large);
}

TEST_CASE("runs of three and more members are shortened in words") {
  CHECK(node_set{}.in_words() == "none");
  CHECK(node_set{3}.in_words() == "3");
  CHECK(node_set{0, 2, 3, 4, 5}.in_words() == "0, 2 to 5");
  CHECK(node_set{0, 1, 16, 17}.in_words() == "0, 1, 16, 17");
  CHECK(node_set{0, 1, 2}.in_words() == "0 to 2");
}

TEST_CASE("one node is named as one, several as several") {
  CHECK(node_set{3}.named() == "NUMA node 3");
  CHECK(node_set{0, 2, 3, 4}.named() == "NUMA nodes 0, 2 to 4");
}

}  // namespace
