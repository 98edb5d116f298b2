/// @file
/// One rank of a failure test: does the steps on its command line and prints how each of them
/// ended, so that the driver can compare the ranks.

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "shm/shm.hpp"
#include "support/launch_oob.hpp"
#include "support/system_call_filter.hpp"

namespace {

using namespace std::chrono_literals;

constexpr std::string_view usage =
    R"(usage: launch -n RANKS ... -- rank STEP...

Does the steps in order, whatever becomes of them, and prints a line for each:

  ok STEP | error STEP: TEXT | skipped STEP: REASON

  comm              creates a communicator in place of the present one
  split=C,C,...     splits the communicator by each rank's color, and goes on with this rank's part of
                    it; the last C is for all further ranks
  window=B,B,...    creates a window of B bytes (suffixes k, m, g) on each rank; the last B is for
                    all further ranks. Windows are kept until `drop`.
  sparse=B,B,...    the same without populating it
  reader=B,B,...    the same, read-only on all ranks but rank 0, and not the one that later steps use
  write             writes every byte of this rank's block of the last window
  check             fences, and reads what every rank wrote with `write`
  fence=ROUNDS      fences on the last window so often
  fence_ms=MS       fences on the last window until rank 0 has seen this time pass
  barrier           waits for all ranks
  agree             agrees that all is well
  agree_fail=RANK   agrees, while this rank throws
  sleep_ms=MS,MS,.. sleeps for this time on each rank
  fill=B            rank 0 fills /dev/shm with a file of B bytes; `unfill` removes it
  unfill
  maps_left=N,..    maps pages until the kernel's limit leaves N mappings, on each rank; `unmap`
                    gives them back
  unmap
  dumped=B          window=B that is included in core dumps
  abort=RANK        this rank aborts
  drop              destroys all windows; drop=RANK: of this rank only
  leave             destroys all windows and the communicator
  survivors         the same, and goes on with the ranks that are not dead: creates a communicator
                    among them, in which they have the numbers from 0 on
  refuse            from here on the kernel has no memfd_create, O_TMPFILE or MADV_POPULATE_WRITE
  begin, end        marks for whoever traces system calls: access("/shm-test/begin"), …/end
  flat=N,N,...      after `leave`: fails unless all descriptors are open that were at `begin`, and N
                    others or mappings of shared objects are left on each rank; `flat`: none
)";

/// Sizes and times as the command line gives them: digits and an optional suffix.
std::uint64_t number_of(std::string_view text) {
  std::uint64_t value = 0;
  auto const [stop, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
  std::string_view const suffix(stop, static_cast<std::size_t>(text.data() + text.size() - stop));
  if (failed != std::errc{} || suffix.size() > 1) throw std::invalid_argument(std::string(text));
  if (suffix.empty()) return value;
  switch (suffix.front()) {
    case 'k':
      return value << 10;
    case 'm':
      return value << 20;
    case 'g':
      return value << 30;
    default:
      throw std::invalid_argument(std::string(text));
  }
}

/// The part of a comma-separated list that belongs to a rank.
std::uint64_t part_of(std::string_view list, int rank) {
  for (; rank > 0 && list.find(',') != list.npos; --rank) list.remove_prefix(list.find(',') + 1);
  return number_of(list.substr(0, list.find(',')));
}

/// Says why a step has no sense, since an earlier one has failed.
struct skipped : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class player {
 public:
  /// Does one step; throws what it throws.
  void play(std::string_view name, std::string_view value) {
    static std::map<std::string_view, void (player::*)(std::string_view)> const steps = {
        {"comm", &player::make_group},     {"split", &player::split},
        {"window", &player::make_window},  {"sparse", &player::make_sparse},
        {"reader", &player::make_reader},  {"write", &player::write},
        {"check", &player::check},         {"fence", &player::fence},
        {"fence_ms", &player::fence_long}, {"barrier", &player::barrier},
        {"agree", &player::agree},         {"agree_fail", &player::agree_fail},
        {"sleep_ms", &player::sleep},      {"fill", &player::fill},
        {"unfill", &player::unfill},       {"drop", &player::drop},
        {"leave", &player::leave},         {"survivors", &player::survivors},
        {"refuse", &player::refuse},       {"flat", &player::flat},
        {"begin", &player::begin},         {"end", &player::end},
        {"maps_left", &player::use_maps},  {"unmap", &player::unmap},
        {"dumped", &player::make_dumped},  {"abort", &player::abort},
    };
    auto const found = steps.find(name);
    if (found == steps.end()) throw std::invalid_argument("unknown step");
    (this->*found->second)(value);
  }

 private:
  using bytes_window = shm::window<unsigned char>;

  static constexpr char filler[] = "/dev/shm/filler";

  shm::group& group() {
    if (!group_) throw skipped("no communicator");
    return *group_;
  }
  bytes_window& window() {
    if (windows_.empty()) throw skipped("no window");
    return windows_.back();
  }

  void make_group(std::string_view) {
    leave({});
    group_.emplace(shm::communicator(oob_));
  }
  void split(std::string_view colors) {
    group_ = group().split(static_cast<int>(part_of(colors, oob_.rank())));
  }
  void make_window(std::string_view sizes) {
    windows_.emplace_back(group(), part_of(sizes, oob_.rank()));
  }
  void make_sparse(std::string_view sizes) {
    windows_.emplace_back(group(), part_of(sizes, oob_.rank()),
                          shm::window_options{.prefault = shm::prefault::none});
  }
  void drop_all() {
    windows_.clear();
    writers_.clear();
    readers_.clear();
  }
  void make_reader(std::string_view sizes) {
    auto const bytes = part_of(sizes, oob_.rank());
    if (oob_.rank() == 0) {
      writers_.emplace_back(group(), bytes);
    } else {
      readers_.emplace_back(group(), bytes);
    }
  }
  void make_dumped(std::string_view sizes) {
    windows_.emplace_back(group(), part_of(sizes, oob_.rank()),
                          shm::window_options{.core_dump = shm::core_dump::include});
  }
  void use_maps(std::string_view left) {
    maps_.reserve(shm::os::mapping_count_limit() + 1);
    for (;;) {
      // Neighbours of unlike protection do not become one mapping.
      int const protection = maps_.size() % 2 == 0 ? PROT_NONE : PROT_READ;
      void* const page = ::mmap(nullptr, 4096, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (page == MAP_FAILED) break;
      maps_.push_back(page);
    }
    for (auto spare = part_of(left, oob_.rank()); spare > 0 && !maps_.empty(); --spare) {
      ::munmap(maps_.back(), 4096);
      maps_.pop_back();
    }
  }
  void unmap(std::string_view) {
    for (void* const page : maps_) ::munmap(page, 4096);
    maps_.clear();
  }
  void abort(std::string_view rank) {
    if (number_of(rank) == static_cast<std::uint64_t>(oob_.rank())) std::abort();
  }
  void write(std::string_view) {
    std::ranges::fill(window().local(), static_cast<unsigned char>(window().rank() + 1));
  }
  void check(std::string_view) {
    window().fence();
    for (int r = 0; r < window().size(); ++r) {
      auto const block = window()[r];
      auto const is_right = [r](unsigned char byte) { return byte == r + 1; };
      if (!std::ranges::all_of(block, is_right)) throw std::logic_error("wrong bytes");
    }
    window().fence();
  }
  void fence(std::string_view rounds) {
    for (auto left = number_of(rounds); left > 0; --left) window().fence();
  }
  /// Rank 0 says in the window's first byte when it is time to end.
  void fence_long(std::string_view milliseconds) {
    auto const end =
        std::chrono::steady_clock::now() + std::chrono::milliseconds(number_of(milliseconds));
    if (window()[0].empty()) throw skipped("rank 0 has no byte");
    for (bool is_over = false; !is_over;) {
      if (oob_.rank() == 0) window()[0].front() = std::chrono::steady_clock::now() >= end ? 1 : 0;
      window().fence();
      is_over = window()[0].front() == 1;
      window().fence();
    }
  }
  void barrier(std::string_view) { group().barrier(); }
  void agree(std::string_view) {
    group().agree([] {});
  }
  void agree_fail(std::string_view rank) {
    group().agree([&] {
      if (number_of(rank) == static_cast<std::uint64_t>(oob_.rank())) {
        throw std::runtime_error("asked to fail");
      }
    });
  }
  void sleep(std::string_view milliseconds) {
    std::this_thread::sleep_for(std::chrono::milliseconds(part_of(milliseconds, oob_.rank())));
  }
  void fill(std::string_view size) {
    if (oob_.rank() != 0) return;
    std::vector<char> const zeros(64 * 1024);
    std::FILE* const file = std::fopen(filler, "w");
    if (file == nullptr) throw std::runtime_error("cannot fill /dev/shm");
    for (auto left = number_of(size); left > 0;) {
      auto const part = std::min<std::uint64_t>(left, zeros.size());
      if (std::fwrite(zeros.data(), 1, part, file) != part) break;  // full is what is wanted
      left -= part;
    }
    std::fclose(file);
  }
  void unfill(std::string_view) {
    if (oob_.rank() == 0) ::unlink(filler);
  }
  void drop(std::string_view rank) {
    auto const own = static_cast<std::uint64_t>(oob_.rank());
    if (rank.empty() || number_of(rank) == own) drop_all();
  }
  void leave(std::string_view) {
    drop_all();
    group_.reset();
  }
  void survivors(std::string_view) {
    leave({});
    oob_.go_on_with_survivors();
    make_group({});
  }
  /// As before Linux 3.17 and 5.14, on a file system that has no unnamed files.
  void refuse(std::string_view) {
    try {
      shm_test::answer({.number = SYS_memfd_create}, ENOSYS);
      shm_test::answer({.number = SYS_openat, .argument = 2, .mask = O_TMPFILE, .value = O_TMPFILE},
                       EOPNOTSUPP);
      constexpr std::uint32_t populate_write = 23;
      shm_test::answer({.number = SYS_madvise, .argument = 2, .mask = ~0U, .value = populate_write},
                       EINVAL);
    } catch (shm_test::skipped const& missing) {
      throw skipped(missing.why);
    }
  }
  void begin(std::string_view) {
    open_at_begin_ = open_files();
    mark("/shm-test/begin");
  }
  void flat(std::string_view allowed) {
    auto const present = open_files();
    std::vector<std::string> odd;
    std::ranges::set_difference(open_at_begin_, present, std::back_inserter(odd));
    if (!odd.empty()) throw std::logic_error("closed: " + odd.front());
    std::ranges::set_difference(present, open_at_begin_, std::back_inserter(odd));
    std::ranges::move(shared_mappings(), std::back_inserter(odd));
    if (odd.size() == (allowed.empty() ? 0 : part_of(allowed, oob_.rank()))) return;
    std::string text = std::to_string(odd.size()) + " left";
    for (auto const& each : odd) text += "; " + each;
    throw std::logic_error(text);
  }
  void end(std::string_view) { mark("/shm-test/end"); }
  static void mark(char const* path) {
    if (::access(path, F_OK) == 0) throw std::logic_error("a mark exists");
  }

  /// Numbers of the open descriptors and what they lead to, sorted.
  static std::vector<std::string> open_files() {
    std::vector<std::string> found;
    for (auto const& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      auto const target = std::filesystem::read_symlink(entry).string();
      bool const is_this_list = target.starts_with("/proc/") && target.ends_with("/fd");
      if (!is_this_list) found.push_back(entry.path().filename().string() + " " + target);
    }
    std::ranges::sort(found);
    return found;
  }
  static std::vector<std::string> shared_mappings() {
    std::vector<std::string> found;
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
      bool const is_shared =
          line.find("/dev/shm/") != line.npos || line.find("/memfd:") != line.npos;
      if (is_shared) found.push_back(line);
    }
    return found;
  }

  shm_test::launch_oob oob_;
  std::optional<shm::group> group_;
  std::vector<bytes_window> windows_;
  std::vector<bytes_window> writers_;  ///< of windows that others only read
  std::vector<shm::window<unsigned char const>> readers_;
  std::vector<void*> maps_;
  std::vector<std::string> open_at_begin_;
};

void play_all(std::span<char* const> words) {
  player rank;
  for (std::string_view const word : words) {
    auto const equals = word.find('=');
    auto const value = equals == word.npos ? std::string_view{} : word.substr(equals + 1);
    std::string line;
    try {
      rank.play(word.substr(0, equals), value);
      line = "ok " + std::string(word);
    } catch (skipped const& why) {
      line = "skipped " + std::string(word) + ": " + why.what();
    } catch (shm::error const& failed) {
      line = "error " + std::string(word) + ": " + failed.what();
    } catch (std::invalid_argument const& wrong) {
      throw std::invalid_argument(std::string(word) + ": " + wrong.what());
    } catch (std::exception const& failed) {
      line = "error " + std::string(word) + ": not a shm::error: " + failed.what();
    }
    line += '\n';
    std::fputs(line.c_str(), stdout);
    std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    play_all(std::span(argv, static_cast<std::size_t>(argc)).subspan(1));
  } catch (std::exception const& failure) {
    std::fprintf(
        stderr, "rank: %s\n%s", failure.what(),
        dynamic_cast<std::invalid_argument const*>(&failure) != nullptr ? usage.data() : "");
    return 2;
  }
}
