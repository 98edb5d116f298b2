#include "shm/oob/out_of_band.hpp"

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <type_traits>

#include "shm/group.hpp"
#include "shm/oob/callback.hpp"
#include "shm/oob/self.hpp"
#include "support/catch.hpp"

namespace {

using shm::out_of_band;
using shm::out_of_band_ref;
using block = std::span<std::byte const>;
using blocks = std::span<std::byte>;

/// A bootstrap that counts what is asked of it.
struct counting {
  int rank_calls = 0;
  int gatherings = 0;
  block mine;
  blocks all;

  int rank() {
    ++rank_calls;
    return 2;
  }
  int size() { return 3; }
  void allgather(block m, blocks a) {
    ++gatherings;
    mine = m;
    all = a;
  }
};
static_assert(out_of_band<counting>);
static_assert(out_of_band<shm::self_oob>);
static_assert(out_of_band<shm::callback_oob<void (*)(block, blocks)>>);
static_assert(out_of_band<shm::group>);
static_assert(out_of_band<out_of_band_ref>);

struct without_rank {
  int size();
  void allgather(block, blocks);
};
static_assert(!out_of_band<without_rank>);

struct without_size {
  int rank();
  void allgather(block, blocks);
};
static_assert(!out_of_band<without_size>);

struct without_allgather {
  int rank();
  int size();
};
static_assert(!out_of_band<without_allgather>);

struct with_a_text_as_rank {
  std::string rank();
  int size();
  void allgather(block, blocks);
};
static_assert(!out_of_band<with_a_text_as_rank>);

struct writing_to_mine {
  int rank();
  int size();
  void allgather(blocks, blocks);
};
static_assert(!out_of_band<writing_to_mine>);

struct gathering_text {
  int rank();
  int size();
  void allgather(std::string, std::string);
};
static_assert(!out_of_band<gathering_text>);

struct private_allgather {
  int rank();
  int size();

 private:
  void allgather(block, blocks);
};
static_assert(!out_of_band<private_allgather>);
static_assert(!out_of_band<int>);

static_assert(!std::is_constructible_v<out_of_band_ref, counting>);  // it would dangle
static_assert(!std::is_convertible_v<counting&, out_of_band_ref>);
static_assert(std::is_trivially_copyable_v<out_of_band_ref>);

TEST_CASE("a reference to a bootstrap has its rank and size") {
  counting oob;
  out_of_band_ref const ref(oob);
  CHECK(ref.rank() == 2);
  CHECK(ref.size() == 3);
}

TEST_CASE("a reference asks a bootstrap for its rank once") {
  counting oob;
  out_of_band_ref const ref(oob);
  CHECK(ref.rank() == ref.rank());
  CHECK(oob.rank_calls == 1);
}

TEST_CASE("a reference passes both blocks of a gathering on to the bootstrap itself") {
  counting oob;
  out_of_band_ref const ref(oob);
  std::array<std::byte, 4> const mine{};
  std::array<std::byte, 12> all{};
  ref.allgather(mine, all);
  CHECK(oob.gatherings == 1);
  CHECK(oob.mine.data() == mine.data());
  CHECK(oob.mine.size() == 4);
  CHECK(oob.all.data() == all.data());
  CHECK(oob.all.size() == 12);
}

TEST_CASE("a copy of a reference refers to the bootstrap and not to the reference") {
  counting oob;
  auto const copy = [&] {
    out_of_band_ref original(oob);
    return out_of_band_ref(original);
  }();
  copy.allgather({}, {});
  CHECK(oob.gatherings == 1);
}

TEST_CASE("a failure of a bootstrap passes through a reference") {
  auto fail = [](block, blocks) { return 5; };
  shm::callback_oob oob(0, 1, fail);
  out_of_band_ref const ref(oob);
  CHECK_THROWS_AS(ref.allgather({}, {}), shm::error);
}

}  // namespace
