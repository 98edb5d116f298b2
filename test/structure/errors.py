#!/usr/bin/env python3
"""Checks that docs/errors.md explains every cause of error, in the words of its message.

usage: errors.py PROJECT
"""

import pathlib
import re
import sys


def causes(header):
    """Returns the enumerators of `errc`, in order."""
    body = re.search(r"enum class errc[^{]*\{(.*?)\};", header, re.DOTALL)[1]
    return re.findall(r"^\s*(\w+)(?: = 1)?,", body, re.MULTILINE)


def words(header):
    """Returns cause: its words in messages."""
    body = header[header.index("words_for(errc cause)"):header.index("words_for(operation where)")]
    return dict(re.findall(r'case errc::(\w+):\s*return \{\s*"([^"]*)"', body))


def main():
    project = pathlib.Path(sys.argv[1])
    header = (project / "include/shm/error.hpp").read_text(encoding="utf-8")
    page = (project / "docs/errors.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `(\w+)` \| ([^|]*?) \|", page, re.MULTILINE))
    wanted = causes(header)
    said = words(header)
    faults = [f"docs/errors.md: no row for errc::{cause}" for cause in wanted if cause not in rows]
    faults += [f"docs/errors.md: {cause} is no cause" for cause in rows if cause not in wanted]
    faults += [f"docs/errors.md: {cause} is '{rows[cause]}' there, and '{said[cause]}' in messages"
               for cause in wanted if cause in rows and rows[cause] != said[cause]]
    if list(rows) != wanted:
        faults.append("docs/errors.md: the causes are in another order than in error.hpp")
    if len(wanted) < 10:
        faults.append("error.hpp is not written as this test reads it")
    print("\n".join(faults) or f"{len(wanted)} causes are explained")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
