"""Writes handwriting_data.inc from scikit-learn's digits.csv.gz.

    python3 eval/scenes/handwriting_data.py .../site-packages/sklearn/datasets/data/digits.csv.gz

The file is in scikit-learn's wheel (seen in 1.9.1) and has 1797 rows of 64 values from 0 to 16 and
the digit. A value becomes one character: 0-9, then a-g."""

import gzip
import pathlib
import sys

HEAD = """\
/* 1797 handwritten digits of 8 x 8 pixels, each a row {digit, pixels}: from left to right, from the
 * top down, one character per pixel, '0'-'9' and 'a'-'g' for no ink (0) to all ink (16).
 *
 * Source: Optical Recognition of Handwritten Digits, E. Alpaydin and C. Kaynak, UCI Machine Learning
 * Repository, 1998, licensed under CC BY 4.0 (https://creativecommons.org/licenses/by/4.0/):
 * https://archive.ics.uci.edu/dataset/80/optical+recognition+of+handwritten+digits
 * Its test set, of 13 writers, as scikit-learn ships it; only the spelling was changed, by
 * handwriting_data.py. The order is that of the source. */
"""


def main():
    rows = gzip.open(sys.argv[1], "rt").read().split()
    assert len(rows) == 1797, len(rows)
    text = HEAD
    for row in rows:
        *pixels, digit = [int(float(v)) for v in row.split(",")]
        assert len(pixels) == 64 and max(pixels) <= 16 and digit <= 9
        text += '{%d, "%s"},\n' % (digit, "".join("0123456789abcdefg"[p] for p in pixels))
    pathlib.Path(__file__).with_name("handwriting_data.inc").write_text(text)


main()
