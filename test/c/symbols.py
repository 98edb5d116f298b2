#!/usr/bin/env python3
"""Checks that both libraries define the functions of kupl.h for others, and nothing else.

usage: symbols.py KUPL_H LIBRARY.so LIBRARY.a
"""

import pathlib
import re
import shutil
import subprocess
import sys

SKIP = 77


def declared(header):
    text = re.sub(r"/\*.*?\*/|//[^\n]*", " ", header.read_text(encoding="utf-8"), flags=re.DOTALL)
    return set(re.findall(r"^(?!typedef)[a-z][\w *]*?\b(\w+)\([^;{]*\);", text, re.MULTILINE))


def listed(*options):
    """Returns pairs of a symbol's type and its name without the version."""
    done = subprocess.run(["nm", *options], text=True, capture_output=True, check=True)
    found = re.findall(r"^[0-9a-f ]* ([A-Za-z]) (\S+)$", done.stdout, re.MULTILINE)
    return {(kind, name.split("@")[0]) for kind, name in found}


def differences(what, wanted, symbols):
    """The name of the symbol version itself is an absolute symbol, and no definition."""
    names = {name for kind, name in symbols if kind != "A"}
    for name in sorted(wanted - names):
        yield f"{what} does not define {name}"
    for name in sorted(names - wanted):
        yield f"{what} defines {name}, which kupl.h does not declare"


def main():
    if shutil.which("nm") is None:
        print("nm is missing")
        return SKIP
    header, shared, archive = map(pathlib.Path, sys.argv[1:])
    wanted = declared(header)
    wrong = [f"kupl.h declares {name}" for name in sorted(wanted) if not name.startswith("kupl_")]
    wrong += differences(shared.name, wanted, listed("-D", "--defined-only", str(shared)))
    wrong += differences(archive.name, wanted, listed("-g", "--defined-only", str(archive)))
    for library, options in ((shared, ["-D"]), (archive, [])):
        for kind, name in sorted(listed(*options, "--undefined-only", str(library))):
            if re.match(r"P?MPI_", name) and kind == "U":
                wrong.append(f"{library.name} needs {name}, and programs without MPI use it")
    print("\n".join([*wrong, f"{len(wanted)} functions, {len(wrong)} faults"]))
    return 1 if wrong or not wanted else 0


if __name__ == "__main__":
    sys.exit(main())
