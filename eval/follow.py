#!/usr/bin/env python3
"""How far long answers under a policy stay with those of exact: `fovea eval --follow`, on captions continued to 1 000 tokens.

    eval/follow.py [--items N] [--tokens T]    writes eval/results/follow.json and the table in docs/PAPERS.md (each.py)

Exact answers with T tokens, whatever would end the answer; every policy is led along them (cli/eval/follow.h).
"""
import json
import subprocess

import each
import exams
from tables import head, line

POLICIES = ["exact", "preset=quality", "preset=paper-attentionpack", "preset=paper-csp", "preset=paper-h2o", "preset=paper-fastv",
            "preset=paper-st3", "prune=random,layer=2"]
SPANS = ["1-10", "11-100", "101-1000", "1001-"]


def examine(args, exam):
    out = args.out / exam
    out.mkdir(parents=True, exist_ok=True)
    command = [args.fovea, "eval", "--checkpoint", args.checkpoint, "--follow", str(args.tokens), "--items", str(args.items),
               "--task", "caption", *exams.scenes(exam), "--seed", str(exams.SEED), "--kv-dtype", args.kv_dtype, "--compute", args.compute,
               "--concurrency", args.concurrency, "--out", str(out)]
    for policy in POLICIES:
        command += ["--policy", policy]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return dict(asked=POLICIES, **json.loads((out / "follow.json").read_text()))


def table(exam, found):
    yield (f"`eval/follow.py --items {found['items']} --tokens {found['tokens']} --only {exam}`, commit `{found['commit']}`, products in "
           f"{found['compute']}, keys and values in {found['kv_dtype']}: {found['items']} answers of {found['tokens']} tokens.")
    yield ""
    spans = SPANS[: len(found["results"][0]["spans"])]
    yield from head([f"`{exam}`", "visual KV held, at the end", "the same choice", "tokens before the first other", "perplexity of exact's tokens",
                     *(f"divergence, tokens {s}" for s in spans)])
    for asked, r in zip(found["asked"], found["results"]):
        held = f"{100 * r['bytes_visual'] / r['bytes_exact']:.1f} %, {100 * r['bytes_visual_end'] / r['bytes_exact']:.1f} %"
        yield line([f"`{asked}`", held, f"{100 * r['same']:.2f} %", f"{r['before_other']:.1f}", f"{r['perplexity']:.4f}",
                    *(f"{d:.5f}" for d in r["spans"])])


def arguments(parser):
    parser.add_argument("--items", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=1000)


if __name__ == "__main__":
    each.main("follow", __doc__, arguments, examine, table)
