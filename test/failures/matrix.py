#!/usr/bin/env python3
"""Fault matrix: every system call of creation fails once, and every rank dies in each once.

usage: matrix.py --launch LAUNCH --rank RANK [--only TEXT] [--verbose]

The calls are those that a traced run makes. A call that appears there and is in none of the tables
below is a failure of its own: it has to be entered. A case that fails prints the command that
repeats it. Exit status: 0 all well, 1 a case failed, 77 something that is needed is missing.
"""

import collections
import concurrent.futures
import os
import re
import subprocess
import sys

from cases import Missing, arguments, need, need_root, play

# Errors that each call can really give. No error: such a call cannot fail.
ERRORS = {
    "accept4": ("EMFILE",),
    "bind": ("EADDRINUSE",),
    "brk": ("ENOMEM",),
    "clock_nanosleep": (),
    "close": ("EIO",),
    "connect": ("ECONNREFUSED", "EAGAIN"),
    "fallocate": ("ENOSPC", "EOPNOTSUPP"),
    "fcntl": ("ENOLCK", "EAGAIN"),
    "fstat": ("EIO",),
    "fstatfs": ("EIO",),
    "ftruncate": ("ENOSPC", "EPERM"),
    "futex": (),  # of the C library, which ends the program where one fails
    "getpid": (),
    "getrandom": ("ENOSYS",),
    "listen": ("EOPNOTSUPP",),
    "madvise": ("EFAULT", "EINVAL", "ENOMEM"),
    "memfd_create": ("ENOSYS", "EMFILE", "EINVAL"),
    "mmap": ("ENOMEM",),
    "mprotect": ("ENOMEM",),
    "munmap": ("EINVAL",),
    "newfstatat": ("EIO",),
    "openat": ("EMFILE", "EACCES"),
    "poll": ("ENOMEM",),
    "ppoll": ("ENOMEM",),
    "prlimit64": ("EPERM",),
    "read": ("EIO",),
    "recvmsg": ("ENOMEM",),
    "sched_getaffinity": ("EPERM",),
    "sched_yield": (),
    "sendmsg": ("ENOBUFS",),
    "socket": ("EMFILE",),
    "unlink": ("EACCES",),
    "unlinkat": ("EACCES",),
}

# Calls of the test itself. The second word says what is done with them.
OWN = (
    (r"(access|faccessat2?)\(.*/shm-test/", "nothing"),  # the marks around the creations
    (r"write\(1, ", "nothing"),                          # a rank's lines
    (r"(newfstatat|fstat)\(1, ", "nothing"),             # the C library, before the first of them
    (r"(sendto|recvfrom)\(3, ", "death"),  # the bootstrap, whose errors test/group/greeting makes
)

# Calls of a rank that waits. Their number differs from run to run, and a rank that is quick makes
# none: the first few are tried, and it is no failure if a run has not come to one.
WAITING = r"sched_yield|clock_nanosleep|fcntl\(.*F_OFD_GETLK"
WAITING_COUNT = 3

# A call that strace makes fail is not made. What is not closed or unmapped is left until the end,
# and a file that is not removed keeps its name; so it does where the rank dies before that call.
LEAVES_ONE = ("close", "munmap")
LEAVES_NAME = ("unlink", "unlinkat")

# Tries until a run has come to the call; waiting can shift the numbers of later ones.
TRIES = 4

RANKS = 3  # one has the fault; the other two are compared
CREATE = ["begin", "comm", "split=0", "window=64", "reader=600k", "end"]
USE = ["write", "check", "fence=3"]

Call = collections.namedtuple("Call", "name number when text is_own waits")
Place = collections.namedtuple("Place", "title options steps rank")


class Case:
    """One fault in one call of one rank."""

    def __init__(self, place, call, fault, steps, expect, killed=()):
        self.name = f"{fault} {'of' if fault != 'death' else 'in'} {call.name} {call.number} " \
                    f"on rank {place.rank}{place.title}"
        what = "signal=KILL" if fault == "death" else f"error={fault}"
        marks = ",".join("?" + mark for mark in ("access", "faccessat", "faccessat2"))
        strace = (f"strace -e trace={call.name},{marks} "
                  f"-e inject={call.name}:{what}:when={call.when}")
        self.options = ["-n", str(RANKS), *traced(place, strace)]
        self.steps = steps
        self.expect = expect
        self.killed = killed
        self.left = r"1 shm\.\S+" if call.name in LEAVES_NAME else "0"
        self.call = call
        self.rank = place.rank

    def run(self, tests):
        """Runs it until the fault has taken place; returns the outcome, and whether it has."""
        for _ in range(TRIES):
            outcome = tests.run(self.options, self.steps)
            if outcome.status == 3 or self.has_come(outcome):
                return outcome, True
        return outcome, False

    def has_come(self, outcome):
        """Whether the fault has come, and in the creations."""
        if self.killed:
            lines = outcome.steps.get(self.rank, [])
            return "ok begin" in lines and "ok end" not in lines
        within = re.search(r"/shm-test/begin.*?(/shm-test/end|\Z)", outcome.text, re.DOTALL)
        return within is not None and "(INJECTED)" in within[0]


def traced(place, strace):
    """The options of a place, with strace as the innermost prefix of its rank."""
    options = list(place.options)
    for at in range(len(options) - 2):
        if options[at:at + 2] == ["--prefix", str(place.rank)]:
            options[at + 2] += " " + strace
            return options
    return [*options, "--prefix", str(place.rank), strace]


def calls_of(tests, place):
    """The calls that the rank makes in creation, from a traced run; and, by name, unknown ones.

    Nothing where that run fails, which is a failed case, or where the place cannot be had.
    strace counts a process's calls from its start, so those of the dynamic loader and of the
    bootstrap's beginning come first. They are the same in every run; `when` counts them too.
    """
    steps = [*place.steps, *CREATE]
    outcome = tests.run(["-n", str(RANKS), *traced(place, "strace")], steps)
    if outcome.step(0, 0).startswith("skipped"):
        print(f"left out{place.title}: {outcome.step(0, 0)}")
        return [], {}
    complaints = list(tests.complaints(outcome, len(steps), ["^ok "] * len(steps), RANKS, ()))
    if complaints:
        tests.report(f"no fault, rank {place.rank} is traced{place.title}", outcome, complaints)
        return [], {}
    counted = collections.Counter()
    numbers = collections.Counter()
    calls, unknown = [], {}
    is_within = False
    for line in outcome.text.splitlines():
        found = re.match(rf"{place.rank}! ((\w+)\(.*)", line)
        if not found:
            continue
        text, name = found[1], found[2]
        counted[name] += 1
        if "/shm-test/end" in text:
            return calls, unknown
        if is_within:
            own = next((what for pattern, what in OWN if re.match(pattern, text)), None)
            if own is None and name not in ERRORS:
                unknown[name] = text
            elif own != "nothing":
                numbers[name] += 1
                calls.append(Call(name, numbers[name], counted[name], text, own is not None,
                                  re.match(WAITING, text) is not None))
        is_within = is_within or "/shm-test/begin" in text
    tests.report(f"the trace of rank {place.rank}{place.title}", outcome, ["it has no end"])
    return [], {}


def chosen(calls):
    """All calls but those of waiting, of which only the first few are taken."""
    waits = collections.Counter()
    for call in calls:
        waits[call.name] += call.waits
        if not call.waits or waits[call.name] <= WAITING_COUNT:
            yield call


def errors_at(place, calls):
    """Cases in which a call fails; the creations after those that it hits succeed."""
    # A creation that can only fail because of the first failure is skipped.
    end = ["window=64k", *USE, "comm", "window=1k", *USE, "leave"]
    expect = [None] * (len(place.steps) + len(CREATE)) + ["^ok |^skipped "] * 4 + ["^ok "] * 7
    for call in chosen(calls):
        if call.is_own:
            continue
        left = [str(int(rank == place.rank and call.name in LEAVES_ONE)) for rank in range(RANKS)]
        for error in ERRORS[call.name]:
            yield Case(place, call, error,
                       [*place.steps, *CREATE, *end, "flat=" + ",".join(left)], expect)


def deaths_at(place, calls):
    """Cases in which a rank dies; the others then make a group of their own."""
    end = ["fence=3", "survivors", "window=64k", *USE, "leave", "flat"]
    expect = [None] * (len(place.steps) + len(CREATE)) + ["^error .*died|^skipped "] + ["^ok "] * 7
    for call in chosen(calls):
        yield Case(place, call, "death", [*place.steps, *CREATE, *end], expect,
                   (place.rank,))


PLACES = [Place(title, options, steps, rank)
          for title, options, steps in ((", through /proc", [], []),
                                        (", with a socket", ["--prefix", "1", "unshare -U -r"], []),
                                        (", on an old system", [], ["refuse"]))
          for rank in (0, 1)]
# Only rank 0 does anything else with anonymous memory.
PLACES.append(Place(", of anonymous memory", ["--prefix", "all", "env KUPL_SHM_TYPE=sls"], [], 0))


def matrix(tests):
    """All faults at all places, several at once."""
    need_root()
    need("strace", "unshare")
    if subprocess.run(["strace", "-o", "/dev/null", "true"], check=False).returncode != 0:
        raise Missing("strace cannot trace here")
    cases = []
    for place in PLACES:
        calls, unknown = calls_of(tests, place)
        for name in sorted(unknown):
            tests.failed.append(f"unknown call {name} of rank {place.rank}{place.title}")
            print(f"FAILED {tests.failed[-1]}: {unknown[name]}\n  enter it in matrix.py with the "
                  "errors that it can give (ERRORS), or as a call of the test itself with the "
                  "reason why nothing is to be done with it (OWN)")
        cases += [case for case in (*errors_at(place, calls), *deaths_at(place, calls))
                  if tests.only in case.name]
    never = 0
    with concurrent.futures.ThreadPoolExecutor(2 * os.cpu_count()) as pool:  # many wait
        for case, (outcome, has_come) in zip(cases, pool.map(lambda each: each.run(tests), cases)):
            if not has_come and case.call.waits:
                never += 1
                continue
            complaints = list(tests.complaints(outcome, len(case.steps), case.expect, RANKS,
                                               case.killed, left=case.left))
            if not has_come:
                complaints.append(f"the fault has not taken place in {TRIES} runs")
            if complaints:
                complaints.append(f"the call: {case.call.text}")
            tests.report(case.name, outcome, complaints)
    if never > 0:
        print(f"{never} cases of waiting have not come about")


if __name__ == "__main__":
    sys.exit(play(matrix, arguments().parse_args()))
