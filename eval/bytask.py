#!/usr/bin/env python3
"""What a policy costs each task of an exam, with so many items that a task alone says something.

    eval/bytask.py --exam mini --policy TEXT [--items N]   writes eval/results/bytask-EXAM.json and its table in docs/methods/latent.md,
                                                           or bytask-EXAM-NAME.json of preset=NAME and its table in docs/PRESETS.md
    eval/bytask.py --reuse DIR                             reuses the answers of an evaluation there, exact's for example
    eval/bytask.py --tables                                only the tables, from these files
    eval/bytask.py --check                                 ends with 1 when a table says anything else

The page says which tasks lose more than WORST points, and whose 95 % interval reaches BOUND: a small loss of all tasks
together can be a large one of a single task. An interrupted run resumes.
"""
import argparse
import json
import sys
from pathlib import Path

import exams
import runs
from presets import SEVERAL
from tables import filled, head, line, percent, points, put

PAGE, PRESETS = runs.ROOT / "docs/methods/latent.md", runs.ROOT / "docs/PRESETS.md"
SCRIPT = "eval/bytask.py"
WORST, BOUND = -1.0, -2.0  # points
PRESET = "preset="


def result_of(exam, policy=""):
    """Each preset has its own file beside the one of the exam's other policy."""
    name = f"bytask-{exam}-{policy.removeprefix(PRESET)}" if policy.startswith(PRESET) else f"bytask-{exam}"
    return runs.ROOT / f"eval/results/{name}.json"


def examine(args):
    given, args.checkpoint = args.checkpoint, exams.checkpoint(args)
    reuse = [str(p.resolve()) for p in args.reuse]
    path = result_of(args.exam, args.policy)
    name = f"{path.stem.removeprefix('bytask-')}-{args.items}"
    report = runs.run_eval(args, name, ["exact", args.policy], args.items, exams.SEED, reuse, exams.scenes(args.exam))
    exact, other = report["results"]
    rows = [{"task": a["group"], "items": a["n"], "exact": a["score"], "difference": b["difference"]}
            for a, b in zip(exact["groups"], other["groups"])]
    kv = runs.group(other, "all")["kv_bytes"]
    by = runs.stamp(args, [path, PAGE, PRESETS])
    result = dict(by, policy=args.policy, items=args.items, seed=exams.SEED, compute=args.compute, kv_dtype=args.kv_dtype,
                  directions=None if given or "latent" not in args.policy else exams.EXAMS[args.exam]["directions"], bytes_exact=kv["visual_exact"], bytes_visual=kv["visual"],
                  rows=rows)
    path.write_text(json.dumps(result, indent=1) + "\n")


# ---- the table ------------------------------------------------------------------------------

def tasks_of(result):
    """Worst first."""
    return sorted((r for r in result["rows"] if r["task"] not in SEVERAL), key=lambda r: r["difference"]["value"])


def verdict(result):
    """Names the tasks that miss a margin."""
    def names(missed):
        found = [f"`{r['task']}`" for r in tasks_of(result) if missed(r["difference"])]
        return ", ".join(found) or "none"
    worse = names(lambda d: 100 * d["value"] < WORST)
    wide = names(lambda d: 100 * d["low"] <= BOUND)
    return f"Tasks that lose more than {-WORST:g} point: {worse}. Tasks whose interval reaches {BOUND:g}: {wide}."


def table(exam, result):
    n = [r["items"] for r in tasks_of(result)]
    per_task = f"{min(n)}" if min(n) == max(n) else f"{min(n)} or {max(n)}"
    words = f" (`fovea calibrate --latent --scenes {exams.EXAMS[exam]['scenes']} {' '.join(result['directions'])}`)" if result["directions"] else ""
    yield (f"`eval/bytask.py --exam {exam} --policy {result['policy']} --items {result['items']}`, commit `{result['commit']}`{words}, seed "
           f"{result['seed']}, {per_task} items a task, products in {result['compute']}, keys and values in {result['kv_dtype']}: "
           f"{result['bytes_visual']:.0f} bytes of visual KV per item after the prefill, {result['bytes_exact'] / result['bytes_visual']:.1f}x smaller "
           f"than `exact`. Differences are paired, in points, with 95 % intervals; worst first.")
    yield ""
    yield from head(["task", "items", "`exact`, %", "difference"])
    for r in [*tasks_of(result), *(r for r in result["rows"] if r["task"] in SEVERAL)]:
        yield line([r["task"], f"{r['items']}", percent(r["exact"]), points(r["difference"])])
    yield ""
    yield verdict(result)


def tables(check):
    for exam in exams.EXAMS:
        one = result_of(exam)
        for path in [one] * one.exists() + sorted(one.parent.glob(f"{one.stem}-*.json")):
            result, page = json.loads(path.read_text()), PAGE if path == one else PRESETS
            put(page, filled(page, path.stem, SCRIPT, table(exam, result)), check, SCRIPT)
            if not check:
                print("\n".join(table(exam, result)), file=sys.stderr)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    runs.add_arguments(parser, "build/eval/bytask")
    exams.add_arguments(parser)
    parser.add_argument("--policy", default="pack=latent,budget=1/64", help="[%(default)s]")
    parser.add_argument("--items", type=int, default=11000, help="of all tasks together [%(default)s]")
    parser.add_argument("--reuse", type=Path, action="append", default=[], help="folder of an evaluation whose answers are reused")
    parser.add_argument("--tables", action="store_true", help="only write the tables again")
    parser.add_argument("--check", action="store_true", help="only compare the tables with the results")
    args = parser.parse_args()
    if not args.check and not args.tables:
        examine(args)
    tables(args.check)


if __name__ == "__main__":
    main()
