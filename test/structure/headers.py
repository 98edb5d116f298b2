#!/usr/bin/env python3
"""Compiles every header by itself and twice, warnings being errors, and all of them together.

usage: headers.py --compiler 'g++ -std=c++20' [--c-compiler cc] [--system DIR]... INCLUDE

One translation unit for each header holds nothing but two includes of it: the first finds what the
header does not include itself, the second that it has no guard. Two more units include all headers
in opposite orders and are linked: a definition that is not inline is there twice. kupl.h is
compiled as C11 and as C++. --system: where other libraries' headers are, such as mpi.h.
"""

import argparse
import concurrent.futures
import pathlib
import shlex
import shutil
import subprocess
import sys
import tempfile

WARNINGS = "-Werror -Wall -Wextra -Wconversion -Wshadow -Wpedantic".split()
C_WARNINGS = "-Werror -pedantic -Wall -Wextra -Wstrict-prototypes -Wconversion".split()
SKIP = 77

# The one header that defines functions that are not inline: a translation unit under another name.
UNIT = "c/kupl_shm.hpp"


def run(command, source):
    """Returns an empty text where the compiler is content, else what it says."""
    done = subprocess.run(command, input=source, text=True, capture_output=True, check=False)
    if done.returncode == 0 and not done.stderr:
        return ""
    return done.stderr or f"ended with {done.returncode}"


def lines(headers):
    return "".join(f"#include <{header}>\n" for header in headers)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--compiler", required=True, type=shlex.split)
    parser.add_argument("--c-compiler", type=shlex.split)
    parser.add_argument("--system", action="append", default=[])
    parser.add_argument("include", type=pathlib.Path)
    args = parser.parse_args()

    if shutil.which(args.compiler[0]) is None:
        print(f"{args.compiler[0]} is missing")
        return SKIP
    paths = [f"-I{args.include}"] + [p for d in args.system for p in ("-isystem", d)]
    cpp = [*args.compiler, *WARNINGS, *paths, "-x", "c++"]
    check = [*cpp, "-fsyntax-only", "-"]

    root = args.include / "shm"
    names = sorted(f.relative_to(root).as_posix() for f in root.rglob("*.hpp"))
    if run([*args.compiler, *paths, "-x", "c++", "-fsyntax-only", "-"], "#include <mpi.h>\n"):
        print("oob/mpi.hpp is left out: there is no mpi.h")
        names = [name for name in names if name != "oob/mpi.hpp"]

    jobs = {f"shm/{name}": (check, lines([f"shm/{name}"] * 2)) for name in names}
    jobs["kupl.h as C++"] = (check, lines(["kupl.h"] * 2))
    if args.c_compiler is None or shutil.which(args.c_compiler[0]) is None:
        print("kupl.h is not tried as C: there is no C compiler")
    else:
        c = [*args.c_compiler, "-std=c11", *C_WARNINGS, f"-I{args.include}", "-x", "c"]
        jobs["kupl.h as C11"] = ([*c, "-fsyntax-only", "-"], lines(["kupl.h"] * 2))

    together = [f"shm/{name}" for name in names if name != UNIT]
    with tempfile.TemporaryDirectory() as folder:
        objects = [f"{folder}/{order}.o" for order in ("forwards", "backwards")]
        jobs["all headers in order"] = (
            [*cpp, "-c", "-o", objects[0], "-"], lines([*together, *(f"shm/{n}" for n in names if n == UNIT)]))
        jobs["all headers in reverse order"] = (
            [*cpp, "-c", "-o", objects[1], "-"], lines(reversed(together)))
        with concurrent.futures.ThreadPoolExecutor(max_workers=2) as two:
            results = dict(zip(jobs, two.map(lambda job: run(*job), jobs.values())))
        if not any(results[name] for name in list(jobs)[-2:]):
            # A relocatable output needs no library, and finds double definitions all the same.
            results["both orders in one program"] = run(
                [*args.compiler, "-r", "-nostdlib", "-o", f"{folder}/both.o", *objects], None)

    bad = {name: text for name, text in results.items() if text}
    for name, text in bad.items():
        print(f"--- {name}\n{text}")
    print(f"{len(results)} compilations, {len(bad)} failed")
    return 1 if bad or not names else 0


if __name__ == "__main__":
    sys.exit(main())
