#!/usr/bin/env python3
"""Runs an MPI program many times; every rank but 0 must print `check success` in every run.

usage: check_success.py LAUNCHER PROGRAM RANKS RUNS

The words are counted, not lines: the launcher may join the output of two ranks in one line.
"""

import subprocess
import sys


def main():
    launcher, program, ranks, runs = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    good = failed = 0
    for run in range(runs):
        done = subprocess.run([launcher, "-n", str(ranks), program], text=True, check=False,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT)
        found = done.stdout.count("check success")
        good += found
        if found != ranks - 1 or done.returncode != 0:
            failed += 1
            print(f"run {run} ended with {done.returncode} and printed:\n{done.stdout}")
    print(f"{runs} runs with {ranks} ranks: {good} of {runs * (ranks - 1)} checks succeeded, "
          f"{failed} runs failed")
    return 1 if failed or runs == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
