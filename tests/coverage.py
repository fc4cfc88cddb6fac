#!/usr/bin/env python3
"""Which part of the lines did the tests run, by folder?

    coverage.py BUILD ROOT [FOLDER]     BUILD has run with --coverage; FOLDER: its files, worst first

A line counts once, in however many programs its file is compiled; it was run if any of them ran it. Tests, generated
code and headers of the system do not count.
"""
import collections
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

build, root = (Path(p).resolve() for p in sys.argv[1:3])
inside = sys.argv[3].rstrip("/") + "/" if len(sys.argv) > 3 else None


def lines_of(notes):
    """Yields file and lines of what one object file was compiled from."""
    told = subprocess.run(["gcov", "--json-format", "--stdout", notes], cwd=build, capture_output=True, text=True, check=True)
    for text in told.stdout.splitlines():
        for file in json.loads(text)["files"]:
            path = os.path.realpath(os.path.join(build, file["file"]))
            if path.startswith(f"{root}/") and not path.startswith((f"{build}/", f"{root}/tests/", f"{root}/build/")):
                yield path[len(str(root)) + 1:], file["lines"]


def main():
    ran = collections.defaultdict(dict)
    # A file that no test runs has notes and no counts; gcov then reports its lines as not run.
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for found in pool.map(lambda notes: list(lines_of(notes)), sorted(build.rglob("*.gcno"))):
            for file, lines in found:
                for line in lines:
                    ran[file][line["line_number"]] = ran[file].get(line["line_number"], False) or line["count"] > 0
    if not ran:
        sys.exit(f"{build} has no notes of coverage: build the preset cov and run its tests")
    rows = collections.defaultdict(lambda: [0, 0])
    for file, lines in ran.items():
        if inside and not file.startswith(inside):
            continue
        row = rows[file if inside else file.split("/")[0]]
        row[0] += sum(lines.values())
        row[1] += len(lines)
    for name, (n, total) in sorted(rows.items(), key=lambda r: r[1][0] / r[1][1]):
        print(f"{name:40s} {100 * n / total:5.1f} %  {n:6d} of {total:6d} lines")
    n, total = (sum(r[i] for r in rows.values()) for i in (0, 1))
    print(f"{'all':40s} {100 * n / max(total, 1):5.1f} %  {n:6d} of {total:6d} lines")


main()
