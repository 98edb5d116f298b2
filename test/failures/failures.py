#!/usr/bin/env python3
"""Failure tests of processes: runs `launch` with recipes and checks what the ranks print.

usage: failures.py --launch LAUNCH --rank RANK [--only TEXT] [--verbose] GROUP

GROUP is space, limits, control_groups, dumps, namespaces, settings or stop. A case that fails prints the
command that repeats it. Exit status: 0 all well, 1 a case failed, 77 what the group needs is missing.
"""

import os
import re
import resource
import sys
import tempfile
import time

from cases import Missing, arguments, need, need_root, play


def calls_of(tests, steps, ranks=2):
    """Names of the system calls that rank 0 makes between the steps `begin` and `end`."""
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "trace")
        outcome = tests.run(["-n", str(ranks), "--prefix", "0", f"strace -o {path}"], steps)
        if outcome.status != 0:
            raise Missing("strace cannot trace a rank here:\n" + outcome.text)
        with open(path, encoding="utf-8", errors="replace") as trace:
            lines = trace.read().split("/shm-test/begin")[1].split("/shm-test/end")[0].splitlines()
    waiting = ("sched_yield", "clock_nanosleep")
    return [line.split("(")[0] for line in lines[1:] if not line.startswith(waiting)]


def dumps(tests):
    """Core dumps leave windows out, unless they are asked for."""
    if resource.getrlimit(resource.RLIMIT_CORE)[1] != resource.RLIM_INFINITY:
        raise Missing("core dumps have a hard limit here")
    with open("/proc/sys/kernel/core_pattern", encoding="utf-8") as file:
        if file.read().startswith(("|", "/")):
            raise Missing("core dumps do not go to the current directory here")
    with tempfile.TemporaryDirectory() as directory:
        os.chmod(directory, 0o777)
        to_core = f"sh -c 'ulimit -c unlimited && cd {directory} && exec \"$@\"' sh"

        def size_of_core(least, most):
            def check(_):
                sizes = []
                for name in os.listdir(directory):
                    path = os.path.join(directory, name)
                    sizes.append(os.stat(path).st_blocks * 512)
                    os.remove(path)
                good = len(sizes) == 1 and least <= sizes[0] < most
                return [] if good else [f"sizes of core dumps: {sizes}"]
            return check

        for step, least, most in (("window", 1, 16 << 20), ("dumped", 64 << 20, 512 << 20)):
            tests.case(f"a crash with a {step} of 64 MiB",
                       ["--prefix", "0", to_core], ["comm", f"{step}=64m,1", "write", "abort=0"],
                       ["^ok "] * 3, ranks=2, killed=(0,), signal=6,
                       check=size_of_core(least, most))


class HugePages:
    """So many reserved huge pages in all, for the length of a `with`."""

    PATH = "/proc/sys/vm/nr_hugepages"

    def __init__(self, count):
        self.count = count
        self.old = None

    def __enter__(self):
        try:
            with open(self.PATH, encoding="ascii") as file:
                self.old = int(file.read())
            self.write(self.count)
            with open(self.PATH, encoding="ascii") as file:
                if int(file.read()) != self.count:
                    raise Missing("this machine cannot reserve huge pages")
        except OSError as reason:
            raise Missing(f"huge pages cannot be reserved: {reason}") from reason

    def __exit__(self, *_):
        self.write(self.old)

    def write(self, count):
        with open(self.PATH, "w", encoding="ascii") as file:
            file.write(str(count))


def said(count, pattern):
    """A check that so many lines on standard error are like this, and no other one is there."""
    def check(outcome):
        lines = [line for line in outcome.text.splitlines() if re.match(r"\d+! ", line)]
        alike = [line for line in lines if re.match(r"0! shm: rank 0 of \d+: " + pattern, line)]
        good = len(alike) == count and len(lines) == count
        return [] if good else [f"said: {lines}, not {count} like '{pattern}'"]
    return check


def settings(tests):
    """What the environment chooses: huge pages, verbosity, values without meaning."""
    need_root()
    huge = "KUPL_SHM_TYPE=sls KUPL_SHM_ENABLE_HUGEPAGE=y"
    steps = ["comm", "window=4m", "write", "check", "window=5m", "write", "check"]
    ok = ["^ok "] * len(steps)
    with HugePages(0):
        tests.case("huge pages that nobody has", [], steps, ok, setting=huge,
                   check=said(1, "a window gets smaller pages .*nr_hugepages"))
        tests.case("small windows need no huge pages", [], ["comm", "window=64", "fence=3"],
                   ok[:3], setting=huge, check=said(0, ""))
    with HugePages(4):
        tests.case("fewer huge pages than a window needs", [], steps, ok, setting=huge,
                   check=said(1, "a window gets smaller pages "))
    with HugePages(16):
        tests.case("huge pages for one window after the other", [],
                   ["comm", "window=4m", "write", "check", "drop", "window=5m", "write", "check"],
                   ["^ok "] * 8, setting=huge, check=said(0, ""))
        tests.case("a rank dies with huge pages", ["--kill", "1:200000"],
                   ["comm", "window=4m", "fence_ms=10000", "window=64"],
                   ["^ok ", "^ok ", "^error .*died", "^error .*died"], killed=(1,), setting=huge)

        tests.case("verbosity tells of each window once", [], ["comm", "window=64", "window=4m"],
                   ["^ok "] * 3, setting=huge + " SHM_VERBOSE=y",
                   check=said(2, "window of .*: asked for sls, huge pages preferred; got sls, "
                                 "pages of [24] [KM]iB"))
    tests.case("a backend that nobody knows", [], ["comm", "window=64"], ["^ok "] * 2,
               setting="KUPL_SHM_TYPE=slls",
               check=said(1, "KUPL_SHM_TYPE=slls is not known; choices: posix, sls; taken: posix"))
    tests.case("ranks whose environment differs", ["--prefix", "1", "env KUPL_SHM_TYPE=sls"],
               ["comm", "window=64"], ["^ok "] * 2,
               check=said(1, "the settings of rank 1 differ from those of rank 0, which are taken"))
    tests.case("huge pages without the backend for them", [], ["comm", "window=64"], ["^ok "] * 2,
               setting="KUPL_SHM_ENABLE_HUGEPAGE=y",
               check=said(1, "KUPL_SHM_ENABLE_HUGEPAGE=y has no effect on the backend posix"))


def space(tests):
    """/dev/shm too small, full, without inodes, read-only, absent."""
    need_root()
    ok, bad = "^ok ", "^error .*no space"
    tests.case("a window that fits", ["--shm", "size=16m"],
               ["comm", "window=4m", "write", "check"], [ok, ok, ok, ok])
    tests.case("a window that does not fit", ["--shm", "size=16m"],
               ["comm", "window=20m", "window=4m", "write", "check"],
               [ok, bad + r".* MiB .*enlarge it.*KUPL_SHM_TYPE=sls", ok, ok, ok])
    tests.case("a window that one rank's block makes too large", ["--shm", "size=16m"],
               ["comm", "window=64,20m,64", "window=64,4m,64", "write", "check"],
               [ok, bad, ok, ok, ok], ranks=3)
    tests.case("a window that does not fit beside the one before", ["--shm", "size=16m"],
               ["comm", "window=5m", "window=5m", "write", "drop", "window=5m", "write", "check"],
               [ok, ok, bad, ok, ok, ok, ok, ok])
    tests.case("no room for the blocks, found as they are populated", ["--shm", "size=16m"],
               ["comm", "fill=15800k", "window=300k", "unfill", "window=300k", "write", "check"],
               [ok, ok, bad, ok, ok, ok, ok], ranks=3)
    tests.case("a file system without nameless files",
               ["--prefix", "0", "strace -o /dev/null -P /dev/shm -e trace=openat "
                "-e inject=openat:error=EOPNOTSUPP"],
               ["comm", "window=64", "window=1m", "write", "check"], [ok] * 5)
    calls = [calls_of(tests, ["comm", "begin", f"sparse={size}", "end"]) for size in ("1m", "8g")]
    tests.case("a sparse window, whose size its system calls do not depend on", [],
               ["comm", "sparse=8g", "fence=1"], [ok] * 3,
               check=lambda _: [] if calls[0] == calls[1] else [f"1 MiB: {calls[0]}",
                                                                f"8 GiB: {calls[1]}"])
    sls = "KUPL_SHM_TYPE=sls"
    tests.case("anonymous memory beside a small file system", ["--shm", "size=1m"],
               ["comm", "window=20m", "write", "check"], [ok] * 4, setting=sls)
    tests.case("anonymous memory beside a read-only file system", ["--shm", "ro"],
               ["comm", "window=1m", "write", "check"], [ok] * 4, setting=sls)
    tests.case("a sparse window larger than the file system", ["--shm", "size=16m"],
               ["comm", "sparse=20m", "fence=10"], [ok, ok, ok])
    tests.case("a full file system", ["--shm", "size=16m"],
               ["fill=20m", "comm", "window=64", "window=0", "unfill", "window=64", "fence=5"],
               [ok, ok, bad, bad, ok, ok, ok])
    tests.case("no inode left", ["--shm", "size=16m,nr_inodes=2"],
               ["comm", "window=64", "window=64", "fence=5", "drop", "window=64", "fence=5"],
               [ok, ok, bad + ".*inode", ok, ok, ok, ok])
    tests.case("a read-only file system", ["--shm", "ro"],
               ["comm", "window=64", "agree"],
               [ok, "^error .*/dev/shm.*Read-only.*KUPL_SHM_TYPE=sls", ok])
    need("unshare")
    hide = "sh -c 'mount -t tmpfs none /dev && exec \"$@\"' sh"
    tests.case("no /dev/shm at all", ["--prefix", "all", "unshare -m " + hide],
               ["comm", "window=64", "agree"],
               [ok, "^error .*/dev/shm.*No such file.*mount a tmpfs", ok])
    tests.case("anonymous memory without /dev/shm", ["--prefix", "all", "unshare -m " + hide],
               ["comm", "window=1m", "write", "check"], [ok] * 4, setting=sls)
    tests.case("a /dev/shm that another user may not write to",
               ["--shm", "mode=755", "--prefix", "all", "setpriv --reuid 65534 --clear-groups"],
               ["comm", "window=64"], [ok, "^error .*/dev/shm.*Permission denied.*let this user"])
    tests.case("no /dev/shm on a rank that does not make the object",
               ["--prefix", "1", "unshare -m " + hide],
               ["comm", "window=64", "write", "check"], [ok, ok, ok, ok])


def limits(tests):
    """Resource limits of one rank."""
    need_root()
    need("prlimit")
    ok = "^ok "
    for rank in (0, 1):
        tests.case(f"file-size limit on rank {rank}",
                   ["--prefix", str(rank), "prlimit --fsize=1048576"],
                   ["comm", "window=64", "window=2m", "fence=5", "window=64", "write", "check"],
                   [ok, ok, "^error .*limit.*ulimit -f" if rank == 0 else ok, ok, ok, ok, ok])
        tests.case(f"file-size limit of 0 on rank {rank}",
                   ["--prefix", str(rank), "prlimit --fsize=0"],
                   ["comm", "comm"], ["^error .*ulimit -f"] * 2 if rank == 0 else [ok, ok])
        tests.case(f"address-space limit on rank {rank}",
                   ["--shm", "size=200m", "--prefix", str(rank), "prlimit --as=50331648"],
                   ["comm", "window=32m", "window=1m", "write", "check"],
                   [ok, f"^error .*rank {rank} of 2.*ulimit -v", ok, ok, ok])
        for files in range(5, 12):
            tests.case(f"{files} open files on rank {rank}",
                       ["--prefix", str(rank), f"prlimit --nofile={files}"],
                       ["comm", "window=64", "window=1m", "agree", "drop", "window=64", "comm"],
                       check=only_limits)
    with open("/proc/sys/vm/max_map_count", encoding="ascii") as file:
        most_maps = file.read().strip()
    for rank, maps in ((0, "0,1m"), (1, "1m,0")):
        tests.case(f"no mapping left on rank {rank}", [],
                   ["comm", "window=64", f"maps_left={maps}", "window=64", "unmap", "write",
                    "check", "window=64", "write", "check"],
                   [ok, ok, ok, f"^error .*rank {rank} of 2.*of {most_maps} .*vm.max_map_count"]
                   + [ok] * 6)
    tests.case("descriptors do not pile up", ["--prefix", "all", "prlimit --nofile=24"],
               ["comm"] + ["window=64"] * 40 + ["fence=3"], [ok] * 42, ranks=3)


class MemoryGroup:
    """A control group of version 1 below this process's own, removed at the end of a `with`."""

    def __init__(self, limit):
        self.limit = limit
        self.path = None

    def __enter__(self):
        with open("/proc/self/cgroup", encoding="ascii") as groups:
            fields = [line.rstrip("\n").split(":", 2) for line in groups]
        own = [path for _, controllers, path in fields if "memory" in controllers.split(",")]
        if not own:
            raise Missing("this machine has no control groups of version 1 for memory")
        self.path = f"/sys/fs/cgroup/memory{own[0]}/shm-test-{os.getpid()}"
        try:
            for name in ("", "/a", "/b"):
                os.mkdir(self.path + name)
            with open(self.path + "/memory.limit_in_bytes", "w", encoding="ascii") as file:
                file.write(str(self.limit))
        except OSError as reason:
            self.__exit__()
            raise Missing(f"cannot make a control group: {reason}") from reason
        return self

    def __exit__(self, *_):
        for name in ("/a", "/b", ""):
            if os.path.isdir(self.path + name):
                os.rmdir(self.path + name)

    def prefix(self, name=""):
        """A command that enters the group, or the one called `name` in it, and goes on."""
        return f"sh -c 'echo $$ >{self.path}{name}/cgroup.procs && exec \"$@\"' sh"


def control_groups(tests):
    """Limits of memory that kill where they are not asked before."""
    need_root()
    ok = "^ok "
    group = r"in the control group /\S*shm-test-\d+, which has [\d.]+ MiB left of 64 MiB; .*memory"
    with MemoryGroup(64 << 20) as memory:
        tests.case("both ranks in one control group", ["--prefix", "all", memory.prefix()],
                   ["comm", "window=40m", "window=20m", "write", "check"],
                   [ok, "^error .*rank 0 of 2.*2 ranks need 80 MiB " + group, ok, ok, ok])
        tests.case("one rank in a control group", ["--prefix", "1", memory.prefix()],
                   ["comm", "window=1m,80m", "window=80m,1m", "write", "check"],
                   [ok, "^error .*rank 1 of 2.*1 rank needs 80 MiB " + group, ok, ok, ok])
        tests.case("two control groups in one that has a limit",
                   ["--prefix", "0", memory.prefix("/a"), "--prefix", "2", memory.prefix("/b")],
                   ["comm", "window=40m", "window=20m", "write", "check"],
                   [ok, "^error .*rank 0 of 3.*2 ranks need 80 MiB " + group, ok, ok, ok], ranks=3)
        tests.case("a sparse window is not asked for", ["--prefix", "all", memory.prefix()],
                   ["comm", "sparse=100m", "fence=1"], [ok] * 3)
        tests.case("a rank that comes late still holds an earlier window",
                   ["--prefix", "all", memory.prefix()],
                   ["comm", "window=20m", "sleep_ms=0,300", "drop", "window=20m", "write", "check"],
                   [ok] * 7)
        tests.case("a window that fits but for what the kernel keeps about its pages",
                   ["--prefix", "all", memory.prefix()],
                   ["comm", "window=32000k", "window=16m", "write", "check"],
                   [ok, "^error .*2 ranks need 62.5 MiB in the control group", ok, ok, ok])
        tests.case("refused windows pile nothing up at those who need a connection",
                   ["--prefix", "all", memory.prefix(), "--prefix", "1", "unshare -U -r"],
                   ["comm"] + ["window=40m"] * 600 + ["window=1m", "write", "check"],
                   ["^ok "] + ["^error .*control group"] * 600 + ["^ok "] * 3)
        tests.case("a large block and small ones in one control group",
                   ["--prefix", "all", memory.prefix()],
                   ["comm", "window=63900k,341k,341k", "window=16m", "write", "check"],
                   [ok, "^error .*3 ranks need 63\\.\\d+ MiB in the control group", ok, ok, ok], ranks=3)
        tests.case("windows of earlier creations count", ["--prefix", "all", memory.prefix()],
                   ["comm", "window=16m", "window=20m", "drop", "window=20m"],
                   [ok, ok, "^error .*2 ranks need 40 MiB in the control group", ok, ok])


def only_limits(outcome):
    """Complains of an error that does not name the limit of open files."""
    return [f"does not name the limit: {line}" for line in outcome.steps.get(0, [])
            if line.startswith("error ") and "ulimit -n" not in line]


def namespaces(tests):
    """Ranks that see other mounts, processes, users, networks or machines."""
    need_root()
    need("unshare", "setpriv")
    ok = "^ok "
    steps = ["comm", "window=64k", "write", "check", "window=1m", "write", "check", "drop", "comm",
             "window=64", "fence=5", "comm", "split=0", "window=64k", "write", "check", "comm",
             "split=0,1", "window=64k", "write", "check"]
    all_ok = [ok] * len(steps)
    other_shm = "unshare -m sh -c 'mount -t tmpfs none /dev/shm && exec \"$@\"' sh"
    user = "setpriv --reuid 65534 --regid 65534 --clear-groups"
    for ranks, rank in ((2, "0"), (2, "1"), (3, "2")):
        for name, prefix in (("another /dev/shm", other_shm),
                             ("a user namespace", "unshare -U -r"),
                             ("a PID namespace", "unshare -pf --mount-proc"),
                             ("a PID namespace with the old /proc", "unshare -pf"),
                             ("a network namespace", "unshare -n"),
                             ("another user", "setpriv --reuid 65534")):
            tests.case(f"{name} for rank {rank} of {ranks}", ["--prefix", rank, prefix], steps,
                       all_ok, ranks=ranks)
    tests.case("all ranks are another user", ["--prefix", "all", user], steps, all_ok, ranks=3)
    tests.case("each rank has a PID namespace", ["--prefix", "all", "unshare -pf --mount-proc"],
               steps, all_ok, ranks=3)
    is_switchable = os.access("/proc/sys/vm/memfd_noexec", os.W_OK)
    for level in (0, 1, 2) if is_switchable else ():
        noexec = ("unshare -pf --mount-proc sh -c 'echo "
                  f"{level} >/proc/sys/vm/memfd_noexec && exec \"$@\"' sh")
        tests.case(f"memory that must not be executed, level {level}", ["--prefix", "all", noexec],
                   steps, all_ok, ranks=3)
    tests.case("two ranks need the socket", ["--prefix", "1", "unshare -U -r", "--prefix", "2",
                                             "unshare -pf --mount-proc"], steps, all_ok, ranks=4)
    # Ranks 1 and 2 reach rank 0, but not each other.
    tests.case("a split that puts strangers together, and one that does not",
               ["--prefix", "1", "unshare -pf --mount-proc", "--prefix", "2", "unshare -n"],
               ["comm", "split=0,1,1,0", "agree", "split=0,1,2,1", "window=64k", "write", "check"],
               [ok, r"^error .*rank [12] of 4: splitting a group: ranks cannot share memory: counting"
                    r" the ranks of this color alone: these cannot .*: 1( \(.*\))?; ", *[ok] * 5], ranks=4)
    for rank in (0, 1):
        tests.case(f"PID and network namespaces for rank {rank}",
                   ["--prefix", str(rank), "unshare -n -pf --mount-proc"], ["comm", "comm"],
                   [r"^error comm: shm: rank \d of 3: .*cannot share memory.*namespace"] * 2,
                   ranks=3)
    with tempfile.TemporaryDirectory() as directory:
        other = os.path.join(directory, "boot_id")
        with open(other, "w", encoding="ascii") as file:
            file.write("01234567-89ab-cdef-0123-456789abcdef\n")
        prefix = (f"unshare -m sh -c 'mount --bind {other} /proc/sys/kernel/random/boot_id && "
                  "exec \"$@\"' sh")
        tests.case("two machines", ["--prefix", "2", prefix, "--prefix", "3", prefix],
                   ["comm", "comm"],
                   ["^error .*one machine has ranks 0 to 1; one machine has ranks 2 to 3;"
                    " split the communicator"] * 2, ranks=4)
        tests.case("two machines, rank 0 alone", ["--prefix", "0", prefix], ["comm"],
                   ["^error .*one machine has ranks 0; one machine has ranks 1 to 2; split"], ranks=3)


def stop(tests):
    """Ranks that are stopped, are killed or leave while others are in a fence."""
    need_root()
    ok = "^ok "
    # Rank 1 enters the fence and looks around before rank 2 leaves, rank 0 enters it afterwards and
    # is the first to know; what it calls then must not look to rank 1 like an arrival of all.
    left = "^error .*rank 2 of 3: fence: the rank has destroyed its end"
    for number, algorithm in ((1, "linear"), (2, "dissemination"), (3, "counter")):
        tests.case(f"rank 2 leaves while others are in a {algorithm} fence", [],
                   ["comm", "window=64", "fence=1", "sleep_ms=50,0,30", "drop=2"]
                   + ["fence=1"] * 3 + ["agree"], [ok] * 5 + [left] * 3 + [ok], ranks=3,
                   absent=(2,), setting=f"KUPL_SHM_FENCE_ALGORITHM={number}")
    start = time.monotonic()
    tests.run(["-n", "3"], ["comm"])
    start_up = time.monotonic() - start
    for ranks, rank in ((2, 0), (2, 1), (3, 1), (4, 3)):
        tests.case(f"rank {rank} of {ranks} is stopped for a second in a fence",
                   ["--stop", f"{rank}:100000", "--cont", f"{rank}:1300000"],
                   ["comm", "window=64", "fence_ms=300", "window=64", "fence=5"], [ok] * 5,
                   ranks=ranks,
                   check=lambda outcome: [] if outcome.seconds > 1.2 else ["was not stopped"])

        def in_time(outcome):
            late = outcome.seconds - 0.2 - start_up
            return [f"{late:.2f} s from the kill to the end"] if late > 1 else []

        lost = fr"shm: rank {rank} of {ranks}: [a-z ]*: the rank died"
        tests.case(f"rank {rank} of {ranks} is killed in a fence", ["--kill", f"{rank}:200000"],
                   ["comm", "window=64", "window=64", "fence_ms=10000", "fence=1", "window=64",
                    "agree", "barrier"],
                   [ok, ok, ok] + ["^error .*" + lost] * 5, ranks=ranks, killed=(rank,),
                   check=in_time)


GROUPS = {each.__name__: each
          for each in (space, limits, control_groups, dumps, namespaces, settings, stop)}


def main():
    parser = arguments()
    parser.add_argument("group", choices=GROUPS)
    asked = parser.parse_args()
    return play(GROUPS[asked.group], asked)


if __name__ == "__main__":
    sys.exit(main())
