#!/usr/bin/env python3
"""Runs static test programs in an emulated machine with NUMA nodes, huge pages and control groups.

usage: machine.py [--nodes LAYOUT] [--kernel-options TEXT] [--program FILE]... [--limit SECONDS]
                  [--cache DIRECTORY] [--verbose] -- COMMAND... [--then COMMAND...]...

Boots Debian's kernel under qemu's software emulation, with nothing but busybox and the programs in
memory, and runs the commands there as root, one after the other, without input. Programs are found
by their names, and so is

    with_memory_max BYTES COMMAND...    runs COMMAND in a new control group with this memory.max

LAYOUT is
    plain    one node, two processors, 1 GiB
    hmat     nodes 0 and 1 with a processor each; node 2 without, nearest to node 0 and with five
             times its bandwidth, as an HMAT tells; 512 MiB each
    kunpeng  nodes 0 and 1 with a processor each; 16 and 17 without, nearest to 0 and 1; no HMAT,
             and no node between 1 and 16; 512 MiB each

--kernel-options: for the kernel's command line, such as "hugepages=0:4,2:8" (pages by node).
--cache: keeps kernel and busybox, which are fetched with apt-get and unpacked, not installed.

Prints what the commands print, and with --verbose the time and what the kernel says. Exit status:
that of the first command that fails; 77 where one was skipped with 77 and none failed, or where
something that the machine needs cannot be had; 124 where the limit, in seconds, ends it; 125 where
it breaks down.
"""

import argparse
import dataclasses
import os
import pathlib
import re
import secrets
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
import time

SKIP = 77
OVERDUE = 124
BROKEN = 125

QEMU = "qemu-system-x86_64"

# Without drivers for real machines, which makes it small; NUMA, HMAT, huge pages and control groups
# are as in linux-image-amd64.
KERNEL_PACKAGE = "linux-image-cloud-amd64"
BUSYBOX_PACKAGE = "busybox-static"

# Kernel messages go to the first serial line, output to the second.
INIT = """#!/bin/busybox sh
set -e
/bin/busybox --install -s /bin
export PATH=/programs:/bin HOME=/tmp
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mkdir /dev/shm /dev/hugepages
mount -t tmpfs tmpfs /dev/shm
mount -t tmpfs tmpfs /tmp
mount -t hugetlbfs hugetlbfs /dev/hugepages
mount -t cgroup2 cgroup2 /sys/fs/cgroup
echo "+memory +hugetlb +cpuset" >/sys/fs/cgroup/cgroup.subtree_control
ifconfig lo 127.0.0.1 up
stty -F /dev/ttyS1 raw
cd /tmp
set +e
sh /commands >/dev/ttyS1 2>&1 </dev/null
poweroff -f
"""

WITH_MEMORY_MAX = """#!/bin/sh
group=/sys/fs/cgroup/with_memory_max.$$
mkdir $group && echo "$1" >$group/memory.max && echo $$ >$group/cgroup.procs || exit 125
shift
exec "$@"
"""


class Unavailable(Exception):
    """Something that the machine needs cannot be had."""


class Broken(Exception):
    """The machine has not run all commands: the limit ended it, or it came down."""

    def __init__(self, why, status, outcomes):
        super().__init__(why)
        self.status = status
        self.outcomes = outcomes  # those of the commands that have begun


@dataclasses.dataclass
class Outcome:
    """What became of one command."""

    command: list
    status: int | None = None  # None: it has not ended; 128 + n: signal n
    text: str = ""


def node(number, processor=None, mebibytes=512, more=""):
    """Arguments for a node with memory and, where its number is given, a processor."""
    cpus = "" if processor is None else f",cpus={processor}"
    return ["-object", f"memory-backend-ram,size={mebibytes}M,id=m{number}",
            "-numa", f"node,nodeid={number},memdev=m{number}{cpus}{more}"]


def distances(size, near, otherwise=20):
    """Arguments for the distances between all nodes: `otherwise` except for the pairs in `near`."""
    return [word for a in range(size) for b in range(a + 1, size)
            for word in ("-numa", f"dist,src={a},dst={b},val={near.get((a, b), otherwise)}")]


def speed(initiator, target, nanoseconds, gibibytes):
    """Arguments for an entry of the HMAT: latency, and bandwidth in GiB/s."""
    pair = f"hmat-lb,initiator={initiator},target={target},hierarchy=memory"
    return ["-numa", f"{pair},data-type=access-latency,latency={nanoseconds}",
            "-numa", f"{pair},data-type=access-bandwidth,bandwidth={gibibytes}G"]


def plain():
    return ["-machine", "q35", "-m", "1024M", "-smp", "2"]


def hmat():
    return ["-machine", "q35,hmat=on", "-m", "1536M", "-smp", "2",
            *node(0, 0), *node(1, 1), *node(2, more=",initiator=0"),
            *distances(3, {(0, 2): 12, (1, 2): 22}),
            *speed(0, 0, 100, 40), *speed(0, 1, 200, 20), *speed(0, 2, 110, 200),
            *speed(1, 0, 200, 20), *speed(1, 1, 100, 40), *speed(1, 2, 210, 20)]


def kunpeng():
    # Linux numbers nodes in the order in which the firmware's table names them, and qemu leaves out
    # those that have nothing. A processor that could be plugged in later gives a node its number,
    # though not its existence.
    absent = [word for n in range(2, 16) for word in ("-numa", f"node,nodeid={n},cpus={n}")]
    return ["-machine", "q35", "-m", "2048M", "-smp", "2,maxcpus=16,sockets=16,cores=1,threads=1",
            *node(0, 0), *node(1, 1), *absent, *node(16), *node(17),
            *distances(18, {(0, 16): 12, (1, 17): 12})]


LAYOUTS = {"plain": plain, "hmat": hmat, "kunpeng": kunpeng}


def default_cache():
    return pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache",
                        "shm-emulated")


def output_of(*command, cwd=None):
    """Returns what a command of Debian's package tools prints."""
    try:
        done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    except FileNotFoundError as e:
        raise Unavailable(f"{command[0]} is missing") from e
    if done.returncode != 0:
        last = (done.stderr.strip() or f"ended with {done.returncode}").splitlines()[-1]
        raise Unavailable(f"{shlex.join(command)}: {last}")
    return done.stdout


def download(package, directory):
    """Fetches a package's file; one that only names another is followed."""
    for line in output_of("apt-cache", "depends", package).splitlines():
        if found := re.fullmatch(r"\s*Depends: (linux-image-\d\S*)", line):
            package = found[1]
    output_of("apt-get", "download", package, cwd=directory)


def fetch(package, pattern, target):
    """Puts the file of a Debian package that matches `pattern` at `target`, unless it is there."""
    if target.exists():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as name:
        directory = pathlib.Path(name)
        try:
            download(package, directory)
        except Unavailable:
            # The lists of packages may be missing or too old.
            if os.geteuid() != 0:
                raise
            output_of("apt-get", "update")
            download(package, directory)
        output_of("dpkg", "-x", str(next(directory.glob("*.deb"))), str(directory))
        files = sorted(directory.glob(pattern))
        if not files:
            raise Unavailable(f"{package} holds no {pattern}")
        files[0].replace(target)  # at once: another run may be doing the same


def archive(entries):
    """Returns a cpio archive of pairs of a path and its content, None for a directory.

    Source: the kernel's Documentation/driver-api/early-userspace/buffer-format.rst, "newc".
    """
    result = bytearray()

    def pad():
        result.extend(bytes(-len(result) % 4))

    def add(path, mode, content):
        name = path.encode() + b"\0"
        fields = (0, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name), 0)
        result.extend(b"070701" + b"".join(b"%08X" % field for field in fields) + name)
        pad()
        result.extend(content)
        pad()

    for path, content in entries:
        if content is None:
            add(path, stat.S_IFDIR | 0o755, b"")
        else:
            add(path, stat.S_IFREG | 0o755, content)
    add("TRAILER!!!", 0, b"")
    return bytes(result)


def outcomes_in(text, commands, mark):
    """Splits the output of the machine at the lines that begin and end each command."""
    outcomes = []
    for index, command in enumerate(commands):
        begin = f"{mark} begin {index}\n"
        if begin not in text:
            break
        text = text.split(begin, 1)[1]
        outcome = Outcome(command, text=text)
        if found := re.search(rf"\n{mark} end {index} (\d+)\n", text):
            outcome.status = int(found[1])
            outcome.text = text[:found.start()]
        outcomes.append(outcome)
    return outcomes


class Machine:
    """A kind of emulated machine; each run boots a new one."""

    def __init__(self, layout="plain", programs=(), kernel_options="", cache=None):
        self.qemu = shutil.which(QEMU)
        if self.qemu is None:
            raise Unavailable(f"{QEMU} is missing (Debian: qemu-system-x86)")
        cache = pathlib.Path(cache or default_cache())
        self.kernel = cache / "vmlinuz"
        self.busybox = cache / "busybox"
        fetch(KERNEL_PACKAGE, "boot/vmlinuz-*", self.kernel)
        fetch(BUSYBOX_PACKAGE, "bin/busybox", self.busybox)
        self.layout = layout
        self.programs = [pathlib.Path(program) for program in programs]
        self.kernel_options = kernel_options
        self.kernel_log = ""
        self.seconds = 0.0  # from start to power off, of the last run

    def run(self, commands, limit=60):
        """Runs commands, lists of words, within `limit` seconds; returns their outcomes.

        Raises Broken where not all of them have ended.
        """
        mark = "@" + secrets.token_hex(8)
        with tempfile.TemporaryDirectory() as name:
            directory = pathlib.Path(name)
            (directory / "initrd").write_bytes(self.initrd(commands, mark))
            start = time.monotonic()
            done = self.boot(directory, limit)
            self.seconds = time.monotonic() - start
            self.kernel_log, text = (
                path.read_text(errors="replace") if path.exists() else ""
                for path in (directory / "kernel", directory / "output"))
        outcomes = outcomes_in(text, commands, mark)
        last_words = "\n".join(self.kernel_log.splitlines()[-30:])
        if done is None:
            raise Broken(f"still running after {limit:g} s; the kernel says:\n{last_words}",
                         OVERDUE, outcomes)
        if done.returncode != 0:
            raise Broken(f"{QEMU} ended with {done.returncode}: {done.stderr.strip()}", BROKEN,
                         outcomes)
        if len(outcomes) < len(commands) or outcomes[-1].status is None:
            raise Broken(f"the machine came down; the kernel says:\n{last_words}", BROKEN, outcomes)
        return outcomes

    def initrd(self, commands, mark):
        script = "".join(
            f"echo '{mark} begin {index}'\n(exec {shlex.join(command)})\n"
            f"status=$?; echo; echo '{mark} end {index} '$status\n"
            for index, command in enumerate(commands))
        directories = ("bin", "dev", "proc", "programs", "sys", "tmp")
        return archive([
            *((path, None) for path in directories),
            ("bin/busybox", self.busybox.read_bytes()),
            ("bin/with_memory_max", WITH_MEMORY_MAX.encode()),
            ("init", INIT.encode()),
            ("commands", script.encode()),
            *((f"programs/{program.name}", program.read_bytes()) for program in self.programs),
        ])

    def boot(self, directory, limit):
        """Boots, and waits for power off; None where the limit ends it."""
        command = [
            self.qemu, "-accel", "tcg,thread=multi", "-cpu", "max", *LAYOUTS[self.layout](),
            "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
            "-serial", f"file:{directory / 'kernel'}", "-serial", f"file:{directory / 'output'}",
            "-kernel", str(self.kernel), "-initrd", str(directory / "initrd"),
            "-append", f"console=ttyS0 quiet panic=-1 {self.kernel_options}"]
        try:
            return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True,
                                  text=True, timeout=limit, check=False)
        except subprocess.TimeoutExpired:
            return None


def show(outcomes):
    for outcome in outcomes:
        if text := outcome.text.rstrip("\n"):
            print(text)
        if outcome.status is None:
            print(f"did not end: {shlex.join(outcome.command)}")
        elif outcome.status not in (0, SKIP):
            print(f"ended with {outcome.status}: {shlex.join(outcome.command)}")


def split(words):
    """Splits the command line's commands at each --then."""
    commands = [[]]
    for word in words:
        if word == "--then":
            commands.append([])
        else:
            commands[-1].append(word)
    return commands


def main():
    about, _, more = __doc__.partition("\n\nBoots")
    parser = argparse.ArgumentParser(usage=about.partition("usage: ")[2],
                                     description="Boots" + more,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", choices=sorted(LAYOUTS), default="plain")
    parser.add_argument("--kernel-options", default="")
    parser.add_argument("--program", action="append", default=[])
    parser.add_argument("--limit", type=float, default=60)
    parser.add_argument("--cache", type=pathlib.Path)
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    args = parser.parse_args()
    commands = split(args.command[1:] if args.command[:1] == ["--"] else args.command)
    if not all(commands):
        parser.error("a command is missing")

    try:
        machine = Machine(args.nodes, args.program, args.kernel_options, args.cache)
    except Unavailable as e:
        print(f"skipped: {e}")
        return SKIP
    try:
        outcomes = machine.run(commands, args.limit)
    except Broken as e:
        show(e.outcomes)
        print(e)
        return e.status
    show(outcomes)
    if args.verbose:
        print(f"{machine.seconds:.1f} s from power on to power off\n{machine.kernel_log.strip()}")
    statuses = [outcome.status for outcome in outcomes]
    failed = [status for status in statuses if status not in (0, SKIP)]
    return failed[0] if failed else max(statuses)


if __name__ == "__main__":
    sys.exit(main())
