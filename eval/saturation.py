#!/usr/bin/env python3
"""The size above which this exam cannot tell compressors apart: how far a plain coder can go before answers suffer.

    eval/saturation.py [--exam nano|mini] [--items N]   writes eval/results/saturation-EXAM.json and the table in docs/methods/latent.md
    eval/saturation.py --tables                         only the tables, from these files
    eval/saturation.py --check                          ends with 1 when a table says anything else

An exam is a checkpoint and its scenes (exams.py). Those that have been asked have a table.

The plain coder is PCA over all layers on directions measured once, BITS bits for each coefficient (pack=latent,bits=4).
It is asked the same items at smaller and smaller budgets, and beside it pack=latent with bits by variance. An exam is
saturated at the smallest budget at which, as at all larger ones, the interval of the paired difference from exact
contains 0. Pages with scores say so (tables.py). An interrupted run resumes.
"""
import argparse
import json
import sys

import exams
import runs
from lazy import points
from precision import paired, scores_of
from tables import filled, head, line, put

PAGE = runs.ROOT / "docs/methods/latent.md"
SCRIPT = "eval/saturation.py"
# Budgets 1/n of the plain coder, and of bits by variance.
NANO = [256, 512, 768, 1024, 1536, 2048, 3072]
BUDGETS = {"nano": {"plain": NANO, "fitted": NANO}, "mini": {"plain": [64, 96, 128, 192, 256], "fitted": [64, 96, 128, 192, 256, 384]}}
BITS = 4


def result_of(exam):
    return runs.ROOT / f"eval/results/saturation-{exam}.json"


def policies(exam):
    yield "exact"
    for n in BUDGETS[exam]["plain"]:
        yield f"pack=latent,bits={BITS},budget=1/{n}"
    for n in BUDGETS[exam]["fitted"]:
        yield f"pack=latent,budget=1/{n}"


def examine(args):
    asked, rows = list(policies(args.exam)), []
    args.checkpoint = exams.checkpoint(args)
    name = f"{args.exam}-{args.items}"
    report = runs.run_eval(args, name, asked, args.items, exams.SEED, more=exams.scenes(args.exam))
    found = scores_of(args.out / name / "items.jsonl", len(asked))
    for policy, values, result in zip(asked, found, report["results"]):
        held = runs.group(result, "all")["kv_bytes"]
        rows.append({"policy": policy, "held": held["visual"], "correct": 100 * sum(values) / len(values),
                     "difference": paired([a - b for a, b in zip(values, found[0])])})
    path = result_of(args.exam)
    by = runs.stamp(args, [path, PAGE])
    result = dict(by, items=args.items, seed=exams.SEED, compute=args.compute, kv_dtype=args.kv_dtype, bits=BITS, rows=rows)
    path.write_text(json.dumps(result, indent=1) + "\n")


def table(exam, result):
    yield (f"`eval/saturation.py --exam {exam} --items {result['items']}`, commit `{result['commit']}`, seed {result['seed']}, products in "
           f"{result['compute']}, keys and values in {result['kv_dtype']}; bytes of visual KV per item after the prefill, and paired "
           "differences from `exact` in points.")
    yield ""
    yield from head(["policy", "visual KV, bytes", "of exact", "correct, %", "difference"])
    exact = result["rows"][0]
    for r in result["rows"]:
        of = "" if r is exact else f"1/{exact['held'] / r['held']:.0f}"
        yield line([f"`{r['policy']}`", f"{r['held']:.0f}", of, f"{r['correct']:.1f}", "" if r is exact else points(r["difference"])])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    runs.add_arguments(parser, "build/eval/saturation")
    exams.add_arguments(parser)
    parser.add_argument("--items", type=int, default=880)
    parser.add_argument("--tables", action="store_true", help="only write the table again")
    parser.add_argument("--check", action="store_true", help="only compare the table with the results")
    args = parser.parse_args()
    if not args.check and not args.tables:
        examine(args)
    for exam in filter(lambda exam: result_of(exam).exists(), BUDGETS):
        result = json.loads(result_of(exam).read_text())
        put(PAGE, filled(PAGE, f"saturation-{exam}", SCRIPT, table(exam, result)), args.check, SCRIPT)
        if not args.check:
            print("\n".join(table(exam, result)), file=sys.stderr)


if __name__ == "__main__":
    main()
