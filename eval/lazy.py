#!/usr/bin/env python3
"""What lazy attention costs without and with training for it: the same items on checkpoints/nano and on what its recipe
trained further (checkpoints/nano-vla), and the table in docs/methods/vla.md.

    eval/lazy.py [--items N] [--out DIR]     writes eval/results/lazy.json and the table
    eval/lazy.py --check                     ends with 1 when the table says anything else than that file

An interrupted run resumes. Differences are from exact on checkpoints/nano, in points, with 95 % intervals of paired
differences.
"""
import argparse
import json
import statistics
import sys

import exams
import runs
from precision import paired
from tables import filled, head, line, put

RESULT = runs.ROOT / "eval/results/lazy.json"
PAGE = runs.ROOT / "docs/methods/vla.md"
BASE, TRAINED = "nano", "nano-vla"
BLOCKS = "2-4/5-7/8-10"
LAZY = f"lazy=vla,map=given,blocks={BLOCKS}"
FASTV = "preset=paper-fastv"
POLICIES = ["exact", LAZY, "preset=paper-vla", FASTV, f"{FASTV};{LAZY}"]


# ---- the evaluation -------------------------------------------------------------------------

def answers(path):
    """For each policy, {task: mean scores of its items}."""
    _, *items = map(json.loads, path.read_text().splitlines())
    found = [{} for _ in POLICIES]
    for i in sorted(items, key=lambda i: i["item"]):
        found[i["policy"]].setdefault(i["task"], []).append(statistics.fmean(i["scores"]))
    return found


def measure(values, base):
    """Results over all items, and of the task that loses most."""
    tasks = {t: [a - b for a, b in zip(values[t], base[t])] for t in base}
    everything = [d for differences in tasks.values() for d in differences]
    worst = min(tasks, key=lambda t: statistics.fmean(tasks[t]))
    return {"correct": 100 * statistics.fmean(v for t in values.values() for v in t), "difference": paired(everything),
            "tasks": {t: {"correct": 100 * statistics.fmean(values[t]), **paired(d)} for t, d in tasks.items()}, "worst": worst}


def examine(args):
    rows, base = [], None
    for name in (BASE, TRAINED):
        args.checkpoint = str(runs.ROOT / "checkpoints" / name)
        report = runs.run_eval(args, f"{name}-{args.items}", POLICIES, args.items, exams.SEED)
        found = answers(args.out / f"{name}-{args.items}" / "items.jsonl")
        base = base or found[0]
        for policy, values, result in zip(POLICIES, found, report["results"]):
            held = runs.group(result, "all")["kv_bytes"]
            rows.append({"checkpoint": name, "policy": policy, "held": held["visual"] / held["visual_exact"], **measure(values, base)})
    by = runs.stamp(args, [RESULT, PAGE])
    result = dict(by, items=args.items, seed=exams.SEED, compute=args.compute, kv_dtype=args.kv_dtype, rows=rows)
    RESULT.write_text(json.dumps(result, indent=1) + "\n")


# ---- the table ------------------------------------------------------------------------------

def points(d):
    return f"{d['mean']:+.1f} ({d['low']:+.1f} to {d['high']:+.1f})"


def table(result):
    yield (f"`eval/lazy.py --items {result['items']}`, commit `{result['commit']}`, products in {result['compute']}, keys and values in "
           f"{result['kv_dtype']}. Differences are from `exact` on `{BASE}`, on the same {result['items']} items, in points.")
    yield ""
    yield from head(["checkpoint", "policy", "visual KV held", "correct, %", "difference", "task that loses most"])
    for r in result["rows"]:
        first = r is result["rows"][0]
        worst = f"{r['worst']} {points(r['tasks'][r['worst']])}"
        yield line([f"`{r['checkpoint']}`", f"`{r['policy']}`", f"{100 * r['held']:.1f} %", f"{r['correct']:.1f}",
                    "" if first else points(r["difference"]), "" if first else worst])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    runs.add_arguments(parser, "build/eval/lazy")
    parser.add_argument("--items", type=int, default=2200)
    parser.add_argument("--check", action="store_true", help="only compare the table with the results")
    args = parser.parse_args()
    if not args.check:
        examine(args)
    result = json.loads(RESULT.read_text())
    put(PAGE, filled(PAGE, "trained", "eval/lazy.py", table(result)), args.check, "eval/lazy.py")
    if args.check:
        return
    print("\n".join(table(result)), file=sys.stderr)


if __name__ == "__main__":
    main()
