#include "shm/os/control_group.hpp"

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "support/catch.hpp"
#include "support/directory.hpp"

namespace {

namespace os = shm::os;

constexpr std::uint64_t mib = std::uint64_t{1} << 20U;

/// A made-up tree of control groups in a directory, with the texts that /proc would show of it.
class tree {
 public:
  /// Makes the group at `path`, and in it files of the given contents.
  void make(std::string const& path,
            std::initializer_list<std::pair<std::string_view, std::string>> files) {
    std::filesystem::create_directories(root_.path() + path);
    for (auto const& [name, content] : files) {
      std::ofstream(root_.path() + path + "/" + std::string(name)) << content << '\n';
    }
  }
  void make_v2(std::string const& path, std::string const& max, std::uint64_t current,
               std::uint64_t active = 0, std::uint64_t inactive = 0) {
    make(path, {{"memory.max", max},
                {"memory.current", std::to_string(current)},
                {"memory.stat", "anon 1\nfile 99\ninactive_file " + std::to_string(inactive) +
                                    "\nactive_file " + std::to_string(active) + "\nslab 3"}});
  }
  void make_v1(std::string const& path, std::string const& limit, std::uint64_t usage,
               std::uint64_t active = 0, std::uint64_t inactive = 0) {
    make(path, {{"memory.limit_in_bytes", limit},
                {"memory.usage_in_bytes", std::to_string(usage)},
                {"memory.stat", "cache 1\ninactive_file 77\ntotal_inactive_file " +
                                    std::to_string(inactive) + "\ntotal_active_file " +
                                    std::to_string(active)}});
  }
  /// A line of mountinfo for a mount of this tree that shows it from `root` on.
  [[nodiscard]] std::string mount(std::string_view type, std::string_view root = "/",
                                  std::string_view options = "rw") const {
    return "36 30 0:33 " + std::string(root) + " " + root_.path() + " rw,relatime shared:9 - " +
           std::string(type) + " cgroup " + std::string(options) + "\n";
  }

 private:
  shm_test::temporary_directory root_;
};

std::string const other_mounts =
    "22 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n"
    "31 30 0:28 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n";

TEST_CASE("without control groups nothing bounds the memory") {
  CHECK(os::memory_groups().bounds().empty());
  CHECK(os::memory_groups("", "").bounds().empty());
  CHECK(os::memory_groups("0::/a\n", other_mounts).bounds().empty());
}

TEST_CASE("a version 2 group has its limit less what is in use, and its file cache back") {
  tree groups;
  groups.make_v2("/job", std::to_string(64 * mib), 50 * mib, 3 * mib, 2 * mib);
  auto const bounds =
      os::memory_groups("0::/job\n", other_mounts + groups.mount("cgroup2")).bounds();
  REQUIRE(bounds.size() == 1);
  CHECK(bounds[0].limit == 64 * mib);
  CHECK(bounds[0].room == 19 * mib);
  CHECK(bounds[0].version == 2);
  CHECK(bounds[0].name.view() == "/job");
}

TEST_CASE("a version 1 group counts what the groups in it can drop") {
  tree groups;
  groups.make_v1("/job", std::to_string(64 * mib), 50 * mib, 3 * mib, 2 * mib);
  auto const bounds = os::memory_groups("9:name=systemd:/x\n4:cpu,memory:/job\n0::/\n",
                                        groups.mount("cgroup", "/", "rw,cpu,memory"))
                          .bounds();
  REQUIRE(bounds.size() == 1);
  CHECK(bounds[0].room == 19 * mib);
  CHECK(bounds[0].version == 1);
}

TEST_CASE("every level around a group bounds it, the tightest first") {
  tree groups;
  groups.make_v2("", "max", 0);
  groups.make_v2("/slurm", std::to_string(1000 * mib), 990 * mib);
  groups.make_v2("/slurm/job", "max", 0);
  groups.make_v2("/slurm/job/step", std::to_string(100 * mib), 1 * mib);
  auto const bounds = os::memory_groups("0::/slurm/job/step\n", groups.mount("cgroup2")).bounds();
  REQUIRE(bounds.size() == 2);
  CHECK(bounds[0].name.view() == "/slurm");
  CHECK(bounds[0].room == 10 * mib);
  CHECK(bounds[1].name.view() == "/slurm/job/step");
  CHECK(bounds[1].room == 99 * mib);
}

TEST_CASE("a group in use beyond its limit has no room, and none below zero") {
  tree groups;
  groups.make_v2("/job", "4096", 8192);
  auto const bounds = os::memory_groups("0::/job\n", groups.mount("cgroup2")).bounds();
  REQUIRE(bounds.size() == 1);
  CHECK(bounds[0].room == 0);
}

TEST_CASE("more file cache than use leaves the whole limit, not more") {
  tree groups;
  groups.make_v2("/job", "8192", 4096, 8192, 8192);
  auto const bounds = os::memory_groups("0::/job\n", groups.mount("cgroup2")).bounds();
  REQUIRE(bounds.size() == 1);
  CHECK(bounds[0].room == 8192);
}

TEST_CASE("the number that version 1 writes for no limit is none") {
  tree groups;
  groups.make_v1("/job", "9223372036854771712", 4096);
  CHECK(os::memory_groups("4:memory:/job\n", groups.mount("cgroup", "/", "rw,memory"))
            .bounds()
            .empty());
}

TEST_CASE("a group that is gone from the mount leaves those around it") {
  tree groups;
  groups.make_v2("/a", "8192", 0);
  auto const bounds = os::memory_groups("0::/a/b/gone\n", groups.mount("cgroup2")).bounds();
  REQUIRE(bounds.size() == 1);
  CHECK(bounds[0].name.view() == "/a");
}

TEST_CASE("a container's mount, which shows a part of the tree, is read from there") {
  tree groups;
  groups.make_v2("/inner", "8192", 0);
  auto const bounds =
      os::memory_groups("0::/docker/12ab/inner\n", groups.mount("cgroup2", "/docker/12ab"))
          .bounds();
  REQUIRE(bounds.size() == 1);
  CHECK(bounds[0].name.view() == "/inner");
  // Another container's part, and one whose name only begins alike.
  CHECK(os::memory_groups("0::/docker/12ab/inner\n", groups.mount("cgroup2", "/docker/99"))
            .bounds()
            .empty());
  CHECK(os::memory_groups("0::/docker/12ab/inner\n", groups.mount("cgroup2", "/docker/12"))
            .bounds()
            .empty());
}

TEST_CASE("a group outside of the namespace cannot be asked, and others are not asked for it") {
  tree groups;
  groups.make_v2("", "8192", 0);
  groups.make_v2("/..foo", "4096", 0);
  CHECK(os::memory_groups("0::/../elsewhere\n", groups.mount("cgroup2")).bounds().empty());
  CHECK(os::memory_groups("0::/..\n", groups.mount("cgroup2")).bounds().empty());
  CHECK(os::memory_groups("0::/..foo\n", groups.mount("cgroup2")).bounds().size() == 2);
}

TEST_CASE("a container's root with a backslash in its name is found") {
  tree groups;
  groups.make_v2("/c", "8192", 0);
  CHECK(os::memory_groups("0::/a\\x2db/c\n", groups.mount("cgroup2", "/a\\134x2db"))
            .bounds()
            .size() == 1);
}

TEST_CASE("a version 2 group has back what its caches of names can give") {
  tree groups;
  groups.make("/job", {{"memory.max", "8192"},
                       {"memory.current", "8192"},
                       {"memory.stat", "slab_reclaimable 4096\nslab_unreclaimable 4000"}});
  auto const bounds = os::memory_groups("0::/job\n", groups.mount("cgroup2")).bounds();
  REQUIRE(bounds.size() == 1);
  CHECK(bounds[0].room == 4096);
}

TEST_CASE("a tree that is mounted twice counts once") {
  tree groups;
  groups.make_v2("/job", "8192", 0);
  CHECK(os::memory_groups("0::/job\n", groups.mount("cgroup2") + groups.mount("cgroup2"))
            .bounds()
            .size() == 1);
}

TEST_CASE("two processes in one group see the same number, and in two groups different ones") {
  tree groups;
  groups.make_v2("/a", "8192", 0);
  groups.make_v2("/b", "8192", 0);
  auto const number = [&](std::string_view path) {
    return os::memory_groups("0::" + std::string(path) + "\n", groups.mount("cgroup2"))
        .bounds()
        .at(0)
        .group;
  };
  CHECK(number("/a") == number("/a"));
  CHECK(number("/a") != number("/b"));
}

TEST_CASE("a mount directory with blanks in its name is found") {
  tree groups;
  groups.make_v2("/a b", "8192", 0);
  auto line = groups.mount("cgroup2");
  auto const options = line.find(" rw,relatime");
  line.insert(options, "/a\\040b");
  CHECK(os::memory_groups("0::/\n", line).bounds().size() == 1);
}

TEST_CASE("a long name keeps its end") {
  tree groups;
  std::string const path = "/" + std::string(60, 'x') + "/scope";
  groups.make_v2(path, "8192", 0);
  auto const bounds = os::memory_groups("0::" + path + "\n", groups.mount("cgroup2")).bounds();
  REQUIRE(bounds.size() == 1);
  CHECK(bounds[0].name.view().starts_with("…"));
  CHECK(bounds[0].name.view().ends_with("xx/scope"));
}

TEST_CASE("texts that are no texts of the kernel bound nothing") {
  for (auto const* const text : {"\n\n", ":", "::", "0::", "4:memory", "- - -", "0::x"}) {
    CHECK(os::memory_groups(text, text).bounds().empty());
  }
}

}  // namespace
