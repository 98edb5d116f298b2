#pragma once
/// @file The memory that this process's control groups still give, asked before they would kill.

#include <sys/stat.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "shm/base/text.hpp"
#include "shm/os/process.hpp"

namespace shm::inline v1::os {

/// Bytes that the name of a control group may have in a message; of a longer one the end is kept.
inline constexpr std::size_t longest_group_name = 60;

/// What one control group allows to all of its processes together. Trivially copyable, so that
/// ranks can show theirs to each other.
struct memory_bound {
  std::uint64_t group = 0;  ///< the same number for every process in the same control group
  std::uint64_t limit = 0;  ///< in bytes
  std::uint64_t room = 0;   ///< what is left of it in bytes, with the file cache it can drop
  fixed_text<longest_group_name + 4> name{};  ///< the end of its path, for messages
  std::uint32_t version = 0;                  ///< of the control-group interface, 1 or 2
};

static_assert(std::is_trivially_copyable_v<memory_bound>);

/// The control groups whose memory limits bound this process: the one that it is in, and all those
/// around it. The paths are looked up once; what they allow is read anew each time.
///
/// Source: the kernel's admin-guide, cgroup-v1/memory.rst and cgroup-v2.rst; proc_pid_cgroup(5),
///         proc_pid_mountinfo(5).
class memory_groups {
 public:
  /// No groups: nothing is bounded.
  memory_groups() = default;

  [[nodiscard]] bool is_empty() const noexcept { return levels_.empty(); }

  /// Finds the groups that /proc names, in the texts of /proc/self/cgroup and /proc/self/mountinfo.
  /// A group that no mount shows cannot be asked, and is left out.
  memory_groups(std::string_view cgroup, std::string_view mountinfo) {
    for_each_line(cgroup, [&](std::string_view line) {
      // hierarchy-ID:controller-list:path
      auto const id = take_until(line, ':');
      auto const controllers = take_until(line, ':');
      bool const is_v2 = id == "0" && controllers.empty();
      if (!is_v2 && !has_word(controllers, "memory")) return;
      for_each_line(mountinfo, [&](std::string_view mount) {
        if (auto const place = place_of(mount, is_v2)) add(*place, line, is_v2 ? 2U : 1U);
      });
    });
  }

  /// Returns what each group with a limit allows now, the tightest first. A group with as much as
  /// one around it is left out.
  [[nodiscard]] std::vector<memory_bound> bounds() const {
    std::vector<memory_bound> found;
    for (auto const& one : levels_) {  // from the inside out
      auto const bound = one.version == 2 ? bound_v2(one) : bound_v1(one);
      if (!bound) continue;
      // One with as much as the group around it has no less left, for fewer: it never decides.
      while (!found.empty() && found.back().version == bound->version &&
             found.back().limit >= bound->limit) {
        found.pop_back();
      }
      found.push_back(*bound);
    }
    std::ranges::sort(found, {}, &memory_bound::room);
    return found;
  }

 private:
  struct level {
    std::string directory;
    std::string name;
    std::uint32_t version;
    std::uint64_t number;
  };
  /// Where a hierarchy of control groups is mounted, and which of its groups is seen there.
  struct mount_place {
    std::string directory;
    std::string root;
  };

  /// Cuts `text` after the next `end`; returns what was before it.
  static std::string_view take_until(std::string_view& text, char end) noexcept {
    auto const at = text.find(end);
    auto const taken = text.substr(0, at);
    text.remove_prefix(at == std::string_view::npos ? text.size() : at + 1);
    return taken;
  }

  static bool has_word(std::string_view list, std::string_view word) noexcept {
    while (!list.empty()) {
      if (take_until(list, ',') == word) return true;
    }
    return false;
  }

  /// Undoes the octal escapes of blanks and backslashes in /proc/self/mountinfo.
  static std::string unescaped(std::string_view text) {
    std::string plain;
    for (; !text.empty(); text.remove_prefix(1)) {
      unsigned code = 0;
      if (text.size() >= 4 && text.front() == '\\' &&
          std::from_chars(text.data() + 1, text.data() + 4, code, 8).ptr == text.data() + 4) {
        plain.push_back(static_cast<char>(code));
        text.remove_prefix(3);
      } else {
        plain.push_back(text.front());
      }
    }
    return plain;
  }

  /// Reads one line of mountinfo: id parent device root directory options [tags…] - type source
  /// options.
  static std::optional<mount_place> place_of(std::string_view line, bool is_v2) {
    for (int field = 0; field < 3; ++field) take_until(line, ' ');
    auto const root = take_until(line, ' ');
    auto const directory = take_until(line, ' ');
    auto const rest = line.find(" - ");
    if (rest == std::string_view::npos) return std::nullopt;
    line.remove_prefix(rest + 3);
    auto const type = take_until(line, ' ');
    take_until(line, ' ');
    bool const is_it = is_v2 ? type == "cgroup2" : type == "cgroup" && has_word(line, "memory");
    if (!is_it) return std::nullopt;
    return mount_place{.directory = unescaped(directory), .root = unescaped(root)};
  }

  /// Adds the group at `path` and all around it, as far as `place` shows them.
  void add(mount_place const& place, std::string_view path, std::uint32_t version) {
    std::string_view inner = path;
    if (place.root != "/") {  // a container's mount shows a part of the tree only
      if (!inner.starts_with(place.root)) return;
      inner.remove_prefix(place.root.size());
      if (!inner.empty() && inner.front() != '/') return;
    }
    if (inner == "/.." || inner.starts_with("/../")) return;  // not below what is seen here
    for (;;) {
      while (inner.ends_with('/')) inner.remove_suffix(1);
      auto directory = place.directory + std::string(inner);
      struct stat status{};
      if (::stat(directory.c_str(), &status) == 0) {
        // Directories of one hierarchy have one numbering, through whichever mount they are seen.
        auto const number = (static_cast<std::uint64_t>(status.st_ino) << 1U) | (version & 1U);
        auto const is_known = [number](level const& one) { return one.number == number; };
        if (std::ranges::none_of(levels_, is_known)) {
          levels_.push_back(
              {std::move(directory), inner.empty() ? "/" : std::string(inner), version, number});
        }
      }
      if (inner.empty()) return;
      inner = inner.substr(0, inner.rfind('/'));
    }
  }

  static std::optional<std::uint64_t> number_in(std::string const& path) {
    return leading_number(read_kernel_file(path.c_str()));  // nothing: absent, or "max"
  }

  /// The sum of what the group can drop: of the lines of its memory.stat with one of `names`.
  static std::uint64_t droppable(std::string const& directory,
                                 std::initializer_list<std::string_view> names) {
    std::string const text = read_kernel_file((directory + "/memory.stat").c_str());
    std::uint64_t sum = 0;
    for_each_line(text, [&](std::string_view line) {
      auto const name = take_until(line, ' ');
      if (std::ranges::find(names, name) == names.end()) return;
      sum += leading_number(line).value_or(0);
    });
    return sum;
  }

  static memory_bound bound_of(level const& of, std::uint64_t limit, std::uint64_t usage,
                               std::uint64_t cache) {
    memory_bound bound{.group = of.number, .limit = limit, .version = of.version};
    auto const fixed = usage - std::min(usage, cache);
    bound.room = limit - std::min(limit, fixed);
    std::string_view name = of.name;
    if (name.size() > longest_group_name) {
      bound.name.append("…");
      name.remove_prefix(name.size() - longest_group_name);
      while (!name.empty() && (static_cast<unsigned char>(name.front()) & 0xc0U) == 0x80U) {
        name.remove_prefix(1);  // the rest of a character that is cut
      }
    }
    bound.name.append(name);
    return bound;
  }

  static std::optional<memory_bound> bound_v2(level const& of) {
    auto const limit = number_in(of.directory + "/memory.max");
    if (!limit) return std::nullopt;
    return bound_of(of, *limit, number_in(of.directory + "/memory.current").value_or(0),
                    droppable(of.directory, {"active_file", "inactive_file", "slab_reclaimable"}));
  }

  static std::optional<memory_bound> bound_v1(level const& of) {
    auto const limit = number_in(of.directory + "/memory.limit_in_bytes");
    constexpr std::uint64_t no_limit = std::uint64_t{1} << 62U;  // the kernel writes about 2^63
    if (!limit || *limit >= no_limit) return std::nullopt;
    // Without hierarchy, which old kernels allow, a group is not charged for those in it; their
    // processes still see it as one around theirs. It is asked like the others: too strict at most.
    return bound_of(of, *limit, number_in(of.directory + "/memory.usage_in_bytes").value_or(0),
                    droppable(of.directory, {"total_active_file", "total_inactive_file"}));
  }

  std::vector<level> levels_;
};

}  // namespace shm::inline v1::os
