#!/usr/bin/env python3
"""The generated parts of PAPERS.md: what papers publish beside what `fovea plan` counts for the same network.

    docs/papers.py [--fovea PROGRAM]            writes the tables
    docs/papers.py [--fovea PROGRAM] --check    ends with 1 when the page says anything else, or a count is not the paper's
"""
import argparse
import json
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path.insert(0, str(ROOT / "eval"))
from tables import filled, head, line, put  # noqa: E402

PAGE, SCRIPT = HERE / "PAPERS.md", "docs/papers.py"
SEVEN, THIRTEEN = "llava-1.5-7b", "llava-1.5-13b"

# (source, what it calls the row, network, rule, text tokens, policy, published TFLOP). The papers do not say how many
# tokens of text they count: 115 fits all nine rows of ST3.
FLOPS = [
    ("ST3, table 3", "vanilla", SEVEN, "square", 115, "exact", 9.38),
    ("ST3, table 3", "FastV, K = 3, R = 50 %", SEVEN, "square", 115, "prune=fastv,layer=3,keep=0.5", 5.78),
    ("ST3, table 3", "VTW, k = 16", SEVEN, "square", 115, "prune=vtw,layer=16", 5.38),
    ("ST3, table 3", "ST3, s = 28", SEVEN, "square", 115, "prune=pvtp,stride=28,ratio=0.49", 5.59),
    ("ST3, table 3", "ST3, s = 14", SEVEN, "square", 115, "prune=pvtp,stride=14,ratio=0.245", 4.78),
    ("ST3, table 3", "ST3, s = 7", SEVEN, "square", 115, "prune=pvtp", 4.37),
    ("ST3, table 3", "ST3, s = 4", SEVEN, "square", 115, "prune=pvtp,stride=4,ratio=0.07", 4.20),
    ("ST3, table 3", "ST3, s = 2", SEVEN, "square", 115, "prune=pvtp,stride=2,ratio=0.035", 4.08),
    ("ST3, table 3", "ST3, s = 1", SEVEN, "square", 115, "prune=pvtp,stride=1,ratio=0.0175", 4.03),
    ("VisiPruner", "LLaVA-1.5-7B", SEVEN, "visual", 50, "exact", 3.82),
    ("VisiPruner", "LLaVA-1.5-13B", THIRTEEN, "visual", 50, "exact", 7.44),
]
# (source, what it is, text tokens, policy, published share of the KV cache that is saved, percent)
KV = [
    ("Q Cache, section 4", "GLA, 23 lazy layers of 32", 50, "paper-gla", 35.0),
    ("Q Cache, section 4", "VLA, 23 lazy layers of 32", 50, "paper-vla", 35.0),
]
NEAR = 0.01  # of the published figure


def counted(fovea, shape, rule, text, policy):
    out = subprocess.run([fovea, "plan", "--json", "--shape", shape, "--flops", rule, "--visual", "576", "--text", str(text),
                          "--policy", policy], capture_output=True, check=True).stdout
    row = json.loads(out)[0]
    return row["flops"] * 1e-12, 100 * (1 - row["bytes_held"] / row["bytes_raw"])


def flops(fovea):
    yield from head(["source", "row", "policy", "counted as", "published, T", "counted, T"])
    for source, row, shape, rule, text, policy, published in FLOPS:
        tera, _ = counted(fovea, shape, rule, text, policy)
        if abs(tera - published) > NEAR * published:
            sys.exit(f"{source}, {row}: {published} T in the paper, {tera:.3f} T counted")
        yield line([source, row, f"`{policy}`", rule, f"{published:.2f}", f"{tera:.2f}"])


def kv(fovea):
    yield from head(["source", "row", "policy", "published, % saved", "counted, % saved"])
    for source, row, text, policy, published in KV:
        _, saved = counted(fovea, SEVEN, "executed", text, policy)
        yield line([source, row, f"`{policy}`", f"{published:.0f}", f"{saved:.1f}"])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fovea", default=str(ROOT / "build/cpu/bin/fovea"))
    parser.add_argument("--check", action="store_true")
    a = parser.parse_args()
    for name, lines in (("flops", flops(a.fovea)), ("kv", kv(a.fovea))):
        put(PAGE, filled(PAGE, name, SCRIPT, lines), a.check, SCRIPT)


if __name__ == "__main__":
    main()
