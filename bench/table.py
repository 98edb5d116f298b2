"""Prints one table of what the benches have measured in several rounds against several rivals.

usage: table.py DIRECTORY [TSV]

DIRECTORY has a file RIVAL.PROGRAM.ROUND for each run, as the benches write them. A number of the table
is the median over the runs; ours and the limit are measured in every run, whatever the rival. Ratios are
to the best rival (above 1: ours is faster) and to the limit (1: nothing is left to gain).
"""

import csv
import math
import pathlib
import statistics
import sys


def runs(directory):
    """Returns (rival, file) of every run, those of windows first."""
    found = []
    for path in sorted(pathlib.Path(directory).glob("*.*.*")):
        rival, program, _ = path.name.split(".")
        found.append((program != "window_against_mpi", rival, path))
    return [(rival, path) for _, rival, path in sorted(found)]


def read(directory):
    """Returns {(operation, ranks): {contender: (label, [µs])}}, in the order of the first run."""
    table = {}
    for rival, path in runs(directory):
        with open(path, newline="") as file:
            rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
        for row in rows:
            entry = table.setdefault((row["operation"], int(row["ranks"])), {})
            for key, label, column in (
                ("ours", "ours", "ours [µs]"),
                (rival, row["rival"], "rival [µs]"),
                ("limit", row["limit"], "limit [µs]"),
            ):
                value = float(row[column])
                if not math.isnan(value):
                    entry.setdefault(key, (label, []))[1].append(value)
    return table


def summary(table):
    """Yields a row of text for each operation, the titles first."""
    rivals = sorted({key for entry in table.values() for key in entry} - {"ours", "limit"})
    yield ["operation", "ranks", "ours [µs]", *(f"{r} [µs]" for r in rivals), "limit [µs]",
           "best rival/ours [1]", "ours/limit [1]", "limit"]
    for (operation, ranks), entry in table.items():
        middle = {key: statistics.median(values) for key, (_, values) in entry.items()}
        best = min(middle[r] for r in rivals if r in middle)
        number = lambda key: f"{middle[key]:.4g}" if key in middle else "-"
        yield [operation, str(ranks), number("ours"), *(number(r) for r in rivals), number("limit"),
               f"{best / middle['ours']:.2f}",
               f"{middle['ours'] / middle['limit']:.2f}" if "limit" in middle else "-",
               entry["limit"][0] if "limit" in entry else "-"]


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    table = read(sys.argv[1])
    if not table:
        sys.exit(f"table.py: {sys.argv[1]} has no file RIVAL.PROGRAM.ROUND with a measurement")
    rows = list(summary(table))
    widths = [max(map(len, column)) for column in zip(*rows)]
    for row in rows:
        print("  ".join(cell.ljust(w) if i in (0, len(row) - 1) else cell.rjust(w)
                        for i, (cell, w) in enumerate(zip(row, widths))).rstrip())
    if len(sys.argv) == 3:
        with open(sys.argv[2], "w") as file:
            file.writelines("\t".join(row) + "\n" for row in rows)


main()
