// How ranks create a segment together: attempts, agreed failures, nothing left behind.

#include "shm/window/creation.hpp"

#include <string_view>

#include "shm/policy/posix.hpp"
#include "shm/window.hpp"
#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "support/same.hpp"
#include "window/behaviours.hpp"

namespace {

using shm_test::failure_of;
using shm_test::findings;
using shm_test::mappings;
using shm_test::on_all_rank_counts;
using shm_test::on_ranks;

/// A backend with three kinds of memory, of which the first `bad` fail.
struct moody_policy {
  static constexpr std::string_view name = "moody";
  enum class failing : int { create, place };

  int bad = 0;
  failing where = failing::create;
  int victim = 0;  ///< the rank whose `place` fails

  static inline int rank = 0;           // of this process
  static inline int last_attempt = -1;  // that create was asked for
  static inline int places = 0;

  [[nodiscard]] int attempts(shm::settings const&) const noexcept { return 3; }
  [[nodiscard]] std::size_t page_bytes(int attempt, shm::settings const&) const noexcept {
    return attempt == 0 ? 2 * 1024 * 1024 : shm_test::page;
  }
  [[nodiscard]] shm::os::shared_object create(shm::segment_request const& request) const {
    last_attempt = request.attempt;
    if (where == failing::create && request.attempt < bad) {
      throw shm::error({.cause = shm::errc::out_of_memory, .subject = "a bad mood"});
    }
    auto object = shm::os::make_unnamed("/dev/shm", request.bytes);
    object.page_bytes = request.page_bytes;
    return object;
  }
  void place(shm::block_request const&) const {
    if (where == failing::place && rank == victim && places++ < bad) {
      throw shm::error({.cause = shm::errc::out_of_memory, .subject = "no place"});
    }
  }
};

constexpr int large = 300'000;  // elements: more than half of 2 MiB

}  // namespace

TEST_CASE("options that have no name are refused on all ranks, and the group goes on") {
  on_ranks(3, [](shm::group& node, findings& found) {
    for (int which = 0; which < 4; ++which) {
      shm::window_options options;
      if (node.rank() == 1 && which == 0) options.layout = static_cast<shm::layout>(2);
      if (node.rank() == 1 && which == 1) options.prefault = static_cast<shm::prefault>(77);
      if (node.rank() == 1 && which == 2) options.core_dump = static_cast<shm::core_dump>(2);
      if (node.rank() == 1 && which == 3) options.place = shm::place::node(-7);
      auto const refused = failure_of([&] { shm::window<int>(node, 4, options); });
      RANK_CHECK(found, refused.cause == shm::errc::invalid_argument && refused.rank == 1);
      RANK_CHECK(found, refused.subject.view().find("window_options::") == 0);
      RANK_CHECK(found,
                 which != 3 || refused.subject.view().find(" is -7,") != std::string_view::npos);
    }
    shm::window<int>(node, 4).fence();
  });
}

TEST_CASE("large pages are passed over for windows that would mostly be padding") {
  on_all_rank_counts([](shm::group& node, findings& found) {
    shm::window<int, moody_policy> small(node, large / 3);
    RANK_CHECK(found, node.rank() != 0 || moody_policy::last_attempt == 1);
    RANK_CHECK(found, small.page_size() == shm_test::page);
    // It is all blocks together that count, and a rank may have all.
    shm::window<int, moody_policy> uneven(node, node.rank() == 0 ? large * node.size() : 0);
    RANK_CHECK(found, node.rank() != 0 || moody_policy::last_attempt == 0);
    node.barrier();
  });
}

TEST_CASE("where one kind of memory cannot be made, all ranks take the next") {
  on_all_rank_counts([](shm::group& node, findings& found) {
    for (int bad = 0; bad < 3; ++bad) {
      int const before = mappings();
      shm::window<int, moody_policy> w(node, large, {.bad = bad});
      RANK_CHECK(found, mappings() == before + 1);
      RANK_CHECK(found, node.rank() != 0 || moody_policy::last_attempt == bad);
      RANK_CHECK(found, w.page_size() == moody_policy{}.page_bytes(bad, {}));
      w.local()[4] = node.rank() + 1;
      w.fence();
      RANK_CHECK(found, std::as_const(w)[node.size() - 1][4] == node.size());
      node.barrier();
    }
  });
}

TEST_CASE("where one rank cannot place its block, all ranks take the next kind") {
  on_all_rank_counts([](shm::group& node, findings& found) {
    moody_policy::rank = node.rank();
    for (int victim = 0; victim < node.size(); ++victim) {
      moody_policy::places = 0;
      shm::window<int, moody_policy> w(
          node, large, {.bad = 2, .where = moody_policy::failing::place, .victim = victim});
      RANK_CHECK(found, node.rank() != 0 || moody_policy::last_attempt == 2);
      w.local()[4] = node.rank() + 1;
      w.fence();
      RANK_CHECK(found, std::as_const(w)[0][4] == 1);
      node.barrier();
    }
  });
}

TEST_CASE("where no kind of memory will do, all ranks get the last one's error") {
  on_all_rank_counts([](shm::group& node, findings& found) {
    moody_policy::rank = node.rank();
    for (auto const where : {moody_policy::failing::create, moody_policy::failing::place}) {
      moody_policy::places = 0;
      int const before = mappings();
      int const victim = node.size() - 1;
      auto const text = shm_test::message_of([&] {
        shm::window<int, moody_policy>(node, large, {.bad = 3, .where = where, .victim = victim});
      });
      RANK_CHECK(found, mappings() == before);
      RANK_CHECK(found, text.find("out of memory") != std::string::npos);
      RANK_CHECK(found, text.find(where == moody_policy::failing::create
                                      ? "rank 0 of "
                                      : "rank " + std::to_string(victim)) != std::string::npos);
      RANK_CHECK(found, shm_test::is_same_everywhere(node, text));
      shm::window<int, moody_policy>(node, 5).fence();
    }
  });
}

TEST_CASE("arguments that are no good are not tried with other kinds of memory") {
  on_ranks(2, [](shm::group& node, findings& found) {
    moody_policy::last_attempt = -1;
    auto const refused =
        failure_of([&] { shm::window<int, moody_policy>(node, node.rank() == 1 ? -1 : 1); });
    RANK_CHECK(found, refused.cause == shm::errc::invalid_argument);
    RANK_CHECK(found, moody_policy::last_attempt == -1);
  });
}

TEST_CASE("more than the machine has is refused before anything is touched") {
  on_all_rank_counts([](shm::group& node, findings& found) {
    auto const room = std::min(shm::os::available_memory(), std::uint64_t{1} << 50);
    auto const share = room / static_cast<std::uint64_t>(node.size());
    auto const refused =
        failure_of([&] { shm::window<char>(node, share + (std::uint64_t{1} << 30)); });
    RANK_CHECK(found,
               refused.cause == shm::errc::no_space || refused.cause == shm::errc::out_of_memory);
    RANK_CHECK(found, refused.subject.view().find(" are needed") != std::string_view::npos);
    shm::window<char>(node, 4096).fence();
  });
}

namespace {

/// A backend that does not keep to what it was asked for.
struct careless_policy {
  static constexpr std::string_view name = "careless";
  enum class fault : int { throws_number, too_small, no_size, no_descriptor };
  fault what = fault::throws_number;

  [[nodiscard]] shm::os::shared_object create(shm::segment_request const& request) const {
    if (what == fault::throws_number) throw 42;
    auto const bytes = what == fault::too_small ? request.bytes / 2 : request.bytes;
    auto object = shm::os::make_anonymous("careless", bytes);
    if (what == fault::no_size) object.bytes = 0;
    if (what == fault::no_descriptor) object.descriptor.reset();
    return object;
  }
};

}  // namespace

TEST_CASE("a policy that does not make what it was asked for is an error on all ranks") {
  on_all_rank_counts([](shm::group& node, findings& found) {
    using fault = careless_policy::fault;
    for (auto const what :
         {fault::throws_number, fault::too_small, fault::no_size, fault::no_descriptor}) {
      auto const text = shm_test::message_of(
          [&] { shm::window<int, careless_policy>(node, 100, {.what = what}); });
      RANK_CHECK(found, text.find(what == fault::throws_number
                                      ? "not a std::exception"
                                      : "\"careless\" has not made") != std::string::npos);
      RANK_CHECK(found, shm_test::is_same_everywhere(node, text));
      shm::window<int>(node, 5).fence();
    }
  });
}
