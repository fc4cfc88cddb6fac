#!/usr/bin/env python3
"""Every method at every budget on the same items, and the latency of nine policies: one file, one page.

    eval/compare.py [--items N] [--budgets 1/8,1/4]   ./dev compare: runs (or resumes), writes eval/results/compare.json
                                                      and compare.html, fills the tables of docs/PRESETS.md and RESULTS.md
    eval/compare.py --exam mini                       another checkpoint and its scenes (exams.py): compare-mini.json and .html,
                                                      PRESETS-MINI.md, RESULTS-MINI.md
    eval/compare.py --no-timings, --timings-only      one half of it; the other stays as it was
    eval/compare.py --tables                          only pages and tables, from these files
    eval/compare.py --check                           ends with 1 when they say anything else

Rounds: the presets, then the budgets in turn (budgets.py says which policies). Page and tables are written after
each, so that a run may be ended after any. Answers of other evaluations are reused: build/eval/EXAM/N of
`./dev eval --items N` where it is there, and every --reuse DIR.
"""
import argparse
import json
import sys
import zlib
from pathlib import Path

import budgets
import exams
import presets
import timings
from runs import ROOT, add_arguments, policies, rows_of, run_eval, stamp
from tables import asked, filled, front, head, held, line, no_ranking, put, score, too_few

TEMPLATE = ROOT / "eval/suite/compare.html"
SCRIPT = "eval/compare.py"
BASELINES = ["prune=random", "prune=grid"]
ON_PACKED = {"expand=full", "expand=attention", "evict=importance"}  # no effect alone


class Files:
    """An exam's results, its page, and the two pages with its tables."""

    def __init__(self, exam, root=ROOT):
        end = exams.suffix(exam)
        self.result = root / f"eval/results/compare{end}.json"
        self.page = root / f"eval/results/compare{end}.html"
        self.presets = root / f"docs/PRESETS{end.upper()}.md"
        self.tasks = root / f"eval/RESULTS{end.upper()}.md"


# ---- the policies ----------------------------------------------------------------------------

def method_of(text):
    """The only method of a policy, or None: a preset may combine several."""
    stages = [s.split(",")[0] for s in text.split(";") if s and not s.startswith("expand=")]
    return stages[0] if len(stages) == 1 else None


def listed_methods(listed):
    return [f"{s['name']}={m['name']}" for s in listed["stages"] for m in s["methods"]]


def preset_round(listed):
    for p in listed["presets"]:
        if p["name"] != "exact":
            yield p["name"], f"preset={p['name']}"


def budget_round(listed, budget, layers):
    """Policies of one budget; with the first budget also those without budgets."""
    there = listed_methods(listed)
    if budget == next(iter(budgets.SHARES)):
        shown = {method_of(p["policy"]) for p in listed["presets"]} | set(budgets.METHODS) | ON_PACKED
        yield from ((m, m) for m in there if m not in shown)
    for method in budgets.METHODS:
        text = budgets.policy(method, budget, layers) if method in there else None
        if text and (method, budget) not in budgets.PUBLISHED:
            yield f"{method}, {budget}", text


def rounds(args):
    """Yields (name, [(name, policy)]) for each evaluation."""
    listed, layers = policies(args), layers_of(args)
    yield "presets", list(preset_round(listed))
    for budget in args.budgets:
        yield budget.replace("/", "-"), list(budget_round(listed, budget, layers))


def layers_of(args):
    config = json.loads((Path(args.checkpoint) / "config.json").read_text())
    return config.get("text_config", config)["num_hidden_layers"]


# ---- output ----------------------------------------------------------------------------------

def triple(interval):
    return [round(interval[k], 5) for k in ("value", "low", "high")] if interval else None


def told_group(g):
    kv = g["kv_bytes"]
    return {"score": triple(g["score"]), "difference": triple(g["difference"]), "visual": round(kv["visual"]),
            "visual_end": round(kv["visual_end"]), "sent": round(kv["sent"])}


def told_row(asked, listed, result, budget):
    presets = {p["name"]: p["policy"] for p in listed["presets"]}
    published = {name: where for where, name in budgets.PUBLISHED.items()}
    names = asked["names"]
    method = method_of(presets.get(names[0], asked["policy"]))
    at = next((published[n][1] for n in names if n in published), budget if method in budgets.METHODS else None)
    return {"names": names, "method": method, "preset": names[0] in presets, "budget": at, "asked": asked["policy"],
            "policy": result["policy"], "note": result["note"], "items_with_note": result["items_with_note"],
            "groups": [told_group(g) for g in result["groups"]]}


def written(files):
    """Files that this script writes, which do not count as changes of the sources."""
    return [files.result.parent, files.presets, files.tasks, ROOT / "docs/presets.svg"]


def write(report, path):
    """Writes the report with one policy per line."""
    def lines(key):
        return ",\n".join("  " + json.dumps(row, separators=(",", ":")) for row in report[key])
    rest = {k: v for k, v in report.items() if k not in ("rows", "groups")}
    text = json.dumps(rest, indent=1)[:-2] + "".join(f',\n "{k}": [\n{lines(k)}\n ]' for k in ("groups", "rows")) + "\n}\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def read(exam):
    path = Files(exam).result
    return json.loads(path.read_text()) if path.exists() else {}


def answered_by(args):
    """Folders of evaluations whose answers are reused, including other rounds, sizes and budget tables."""
    folders = [ROOT / f"build/eval/{args.exam}/{args.items}", *sorted((args.out / args.exam).glob("*-*")), *(p.resolve() for p in args.reuse)]
    for folder in folders:
        if (folder / "items.jsonl").exists():
            with open(folder / "items.jsonl") as file:
                asked = json.loads(file.readline() or "{}")
            found = [asked.get(k) for k in ("seed", "kv_dtype", "dialog", "first")]
            if found == [args.seed, args.kv_dtype, "kept", "held"] or folder in map(Path.resolve, args.reuse):
                yield str(folder)


def run_round(args, name, asked):
    """Evaluates a round. The folder's name contains a checksum of the policies, so a changed table starts a new folder."""
    texts = [r["policy"] for r in asked]
    folder = f"{name}-{args.items}-{args.seed}-{zlib.crc32(chr(10).join(texts).encode()):08x}"
    return run_eval(args, f"{args.exam}/{folder}", texts, args.items, args.seed, [f for f in answered_by(args) if Path(f).name != folder],
                    exams.scenes(args.exam))


def examine(args):
    args.checkpoint = exams.checkpoint(args)
    listed, rows, todo, files = policies(args), [], list(rounds(args)), Files(args.exam)
    n = 1 + sum(len(wanted) for _, wanted in todo)
    print(f"{len(todo)} rounds, {n} policies, {n * args.items} answers, less what is there already", file=sys.stderr)
    for name, wanted in todo:
        asked = rows_of(args, wanted)
        report = run_round(args, name, asked)
        budget = name.replace("-", "/") if name != "presets" else None
        for row, result in list(zip(asked, report["results"]))[1 if rows else 0:]:
            rows.append(told_row(row, listed, result, budget))
        suite = {k: report["eval"][k] for k in ("checkpoint", "items", "seed", "kv_dtype", "dialog", "first")}
        groups = [{k: g[k] for k in ("group", "measure", "n", "chance")} for g in report["results"][0]["groups"]]
        write({"eval": {"exam": args.exam, "scenes": exams.EXAMS[args.exam]["scenes"], **suite, **stamp(args, written(files)), "budgets": args.budgets},
               "timings": read(args.exam).get("timings"), "groups": groups, "rows": rows}, files.result)
        tables(False)


def measure(args):
    report, files = read(args.exam), Files(args.exam)
    if not report:
        sys.exit("compare.py: timings are added to an evaluation: run it without --timings-only first")
    write({**report, "timings": {**timings.take(args), **stamp(args, written(files))}}, files.result)
    tables(False)
    presets.tables(False)  # its figure shows the times too


# ---- tables ----------------------------------------------------------------------------------

def of_group(report, name):
    """Pairs of all rows and their numbers in that group, exact first."""
    i = next(i for i, g in enumerate(report["groups"]) if g["group"] == name)
    return [(row, row["groups"][i]) for row in report["rows"]]


def interval(t):
    return dict(zip(("value", "low", "high"), t)) if t else None


def number(g):
    return score({"difference": interval(g["difference"]), "score": interval(g["score"])})


def named(row):
    return ", ".join(f"`{n}`" for n in row["names"]) if row["preset"] else f"`{row['asked']}`"


def about(report, eval_folder):
    e = report["eval"]
    picture = of_group(report, "shape")[0][1]["visual"]
    yield (f"`./dev compare{exams.words(e['exam'])} --items {e['items']}`, commit `{e['commit']}`, seed {e['seed']}: {len(report['rows'])} policies, {e['items']} "
           f"items, the same for all; checkpoint `{e['checkpoint']}`, all KV in {e['kv_dtype']}. "
           + asked(e).format(eval=eval_folder) + too_few(e["items"]))
    yield ""
    yield no_ranking(e["exam"], picture).format(root="../")


def bounds(g):
    """Interval of the score itself, from the paired interval of its difference to exact."""
    value, d = g["score"][0], g["difference"]
    return (value + d[1] - d[0], value + d[2] - d[0]) if d else (value, value)


def front_lines(report):
    """The front over all tasks, and the baselines at the first budgets."""
    rows = of_group(report, "all")
    whole = rows[0][1]["visual"]
    best = front(rows, lambda r: bounds(r[1]), lambda r: held(r[1]))
    plain = [r for r in rows if r[0]["method"] in BASELINES and r not in best and r[0]["budget"] in report["eval"]["budgets"][:2]]
    yield from head(["policy", "visual KV held, % of `exact`", "after prefill", "sent, including text", "difference from `exact`, points"])
    for row, g in [rows[0]] + [r for r in reversed(best) if r != rows[0]] + plain:
        mark = " (baseline)" if (row, g) in plain else ""
        yield line([named(row) + mark, share(held(g), whole), share(g["visual"], whole),
                    share(g["sent"], rows[0][1]["sent"]), number(g)])


def share(bytes_held, whole):
    return f"{100 * bytes_held / whole:.1f} %"


def timing_lines(report):
    t = report["timings"]
    if not t:
        return
    at_once = sorted({r["concurrency"] for r in t["rows"]})
    by = {(r["name"], r["concurrency"]): r for r in t["rows"]}
    names = [r["name"] for r in t["rows"] if r["concurrency"] == at_once[0]]
    rows = by[names[0], at_once[0]]["prompt_tokens"]
    yield ""
    yield (f"Latency on a fleet of one prefill and one decode worker, `{t['network']}` (random weights): a question about an "
           f"image that is encoded once, {rows:.0f} prompt tokens, {t['max_tokens']} generated tokens, "
           f"{' / '.join(map(str, at_once))} concurrent clients. Medians for `exact`, ratios to them for the others. Presets of "
           f"commit `{t['commit']}`, {t['machine']}, load {t['load_before']:.1f} before the run.")
    yield ""
    yield from head(["policy", "TTFT", "TPOT", "tokens/s", "KV sent, MiB", "resident, MiB"])
    for name in names:
        def cells(key, unit, digits=0):
            first = [by[names[0], n][key] for n in at_once]
            mine = [by[name, n][key] for n in at_once]
            own = name == names[0]
            return " / ".join(f"{m:.{digits}f}" if own else f"{m / f:.2f}x" for m, f in zip(mine, first)) + (unit if own else "")
        row = by[name, at_once[0]]
        yield line([f"`{name}`", cells("ttft_ms", " ms"), cells("tpot_ms", " ms"), cells("tokens_per_s", "", 1), f"{row['sent'] / 2**20:.1f}",
                    f"{row['resident'] / 2**20:.1f}"])


def summary(report):
    page = Files(report["eval"]["exam"]).page.name
    yield from about(report, "../eval/")
    yield ""
    yield "After `exact`, the Pareto front: from the smallest up, each policy whose interval is above that of the one before; policies that " \
          f"intervals do not separate are left out. `random` and `grid` are baselines. Figures by task: [{page}](../eval/results/{page})."
    yield ""
    yield from front_lines(report)
    yield from timing_lines(report)


def by_budget(report):
    """Table of methods and budgets over all tasks: difference to exact in points, and the share actually held."""
    rows = of_group(report, "all")
    whole = rows[0][1]["visual"]
    columns = [b for b in ["1/2", "1/4", "1/8", "1/16", "1/32"] if b in report["eval"]["budgets"]]
    cells = {(r["method"], r["budget"]): f"{number(g)} at {share(held(g), whole)}" for r, g in rows if r["budget"]}
    yield from about(report, "")
    yield ""
    yield from head(["method"] + columns)
    for method in sorted({method for method, budget in cells if budget in columns}, key=list(budgets.METHODS).index):
        yield line([f"`{method}`"] + [cells.get((method, b), "–") for b in columns])


# ---- the page --------------------------------------------------------------------------------

def page(report):
    """The template, filled with the figure code that it shares with `fovea eval`'s page and with the results."""
    data = json.dumps(report, separators=(",", ":")).replace("</", "<\\/")
    text = TEMPLATE.read_text()
    for part in ("css", "js"):
        text = text.replace(f"@FIGURES_{part.upper()}@", (ROOT / f"eval/suite/figures.{part}").read_text())
    return text.replace("/*RESULTS*/null", data)


def tables(check):
    for exam in exams.EXAMS:
        files, report, title = Files(exam), read(exam), f"Every method at every budget, on {exam}"
        if report:
            for path, lines in ((files.presets, summary(report)), (files.tasks, by_budget(report))):
                put(path, filled(path, "comparison", SCRIPT, lines, title), check, f"{SCRIPT} --tables")
            put(files.page, page(report), check, f"{SCRIPT} --tables")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser, "build/compare")
    exams.add_arguments(parser)
    parser.add_argument("--items", type=int, default=2200, help="items of every policy")
    parser.add_argument("--budgets", default=",".join(budgets.SHARES), help="shares of exact's visual KV, in the order in which they run")
    parser.add_argument("--reuse", type=Path, action="append", default=[], help="folder of an evaluation whose answers are reused")
    parser.add_argument("--seed", type=int, default=exams.SEED)
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--no-timings", action="store_true", help="the evaluation only")
    only.add_argument("--timings-only", action="store_true", help="the timings only")
    only.add_argument("--tables", action="store_true", help="only write page and tables")
    only.add_argument("--check", action="store_true", help="only compare page and tables")
    args = parser.parse_args()
    args.budgets = args.budgets.split(",")
    unknown = [b for b in args.budgets if b not in budgets.SHARES]
    if unknown:
        parser.error(f"unknown budget {unknown[0]}; available: {', '.join(budgets.SHARES)}")
    if args.tables or args.check:
        return tables(args.check)
    if not args.timings_only:
        examine(args)
    if not args.no_timings:
        measure(args)


if __name__ == "__main__":
    main()
