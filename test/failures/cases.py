"""What the tests of failing processes have in common: runs `launch` and judges what ranks print."""

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

# How ranks say that a rank has died while a communicator is created.
LOST = (r"rank \d+ of \d+: creating a communicator: "
        r"the bootstrap failed: launch_oob: rank (\d+) was lost .*"
        r"|rank (\d+) of \d+: creating a communicator: the rank died.*")


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
        command = [*(("env", *setting.split()) if setting else ()), self.launch, "--limit", str(LIMIT),
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
        killed:  ranks that must die of the signal with the number `signal`; all others must exit 0
                 and print the same lines.
        absent:  ranks whose lines are not compared.
        setting: VARIABLE=VALUE pairs for the environment, with blanks between.
        check:   function of the outcome that returns further complaints.
        """
        if self.only not in name:
            return
        outcome = self.run(["-n", str(ranks), *options], steps, setting)
        complaints = list(self.complaints(outcome, len(steps), expect, ranks, killed, absent,
                                          signal=signal))
        if check is not None:
            complaints += check(outcome)
        self.report(name, outcome, complaints)

    def report(self, name, outcome, complaints):
        """Counts a case that has been run, and prints it where it has failed."""
        self.run_count += 1
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
    def complaints(outcome, step_count, expect, ranks, killed, absent=(), left="0", signal=9):
        if outcome.status == 3:
            yield f"hang: still running after {LIMIT} s"
            return
        if not re.fullmatch(left, outcome.left or "(unknown)"):
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
                # reports that its own call has failed, or the death where it can see that.
                lines = {re.sub(LOST, r"rank \1\2 is lost", line) for line in lines}
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


def arguments():
    """What every program of cases takes on its command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--launch", required=True)
    parser.add_argument("--rank", required=True)
    parser.add_argument("--only", default="", help="cases whose name holds this text")
    parser.add_argument("--verbose", action="store_true")
    return parser


def play(group, asked):
    """Runs a group of cases and prints how it went; returns the exit status of the program."""
    with tempfile.TemporaryDirectory() as directory:
        # A copy that every user can run, wherever the build directory is.
        os.chmod(directory, 0o755)
        rank = shutil.copy(asked.rank, os.path.join(directory, "rank"))
        os.chmod(rank, 0o755)
        tests = Tests(os.path.abspath(asked.launch), rank, os.path.abspath(asked.rank),
                      asked.only, asked.verbose)
        try:
            group(tests)
        except Missing as reason:
            print(f"skipped: {reason}")
            return 1 if tests.failed else 77
    print(f"{group.__name__}: {tests.run_count} cases, {len(tests.failed)} failed")
    for name in tests.failed:
        print(f"  {name}")
    return 1 if tests.failed else 0
