#include "shm/os/foreign_memory.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <grp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shm/os/shared_object.hpp"
#include "shm/policy/posix.hpp"
#include "shm/policy/sls.hpp"
#include "shm/shm.hpp"
#include "support/catch.hpp"
#include "support/child.hpp"
#include "support/directory.hpp"
#include "support/huge_pages.hpp"
#include "support/ranks.hpp"
#include "support/skipped.hpp"

namespace {

namespace os = shm::os;
using os::foreign_mapping;
using os::foreign_range;
using shm::errc;

static_assert(!std::is_copy_constructible_v<foreign_mapping>);
static_assert(std::is_nothrow_move_constructible_v<foreign_mapping>);
static_assert(std::is_nothrow_move_assignable_v<foreign_mapping>);

std::size_t const page = os::base_page_bytes();

bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

std::byte* map(int descriptor, std::size_t bytes, int flags = MAP_SHARED, off_t offset = 0,
               void* where = nullptr) {
  void* const got = ::mmap(where, bytes, PROT_READ | PROT_WRITE, flags, descriptor, offset);
  if (got == MAP_FAILED) throw std::runtime_error("mmap");
  return static_cast<std::byte*>(got);
}

os::file_descriptor anonymous(std::size_t bytes, unsigned flags = MFD_CLOEXEC) {
  os::file_descriptor file(::memfd_create("foreign memory test", flags));
  if (::ftruncate(file.number(), static_cast<off_t>(bytes)) != 0) throw std::runtime_error("size");
  return file;
}

/// Maps an object that nobody has open any more, `offset` bytes from its start.
std::byte* closed_object(std::size_t bytes, std::size_t offset = 0) {
  return map(anonymous(offset + bytes).number(), bytes, MAP_SHARED, static_cast<off_t>(offset));
}

/// Maps an object that stays open for the rest of the process.
std::byte* open_object(std::size_t bytes) {
  static os::file_descriptor file;
  file = anonymous(bytes);
  return map(file.number(), bytes);
}

/// Another process with memory that it has made itself, and that it changes when it is told to.
class neighbour {
 public:
  using maker = std::function<std::byte*()>;
  using change = std::function<void(std::byte*)>;

  explicit neighbour(
      maker const& make, change const& later = [](std::byte*) {})
      : board_(os::mapping::shared_with_children(sizeof(std::uintptr_t))), child_([&] {
          auto* const memory = make();
          auto const address = reinterpret_cast<std::uintptr_t>(memory);
          std::memcpy(board_.bytes().data(), &address, sizeof address);
          is_ready_.open();
          if (!go_.pass()) return;
          later(memory);
          is_done_.open();
          ::pause();
        }) {
    if (!is_ready_.pass()) throw std::runtime_error("the neighbour has no memory");
    std::memcpy(&address_, board_.bytes().data(), sizeof address_);
  }

  [[nodiscard]] pid_t pid() const noexcept { return child_.pid(); }
  [[nodiscard]] std::uintptr_t address() const noexcept { return address_; }
  [[nodiscard]] foreign_range range(std::size_t offset, std::size_t bytes) const noexcept {
    return {.process = pid(), .begin = address_ + offset, .bytes = bytes};
  }
  /// Lets it change its memory, and waits until it has.
  void change_now() const {
    go_.open();
    if (!is_done_.pass()) throw std::runtime_error("the neighbour hangs");
  }
  void end() {
    child_.send(SIGKILL);
    child_.await_death();
  }

 private:
  os::mapping board_;
  shm_test::gate is_ready_;
  shm_test::gate go_;
  shm_test::gate is_done_;
  shm_test::child child_;
  std::uintptr_t address_ = 0;
};

shm::failure refusal_of(foreign_range const& range) {
  return shm_test::failure_of([&] { foreign_mapping{range}; });
}

/// Whether this process may follow the links in /proc/<pid>/map_files.
bool is_privileged() {
  os::mapping const own = os::mapping::shared_with_children(page);
  auto const begin = reinterpret_cast<std::uintptr_t>(own.bytes().data());
  auto const path = "/proc/self/map_files/" + os::detail::in_hexadecimal(begin) + "-" +
                    os::detail::in_hexadecimal(begin + page);
  return ::access(path.c_str(), R_OK) == 0;
}

#define REQUIRE_PRIVILEGES()                                    \
  if (!is_privileged()) {                                       \
    WARN("skipped: /proc/<pid>/map_files needs CAP_SYS_ADMIN"); \
    return;                                                     \
  }

/// From here on this process is a user's own, and its mappings can be read by that user. Only in a
/// child.
void become_user(uid_t user) {
  if (::setgroups(0, nullptr) != 0 || ::setresgid(user, user, user) != 0 ||
      ::setresuid(user, user, user) != 0) {
    throw shm_test::skipped{"becoming another user needs root"};
  }
  ::prctl(PR_SET_DUMPABLE, 1);
}

constexpr uid_t somebody = 65534;
constexpr uid_t somebody_else = 65533;

/// Counts the mappings and the open descriptors of this process.
std::pair<std::uint64_t, long> holdings() {
  return {os::mapping_count(), shm_test::open_descriptors()};
}

TEST_CASE("a default attachment is empty") { CHECK(foreign_mapping{}.address() == nullptr); }

TEST_CASE("what either process writes into an attached object the other one sees") {
  REQUIRE_PRIVILEGES();
  neighbour const other(
      [] {
        auto* const memory = closed_object(2 * page);
        memory[5] = std::byte{7};
        return memory;
      },
      [](std::byte* memory) { memory[7] = memory[6]; });
  foreign_mapping const attached(other.range(0, 2 * page));
  CHECK(attached.address()[5] == std::byte{7});
  attached.address()[6] = std::byte{8};
  other.change_now();
  CHECK(attached.address()[7] == std::byte{8});
}

TEST_CASE("anonymous memory with MAP_SHARED is attached") {
  REQUIRE_PRIVILEGES();
  neighbour const other([] {
    auto* const memory = map(-1, page, MAP_SHARED | MAP_ANONYMOUS);
    memory[page - 1] = std::byte{9};
    return memory;
  });
  foreign_mapping const attached(other.range(0, page));
  CHECK(attached.address()[page - 1] == std::byte{9});
}

TEST_CASE("System V shared memory is attached") {
  REQUIRE_PRIVILEGES();
  neighbour const other([] {
    int const segment = ::shmget(IPC_PRIVATE, page, IPC_CREAT | 0600);
    auto* const memory = static_cast<std::byte*>(::shmat(segment, nullptr, 0));
    ::shmctl(segment, IPC_RMID, nullptr);
    memory[3] = std::byte{4};
    return memory;
  });
  foreign_mapping const attached(other.range(0, page));
  CHECK(attached.address()[3] == std::byte{4});
}

TEST_CASE("an address inside a page leads to the same byte") {
  REQUIRE_PRIVILEGES();
  neighbour const other([] {
    auto* const memory = closed_object(3 * page, 5 * page);
    memory[page + 123] = std::byte{42};
    memory[2 * page + 17] = std::byte{43};
    return memory;
  });
  foreign_mapping const attached(other.range(page + 123, page - 123 + 18));
  CHECK(reinterpret_cast<std::uintptr_t>(attached.address()) % page == 123);
  CHECK(attached.address()[0] == std::byte{42});
  CHECK(attached.address()[page - 123 + 17] == std::byte{43});
}

TEST_CASE("a mapping that mprotect and madvise have split is attached as one") {
  REQUIRE_PRIVILEGES();
  neighbour const other([] {
    auto* const memory = closed_object(6 * page);
    for (std::size_t i = 0; i < 6; ++i) memory[i * page] = std::byte(i + 1);
    ::mprotect(memory + 2 * page, page, PROT_READ);
    ::madvise(memory + 4 * page, page, MADV_DONTDUMP);
    return memory;
  });
  foreign_mapping const attached(other.range(0, 6 * page));
  for (std::size_t i = 0; i < 6; ++i) CHECK(attached.address()[i * page] == std::byte(i + 1));
  attached.address()[3 * page + 1] = std::byte{1};
  attached.address()[5 * page + 1] = std::byte{1};
  shm_test::child victim([&] {
    std::signal(SIGSEGV, SIG_DFL);
    attached.address()[2 * page] = std::byte{1};
  });
  int const status = victim.wait();
  CHECK((WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV));
}

TEST_CASE("a range of two objects shows each at its place") {
  REQUIRE_PRIVILEGES();
  neighbour const other([] {
    auto* const memory = map(-1, 4 * page, MAP_PRIVATE | MAP_ANONYMOUS);
    map(anonymous(2 * page).number(), 2 * page, MAP_SHARED | MAP_FIXED, 0, memory);
    map(anonymous(4 * page).number(), 2 * page, MAP_SHARED | MAP_FIXED,
        static_cast<off_t>(2 * page), memory + 2 * page);
    for (std::size_t i = 0; i < 4; ++i) memory[i * page] = std::byte(i + 1);
    return memory;
  });
  foreign_mapping const attached(other.range(page, 3 * page));
  for (std::size_t i = 0; i < 3; ++i) CHECK(attached.address()[i * page] == std::byte(i + 2));
}

TEST_CASE("one object that is mapped twice in a row, from its start, is attached as it is") {
  REQUIRE_PRIVILEGES();
  neighbour const other([] {
    auto const file = anonymous(2 * page);
    auto* const memory = map(-1, 2 * page, MAP_PRIVATE | MAP_ANONYMOUS);
    map(file.number(), page, MAP_SHARED | MAP_FIXED, static_cast<off_t>(page), memory);
    map(file.number(), page, MAP_SHARED | MAP_FIXED, 0, memory + page);
    memory[0] = std::byte{2};
    memory[page] = std::byte{1};
    return memory;
  });
  foreign_mapping const attached(other.range(0, 2 * page));
  CHECK(attached.address()[0] == std::byte{2});
  CHECK(attached.address()[page] == std::byte{1});
}

TEST_CASE("read-only memory is attached read-only") {
  REQUIRE_PRIVILEGES();
  neighbour const other([] {
    auto* const memory = closed_object(page);
    memory[0] = std::byte{6};
    ::mprotect(memory, page, PROT_READ);
    return memory;
  });
  foreign_mapping const attached(other.range(0, page));
  CHECK(attached.address()[0] == std::byte{6});
  shm_test::child victim([&] {
    std::signal(SIGSEGV, SIG_DFL);
    attached.address()[0] = std::byte{1};
  });
  int const status = victim.wait();
  CHECK((WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV));
}

TEST_CASE("memory that its process cannot read is refused") {
  neighbour const other([] {
    auto* const memory = closed_object(page);
    ::mprotect(memory, page, PROT_NONE);
    return memory;
  });
  auto const refused = refusal_of(other.range(0, page));
  CHECK(refused.cause == errc::permission_denied);
  CHECK(has(refused.subject.view(), "not even readable"));
}

TEST_CASE("private memory is refused, and the remedy names windows") {
  neighbour const other([] { return map(-1, page, MAP_PRIVATE | MAP_ANONYMOUS); });
  auto const refused = refusal_of(other.range(8, 16));
  CHECK(refused.cause == errc::unsupported);
  CHECK(has(refused.subject.view(), "16 bytes at 0x"));
  CHECK(has(refused.subject.view(), "process " + std::to_string(other.pid())));
  CHECK(has(refused.subject.view(), "private memory"));
  CHECK(has(refused.remedy.view(), "window"));
}

TEST_CASE("a private mapping of a shared object is refused") {
  neighbour const other([] { return map(anonymous(page).number(), page, MAP_PRIVATE); });
  CHECK(refusal_of(other.range(0, page)).cause == errc::unsupported);
}

TEST_CASE("devices are no memory, and files without a name that leads to them are") {
  auto const refusal_of_name = [](std::string const& name) {
    os::memory_area const area{
        .begin = page, .end = 2 * page, .name = name, .is_readable = true, .is_shared = true};
    foreign_range const range{.process = ::getpid(), .begin = page, .bytes = page};
    return shm_test::failure_of(
        [&] { os::detail::require_shareable(range, {area}, page, 2 * page); });
  };
  CHECK(refusal_of_name("/dev/null").cause == errc::unsupported);
  CHECK(has(refusal_of_name("anon_inode:[io_uring]").subject.view(), "anon_inode:[io_uring]"));
  CHECK_FALSE(refusal_of_name("/memfd:some (deleted)").is_failure());
}

TEST_CASE("nothing but files is opened") {
  os::memory_area const area{.end = page, .is_readable = true};
  CHECK(os::detail::map_through("/dev/zero", area, nullptr) == ENODEV);
}

TEST_CASE("memory that is another object when it is mapped is refused") {
  REQUIRE_PRIVILEGES();
  neighbour const other([] { return closed_object(page); },
                        [](std::byte* memory) {
                          map(anonymous(page).number(), page, MAP_SHARED | MAP_FIXED, 0, memory);
                        });
  auto const range = other.range(0, page);
  auto const areas = os::areas_in(os::maps_of(other.pid()), range.begin, range.begin + page);
  auto const target = os::mapping::reserved(page, page);
  auto* const where = target.bytes().data();
  // Nothing is mapped here yet.
  CHECK(shm_test::failure_of([&] { os::detail::require_unchanged(range, areas, where); }).system ==
        ESTALE);
  os::detail::map_area(range, areas.front(), where);
  os::detail::require_unchanged(range, areas, where);
  other.change_now();
  auto const refused =
      shm_test::failure_of([&] { os::detail::require_unchanged(range, areas, where); });
  CHECK(refused.system == ESTALE);
  CHECK(has(refused.subject.view(), "have changed"));
}

TEST_CASE("memory that is unmapped before it is mapped here is refused as changed") {
  REQUIRE_PRIVILEGES();
  neighbour const other([] { return closed_object(page); },
                        [](std::byte* memory) { ::munmap(memory, page); });
  auto const range = other.range(0, page);
  auto const areas = os::areas_in(os::maps_of(other.pid()), range.begin, range.begin + page);
  auto const target = os::mapping::reserved(page, page);
  other.change_now();
  CHECK(shm_test::failure_of([&] {
          os::detail::map_area(range, areas.front(), target.bytes().data());
        }).system == ESTALE);
}

TEST_CASE("a range past the end of a mapping is refused with the address that is not mapped") {
  neighbour const other([] {
    auto* const memory = map(-1, 3 * page, MAP_PRIVATE | MAP_ANONYMOUS);
    map(anonymous(page).number(), page, MAP_SHARED | MAP_FIXED, 0, memory);
    ::munmap(memory + page, 2 * page);
    return memory;
  });
  auto const refused = refusal_of(other.range(0, page + 1));
  CHECK(refused.cause == errc::invalid_argument);
  CHECK(has(refused.subject.view(),
            "nothing is mapped there at 0x" + os::detail::in_hexadecimal(other.address() + page)));
}

TEST_CASE("a range with a hole, or without anything, is refused") {
  neighbour const other([] {
    auto* const memory = closed_object(3 * page);
    ::munmap(memory + page, page);
    return memory;
  });
  CHECK(refusal_of(other.range(0, 3 * page)).cause == errc::invalid_argument);
  CHECK(refusal_of(other.range(page, page)).cause == errc::invalid_argument);
}

TEST_CASE("ranges that cannot be are refused") {
  auto const self = ::getpid();
  auto const most = static_cast<std::size_t>(-1);
  CHECK(refusal_of({.process = 0, .begin = page, .bytes = 1}).cause == errc::invalid_argument);
  CHECK(refusal_of({.process = -1, .begin = page, .bytes = 1}).cause == errc::invalid_argument);
  CHECK(refusal_of({.process = self, .begin = 0, .bytes = 1}).cause == errc::invalid_argument);
  CHECK(refusal_of({.process = self, .begin = page, .bytes = 0}).cause == errc::invalid_argument);
  CHECK(refusal_of({.process = self, .begin = 2, .bytes = most}).cause == errc::invalid_argument);
  CHECK(refusal_of({.process = self, .begin = most - 1, .bytes = 1}).cause ==
        errc::invalid_argument);
}

TEST_CASE("a dead process, and one that never was, is refused") {
  neighbour other([] { return closed_object(page); });
  auto const range = other.range(0, page);
  other.end();
  auto const refused = refusal_of(range);
  CHECK(refused.cause == errc::invalid_argument);
  CHECK(has(refused.subject.view(), "process " + std::to_string(range.process) + " does not"));
  CHECK(refusal_of({.process = 0x7fffffff, .begin = page, .bytes = 1}).cause ==
        errc::invalid_argument);
}

TEST_CASE("attached memory outlives the process that it came from") {
  REQUIRE_PRIVILEGES();
  neighbour other([] {
    auto* const memory = closed_object(page);
    memory[1] = std::byte{2};
    return memory;
  });
  foreign_mapping const attached(other.range(0, page));
  other.end();
  CHECK(attached.address()[1] == std::byte{2});
}

TEST_CASE("a process attaches memory of its own, at another address") {
  auto* const memory = closed_object(2 * page);
  foreign_mapping const attached({.process = ::getpid(),
                                  .begin = reinterpret_cast<std::uintptr_t>(memory) + page,
                                  .bytes = page});
  CHECK(attached.address() != memory + page);
  memory[page] = std::byte{3};
  CHECK(attached.address()[0] == std::byte{3});
  ::munmap(memory, 2 * page);
  CHECK(attached.address()[0] == std::byte{3});
}

TEST_CASE("another part of the object that is mapped here does not mislead") {
  REQUIRE_PRIVILEGES();
  auto const file = anonymous(2 * page);
  auto* const own = map(-1, 2 * page, MAP_SHARED | MAP_ANONYMOUS);
  map(file.number(), page, MAP_SHARED | MAP_FIXED, static_cast<off_t>(page), own + page);
  neighbour const other([&] {
    auto* const memory = map(file.number(), page);
    memory[0] = std::byte{5};
    return memory;
  });
  foreign_mapping const attached(other.range(0, page));
  CHECK(attached.address()[0] == std::byte{5});
  ::munmap(own, 2 * page);
}

TEST_CASE("moving an attachment keeps its address and leaves nothing behind") {
  auto* const memory = closed_object(page);
  foreign_mapping first(
      {.process = ::getpid(), .begin = reinterpret_cast<std::uintptr_t>(memory), .bytes = page});
  auto* const address = first.address();
  foreign_mapping const second(std::move(first));
  CHECK(first.address() == nullptr);  // NOLINT(bugprone-use-after-move)
  CHECK(second.address() == address);
  ::munmap(memory, page);
}

TEST_CASE("attaching and detaching 200 times leaves mappings and descriptors as they were") {
  REQUIRE_PRIVILEGES();
  neighbour const other([] {
    auto* const memory = closed_object(6 * page);
    ::mprotect(memory + 2 * page, page, PROT_READ);
    return memory;
  });
  {
    foreign_mapping const attached(other.range(1, 5 * page));
  }
  auto const before = holdings();
  for (int i = 0; i < 200; ++i) {
    foreign_mapping const attached(other.range(1, 5 * page));
    if (attached.address()[0] != std::byte{0}) FAIL("not zero");
  }
  CHECK(holdings() == before);
  for (int i = 0; i < 50; ++i)
    CHECK_THROWS_AS(foreign_mapping(other.range(0, 9 * page)), shm::error);
  CHECK(holdings() == before);
}

template <class Policy>
void attach_blocks_of_windows() {
  shm_test::on_ranks(2, [](shm::group& node, shm_test::findings& found) {
    shm::window<int, Policy> w(node, 5000);
    shm::window<std::uintptr_t> addresses(node, 1);
    shm::window<pid_t> processes(node, 1);
    w.local().back() = 10 + node.rank();
    addresses.local()[0] = reinterpret_cast<std::uintptr_t>(w.local().data());
    processes.local()[0] = ::getpid();
    w.fence();
    addresses.fence();
    processes.fence();
    int const peer = 1 - node.rank();
    foreign_mapping const attached(
        {.process = processes[peer][0], .begin = addresses[peer][0], .bytes = 5000 * sizeof(int)});
    auto* const block = reinterpret_cast<int*>(attached.address());
    RANK_CHECK(found, block[4999] == 10 + peer);
    block[0] = 20 + node.rank();
    w.fence();
    RANK_CHECK(found, w.local()[0] == 20 + peer);
    node.barrier();
  });
}

TEST_CASE("a block of a window of the backend posix is attached") {
  attach_blocks_of_windows<shm::posix_policy>();
}

TEST_CASE("a block of a window of the backend sls is attached") {
  attach_blocks_of_windows<shm::sls_policy>();
}

TEST_CASE("a window of processes that do not share it is attached") {
  REQUIRE_PRIVILEGES();
  neighbour const other([] {
    shm::self_oob oob;
    static shm::communicator alone{oob};
    static shm::window<int, shm::posix_policy> w(alone, 1000);
    w.local()[999] = 77;
    return reinterpret_cast<std::byte*>(w.local().data());
  });
  foreign_mapping const attached(other.range(0, 1000 * sizeof(int)));
  CHECK(reinterpret_cast<int*>(attached.address())[999] == 77);
}

TEST_CASE("memory in huge pages is attached, also from the middle of one") {
  REQUIRE_PRIVILEGES();
  shm_test::huge_page_reserve const reserve(2);
  if (!reserve.is_there()) {
    WARN("skipped: " << reserve.why_not());
    return;
  }
  auto const huge = os::default_huge_page_bytes();
  neighbour const other([&] {
    auto* const memory = map(anonymous(2 * huge, MFD_CLOEXEC | MFD_HUGETLB).number(), 2 * huge);
    memory[huge + 12345] = std::byte{5};
    return memory;
  });
  {
    foreign_mapping const attached(other.range(huge + 12345, 10));
    CHECK(attached.address()[0] == std::byte{5});
    foreign_mapping const all(other.range(0, 2 * huge));
    CHECK(all.address()[huge + 12345] == std::byte{5});
    // Once more: now this process has the object mapped itself.
    foreign_mapping const again(other.range(huge, huge));
    CHECK(again.address()[12345] == std::byte{5});
  }
  auto const before = holdings();
  for (int i = 0; i < 20; ++i) foreign_mapping(other.range(huge + 1, 100));
  CHECK(holdings() == before);
}

TEST_CASE("an unprivileged process attaches what a process of its user has open") {
  shm_test::in_child([](shm_test::findings& found) {
    become_user(somebody);
    RANK_CHECK(found, !is_privileged());
    auto const decoy = anonymous(2 * page);  // of the same name, and found first
    neighbour const other([] {
      auto* const memory = open_object(2 * page);
      memory[page] = std::byte{7};
      return memory;
    });
    auto const before = shm_test::open_descriptors();
    foreign_mapping const attached(other.range(page, page));
    RANK_CHECK(found, attached.address()[0] == std::byte{7});
    RANK_CHECK(found, shm_test::open_descriptors() == before);
  });
}

TEST_CASE("an unprivileged process attaches what it has mapped itself") {
  shm_test::in_child([](shm_test::findings& found) {
    become_user(somebody);
    auto* const memory = map(-1, 2 * page, MAP_SHARED | MAP_ANONYMOUS);
    neighbour const other([&] {
      memory[page] = std::byte{8};
      ::mprotect(memory, page, PROT_READ);
      return memory;
    });
    foreign_mapping const attached(other.range(page, page));
    RANK_CHECK(found, attached.address() != memory + page);
    RANK_CHECK(found, attached.address()[0] == std::byte{8});
    memory[page] = std::byte{9};
    RANK_CHECK(found, attached.address()[0] == std::byte{9});
  });
}

TEST_CASE("what is read-only here is attached writable where it is so there") {
  shm_test::in_child([](shm_test::findings& found) {
    become_user(somebody);
    auto* const memory = map(-1, page, MAP_SHARED | MAP_ANONYMOUS);
    neighbour const other([&] { return memory; });
    ::mprotect(memory, page, PROT_READ);
    foreign_mapping const attached(other.range(0, page));
    attached.address()[0] = std::byte{9};
    RANK_CHECK(found, memory[0] == std::byte{9});
  });
}

TEST_CASE("an unprivileged process is told why memory that nobody has open is refused") {
  shm_test::in_child([](shm_test::findings& found) {
    become_user(somebody);
    neighbour const other([] { return closed_object(page); });
    auto const refused = refusal_of(other.range(0, page));
    RANK_CHECK(found, refused.cause == errc::permission_denied);
    RANK_CHECK(found, has(refused.subject.view(), "no descriptor"));
    RANK_CHECK(found, has(refused.remedy.view(), "CAP_CHECKPOINT_RESTORE"));
  });
}

TEST_CASE("another user's memory is refused with the reason") {
  if (::geteuid() != 0) {
    WARN("skipped: becoming another user needs root");
    return;
  }
  neighbour const other([] {
    become_user(somebody_else);
    return open_object(page);
  });
  shm_test::in_child([&](shm_test::findings& found) {
    become_user(somebody);
    auto const refused = refusal_of(other.range(0, page));
    RANK_CHECK(found, refused.cause == errc::permission_denied);
    RANK_CHECK(found, has(refused.subject.view(), "process " + std::to_string(other.pid())));
    RANK_CHECK(found, has(refused.remedy.view(), "same user"));
  });
}

/// A driver that answers the first refusals, and then shows memory of its own.
struct fake_driver {
  int refusals = 0;
  int number = 0;
  int* calls = nullptr;
  std::vector<os::zdax_request>* requests = nullptr;

  [[nodiscard]] static bool is_there() noexcept { return true; }
  int operator()(os::zdax_request& request) const {
    requests->push_back(request);
    if (++*calls <= refusals) return number;
    auto* const target = reinterpret_cast<std::byte*>(request.target);
    target[0] = std::byte{1};
    target[request.bytes - 1] = std::byte{2};
    return 0;
  }
};

constexpr std::size_t unit = os::zdax_unit_bytes;

struct driven {
  int calls = 0;
  std::vector<os::zdax_request> requests{};
  fake_driver answering(int refusals, int number) {
    return {.refusals = refusals, .number = number, .calls = &calls, .requests = &requests};
  }
};

TEST_CASE("the driver is asked for whole units around the memory, for this process") {
  driven log;
  foreign_range const range{.process = 4321, .begin = 10 * unit + 77, .bytes = 2 * unit};
  foreign_mapping const attached(range, log.answering(0, 0));
  REQUIRE(log.calls == 1);
  auto const& request = log.requests.front();
  CHECK(request.source == 10 * unit);
  CHECK(request.bytes == 3 * unit);
  CHECK(request.target % unit == 0);
  CHECK(request.source_process == 4321);
  CHECK(request.target_process == ::getpid());
  CHECK(reinterpret_cast<std::uintptr_t>(attached.address()) == request.target + 77);
}

TEST_CASE("the driver is asked again, at other addresses, where it finds something there") {
  driven log;
  auto const before = holdings();
  {
    foreign_range const range{.process = 1, .begin = 10 * unit, .bytes = unit};
    foreign_mapping const attached(range, log.answering(2, EAGAIN));
    REQUIRE(log.calls == 3);
    CHECK(log.requests[0].target != log.requests[1].target);
    CHECK(log.requests[0].target != log.requests[2].target);
    CHECK(log.requests[1].target != log.requests[2].target);
    CHECK(reinterpret_cast<std::uintptr_t>(attached.address()) == log.requests[2].target);
    CHECK(attached.address()[0] == std::byte{1});
    CHECK(attached.address()[unit - 1] == std::byte{2});
  }
  CHECK(holdings() == before);
}

TEST_CASE("a driver that finds something everywhere is given up") {
  driven log;
  auto const before = holdings();
  auto* const memory = map(-1, page, MAP_PRIVATE | MAP_ANONYMOUS);
  foreign_range const range{
      .process = ::getpid(), .begin = reinterpret_cast<std::uintptr_t>(memory), .bytes = page};
  auto const refused =
      shm_test::failure_of([&] { foreign_mapping(range, log.answering(1000, EAGAIN)); });
  CHECK(log.calls == 16);
  CHECK(refused.cause == errc::unsupported);
  CHECK(has(refused.subject.view(), "driver zdax refused it"));
  ::munmap(memory, page);
  CHECK(holdings() == before);
}

TEST_CASE("what the driver refuses is attached in the other ways") {
  driven log;
  auto* const memory = closed_object(page);
  memory[0] = std::byte{5};
  foreign_range const range{
      .process = ::getpid(), .begin = reinterpret_cast<std::uintptr_t>(memory), .bytes = page};
  foreign_mapping const attached(range, log.answering(1000, EPERM));
  CHECK(log.calls == 1);
  CHECK(attached.address()[0] == std::byte{5});
  ::munmap(memory, page);
}

}  // namespace
