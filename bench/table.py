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
    """Returns the file of every run, those of windows first."""
    return sorted(pathlib.Path(directory).glob("*.*.*"),
                  key=lambda path: (".window_against_mpi." not in path.name, path.name))


def read(directory):
    """Returns {(operation, ranks, limit): {contender: [µs]}}, in the order of the first run."""
    table = {}
    for path in runs(directory):
        rival = path.name.split(".")[0]
        with open(path, newline="") as file:
            rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
        for row in rows:
            entry = table.setdefault((row["operation"], row["ranks"], row["limit"]), {})
            for contender, column in (
                ("ours", "ours [µs]"), (rival, "rival [µs]"), ("limit", "limit [µs]")
            ):
                value = float(row[column])
                if not math.isnan(value):
                    entry.setdefault(contender, []).append(value)
    return table


def summary(table):
    """Yields a row of text for each operation, the titles first."""
    rivals = sorted({key for entry in table.values() for key in entry} - {"ours", "limit"})
    contenders = ("ours", *rivals, "limit")
    yield ["operation", "ranks", *(f"{one} [µs]" for one in contenders),
           "best rival/ours [1]", "ours/limit [1]", "limit"]
    for (operation, ranks, limit), entry in table.items():
        middle = {one: statistics.median(values) for one, values in entry.items()}
        best = min(middle[one] for one in rivals if one in middle)
        yield [operation, ranks,
               *(f"{middle[one]:.4g}" if one in middle else "-" for one in contenders),
               f"{best / middle['ours']:.2f}",
               f"{middle['ours'] / middle['limit']:.2f}" if "limit" in middle else "-",
               limit or "-"]


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
