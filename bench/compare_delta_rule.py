#!/usr/bin/python3
"""The gated delta rule of Qwen3.5's recurrent layers beside transformers', at the shape of the 9B model: 16 heads of queries and
keys, 32 of values, of 128, in f32, on all cores. Prefill of 640 tokens is measured beside transformers' chunk form, a step of one token
beside its recurrent form, both in PyTorch alone. In turns; printed are medians. Run it on a machine that does nothing else.

    bench/compare_delta_rule.py PATH/TO/ops_run [ROUNDS]      needs torch and transformers
"""
import re
import statistics
import subprocess
import sys
import time

import torch
from transformers.models.qwen3_5 import modeling_qwen3_5 as qwen

HEADS, DIM, PREFILL = 32, 128, 640


def inputs(rows):
    g = torch.Generator().manual_seed(rows)
    q, k, v = (torch.randn(1, rows, HEADS, DIM, generator=g) for _ in range(3))
    decay = -torch.rand(1, rows, HEADS, generator=g)
    return {"query": q, "key": k, "value": v, "g": decay, "beta": torch.rand(1, rows, HEADS, generator=g), "initial_state": None,
            "output_final_state": True, "use_qk_l2norm_in_kernel": True}


def theirs(rule, rows, repeat):
    x = inputs(rows)
    with torch.no_grad():
        rule(**x)
        begin = time.perf_counter()
        for _ in range(repeat):
            rule(**x)
    return 1e6 * (time.perf_counter() - begin) / repeat


def ours(ops_run):
    out = subprocess.run([ops_run, "-o", "delta_rule", "-b", "auto", "perf"], capture_output=True, text=True, check=True).stdout
    found = {int(m[0]): float(m[1]) for m in re.findall(r"delta_rule +([0-9]+) rows, .*? ([0-9.]+) us", out)}
    return found[1], found[PREFILL]


def main():
    ops_run, rounds = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 5
    names = ("one token: ours", "recurrent form", f"{PREFILL} tokens: ours", "chunk form")
    found = []
    for _ in range(rounds):
        step, prefill = ours(ops_run)
        found.append((step, theirs(qwen.torch_recurrent_gated_delta_rule, 1, 200), prefill,
                      theirs(qwen.torch_chunk_gated_delta_rule, PREFILL, 3)))
    median = [statistics.median(column) for column in zip(*found)]
    for name, us in zip(names, median):
        print(f"{name:32} {us:12.1f} us")
    print(f"transformers' / ours: {median[1] / median[0]:.2f} for one token, {median[3] / median[2]:.2f} for {PREFILL} tokens")


main()
