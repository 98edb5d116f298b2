#!/usr/bin/env python3
"""Links a C program with the archive and the C++ runtime alone, and runs it.

usage: static_link.py --compiler cc PROGRAM.c ARCHIVE INCLUDE
"""

import argparse
import pathlib
import shlex
import shutil
import subprocess
import sys
import tempfile

SKIP = 77


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--compiler", required=True, type=shlex.split)
    parser.add_argument("source")
    parser.add_argument("archive")
    parser.add_argument("include")
    args = parser.parse_args()
    if shutil.which(args.compiler[0]) is None:
        print(f"{args.compiler[0]} is missing")
        return SKIP
    with tempfile.TemporaryDirectory() as folder:
        program = pathlib.Path(folder, "program")
        command = [*args.compiler, "-std=c11", f"-I{args.include}", args.source, args.archive,
                   "-lstdc++", "-o", str(program)]
        print(shlex.join(command), flush=True)
        if subprocess.run(command, check=False).returncode != 0:
            return 1
        return subprocess.run([str(program)], check=False, timeout=60).returncode


if __name__ == "__main__":
    sys.exit(main())
