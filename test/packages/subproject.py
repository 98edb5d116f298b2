#!/usr/bin/env python3
"""Builds a program that has the project as a Meson subproject, with strict warnings as errors.

usage: subproject.py --meson MESON PROJECT CONSUMER.cpp CONSUMER.c

Configuring it is quiet: none of the project's own tests, examples and benches come with it.
"""

import argparse
import json
import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import tempfile

SKIP = 77

PROJECT = """
project('consumer', 'cpp', 'c', meson_version: '>=1.0',
        default_options: ['cpp_std=c++20', 'warning_level=3', 'werror=true', 'buildtype=debug'])
subproject('shm')
test('cpp', executable('consumer_cpp', 'consumer.cpp', dependencies: dependency('shm')))
test('c', executable('consumer_c', 'consumer.c', dependencies: dependency('kupl_shm')))
"""


def run(command):
    """Runs a command that must succeed; returns what it prints."""
    environment = {key: value for key, value in os.environ.items()
                   if key not in ("MAKEFLAGS", "NINJA_STATUS", "MESON_BUILD_ROOT")}
    done = subprocess.run(command, text=True, check=False, env=environment,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode != 0:
        print(f"{shlex.join(command)}\nended with {done.returncode}:\n{done.stdout}")
        sys.exit(1)
    return done.stdout


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--meson", required=True, type=shlex.split)
    parser.add_argument("project", type=pathlib.Path)
    parser.add_argument("cpp_source")
    parser.add_argument("c_source")
    args = parser.parse_args()
    if shutil.which(args.meson[0]) is None:
        print(f"{args.meson[0]} is missing")
        return SKIP

    wrong = []
    with tempfile.TemporaryDirectory() as folder:
        consumer, build = pathlib.Path(folder, "consumer"), str(pathlib.Path(folder, "build"))
        ours = consumer / "subprojects/shm"
        ours.parent.mkdir(parents=True)
        ours.symlink_to(args.project.resolve(), target_is_directory=True)
        (consumer / "meson.build").write_text(PROJECT, encoding="utf-8")
        shutil.copy(args.cpp_source, consumer / "consumer.cpp")
        shutil.copy(args.c_source, consumer / "consumer.c")

        said = run([*args.meson, "setup", build, str(consumer)])
        for word in ("WARNING", "DEPRECATION", "Catch2", "catch2"):
            if word in said:
                wrong.append(f"configuring says {word}:\n{said}")
        targets = json.loads(run([*args.meson, "introspect", "--targets", build]))
        for target in targets:
            where = pathlib.Path(target["defined_in"]).parent.name
            if where in ("test", "examples", "bench") or "/test/" in target["defined_in"]:
                wrong.append(f"the target {target['name']} of {where} is built for the consumer")
        tests = json.loads(run([*args.meson, "introspect", "--tests", build]))
        if sorted(test["name"] for test in tests) != ["c", "cpp"]:
            wrong.append(f"the tests are {[test['name'] for test in tests]}")

        said = run([*args.meson, "compile", "-C", build])
        if "warning" in said.lower():
            wrong.append(f"compiling warns:\n{said}")
        run([*args.meson, "test", "-C", build, "--no-rebuild", "--print-errorlogs"])
        print(f"{len(targets)} targets, {len(tests)} tests")

    print("\n".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
