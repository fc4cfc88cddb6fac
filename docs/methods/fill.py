#!/usr/bin/env python3
"""The generated part of each page here: a method's parameters, from policy/methods.def by way of `fovea policies --json`,
and what was measured, from eval/results/compare.json (./dev compare).

    docs/methods/fill.py [--fovea PROGRAM]            writes them
    docs/methods/fill.py [--fovea PROGRAM] --check    ends with 1 when a page says anything else, or a method has no page
"""
import argparse
import json
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "eval"))
from compare import named, number, of_group, read, share  # noqa: E402
from tables import filled, head, held, line, put  # noqa: E402

SCRIPT = "docs/methods/fill.py"


def cell(text):
    return text.replace("|", "\\|")


def values(p):
    """What may be written."""
    if "words" in p:
        return ", ".join(f"`{w}`" for w in p["words"])
    if "min" not in p:
        return "text"
    unit = f", {p['unit']}" if p["unit"] else ""
    return f"{p['min']:.10g} to {p['max']:.10g}{unit}"


def parameters(method):
    if not method["params"]:
        yield "It has no parameters."
        return
    yield from head(["parameter", "default", "values", "meaning"])
    for p in method["params"]:
        yield line([f"`{p['name']}`", f"`{p['default']}`", values(p), cell(p["meaning"])])


def depends(method):
    """What else would have to be the same for the same result (policy/depends.h)."""
    yield ""
    yield f"Its result for an image depends on: {', '.join(method['depends_on']) or 'nothing'} ([what that means](../CACHE.md#what-depends-on-what))."


def measured(name, report):
    """The rows of the comparison that are of this method alone."""
    rows = of_group(report, "all")
    exact = rows[0][1]
    mine = [(row, g) for row, g in rows if row["method"] == name]
    if not mine:
        return
    e = report["eval"]
    yield ""
    yield (f"Measured by `./dev compare --items {e['items']}`, commit `{e['commit']}`, on the small checkpoint: {e['items']} items, `exact` "
           f"answers {number(exact)} % of them. Read [what is scored](../../eval/README.md) first: this is no ranking.")
    yield ""
    yield from head(["policy", "visual KV held", "bytes sent", "difference from `exact`, points"])
    for row, g in mine:
        yield line([named(row), share(held(g), exact["visual"]), share(g["sent"], exact["sent"]), number(g)])


def block(name, method, report):
    yield from parameters(method)
    yield from depends(method)
    yield from measured(name, report)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fovea", default=ROOT / "build/cpu/bin/fovea", help="the program that lists the methods [%(default)s]")
    parser.add_argument("--check", action="store_true", help="compare the pages only")
    args = parser.parse_args()
    listed = json.loads(subprocess.check_output([args.fovea, "policies", "--json"]))
    report, pages = read("nano"), sorted(HERE.glob("*.md"))
    for stage in listed["stages"]:
        for method in stage["methods"]:
            name = f"{stage['name']}={method['name']}"
            page = next((p for p in pages if f"<!-- {name}: made by {SCRIPT} -->" in p.read_text()), None)
            if page:
                put(page, filled(page, name, SCRIPT, block(name, method, report)), args.check, SCRIPT)
            elif method["source"] != "baseline":
                sys.exit(f"{name} comes from a paper and has no page in docs/methods")


if __name__ == "__main__":
    main()
