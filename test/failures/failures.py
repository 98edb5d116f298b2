#!/usr/bin/env python3
"""Failure tests of processes: runs `launch` with recipes and checks what the ranks print.

usage: failures.py --launch LAUNCH --rank RANK [--only TEXT] [--verbose] GROUP

GROUP is space, limits, control_groups, dumps, namespaces, injection or stop. A case that fails prints the command that
repeats it. Exit status: 0 all well, 1 a case failed, 77 something that the group needs is missing.
"""

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time

LIMIT = 20  # seconds that one case may take


class Missing(Exception):
    """Something that a group of cases needs is not there."""


class Outcome:
    """What one run of `launch` has printed."""

    def __init__(self, command, status, text, seconds):
        self.command = command
        self.status = status
        self.text = text
        self.seconds = seconds
        self.steps = {}  # rank: lines of standard output
        self.exits = {}  # rank: "exit 0", "signal 9", "alive"
        self.left = None
        for line in text.splitlines():
            if found := re.match(r"(\d+)\| (.*)", line):
                self.steps.setdefault(int(found[1]), []).append(found[2])
            elif found := re.match(r"rank (\d+): (.*)", line):
                self.exits[int(found[1])] = found[2]
            elif line.startswith("left in /dev/shm: "):
                self.left = line.removeprefix("left in /dev/shm: ")

    def step(self, rank, index):
        """Line of a step, by its place on the command line."""
        lines = self.steps.get(rank, [])
        return lines[index] if index < len(lines) else "(nothing)"


class Tests:
    """Runs cases and counts what fails."""

    def __init__(self, launch, rank, program, only, verbose):
        self.launch = launch
        self.rank = rank
        self.program = program
        self.only = only
        self.verbose = verbose
        self.run_count = 0
        self.failed = []

    def run(self, options, steps, setting=""):
        command = [*(("env", setting) if setting else ()), self.launch, "--limit", str(LIMIT),
                   *options, "--", self.rank, *steps]
        start = time.monotonic()
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              errors="replace", check=False)
        outcome = Outcome(command, done.returncode, done.stdout, time.monotonic() - start)
        if done.returncode == 77:
            raise Missing(done.stdout.strip())
        return outcome

    def case(self, name, options, steps, expect=(), ranks=2, killed=(), signal=9, absent=(),
             setting="", check=None):
        """Runs one case on `ranks` ranks.

        expect:  for each step a regular expression that its line must match, or None.
        killed:  ranks that must die of the signal `signal`, else SIGKILL; all others must exit 0 and print the same lines.
        absent:  ranks whose lines are not compared.
        setting: a VARIABLE=VALUE for the environment.
        check:   function of the outcome that returns further complaints.
        """
        if self.only not in name:
            return
        self.run_count += 1
        outcome = self.run(["-n", str(ranks), *options], steps, setting)
        complaints = list(self.complaints(outcome, len(steps), expect, ranks, killed, signal,
                                          absent))
        if check is not None:
            complaints += check(outcome)
        if complaints:
            self.failed.append(name)
            print(f"FAILED {name}")
            for complaint in complaints:
                print(f"  {complaint}")
            print("  repeat: " + shlex.join(self.program if word == self.rank else word
                                           for word in outcome.command))
        if complaints or self.verbose:
            print(f"{name} ({outcome.seconds:.2f} s)")
            print("".join(f"    {line}\n" for line in outcome.text.splitlines()), end="")
        sys.stdout.flush()

    @staticmethod
    def complaints(outcome, step_count, expect, ranks, killed, signal, absent):
        if outcome.status == 3:
            yield f"hang: still running after {LIMIT} s"
            return
        if outcome.left != "0":
            yield f"left in /dev/shm: {outcome.left}"
        survivors = [r for r in range(ranks) if r not in killed and r not in absent]
        for rank in range(ranks):
            wanted = ((f"signal {signal}", f"exit {128 + signal}") if rank in killed
                      else ("exit 0",))
            if outcome.exits.get(rank) not in wanted:
                yield f"rank {rank}: {outcome.exits.get(rank)}, not {wanted[0]}"
        for index in range(step_count):
            lines = {outcome.step(r, index) for r in survivors}
            if killed:
                # A death inside a bootstrap's collective is the bootstrap's business: each rank
                # reports that its own call has failed.
                own = r"rank \d+ of \d+: (?=creating a communicator: the bootstrap failed)"
                lines = {re.sub(own, "", line) for line in lines}
            if len(lines) != 1:
                for r in survivors:
                    yield f"ranks differ: rank {r}: {outcome.step(r, index)}"
                continue
            line = lines.pop()
            if "not a shm::error" in line or line == "(nothing)":
                yield f"step {index}: {line}"
            elif index < len(expect) and expect[index] and not re.search(expect[index], line):
                yield f"step {index} is not like '{expect[index]}': {line}"


def need(*programs):
    for program in programs:
        if shutil.which(program) is None:
            raise Missing(f"{program} is not installed")


def need_root():
    if os.geteuid() != 0:
        raise Missing("this group needs root: it mounts file systems and makes namespaces")


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
               ["comm", "window=64", "agree"], [ok, "^error .*/dev/shm.*Read-only.*KUPL_SHM_TYPE=sls", ok])
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
    for rank, maps in ((0, "0,1m"), (1, "1m,0")):
        tests.case(f"no mapping left on rank {rank}", [],
                   ["comm", "window=64", f"maps_left={maps}", "window=64", "unmap", "write", "check",
                    "window=64", "write", "check"],
                   [ok, ok, ok, f"^error .*rank {rank} of 2.*of 65530.*sysctl -w vm.max_map_count"]
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
            own = [line.rstrip("\n").split(":", 2)[2] for line in groups if ":memory:" in line]
        if not own:
            raise Missing("this machine has no control groups of version 1 for memory")
        self.path = f"/sys/fs/cgroup/memory{own[0]}/shm-test-{os.getpid()}"
        try:
            for name in ("", "/a", "/b"):
                os.mkdir(self.path + name)
            with open(self.path + "/memory.limit_in_bytes", "w", encoding="ascii") as file:
                file.write(str(self.limit))
        except OSError as reason:
            raise Missing(f"cannot make a control group: {reason}") from reason
        return self

    def __exit__(self, *_):
        for name in ("/a", "/b", ""):
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
             "window=64", "fence=5"]
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
    for level in (0, 1, 2):
        noexec = ("unshare -pf --mount-proc sh -c 'echo "
                  f"{level} >/proc/sys/vm/memfd_noexec && exec \"$@\"' sh")
        tests.case(f"memory that must not be executed, level {level}", ["--prefix", "all", noexec],
                   steps, all_ok, ranks=3)
    tests.case("two ranks need the socket", ["--prefix", "1", "unshare -U -r", "--prefix", "2",
                                             "unshare -pf --mount-proc"], steps, all_ok, ranks=4)
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


# System calls of creation, and errors that each can really give.
INJECTED = {
    "openat": ("EMFILE", "EACCES"),
    "memfd_create": ("ENOSYS", "EMFILE"),
    "ftruncate": ("ENOSPC",),
    "mmap": ("ENOMEM",),
    "madvise": ("EFAULT", "EINVAL", "ENOMEM"),
    "fallocate": ("ENOSPC",),
    "newfstatat": ("EIO",),
    "fstat": ("EIO",),
    "fstatfs": ("EIO",),
    "fcntl": ("ENOLCK", "EAGAIN"),
    "socket": ("EMFILE",),
    "bind": ("EADDRINUSE",),
    "listen": ("EOPNOTSUPP",),
    "connect": ("ECONNREFUSED",),
    "accept4": ("EMFILE",),
    "sendmsg": ("ENOBUFS",),
    "recvmsg": ("ENOMEM",),
    "poll": ("ENOMEM",),
    "getrandom": ("ENOSYS",),
    "sched_getaffinity": ("EPERM",),
    "prlimit64": ("EPERM",),
    "read": ("EIO",),
    "munmap": ("EINVAL",),
    "close": ("EIO",),
}

CREATE = ["begin", "comm", "window=64", "window=600k", "end"]


class Counts:
    """How often a rank makes each call before and in its creations, from a traced run.

    strace counts a process's calls from its start, so those of the dynamic loader and of the
    bootstrap's beginning come first. They are the same in every run; the number of the j-th call of
    a creation is that of all calls before the mark, plus j.
    """

    def __init__(self, tests, rank, ranks, options):
        self.before = {}
        self.within = {}
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "trace")
            calls = ",".join("?" + call for call in (*INJECTED, "access", "faccessat"))
            outcome = tests.run(["-n", str(ranks), *options, "--prefix", str(rank),
                                 f"strace -o {path} -e trace={calls}"], CREATE)
            if outcome.status != 0:
                raise Missing("strace cannot trace a rank here:\n" + outcome.text)
            counted = self.before
            with open(path, encoding="utf-8", errors="replace") as trace:
                for line in trace:
                    if "/shm-test/begin" in line:
                        counted = self.within
                    elif "/shm-test/end" in line:
                        return
                    elif found := re.match(r"(\w+)\(", line):
                        counted[found[1]] = counted.get(found[1], 0) + 1

    def handful(self, call):
        """Numbers of some of a call's occurrences in creation: first, last, some between."""
        count = self.within.get(call, 0)
        chosen = {1, 2, 3, (count + 1) // 2, count - 1, count}
        return [(j, self.before.get(call, 0) + j) for j in sorted(chosen) if 1 <= j <= count]


def injection(tests):
    """System calls of creation that fail on one rank, and ranks that die in one."""
    need_root()
    need("strace", "unshare")
    user_namespace = ["--prefix", "1", "unshare -U -r"]
    after_error = CREATE + ["window=64k", "comm", "window=1k", "fence=3"]
    # A creation that can only fail because of the first failure is skipped; then all are right.
    expect = [None] * len(CREATE) + ["^ok |^skipped "] + ["^ok "] * 3
    for kind, options, ranks in (("", [], (0, 1)), (" with a socket", user_namespace, (0,))):
        for rank in ranks:
            counts = Counts(tests, rank, 2, options)
            for call, errors in INJECTED.items():
                for j, when in counts.handful(call):
                    for error in errors:
                        inject = f"strace -o /dev/null -e trace={call} " \
                                 f"-e inject={call}:error={error}:when={when}"
                        tests.case(f"{error} of {call} {j} on rank {rank}{kind}",
                                   [*options, "--prefix", str(rank), inject], after_error, expect)
            counts = Counts(tests, rank, 3, options)
            for call in INJECTED:
                for j, when in counts.handful(call):
                    inject = f"strace -o /dev/null -e trace={call} " \
                             f"-e inject={call}:signal=KILL:when={when}"
                    tests.case(f"death in {call} {j} on rank {rank}{kind}",
                               [*options, "--prefix", str(rank), inject], CREATE + ["fence=3"],
                               [None] * len(CREATE) + ["^error .*died|^skipped "], ranks=3,
                               killed=(rank,))


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


GROUPS = {each.__name__: each for each in (space, limits, control_groups, dumps, namespaces,
                                            injection, stop)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--launch", required=True)
    parser.add_argument("--rank", required=True)
    parser.add_argument("--only", default="", help="cases whose name holds this text")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("group", choices=GROUPS)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        # A copy that every user can run, wherever the build directory is.
        os.chmod(directory, 0o755)
        rank = shutil.copy(asked.rank, os.path.join(directory, "rank"))
        os.chmod(rank, 0o755)
        tests = Tests(os.path.abspath(asked.launch), rank, os.path.abspath(asked.rank),
                      asked.only, asked.verbose)
        try:
            GROUPS[asked.group](tests)
        except Missing as reason:
            print(f"skipped: {reason}")
            return 1 if tests.failed else 77
    print(f"{asked.group}: {tests.run_count} cases, {len(tests.failed)} failed")
    for name in tests.failed:
        print(f"  {name}")
    return 1 if tests.failed else 0


if __name__ == "__main__":
    sys.exit(main())
