#!/usr/bin/env python3
"""Installs the project, and builds and runs programs with nothing but what pkg-config says.

usage: installed.py --meson MESON --build DIR --include DIR --cpp 'g++ -std=c++20' --c cc CONSUMER.cpp
       CONSUMER.c
"""

import argparse
import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import tempfile

SKIP = 77


def run(command, **more):
    """Runs a command that must succeed and be silent about warnings; returns what it prints."""
    done = subprocess.run(command, text=True, capture_output=True, check=False, timeout=500, **more)
    if done.returncode != 0 or "warning" in done.stderr.lower():
        print(f"{shlex.join(map(str, command))}\nended with {done.returncode}:\n"
              f"{done.stdout}{done.stderr}")
        sys.exit(1)
    return done.stdout


def flags(root, pc, *what, libdir=None):
    """Asks about a package that is installed under another root than it was configured for."""
    prefix = run(["pkg-config", "--variable=prefix", str(pc)]).strip()
    moved = [f"--define-variable=prefix={root}{prefix}"]
    if libdir is not None:
        moved.append(f"--define-variable=libdir={libdir}")
    return shlex.split(run(["pkg-config", *moved, *what, str(pc)]))


def check_headers(source, installed):
    """All headers are installed, but for those of the C library's one translation unit."""
    names = {f.relative_to(source) for f in source.rglob("*.h*") if f.is_file()}
    names = {name for name in names if name.parts[:2] != ("shm", "c")}
    missing = [str(name) for name in sorted(names) if not (installed / name).is_file()]
    if missing:
        sys.exit("not installed: " + ", ".join(missing))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--meson", required=True, type=shlex.split)
    parser.add_argument("--build", required=True)
    parser.add_argument("--include", required=True, type=pathlib.Path)
    parser.add_argument("--cpp", required=True, type=shlex.split)
    parser.add_argument("--c", required=True, type=shlex.split)
    parser.add_argument("cpp_source")
    parser.add_argument("c_source")
    args = parser.parse_args()
    for tool in ("pkg-config", args.meson[0], args.cpp[0], args.c[0]):
        if shutil.which(tool) is None:
            print(f"{tool} is missing")
            return SKIP

    with tempfile.TemporaryDirectory(dir=args.build, prefix="installed-") as folder:
        root, work = pathlib.Path(folder, "root"), pathlib.Path(folder)
        run([*args.meson, "install", "-C", args.build, "--no-rebuild", "--destdir", str(root)])
        found = {f.stem: f for f in root.rglob("*.pc")}
        if set(found) != {"shm", "kupl_shm"}:
            sys.exit(f"installed package files: {sorted(found)}")
        libdir = found["kupl_shm"].parent.parent
        header = next(root.rglob("kupl.h"))
        check_headers(args.include, header.parent)

        program = str(work / "headers_only")
        if flags(root, found["shm"], "--libs"):
            sys.exit("the header-only package asks for a library")
        run([*args.cpp, "-Wall", "-Wextra", args.cpp_source, "-o", program,
             *flags(root, found["shm"], "--cflags")])
        print("headers alone:", run([program]).strip())

        program = str(work / "shared")
        run([*args.c, "-std=c11", args.c_source, "-o", program,
             *flags(root, found["kupl_shm"], "--cflags", "--libs")])
        environment = dict(os.environ, LD_LIBRARY_PATH=str(libdir))
        print("shared library:", run([program], env=environment).strip())

        # A directory without the shared library, so that the archive is what is found.
        only_archive = work / "archive"
        only_archive.mkdir()
        shutil.copy(libdir / "libkupl_shm.a", only_archive)
        program = str(work / "static")
        run([*args.c, "-std=c11", args.c_source, "-o", program,
             *flags(root, found["kupl_shm"], "--cflags", "--libs", "--static", libdir=only_archive)])
        print("archive:", run([program]).strip())
    return 0


if __name__ == "__main__":
    sys.exit(main())
