#pragma once
/// @file What a window does, rank by rank; run by forked ranks and under MPI.

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "shm/shm.hpp"
#include "support/ranks.hpp"
#include "support/same.hpp"

namespace shm_test {

/// One behaviour: a sentence that can be false, and what every rank does to try it.
struct behaviour {
  char const* sentence;
  rank_body body;
};

inline constexpr std::size_t page = 4096;

inline bool is_page_aligned(void const* address) {
  return reinterpret_cast<std::uintptr_t>(address) % page == 0;
}

/// The value that rank `rank` writes at `at`.
inline unsigned char mark(int rank, std::size_t at) {
  return static_cast<unsigned char>(1 + (static_cast<std::size_t>(rank) * 31 + at * 7) % 251);
}

/// The number of shared objects that this process has mapped.
inline int mappings() {
  std::ifstream maps("/proc/self/maps");
  int count = 0;
  for (std::string line; std::getline(maps, line);) {
    bool const is_ours =
        line.find("/dev/shm/") != std::string::npos || line.find("/memfd:") != std::string::npos;
    count += is_ours ? 1 : 0;
  }
  return count;
}

/// Creates a window of `count` bytes, writes and reads everything.
template <class Policy>
void exchange_bytes(shm::group& node, findings& found, std::size_t count,
                    shm::window_options options) {
  shm::window<unsigned char, Policy> w(node, count, Policy{}, options);
  RANK_CHECK(found, w.size() == node.size() && w.rank() == node.rank() && w.valid());
  auto const mine = w.local();
  RANK_CHECK(found, mine.size() == count);
  RANK_CHECK(found, std::ranges::all_of(mine, [](auto byte) { return byte == 0; }));
  if (options.layout == shm::layout::page_aligned) RANK_CHECK(found, is_page_aligned(mine.data()));
  w.fence();
  for (std::size_t i = 0; i < count; ++i) mine[i] = mark(node.rank(), i);
  w.fence();
  for (int r = 0; r < w.size(); ++r) {
    auto const theirs = std::as_const(w)[r];
    RANK_CHECK(found, theirs.size() == count);
    bool is_right = true;
    for (std::size_t i = 0; i < count; ++i) is_right = is_right && theirs[i] == mark(r, i);
    RANK_CHECK(found, is_right);
  }
  w.fence();
}

template <class Policy>
std::vector<behaviour> window_behaviours() {
  std::vector<behaviour> all;
  auto const add = [&](char const* sentence, rank_body body) {
    all.push_back({sentence, std::move(body)});
  };
  using options = shm::window_options;

  add("blocks of any size are zeroed, page aligned, and seen by all after a fence",
      [](shm::group& node, findings& found) {
        constexpr std::size_t mib = 1024 * 1024;
        for (std::size_t const count :
             {std::size_t{0}, std::size_t{1}, std::size_t{63}, std::size_t{64}, std::size_t{65},
              page - 1, page, page + 1, 2 * mib - 1, 2 * mib, 2 * mib + 1}) {
          exchange_bytes<Policy>(node, found, count, {});
          exchange_bytes<Policy>(node, found, count, {.layout = shm::layout::contiguous});
        }
      });

  add("a window of zero bytes on some ranks is valid on all",
      [](shm::group& node, findings& found) {
        for (int owner = 0; owner < node.size(); ++owner) {
          shm::window<int, Policy> w(node, node.rank() == owner ? 1000 : 0);
          RANK_CHECK(found, w.local().size() == (node.rank() == owner ? 1000U : 0U));
          if (node.rank() == owner) std::iota(w.local().begin(), w.local().end(), owner);
          w.fence();
          RANK_CHECK(found, std::as_const(w)[owner].size() == 1000);
          RANK_CHECK(found, std::as_const(w)[owner][999] == owner + 999);
        }
      });

  add("every rank has as many elements as it asked for", [](shm::group& node, findings& found) {
    for (auto const how : {shm::layout::page_aligned, shm::layout::contiguous}) {
      auto const count = [](int rank) { return rank * 777 % 1001; };
      shm::window<std::uint64_t, Policy> w(node, count(node.rank()), options{.layout = how});
      for (int r = 0; r < w.size(); ++r) {
        RANK_CHECK(found, w[r].size() == static_cast<std::size_t>(count(r)));
      }
      std::ranges::fill(w.local(), std::uint64_t{1} << node.rank());
      w.fence();
      for (int r = 0; r < w.size(); ++r) {
        RANK_CHECK(found,
                   std::ranges::count(std::as_const(w)[r], std::uint64_t{1} << r) == count(r));
      }
    }
  });

  add("the contiguous layout makes one span of all blocks in rank order",
      [](shm::group& node, findings& found) {
        auto const count = [](int rank) { return rank == 1 ? 0 : 1000 + rank; };
        shm::window<char, Policy> w(node, count(node.rank()),
                                    options{.layout = shm::layout::contiguous});
        std::ranges::fill(w.local(), static_cast<char>('a' + node.rank()));
        w.fence();
        std::string expected;
        for (int r = 0; r < w.size(); ++r) {
          expected.append(static_cast<std::size_t>(count(r)), static_cast<char>('a' + r));
        }
        auto const whole = std::as_const(w).all();
        RANK_CHECK(found, std::ranges::equal(whole, expected));
        RANK_CHECK(found, w.all().data() == w[0].data());
      });

  add("one span of all blocks is refused where they lie on pages of their own",
      [](shm::group& node, findings& found) {
        shm::window<char, Policy> w(node, 10);
        auto const refused = failure_of([&] { (void)w.all(); });
        RANK_CHECK(found, refused.cause == shm::errc::unsupported);
        RANK_CHECK(found, refused.remedy.view().find("contiguous") != std::string_view::npos);
        w.fence();
      });

  add("a rank out of range is a local error, and the window goes on", [](shm::group& node,
                                                                         findings& found) {
    shm::window<int, Policy> w(node, 1);
    for (int const bad :
         {-1, node.size(), std::numeric_limits<int>::max(), std::numeric_limits<int>::min()}) {
      std::array const peers{node.rank(), bad};
      for (auto const& refused :
           {failure_of([&] { (void)w.at(bad); }),
            failure_of([&] { (void)std::as_const(w).at(bad); }), failure_of([&] { w.fence(bad); }),
            failure_of([&] { w.fence(peers); }), failure_of([&] { w.post(bad); }),
            failure_of([&] { w.wait(bad); }), failure_of([&] { (void)w.try_wait(bad); }),
            failure_of([&] { (void)w.wait_for(bad, std::chrono::hours(1)); }),
            failure_of([&] { (void)w.wait_any(peers); })}) {
        RANK_CHECK(found, refused.cause == shm::errc::invalid_argument);
        RANK_CHECK(found, refused.rank == node.rank());
        RANK_CHECK(found,
                   refused.subject.view().find(std::to_string(bad)) != std::string_view::npos);
      }
    }
    auto const refused = failure_of([&] { (void)w.wait_any({}); });
    RANK_CHECK(found, refused.cause == shm::errc::invalid_argument);
    RANK_CHECK(found, refused.rank == node.rank());
    RANK_CHECK(found, w.at(node.rank()).data() == w.local().data());
    w.fence();
  });

  add("pairs of ranks and rings of ranks meet, whatever others do",
      [](shm::group& node, findings& found) {
        shm::window<int, Policy> w(node, 1);
        int const n = node.size();
        int const me = node.rank();
        for (int round = 1; round <= 50; ++round) {
          w.local()[0] = round * 100 + me;
          std::array const ring{(me + 1) % n, (me + n - 1) % n, (me + 1) % n, me};
          w.fence(ring);
          for (int const peer : ring) {
            RANK_CHECK(found, std::as_const(w)[peer][0] == round * 100 + peer);
          }
          w.fence(ring);  // before anyone writes again
          int const partner = me ^ 1;
          if (partner < n) {
            w.local()[0] = round * 1000 + me;
            w.fence(partner);
            RANK_CHECK(found, std::as_const(w)[partner][0] == round * 1000 + partner);
            w.fence(partner);
          }
          w.fence(me);
          w.fence(std::span<int const>{});
        }
        w.fence();
      });

  add("what a rank wrote before its post is seen by the next in a ring that waits for it",
      [](shm::group& node, findings& found) {
        shm::window<int, Policy> w(node, 1);
        int const n = node.size();
        int const before = (node.rank() + n - 1) % n;
        int const after = (node.rank() + 1) % n;
        for (int round = 1; round <= 100; ++round) {
          w.local()[0] = round * 100 + node.rank();
          w.post(after);
          w.wait(before);
          RANK_CHECK(found, std::as_const(w)[before][0] == round * 100 + before);
          w.post(before);  // that it has been read
          w.wait(after);
        }
        w.fence();
      });

  add("as many posts are waited for as were made, in each window and ordered pair of ranks",
      [](shm::group& node, findings& found) {
        std::array<shm::window<int, Policy>, 2> windows{shm::window<int, Policy>(node, 1),
                                                        shm::window<int, Policy>(node, 1)};
        auto const count = [](int window, int from, int to) { return 1 + window + from * 2 + to; };
        for (int round = 0; round < 3; ++round) {
          for (int i = 0; i < 2; ++i) {
            auto& w = windows[static_cast<std::size_t>(i)];
            for (int to = 0; to < node.size(); ++to) {
              for (int left = count(i, node.rank(), to); left > 0; --left) w.post(to);
            }
          }
          for (int i = 1; i >= 0; --i) {
            auto& w = windows[static_cast<std::size_t>(i)];
            for (int from = 0; from < node.size(); ++from) {
              for (int left = count(i, from, node.rank()); left > 0; --left) w.wait(from);
            }
          }
          windows[0].fence();  // nobody has begun the next round
          for (auto& w : windows) {
            for (int from = 0; from < node.size(); ++from) RANK_CHECK(found, !w.try_wait(from));
          }
          windows[0].fence();
        }
      });

  add("posts count apart from fences, and both go on beside each other",
      [](shm::group& node, findings& found) {
        shm::window<int, Policy> w(node, 1);
        int const peer = node.size() - 1 - node.rank();
        for (int round = 0; round < 20; ++round) {
          w.post(peer);
          w.fence();
          w.post(peer);
          w.fence(peer);
          RANK_CHECK(found, w.try_wait(peer));
          w.fence(peer);
          w.fence();
          RANK_CHECK(found, w.try_wait(peer));
          RANK_CHECK(found, !w.try_wait(peer));
          w.fence();
        }
      });

  add("a wait whose time is over consumes no post, and one in time does",
      [](shm::group& node, findings& found) {
        using namespace std::chrono_literals;
        shm::window<int, Policy> w(node, 1);
        int const peer = (node.rank() + 1) % node.size();
        int const other = (node.rank() + node.size() - 1) % node.size();
        RANK_CHECK(found, !w.wait_for(peer, 0s));
        RANK_CHECK(found, !w.wait_for(peer, -1h));
        RANK_CHECK(found, !w.wait_for(peer, 1us));
        RANK_CHECK(found, !w.wait_for(peer, std::chrono::duration<double>(0.02)));
        w.fence();
        for (int i = 0; i < 3; ++i) w.post(other);
        RANK_CHECK(found, w.wait_for(peer, 1h));
        RANK_CHECK(found, w.wait_for(peer, std::chrono::hours::max()));
        w.fence();
        RANK_CHECK(found, w.wait_for(peer, -1s));
        RANK_CHECK(found, !w.wait_for(peer, 0s));
        w.fence();
      });

  add("a wait for any rank hears every post of all that post, and each has its turn",
      [](shm::group& node, findings& found) {
        constexpr int posts = 50;
        shm::window<int, Policy> w(node, posts);
        std::vector<int> everybody(static_cast<std::size_t>(node.size()));
        std::iota(everybody.begin(), everybody.end(), 0);
        for (int i = 0; i < posts; ++i) {
          w.local()[static_cast<std::size_t>(i)] = 1000 * node.rank() + i;
          w.post(0);
        }
        w.fence();
        std::vector<int> heard(everybody.size());
        for (int i = 0; node.rank() == 0 && i < posts * node.size(); ++i) {
          int const from = w.wait_any(everybody);
          int const at = heard[static_cast<std::size_t>(from)]++;
          RANK_CHECK(found, at < posts);
          auto const theirs = std::as_const(w)[from];
          RANK_CHECK(found, theirs[static_cast<std::size_t>(at % posts)] == 1000 * from + at);
          RANK_CHECK(found, std::ranges::max(heard) - std::ranges::min(heard) <= 1);
        }
        for (int from = 0; from < node.size(); ++from) RANK_CHECK(found, !w.try_wait(from));
        w.fence();
      });

  add("a rank that has left is heard until its last post, and the others post on",
      [](shm::group& node, findings& found) {
        using namespace std::chrono_literals;
        int const lost = node.size() - 1;
        if (lost == 0) return;
        shm::window<int, Policy> w(node, 1);
        if (node.rank() == lost) {
          w.local()[0] = 77;
          for (int to = 0; to < lost; ++to) {
            for (int i = 0; i < 4; ++i) w.post(to);
          }
          w = {};
          node.barrier();
          return;
        }
        auto const must_miss = [&](auto wait) {
          bool is_right = false;
          try {
            wait();
          } catch (shm::error const& e) {
            is_right = e.code() == shm::errc::peer_left && e.rank() == lost && !e.is_agreed() &&
                       e.where() == shm::operation::wait;
          }
          RANK_CHECK(found, is_right);
        };
        std::array const both{node.rank(), lost};
        std::this_thread::sleep_for(20ms);  // so that it has often left by now
        w.wait(lost);
        RANK_CHECK(found, std::as_const(w)[lost][0] == 77);
        RANK_CHECK(found, w.wait_any(both) == lost);
        RANK_CHECK(found, w.wait_for(lost, 1h));
        while (!w.wait_for(lost, 0s)) std::this_thread::yield();
        must_miss([&] { w.wait(lost); });
        must_miss([&] { (void)w.wait_any(both); });
        must_miss([&] {
          while (!w.try_wait(lost)) std::this_thread::yield();
        });
        must_miss([&] {
          while (!w.wait_for(lost, 1ms)) std::this_thread::yield();
        });
        // Nor does it disturb the others that somebody has missed it in a fence.
        auto const refused = failure_of([&] { w.fence(lost); });
        RANK_CHECK(found, refused.cause == shm::errc::peer_left && refused.rank == lost);
        int const after = (node.rank() + 1) % lost;
        int const before = (node.rank() + lost - 1) % lost;
        for (int i = 0; i < 3; ++i) {
          if (node.rank() == 0) std::this_thread::sleep_for(15ms);  // for so long others look
          w.local()[0] = i;
          w.post(after);
          w.wait(before);
          RANK_CHECK(found, std::as_const(w)[before][0] == i);
          w.post(before);
          w.wait(after);
        }
        w.post(lost);    // which nobody hears
        node.barrier();  // the group itself is whole
      });

  add("bad arguments on one rank are the same error on all, and the group goes on",
      [](shm::group& node, findings& found) {
        int const last = node.size() - 1;
        bool const mine = node.rank() == last;
        auto const refuse = [&](shm::errc cause, auto make) {
          int const before = mappings();
          std::string text;
          shm::failure refused;
          try {
            make();
          } catch (shm::error const& e) {
            text = e.what();
            refused = e.details();
            RANK_CHECK(found, e.is_agreed());
          }
          RANK_CHECK(found, refused.cause == cause);
          RANK_CHECK(found, is_same_everywhere(node, text));
          RANK_CHECK(found, mappings() == before);
          exchange_bytes<Policy>(node, found, 100, {});
        };
        using window = shm::window<double, Policy>;
        refuse(shm::errc::invalid_argument, [&] { window(node, mine ? -1 : 1); });
        refuse(shm::errc::size_overflow,
               [&] { window(node, mine ? std::numeric_limits<std::size_t>::max() : 1U); });
        refuse(shm::errc::size_overflow, [&] { window(node, std::size_t{1} << 60); });
        if (last == 0) return;
        refuse(shm::errc::size_overflow, [&] {
          shm::window<char, Policy>(node, std::numeric_limits<std::size_t>::max() / 2);
        });
        refuse(shm::errc::mismatch, [&] {
          if (mine) {
            shm::window<float, Policy>(node, 1);
          } else {
            window(node, 1);
          }
        });
        refuse(shm::errc::mismatch, [&] {
          window(node, 1,
                 options{.layout = mine ? shm::layout::contiguous : shm::layout::page_aligned});
        });
        refuse(shm::errc::mismatch, [&] {
          window(node, 1,
                 options{.prefault = mine ? shm::prefault::none : shm::prefault::populate});
        });
      });

  add("a sparse window of several GiB costs no memory and holds its last byte",
      [](shm::group& node, findings& found) {
        constexpr std::size_t two_gib = std::size_t{1} << 31;
        for (std::size_t const count : {two_gib - 1, two_gib, two_gib + 1, 3 * (two_gib / 2)}) {
          shm::window<unsigned char, Policy> w(node, count,
                                               options{.prefault = shm::prefault::none});
          w.local().back() = mark(node.rank(), count);
          w.fence();
          for (int r = 0; r < w.size(); ++r) {
            RANK_CHECK(found, std::as_const(w)[r].size() == count);
            RANK_CHECK(found, std::as_const(w)[r].back() == mark(r, count));
            RANK_CHECK(found, std::as_const(w)[r][count / 2] == 0);
          }
        }
      });

  add("an empty window has no ranks and no elements, and says so", [](shm::group& node,
                                                                      findings& found) {
    shm::window<int, Policy> w;
    shm::window<int, Policy> full(node, 5);
    auto const* const address = full.local().data();
    shm::window<int, Policy> moved(std::move(full));
    RANK_CHECK(found, moved.local().data() == address);
    for (auto* const empty : {&w, &full}) {
      RANK_CHECK(found, !empty->valid() && empty->size() == 0 && empty->rank() == -1);
      RANK_CHECK(found, empty->local().empty() && empty->all().empty());
      RANK_CHECK(found, empty->page_size() == 0);
      RANK_CHECK(found, failure_of([&] { empty->fence(); }).cause == shm::errc::empty);
      RANK_CHECK(found, failure_of([&] { empty->fence(0); }).cause == shm::errc::empty);
      RANK_CHECK(found, failure_of([&] { (void)empty->at(0); }).cause == shm::errc::empty);
      RANK_CHECK(found, failure_of([&] { empty->post(0); }).cause == shm::errc::empty);
      RANK_CHECK(found, failure_of([&] { empty->wait(0); }).cause == shm::errc::empty);
      RANK_CHECK(found, failure_of([&] { (void)empty->try_wait(0); }).cause == shm::errc::empty);
      RANK_CHECK(found, failure_of([&] { (void)empty->wait_any({}); }).cause == shm::errc::empty);
      RANK_CHECK(found, failure_of([&] { (void)empty->residency(); }).cause == shm::errc::empty);
    }
    shm::group none;
    RANK_CHECK(found,
               failure_of([&] { shm::window<int, Policy>(none, 1); }).cause == shm::errc::empty);
    moved.fence();
  });

  add("a window takes one mapping and no descriptor", [](shm::group& node, findings& found) {
    std::vector<shm::window<int, Policy>> windows;
    windows.reserve(8);
    windows.emplace_back(node, 1);
    int const before = mappings();
    auto const descriptors = [] {
      int open = 0;
      for (int fd = 0; fd < 256; ++fd) open += ::fcntl(fd, F_GETFD) != -1 ? 1 : 0;
      return open;
    };
    int const open_before = descriptors();
    for (int i = 0; i < 5; ++i) windows.emplace_back(node, 100000);
    // Neighbouring mappings of different objects are lines of their own.
    RANK_CHECK(found, mappings() == before + 5);
    RANK_CHECK(found, descriptors() == open_before);
    node.barrier();
  });

  add("windows may be destroyed in any order, and outlive the handle of their group",
      [](shm::group& node, findings& found) {
        std::optional<shm::communicator<shm::group>> inner(std::in_place, node);
        std::vector<shm::window<int, Policy>> windows;
        for (int i = 0; i < 4; ++i) windows.emplace_back(*inner, 10 + i);
        inner.reset();
        for (auto& w : windows) {
          w.local()[0] = node.rank();
          w.fence();
          RANK_CHECK(found, std::as_const(w)[node.size() - 1][0] == node.size() - 1);
        }
        node.barrier();
        for (int i = 0; i < 4; ++i) {
          windows.erase(windows.begin() + (node.rank() + i) % static_cast<int>(windows.size()));
        }
        node.barrier();
      });

  add("a window says what its memory is", [](shm::group& node, findings& found) {
    shm::window<int, Policy> w(node, 1);
    auto const what = w.residency();
    Policy const policy;
    auto const& values = node.state()->settings();
    bool const is_sls = shm::segment_policy_ref(policy, values).name() == shm::sls_policy::name;
    RANK_CHECK(found, what.backend == (is_sls ? "sls" : "posix"));
    RANK_CHECK(found, what.page_bytes == page && w.page_size() == page);
    RANK_CHECK(found,
               what.origin == (is_sls ? shm::os::origin::memfd : shm::os::origin::unnamed_file));
  });

  add("thousands of small windows live at once", [](shm::group& node, findings& found) {
    std::vector<shm::window<int, Policy>> windows;
    for (int i = 0; i < 3000; ++i) windows.emplace_back(node, 16);
    windows.front().local()[0] = 7 + node.rank();
    windows.back().local()[0] = 9 + node.rank();
    windows.back().fence();
    for (int r = 0; r < node.size(); ++r) {
      RANK_CHECK(found, std::as_const(windows.front())[r][0] == 7 + r);
      RANK_CHECK(found, std::as_const(windows.back())[r][0] == 9 + r);
    }
    windows.back().fence();
  });

  add("atomics, structures and arrays of values can be shared",
      [](shm::group& node, findings& found) {
        struct particle {
          double position[3];
          std::int32_t kind;
        };
        shm::window<particle, Policy> particles(node, 3);
        particles.local()[2] = {{1.0, 2.0, 3.0 + node.rank()}, node.rank()};
        shm::window<std::atomic<int>, Policy> counters(node, node.rank() == 0 ? 1 : 0);
        counters[0][0].fetch_add(1 + node.rank(), std::memory_order_relaxed);
        counters.fence();
        int const n = node.size();
        RANK_CHECK(found, counters[0][0].load(std::memory_order_relaxed) == n * (n + 1) / 2);
        particles.fence();
        RANK_CHECK(found, std::as_const(particles)[n - 1][2].position[2] == 3.0 + n - 1);
        particles.fence();
      });
  return all;
}

}  // namespace shm_test
