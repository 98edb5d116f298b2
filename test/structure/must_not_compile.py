#!/usr/bin/env python3
"""Compiles uses that must be refused, and checks that the diagnostic says why.

usage: must_not_compile.py --compiler 'g++ -std=c++20' INCLUDE

Each case has a twin that differs in the one thing that is wrong and must compile, so that no case is
refused for another reason. Each is the body of a function; the declarations below come before it.
"""

import argparse
import concurrent.futures
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import typing

SKIP = 77

BEFORE = """
#include <shm/shm.hpp>
#include <array>
#include <span>
#include <string>
#include <string_view>
#include <utility>

struct counted_policy {
  static constexpr std::string_view name = "counted";
  shm::os::shared_object create(shm::segment_request const& request) const {
    return shm::posix_policy{}.create(request);
  }
};
struct policy_without_create {
  static constexpr std::string_view name = "lazy";
};
struct policy_without_name {
  shm::os::shared_object create(shm::segment_request const& request) const {
    return shm::posix_policy{}.create(request);
  }
};
struct policy_that_makes_nothing {
  static constexpr std::string_view name = "nothing";
  void create(shm::segment_request const&) const {}
};

struct whole_oob {
  int rank() { return 0; }
  int size() { return 1; }
  void allgather(std::span<std::byte const>, std::span<std::byte>) {}
};
struct oob_without_allgather {
  int rank() { return 0; }
  int size() { return 1; }
};

struct point { int x; };
struct thing_with_destructor { ~thing_with_destructor() {} };
"""


class Case(typing.NamedTuple):
    name: str
    wrong: str
    right: str
    words: str  # a regular expression that fits what g++ and clang++ say


SHAREABLE = "T must be trivially copyable and not a pointer"
READ_ONLY = "read-only location|returns a const value"
DELETED = "deleted"
TO_GROUP = "cannot convert .* to type .*group&"
RETURNED = "what a rank returns is copied between processes"

CASES = [
    Case("a window of pointers",
         "shm::window<int*> w;", "shm::window<int> w;", SHAREABLE),
    Case("a window of arrays of pointers",
         "shm::window<int* [2]> w;", "shm::window<int[2]> w;", SHAREABLE),
    Case("a window of function pointers",
         "shm::window<int (*)()> w;", "shm::window<std::array<int, 2>> w;", SHAREABLE),
    Case("a window of pointers to members",
         "shm::window<int point::*> w;", "shm::window<point> w;", SHAREABLE),
    Case("a window of strings",
         "shm::window<std::string> w;", "shm::window<std::array<char, 32>> w;", SHAREABLE),
    Case("a window of objects with a destructor",
         "shm::window<thing_with_destructor> w;", "shm::window<point> w;", SHAREABLE),

    Case("storing through local() of a const window",
         "shm::window<int> const w; w.local()[0] = 1;",
         "shm::window<int> w; w.local()[0] = 1;", READ_ONLY),
    Case("storing through operator[] of a const window",
         "shm::window<int> const w; w[0][0] = 1;",
         "shm::window<int> w; w[0][0] = 1;", READ_ONLY),
    Case("storing through at() of a const window",
         "shm::window<int> const w; w.at(0)[0] = 1;",
         "shm::window<int> w; w.at(0)[0] = 1;", READ_ONLY),
    Case("storing through all() of a const window",
         "shm::window<int> const w; w.all()[0] = 1;",
         "shm::window<int> w; w.all()[0] = 1;", READ_ONLY),
    Case("a mutable span of a const window",
         "shm::window<int> const w; std::span<int> s = w.local();",
         "shm::window<int> const w; std::span<int const> s = w.local();", "conver"),

    Case("storing through local() of a read-only window",
         "shm::window<int const> w; w.local()[0] = 1;",
         "shm::window<int> w; w.local()[0] = 1;", READ_ONLY),
    Case("storing through operator[] of a frozen window",
         "shm::window<int> w; auto f = std::move(w).freeze(); f[0][0] = 1;",
         "shm::window<int> w; auto f = std::move(w); f[0][0] = 1;", READ_ONLY),
    Case("freezing a window that keeps its name",
         "shm::window<int> w; auto f = w.freeze();",
         "shm::window<int> w; auto f = std::move(w).freeze();", "lvalue|discards"),
    Case("making a read-only window writable",
         "shm::window<int const> r; shm::window<int> w = std::move(r);",
         "shm::window<int const> r; shm::window<int const> w = std::move(r);", "conver"),
    Case("a window over a temporary communicator",
         "shm::window<int> w(shm::communicator{shm::self_oob{}}, 3);",
         "shm::communicator alone{shm::self_oob{}}; shm::window<int> w(alone, 3);",
         TO_GROUP + "|expects an lvalue"),
    Case("a window over a part of a group that is not kept",
         "shm::group g; shm::window<int> w(g.split(0), 3);",
         "shm::group g; auto part = g.split(0); shm::window<int> w(part, 3);",
         TO_GROUP + "|expects an lvalue"),
    Case("a window over a const group",
         "shm::group const g; shm::window<int> w(g, 3);",
         "shm::group g; shm::window<int> w(g, 3);",
         TO_GROUP + "|would lose const qualifier"),

    Case("copying a window",
         "shm::window<int> a; auto b = a;",
         "shm::window<int> a; auto b = std::move(a);", DELETED),
    Case("assigning a copy of a window",
         "shm::window<int> a; shm::window<int> b; b = a;",
         "shm::window<int> a; shm::window<int> b; b = std::move(a);", DELETED),
    Case("copying a group",
         "shm::group a; auto b = a;",
         "shm::group a; auto b = std::move(a);", DELETED),
    Case("assigning a copy of a group",
         "shm::group a; shm::group b; b = a;",
         "shm::group a; shm::group b; b = std::move(a);", DELETED),
    Case("copying a communicator",
         "shm::communicator a{shm::self_oob{}}; auto b = a;",
         "shm::communicator a{shm::self_oob{}}; auto b = std::move(a);", DELETED),
    Case("moving a window of elements of another type",
         "shm::window<int> a; shm::window<unsigned> b(std::move(a));",
         "shm::window<int> a; shm::window<int> b(std::move(a));", "no match"),
    Case("moving a window of the default policy into one of a fixed policy",
         "shm::window<int> a; shm::window<int, shm::posix_policy> b(std::move(a));",
         "shm::window<int, shm::posix_policy> a; shm::window<int> b(std::move(a));", "no match"),

    Case("a count that is no integer",
         "shm::window<double> w(node, 3.5);",
         "shm::window<double> w(node, 3);", "integral"),
    Case("a policy without create",
         "shm::window<int, policy_without_create> w;",
         "shm::window<int, counted_policy> w;", "segment_policy"),
    Case("a policy without a name",
         "shm::window<int, policy_without_name> w;",
         "shm::window<int, counted_policy> w;", "segment_policy"),
    Case("a policy whose create returns nothing",
         "shm::window<int, policy_that_makes_nothing> w;",
         "shm::window<int, counted_policy> w;", "segment_policy"),
    Case("an option of another policy",
         "auto p = shm::posix_policy{.pages = 1};",
         "auto p = shm::posix_policy{};",
         "too many initializers for .*posix_policy|.pages. does not refer to any field"),

    Case("a bootstrap without allgather",
         "oob_without_allgather oob; shm::communicator<oob_without_allgather> c(oob);",
         "whole_oob oob; shm::communicator<whole_oob> c(oob);", "out_of_band"),
    Case("a bootstrap of a function that gathers nothing",
         "shm::callback_oob oob(0, 1, [](int) {});",
         "shm::callback_oob oob(0, 1, [](std::span<std::byte const>, std::span<std::byte>) {});",
         "invocable|no viable constructor or deduction guide .*callback_oob"),

    Case("ranks that return a string",
         "shm::fork_ranks(2, [](shm::group&) { return std::string(); });",
         "shm::fork_ranks(2, [](shm::group&) { return std::array<char, 8>(); });", RETURNED),
    Case("ranks that return a pointer",
         "shm::fork_ranks(2, [](shm::group&) { return static_cast<int*>(nullptr); });",
         "shm::fork_ranks(2, [](shm::group&) { return 0; });", RETURNED),
    Case("ranks whose function takes no group",
         "shm::fork_ranks(2, [](int) {});",
         "shm::fork_ranks(2, [](shm::group&) {});", "invocable"),
]


def body(case, text, number):
    name = f"case_{number}"
    return f'#line 1 "{case.name}"\nvoid {name}([[maybe_unused]] shm::group& node) {{ {text} }}\n'


def compile_text(compiler, source):
    done = subprocess.run(compiler, input=source, text=True, capture_output=True, check=False,
                          env={**os.environ, "LC_ALL": "C"})
    return done.returncode, done.stderr


def check(compiler):
    """Compiles all cases; returns how many went wrong."""
    twins = "".join(body(case, case.right, n) for n, case in enumerate(CASES))
    code, text = compile_text(compiler, twins)
    if code != 0:
        print("a twin, which must compile, does not:\n" + text)
        return 1

    failures = 0
    with concurrent.futures.ThreadPoolExecutor(max_workers=2) as two:
        results = two.map(lambda case: compile_text(compiler, body(case, case.wrong, 0)), CASES)
        for case, (code, text) in zip(CASES, results):
            if code == 0:
                print(f"--- {case.name}: compiles\n{case.wrong}")
            elif not re.search(case.words, text):
                print(f"--- {case.name}: is refused without the words {case.words!r}\n{text}")
            else:
                continue
            failures += 1
    print(f"{len(CASES)} cases, {failures} failed")
    return failures


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--compiler", required=True, type=shlex.split)
    parser.add_argument("include", type=pathlib.Path)
    args = parser.parse_args()
    if shutil.which(args.compiler[0]) is None:
        print(f"{args.compiler[0]} is missing")
        return SKIP
    compiler = [*args.compiler, f"-I{args.include}", "-x"]
    with tempfile.TemporaryDirectory() as folder:
        # Precompiled, since every case reads the whole library.
        header = pathlib.Path(folder, "before.hpp")
        header.write_text(BEFORE, encoding="utf-8")
        code, text = compile_text([*compiler, "c++-header", "-o", f"{header}.gch", str(header)], "")
        if code != 0:
            print("the declarations before the cases do not compile:\n" + text)
            return 1
        return 1 if check([*compiler, "c++", "-fsyntax-only", "-include", str(header), "-"]) else 0


if __name__ == "__main__":
    sys.exit(main())
