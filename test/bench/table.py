"""Tests that bench/table.py takes medians over runs, and ratios to the best rival and to the limit.

usage: table.py BENCH_DIRECTORY
"""

import pathlib
import subprocess
import sys
import tempfile

HEAD = "operation\tranks\tours [µs]\trival\trival [µs]\trival/ours [1]\tlimit\tlimit [µs]\n"


def write(directory, name, *rows):
    (directory / name).write_text(HEAD + "".join("\t".join(row) + "\n" for row in rows))


def run(*arguments):
    return subprocess.run([sys.executable, *map(str, arguments)], capture_output=True, text=True)


def main():
    tool = pathlib.Path(sys.argv[1]) / "table.py"
    with tempfile.TemporaryDirectory() as name:
        directory = pathlib.Path(name) / "runs"
        directory.mkdir()
        empty = run(tool, directory)
        assert empty.returncode != 0 and "no file" in empty.stderr, empty

        def fence(ours, rival, limit):
            return ("fence", "2", ours, "MPI_Barrier", rival, "1", "a flag each", limit)

        # Ours: 1, 2, 2, 9 -> 2. One rival: 8, 4 -> 6; the other, the best: 5, 3 -> 4. Limit: 1.
        write(directory, "mpich.window_against_mpi.1", fence("1", "8", "1"))
        write(directory, "mpich.window_against_mpi.2", fence("9", "4", "1"))
        write(directory, "openmpi.window_against_mpi.1", fence("2", "5", "1"))
        write(directory, "openmpi.window_against_mpi.2", fence("2", "3", "1"))
        # An operation that only one rival has, and that has no limit.
        write(directory, "mpich.collectives_against_mpi.1",
              ("bcast 8 B", "2", "4", "MPI", "2", "0.5", "", "nan"))

        table = pathlib.Path(name) / "table.tsv"
        done = run(tool, directory, table)
        assert done.returncode == 0, done
        rows = [line.split("\t") for line in table.read_text().splitlines()]
        assert rows[0] == ["operation", "ranks", "ours [µs]", "mpich [µs]", "openmpi [µs]",
                           "limit [µs]", "best rival/ours [1]", "ours/limit [1]", "limit"], rows
        assert rows[1] == ["fence", "2", "2", "6", "4", "1", "2.00", "2.00", "a flag each"], rows
        assert rows[2] == ["bcast 8 B", "2", "4", "2", "-", "-", "0.50", "-", "-"], rows
        assert len(rows) == 3, rows
        assert [line.split()[0] for line in done.stdout.splitlines()] == [
            "operation", "fence", "bcast"], done.stdout

    for arguments in (["--ranks", "0"], ["--ranks"], ["--only", "nothing"], ["--rival", "kupl"],
                      ["--backend", "hbm"], ["--bytes", "-8"], ["something"]):
        refused = subprocess.run([pathlib.Path(sys.argv[1]) / "run", *arguments],
                                 capture_output=True, text=True)
        assert refused.returncode == 2 and "usage: bench/run" in refused.stderr, refused
        assert not refused.stdout, refused


main()
