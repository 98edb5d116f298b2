#!/usr/bin/env python3
"""Checks the headers against the layer table of the design, and the rules that hold for each header.

usage: layers.py DESIGN INCLUDE

DESIGN is the document whose section "Layers" has the table, INCLUDE the directory that holds shm/.
A header includes only headers of lower layers, or of its own layer that the table lists before it.
The table may name headers that do not exist yet; a header that exists must be in it.
"""

import pathlib
import re
import sys

MOST_LINES = 400

# Order matters: what begins first in the text wins, so that quotes in comments do not count.
# A quote after a hexadecimal digit separates digits.
COMMENT_OR_TEXT = re.compile(
    r"""//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|(?<![0-9A-Fa-f])'(?:\\.|[^'\\\n])+'""", re.DOTALL)
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"\n]+)[>"]', re.MULTILINE)


def read_table(design):
    """Returns the layer and the place in it of each header, and what is wrong with the table."""
    section = re.search(r"^##+ [^\n]*\bLayers\b[^\n]*\n(.*?)(?=^##? |\Z)", design, re.M | re.S)
    if section is None:
        return {}, ["the design has no section 'Layers'"]
    places, wrong = {}, []
    for row in re.finditer(r"^\|\s*(\d+)[^|]*\|([^|]*)\|", section[1], re.M):
        layer = int(row[1])
        for at, name in enumerate(re.findall(r"`([^`]+\.(?:hpp|h))`", row[2])):
            name = re.sub(r"^(include/)?(shm/)?", "", name)
            if name in places:
                wrong.append(f"{name}: is in the table twice")
            places[name] = (layer, at)
    if not places:
        wrong.append("the table of layers names no header")
    return places, wrong


def without_comments(text):
    return COMMENT_OR_TEXT.sub(lambda m: " " if m[0].startswith("/") else m[0], text)


def without_comments_and_text(text):
    return COMMENT_OR_TEXT.sub(" ", text)


def included(code):
    """Returns pairs: whether it stands in quotes, and the path."""
    return [(mark == '"', path) for mark, path in INCLUDE.findall(code)]


def name_in_project(path):
    """Returns the name as the table has it, or None for the headers of others."""
    if path.startswith("shm/"):
        return path.removeprefix("shm/")
    return path if path == "kupl.h" else None


def check_form(name, text):
    """The rules about the text of one header."""
    lines = text.splitlines()
    first = "#ifndef KUPL_H" if name == "kupl.h" else "#pragma once"
    if not lines or lines[0] != first:
        yield f"{name}: the first line is not {first!r}"
    start = next((line for line in lines[1:] if line.strip()), "")
    if name == "kupl.h":
        if "@file" not in text:
            yield f"{name}: has no @file"
    elif not re.match(r"/// @file( \S|$)", start):
        yield f"{name}: '#pragma once' is not followed by '/// @file' and what is here"
    if len(lines) > MOST_LINES:
        yield f"{name}: {len(lines)} lines, more than {MOST_LINES}"
    if not name.startswith("os/") and re.search(r"\berrno\b", without_comments_and_text(text)):
        yield f"{name}: uses errno, which only os/ reads"


def check_includes(name, code, headers, places):
    """The rules about what one header includes."""
    for is_quoted, path in included(code):
        if re.fullmatch(r"(.*/)?mpi\.h", path) and name != "oob/mpi.hpp":
            yield f"{name}: includes {path}, which only oob/mpi.hpp does"
        other = name_in_project(path)
        if other is None:
            if is_quoted:
                yield f'{name}: includes "{path}", which is neither "shm/…" nor a system header'
            continue
        if other not in headers:
            yield f"{name}: includes {path}, which does not exist"
        if other == "oob/mpi.hpp":
            yield f"{name}: includes {path}, which only users do"
        if name not in places or other not in places:
            continue
        mine, its = places[name], places[other]
        if its[0] > mine[0]:
            yield f"{name} (layer {mine[0]}): includes {other} of the higher layer {its[0]}"
        elif its[0] == mine[0] and its[1] >= mine[1]:
            yield f"{name} (layer {mine[0]}): includes {other}, which its layer does not list before it"


def find_cycle(edges):
    """Returns a cycle as a list of names, or None."""
    done, path = set(), []

    def visit(name):
        if name in path:
            return path[path.index(name):] + [name]
        if name in done:
            return None
        path.append(name)
        for other in edges.get(name, []):
            if cycle := visit(other):
                return cycle
        path.pop()
        done.add(name)
        return None

    for name in edges:
        if cycle := visit(name):
            return cycle
    return None


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    design, include = map(pathlib.Path, sys.argv[1:])
    places, wrong = read_table(design.read_text(encoding="utf-8"))
    places.setdefault("kupl.h", (9, -1))

    root = include / "shm"
    files = {f.relative_to(root).as_posix(): f for f in sorted(root.rglob("*.h*")) if f.is_file()}
    files["kupl.h"] = include / "kupl.h"
    texts = {name: file.read_text(encoding="utf-8") for name, file in files.items()}

    edges = {}
    for name, text in texts.items():
        if name not in places:
            wrong.append(f"{name}: is not in the table of layers")
        code = without_comments(text)
        edges[name] = [o for _, p in included(code) if (o := name_in_project(p)) is not None]
        wrong += check_form(name, text)
        wrong += check_includes(name, code, texts, places)
    if cycle := find_cycle(edges):
        wrong.append("a cycle of includes: " + " -> ".join(cycle))

    for line in wrong:
        print(line)
    planned = len(places) - len(places.keys() & texts.keys())
    print(f"{len(texts)} headers, {sum(map(len, edges.values()))} includes between them, "
          f"{planned} planned headers, {len(wrong)} faults")
    return 1 if wrong or len(texts) < 2 else 0


if __name__ == "__main__":
    sys.exit(main())
