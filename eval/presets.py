#!/usr/bin/env python3
"""What every preset costs: one exam of them all, and the tables that README.md and eval/RESULTS.md have of it.

    eval/presets.py [--items N,N2]  ./dev exam: asks (or goes on), writes eval/results/presets.json, fills the tables;
                                    of several numbers each in turn, so that there are tables before the last is through
    eval/presets.py --tables        only fills them from that file
    eval/presets.py --check         ends with 1 when they say anything else

Beside the presets: those that pack rows, with the first token, too, computed from factors (as they are, answers of
one token never read them); and annealing alone, over 50 tokens and over as many as an answer may have.
"""
import argparse
import json

from sitting import ROOT, add_arguments, group, policies, rows_of, sit
from tables import filled, head, line, put, score, too_few

RESULT = ROOT / "eval/results/presets.json"
TABLES = {ROOT / "README.md": "summary", ROOT / "eval/RESULTS.md": "tasks"}
TOKENS_MAX = 320  # of a caption, the longest answer (fv_exam_max_tokens)
BESIDE = [f"evict=vta,tau={TOKENS_MAX}", "evict=vta,tau=50"]


# ---- the exam ------------------------------------------------------------------------------

def wanted(args):
    """What the table has beside exact: (name, policy)."""
    presets = [p for p in policies(args)["presets"] if p["name"] != "exact"]
    yield from ((p["name"], f"preset={p['name']}") for p in presets)
    for p in presets:
        pack = next((s for s in p["policy"].split(";") if s.startswith("pack=")), None)
        if pack and "first=" not in pack:
            yield f"{p['name']}, first=packed", f"preset={p['name']};{pack},first=packed"
    yield from ((text, text) for text in BESIDE)


def examine(args, items, smaller):
    """An exam takes over what the smaller ones have answered."""
    rows = rows_of(args, wanted(args))
    report = sit(args, f"{items}", [r["policy"] for r in rows], items, args.seed, smaller)
    RESULT.parent.mkdir(parents=True, exist_ok=True)
    RESULT.write_text(json.dumps({"rows": rows, **report}, indent=1) + "\n")


# ---- tables --------------------------------------------------------------------------------

def name_of(row):
    return ", ".join(f"`{n}`" for n in row["names"])


def widths(report):
    """How many times larger than now a value is under exact, as stored here and in 16 bits."""
    dtype = report["exam"].get("kv_dtype", "f32")
    return dtype, (0.5 if dtype == "f32" else 1.0)


def about(report):
    exam, (dtype, _) = report["exam"], widths(report)
    exact = group(report["results"][0], "all")["kv_bytes"]["visual_exact"]
    return (f"`./dev exam --items {exam['items']}`: {exam['items']} items, the same for every row, checkpoint "
            f"`{exam['checkpoint']}`, KV of `exact` in {dtype}: {exact / 1024:.0f} KiB of visual KV an item. `exact`: "
            "percent right; the others: difference to it in points, with paired 95 % intervals."
            + too_few(exam["items"]))


def summary(report):
    dtype, narrow = widths(report)
    groups = ["all", "two-hop", "caption"]
    yield about(report)
    yield ""
    yield from head(["policy", *groups, "KiB after prefill", "at the end", f"smaller than in {dtype}", "than in 16 bits"])
    for row, result in zip(report["rows"], report["results"]):
        kv = group(result, "all")["kv_bytes"]
        ratio = kv["visual_exact"] / max(kv["visual"], 1)
        yield line([name_of(row), *(score(group(result, g)) for g in groups), f"{kv['visual'] / 1024:.0f}",
                    f"{kv['visual_end'] / 1024:.0f}", f"{ratio:.1f}x", f"{ratio * narrow:.1f}x"])


def tasks(report):
    names = [g["group"] for g in report["results"][0]["groups"]]
    yield about(report)
    yield ""
    yield from head(["policy", *names])
    for row, result in zip(report["rows"], report["results"]):
        yield line([name_of(row), *(score(group(result, n)) for n in names)])
    yield ""
    for row, result in zip(report["rows"], report["results"]):
        if result["note"]:
            yield f"- {name_of(row)}, on {result['items_with_note']} items: {result['note']}"


def tables(check):
    report = json.loads(RESULT.read_text())
    for path, which in TABLES.items():
        lines = {"summary": summary, "tasks": tasks}[which](report)
        put(path, filled(path, "exam of the presets", "eval/presets.py", lines), check, "eval/presets.py")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser, "build/exam")
    parser.add_argument("--items", default="220,2200", help="items of each exam, the smaller first")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tables", action="store_true", help="fill the tables only")
    parser.add_argument("--check", action="store_true", help="compare the tables only")
    args = parser.parse_args()
    if args.tables or args.check:
        return tables(args.check)
    sizes = [int(n) for n in args.items.split(",")]
    for i, n in enumerate(sizes):
        examine(args, n, [str(s) for s in sizes[:i]])
        tables(False)


if __name__ == "__main__":
    main()
