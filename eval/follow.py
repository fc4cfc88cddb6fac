#!/usr/bin/env python3
"""How far long answers under a policy stay with those of exact: `fovea eval --follow`, on captions continued to 1 000 tokens.

    eval/follow.py [--items N] [--tokens T]    writes eval/results/follow.json and the table in docs/PAPERS.md
    eval/follow.py --only nano                 one checkpoint; the other's numbers stay
    eval/follow.py --tables                    only the table, from that file
    eval/follow.py --check                     ends with 1 when the table says anything else

Exact answers with T tokens, whatever would end the answer; every policy is led along them (cli/eval_follow.h).
"""
import argparse
import json
import subprocess
import sys

import runs
from tables import filled, head, line, put

RESULT = runs.ROOT / "eval/results/follow.json"
PAGE = runs.ROOT / "docs/PAPERS.md"
SCRIPT = "eval/follow.py"
POLICIES = ["exact", "preset=quality", "preset=paper-attentionpack", "preset=paper-csp", "preset=paper-h2o", "preset=paper-fastv",
            "preset=paper-st3", "prune=random,layer=2"]
CHECKPOINTS = {"nano": "plain", "mini": "rich"}
SEED = 2  # as eval/presets.py
SPANS = ["1-10", "11-100", "101-1000", "1001-"]


def examine(args):
    found = json.loads(RESULT.read_text())["checkpoints"] if args.only and RESULT.exists() else {}
    for name, scenes in CHECKPOINTS.items():
        if args.only not in (None, name):
            continue
        out = args.out / name
        out.mkdir(parents=True, exist_ok=True)
        command = [args.fovea, "eval", "--checkpoint", str(runs.ROOT / "checkpoints" / name), "--follow", str(args.tokens), "--items", str(args.items),
                   "--task", "caption", "--scenes", scenes, "--seed", str(SEED), "--kv-dtype", args.kv_dtype, "--compute", args.compute,
                   "--concurrency", args.concurrency, "--out", str(out)]
        for policy in POLICIES:
            command += ["--policy", policy]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        found[name] = dict(runs.stamp(args, [RESULT, PAGE]), asked=POLICIES, **json.loads((out / "follow.json").read_text()))
    RESULT.write_text(json.dumps({"checkpoints": {name: found[name] for name in CHECKPOINTS if name in found}}, indent=1) + "\n")


def table(result):
    for name, found in result["checkpoints"].items():
        yield (f"`eval/follow.py --items {found['items']} --tokens {found['tokens']} --only {name}`, commit `{found['commit']}`, products in "
               f"{found['compute']}, keys and values in {found['kv_dtype']}: {found['items']} answers of {found['tokens']} tokens.")
        yield ""
        spans = SPANS[: len(found["results"][0]["spans"])]
        yield from head([f"`{name}`", "visual KV held, at the end", "the same choice", "tokens before the first other", "perplexity of exact's tokens",
                         *(f"divergence, tokens {s}" for s in spans)])
        for asked, r in zip(found["asked"], found["results"]):
            held = f"{100 * r['bytes_visual'] / r['bytes_exact']:.1f} %, {100 * r['bytes_visual_end'] / r['bytes_exact']:.1f} %"
            yield line([f"`{asked}`", held, f"{100 * r['same']:.2f} %", f"{r['before_other']:.1f}", f"{r['perplexity']:.4f}",
                        *(f"{d:.5f}" for d in r["spans"])])
        yield ""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    runs.add_arguments(parser, "build/eval/follow")
    parser.add_argument("--items", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=1000)
    parser.add_argument("--only", choices=list(CHECKPOINTS), help="only this checkpoint")
    parser.add_argument("--tables", action="store_true", help="only write the table again")
    parser.add_argument("--check", action="store_true", help="only compare the table with the results")
    args = parser.parse_args()
    if not args.check and not args.tables:
        examine(args)
    result = json.loads(RESULT.read_text())
    put(PAGE, filled(PAGE, "follow", SCRIPT, table(result)), args.check, SCRIPT)
    if not args.check:
        print("\n".join(table(result)), file=sys.stderr)


if __name__ == "__main__":
    main()
