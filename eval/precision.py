#!/usr/bin/env python3
"""What the precision of products and weights costs in answers: the same items in f32, bf16, int8 and int4.

    eval/precision.py [--items N] [--only NAME]... [--out DIR]          writes eval/results/precision.json

Each as it is served: keys and values in f32 with products in f32, otherwise in bf16; policy exact. Items come in
pieces of PIECE, each with a seed of its own and answered in every precision before the next, so that a run that is
interrupted has pairs of all it has answered; the same command goes on. The mean differences from f32 are in points,
with 95 % intervals of paired differences.
"""
import argparse
import json
import math
import statistics

import runs

RESULT = runs.ROOT / "eval/results/precision.json"
PIECE = 220
# Types of products and of keys and values, and more options.
PRECISIONS = {"f32": ("f32", "f32"), "bf16": ("bf16", "bf16"), "int8": ("bf16", "bf16", "--weights", "int8"),
              "int4": ("bf16", "bf16", "--weights", "int4")}


def scores(path):
    """The checkpoint, and the mean score of each item."""
    head, *items = map(json.loads, path.read_text().splitlines())
    return head["checkpoint"], [statistics.fmean(i["scores"]) for i in sorted(items, key=lambda i: i["item"])]


def scores_of(path, n_policy):
    """For each policy, the mean score of each item."""
    _, *items = map(json.loads, path.read_text().splitlines())
    found = [[] for _ in range(n_policy)]
    for i in sorted(items, key=lambda i: i["item"]):
        found[i["policy"]].append(statistics.fmean(i["scores"]))
    return found


def paired(differences):
    """Mean in points, with its interval as in fv_interval_paired (eval/scenes/score.c)."""
    count = len(differences) + 2
    middle = sum(differences) / count
    half = 1.959964 * math.sqrt(((sum(d * d for d in differences) + 1) / count - middle * middle) / count)
    return {"mean": 100 * statistics.fmean(differences), "low": 100 * (middle - half), "high": 100 * (middle + half)}


def write(args, checkpoint, found):
    result = dict(runs.stamp(args, [RESULT]), checkpoint=checkpoint, precisions={})
    before = json.loads(RESULT.read_text()) if RESULT.exists() else {}
    for name, values in found.items():
        row = before["precisions"].get(name) if before.get("checkpoint") == checkpoint else None
        if row and (not values or name == "f32" and len(values) < row["items"]):  # not evaluated now: keep the old row
            result["precisions"][name] = dict(row, commit=row.get("commit", before["commit"]))
            continue
        if not values:
            continue
        differences = [a - b for a, b in zip(values, found["f32"])]
        result["precisions"][name] = {"items": len(values), "correct": 100 * statistics.fmean(values), "difference": paired(differences),
                                      "items_that_differ": sum(d != 0 for d in differences), "commit": result["commit"]}
    RESULT.write_text(json.dumps(result, indent=1) + "\n")
    return result


def answered(args, name, piece):
    path = args.out / name / str(piece) / "items.jsonl"
    return path.exists() and len(path.read_text().splitlines()) == 1 + PIECE


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    runs.add_arguments(parser, "build/eval/precision")
    parser.add_argument("--items", type=int, default=4400)
    parser.add_argument("--only", metavar="NAME", action="append", choices=PRECISIONS, help="of the precisions beside f32, this one; others keep the answers or the results that they have")
    args = parser.parse_args()
    found, stored = {name: [] for name in PRECISIONS}, None  # f32's; the others have a suffix
    for piece in range(math.ceil(args.items / PIECE)):
        for name, (args.compute, args.kv_dtype, *more) in PRECISIONS.items():
            if args.only and name not in ("f32", *args.only) and not answered(args, name, piece):
                continue
            runs.run_eval(args, f"{name}/{piece}", ["exact"], PIECE, seed=1000 + piece, more=more)
            checkpoint, values = scores(args.out / name / str(piece) / "items.jsonl")
            found[name] += values
            stored = stored or checkpoint
        result = write(args, stored, found)
    print(f"commit {result['commit']}, {result['machine']}, {result['date']}")
    for name, row in result["precisions"].items():
        d = row["difference"]
        print(f"{name:6} {row['items']} items, {row['correct']:5.1f} % correct, {d['mean']:+5.2f} points ({d['low']:+.2f} to {d['high']:+.2f}), "
              f"{row['items_that_differ']} items differ")


if __name__ == "__main__":
    main()
