#!/usr/bin/env python3
"""The compression methods in plain NumPy, beside what is recorded of them.

    goldens.py [METHOD...]            compares with tests/golden/methods/<method>.json
    goldens.py --write [METHOD...]    writes them

Each <method>.py beside this file renders one method from its equations, and says what it does with
them: render() gives what the golden holds. "networks" in it (network.case) are prompts through a
whole small model under a policy; tests/unit/prefill-worker/job/test_methods.c runs them all. What else stands there is
for the method's own test, which draws the same numbers (tests/support/rendered.h).
"""
import argparse
import importlib
import json
import math
import os
import pathlib
import sys
import time

# Matrices here are small: threads would only wait for each other.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

HERE = pathlib.Path(__file__).resolve().parent
GOLDEN = HERE.parents[1] / "golden" / "methods"
PARTS = ("draws", "network", "goldens", "prune", "budget", "tally")  # what is no method
BYTES_MAX = 20 << 10
CLOSE = 1e-5


def text(value, deep=0):
    """JSON with one item a line where there is room for reading: two levels, then on one line."""
    if deep < 3 and isinstance(value, dict):
        rows = [f"{json.dumps(k)}: {text(v, deep + 1)}" for k, v in value.items()]
        return "{" + ",\n".join(rows) + "}"
    if deep < 2 and isinstance(value, list):
        return "[" + ",\n".join(text(v, deep + 1) for v in value) + "]"
    return json.dumps(value, separators=(",", ":"))


def differ(ours, theirs, where):
    """Where two goldens differ, as sentences. Numbers may differ by rounding."""
    if isinstance(ours, dict) and isinstance(theirs, dict) and ours.keys() == theirs.keys():
        return [s for k in ours for s in differ(ours[k], theirs[k], f"{where}.{k}")]
    if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        return [s for i, (a, b) in enumerate(zip(ours, theirs)) for s in differ(a, b, f"{where}[{i}]")]
    if isinstance(ours, float) and isinstance(theirs, (int, float)):
        same = math.isclose(ours, theirs, rel_tol=CLOSE, abs_tol=CLOSE)
    else:
        same = ours == theirs
    return [] if same else [f"{where}: rendered {json.dumps(ours)[:80]}, "
                            f"recorded {json.dumps(theirs)[:80]}"]


def one(name, write):
    """Renders a method and writes or compares; what is wrong, as sentences."""
    made = importlib.import_module(name).render()
    path = GOLDEN / f"{name}.json"
    if write:
        content = text(made) + "\n"
        if len(content) > BYTES_MAX:
            return [f"{path.name} would have {len(content)} bytes, of {BYTES_MAX}"]
        GOLDEN.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
        return []
    if not path.exists():
        return [f"there is no {path}: --write makes it"]
    recorded = json.loads(path.read_text(encoding="utf-8"))
    return differ(json.loads(json.dumps(made)), recorded, name)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("--write", action="store_true", help="write the goldens again")
    p.add_argument("method", nargs="*", help="default: all")
    a = p.parse_args()
    there = sorted(f.stem for f in HERE.glob("*.py") if f.stem not in PARTS)
    failed = 0
    for name in a.method or there:
        begin = time.monotonic()
        wrong = one(name, a.write)
        word = "FAIL" if wrong else "written" if a.write else "ok"
        print(f"{name:14} {word:7} {time.monotonic() - begin:.1f} s", flush=True)
        for sentence in wrong[:10]:
            print(f"    {sentence}")
        failed += bool(wrong)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
