"""Writes handwriting.txt from scikit-learn's digits.csv.gz.

    python3 eval/scenes/handwriting.py .../site-packages/sklearn/datasets/data/digits.csv.gz

The file is in scikit-learn's wheel (seen in 1.9.1) and has 1797 rows of 64 values from 0 to 16 and
the digit. A row becomes a line: the digit, a space, and one character per value: 0-9, then a-g."""

import gzip
import pathlib
import sys


def main():
    rows = gzip.open(sys.argv[1], "rt").read().split()
    assert len(rows) == 1797, len(rows)
    text = ""
    for row in rows:
        *pixels, digit = [int(float(v)) for v in row.split(",")]
        assert len(pixels) == 64 and max(pixels) <= 16 and digit <= 9
        text += "%d %s\n" % (digit, "".join("0123456789abcdefg"[p] for p in pixels))
    pathlib.Path(__file__).with_suffix(".txt").write_text(text)


main()
