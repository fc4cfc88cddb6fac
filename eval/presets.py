#!/usr/bin/env python3
"""What every preset costs: one evaluation of all of them, the tables in docs/PRESETS.md and eval/RESULTS.md, and the figure.

    eval/presets.py [--items N,N2]  ./dev eval: runs (or resumes), writes eval/results/presets.json, fills tables and figure;
                                    several numbers run in turn, so there are tables before the last one ends
    eval/presets.py --exam mini     another checkpoint and its scenes (exams.py): presets-mini.json, PRESETS-MINI.md, RESULTS-MINI.md
    eval/presets.py --reuse DIR     reuses the answers of an evaluation there
    eval/presets.py --again NAME    asks these presets alone, on the items of the recorded evaluation, and puts them in its place
    eval/presets.py --tables        only fills tables and figures from these files
    eval/presets.py --check         ends with 1 when they differ from them

Besides the presets: annealing alone, over 50 tokens and over the longest answer. The recommended preset gets more items
(--closer), to show its cost by task.
"""
import argparse
import json
import sys
from pathlib import Path

import exams
import timings
from runs import ROOT, add_arguments, group, policies, rows_of, run_eval, stamp
from figure import svg
from tables import asked, filled, head, held, line, no_ranking, points, put, score, too_few

TOKENS_MAX = 320  # in a caption, the longest answer (fv_suite_max_tokens)
BESIDE = [f"evict=vta,tau={TOKENS_MAX}", "evict=vta,tau=50"]
CLOSER = "quality"
SEVERAL = ("two-hop", "all")  # groups of several tasks
SCRIPT = "eval/presets.py"


class Files:
    """An exam's results, its two pages with tables, and its figure."""

    def __init__(self, exam, root=ROOT):
        self.result = root / f"eval/results/presets{exams.suffix(exam)}.json"
        self.summary = root / f"docs/PRESETS{exams.suffix(exam).upper()}.md"
        self.tasks = root / f"eval/RESULTS{exams.suffix(exam).upper()}.md"
        self.figure = root / f"docs/presets{exams.suffix(exam)}.svg"


# ---- the evaluation -------------------------------------------------------------------------

def wanted(args):
    """The policies besides exact: (name, policy)."""
    presets = [p["name"] for p in policies(args)["presets"] if p["name"] != "exact"]
    yield from ((name, f"preset={name}") for name in presets)
    yield from ((text, text) for text in BESIDE)


def examine(args, items, smaller):
    """Reuses the answers of the smaller evaluations."""
    rows, files = rows_of(args, wanted(args)), Files(args.exam)
    reuse = [f"{args.exam}/{n}" for n in smaller] + [str(p.resolve()) for p in args.reuse]

    def run(name, asked, n, more_reuse):
        return run_eval(args, f"{args.exam}/{name}", asked, n, args.seed, more_reuse, exams.scenes(args.exam))
    report = run(f"{items}", [r["policy"] for r in rows], items, reuse)
    if args.closer > items:
        report["closer"] = run(f"closer-{args.closer}", ["exact", f"preset={CLOSER}"], args.closer, [f"{args.exam}/{items}", *reuse])
    files.result.parent.mkdir(parents=True, exist_ok=True)
    by = stamp(args, written(files))
    files.result.write_text(json.dumps({"exam": args.exam, "rows": rows, "by": by, **report}, indent=1) + "\n")


def written(files):
    return [files.result.parent, files.figure, files.summary, files.tasks]


def scores(result):
    return [(g["group"], g["n"], g["score"]) for g in result["groups"]]


def ask_again(args, names):
    """Evaluates presets that are new or whose parameters have changed since the record."""
    files = Files(args.exam)
    report = json.loads(files.result.read_text())
    suite, asked = report["eval"], ["exact", *(f"preset={name}" for name in names)]
    found = run_eval(args, f"{args.exam}/again-{'-'.join(names)}", asked, suite["items"], suite["seed"],
                     [str(p.resolve()) for p in args.reuse], exams.scenes(args.exam))["results"]
    if scores(found[0]) != scores(report["results"][0]):
        sys.exit(f"{SCRIPT}: `exact` answers otherwise than in {files.result.name}: evaluate all of them again")
    by, order = stamp(args, written(files)), ["exact", *(name for name, _ in wanted(args))]
    rows = {row["names"][0]: (row, result) for row, result in zip(report["rows"], report["results"])}
    for name, policy, result in zip(names, asked[1:], found[1:]):
        rows[name] = ({"names": [name], "policy": policy, "by": by}, result)
    report["rows"], report["results"] = zip(*(rows[name] for name in sorted(rows, key=order.index)))
    files.result.write_text(json.dumps(report, indent=1) + "\n")


# ---- tables --------------------------------------------------------------------------------

def name_of(row):
    return ", ".join(f"`{n}`" for n in row["names"])


def asked_later(report):
    """Names the rows whose answers are from another commit than the table."""
    rows = [row for row in report["rows"] if "by" in row]
    for commit in dict.fromkeys(row["by"]["commit"] for row in rows):
        yield f" Answers of {', '.join(name_of(row) for row in rows if row['by']['commit'] == commit)}: commit `{commit}`."


def about(report, eval_folder):
    suite, all_items = report["eval"], group(report["results"][0], "all")
    picture = group(report["results"][0], "shape")["kv_bytes"]["visual_exact"]
    yield (f"`./dev eval{exams.words(report['exam'])} --items {suite['items']}`, commit `{report['by']['commit']}`, seed {suite['seed']}, which no search has seen: "
           f"{suite['items']} items, {suite['items'] // len(suite['tasks'])} per task, the same for every policy; checkpoint "
           f"`{suite['checkpoint']}`, all KV in {suite['kv_dtype']}, {all_items['kv_bytes']['visual_exact'] / 1024:.0f} KiB of visual KV per "
           "item under `exact`. " + asked(suite).format(eval=eval_folder) +
           " `exact`: percent correct; the others: difference from it in points, with paired 95 % intervals." +
           "".join(asked_later(report)) + too_few(suite["items"]))
    yield ""
    yield no_ranking(report["exam"], picture).format(root="../")


def loss(g):
    return g["difference"]["value"]


def tasks_of(result):
    """Worst first."""
    return sorted((g for g in result["groups"] if g["group"] not in SEVERAL), key=loss)


def worst(result):
    if not result["groups"][0]["difference"]:
        return ""
    g = tasks_of(result)[0]
    return f"{g['group']} {points(g['difference'])}"


def smaller(result):
    kv = group(result, "all")["kv_bytes"]
    return f"{kv['visual_exact'] / held(kv):.1f}x"


def by_task(report):
    """The recommended preset by task, from the larger evaluation if there is one."""
    rows = report.get("closer") or report
    at = next(i for i, row in enumerate(report["rows"]) if CLOSER in row["names"])
    result = rows["results"][1 if "closer" in report else at]
    suite = rows["eval"]
    yield (f"`{CLOSER}` by task, worst first, {suite['items']} items of seed {suite['seed']}, {suite['items'] // len(suite['tasks'])} per "
           f"task; overall {points(group(result, 'all')['difference'])}, {smaller(result)} smaller than `exact`:")
    yield ""
    found = tasks_of(result)
    yield from head([g["group"] for g in found])
    yield line([points(g["difference"]) for g in found])


def summary(report):
    yield from about(report, "../eval/")
    yield ""
    yield "Compression: visual KV of `exact` divided by what is held, the mean of after prefill and after the last token."
    yield ""
    yield from head(["policy", "all tasks", "worst task", "KiB after prefill", "KiB at the end", "compression"])
    for row, result in zip(report["rows"], report["results"]):
        kv = group(result, "all")["kv_bytes"]
        yield line([name_of(row), score(group(result, "all")), worst(result), f"{kv['visual'] / 1024:.0f}",
                    f"{kv['visual_end'] / 1024:.0f}", smaller(result)])
    yield ""
    yield from by_task(report)


def tasks(report):
    names = [g["group"] for g in report["results"][0]["groups"]]
    yield from about(report, "")
    yield ""
    yield from head(["policy", *names])
    for row, result in zip(report["rows"], report["results"]):
        yield line([name_of(row), *(score(group(result, n)) for n in names)])
    yield ""
    yield from by_task(report)
    yield ""
    for row, result in zip(report["rows"], report["results"]):
        if result["note"]:
            yield f"- {name_of(row)}, on {result['items_with_note']} items: {result['note']}"


def points_of(report):
    """Yields (name, share of exact's visual KV in percent, percent correct as value, low, high) for every preset."""
    exact = group(report["results"][0], "all")
    for row, result in zip(report["rows"], report["results"]):
        g = group(result, "all")
        d = g["difference"] or {"value": 0, "low": 0, "high": 0}
        score = exact["score"]["value"]
        yield (row["names"][0], 100 * held(g["kv_bytes"]) / g["kv_bytes"]["visual_exact"], *(100 * (score + d[k]) for k in ("value", "low", "high")))


def tables(check):
    for exam in exams.EXAMS:
        files = Files(exam)
        if files.result.exists():
            report = json.loads(files.result.read_text())
            for path, lines, title in ((files.summary, summary(report), f"What the presets cost on {exam}"),
                                       (files.tasks, tasks(report), f"What the presets cost on {exam}, task by task")):
                put(path, filled(path, "evaluation of the presets", SCRIPT, lines, title), check, f"{SCRIPT} --tables")
            put(files.figure, svg(points_of(report), None if exams.suffix(exam) else timings.recorded()), check, f"{SCRIPT} --tables")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser, "build/eval")
    exams.add_arguments(parser)
    parser.add_argument("--items", default="220,2200", help="items of each evaluation, the smaller first [%(default)s]")
    parser.add_argument("--closer", type=int, default=2200, help=f"items of {CLOSER}, where that is more")
    parser.add_argument("--reuse", type=Path, action="append", default=[], help="folder of an evaluation whose answers are reused")
    parser.add_argument("--again", action="append", default=[], metavar="NAME", help="only this preset; may be repeated")
    parser.add_argument("--seed", type=int, default=exams.SEED)
    parser.add_argument("--tables", action="store_true", help="only fill tables and figure")
    parser.add_argument("--check", action="store_true", help="only compare tables and figure")
    args = parser.parse_args()
    if args.tables or args.check:
        return tables(args.check)
    args.checkpoint = exams.checkpoint(args)
    if args.again:
        ask_again(args, args.again)
        return tables(False)
    sizes = [int(n) for n in args.items.split(",")]
    for i, n in enumerate(sizes):
        examine(args, n, sizes[:i])
        tables(False)


if __name__ == "__main__":
    main()
