#!/usr/bin/env python3
"""Weights in the forms of model/stored.h, and the numbers that their own programs read them as.

    stored_golden.py           writes tests/golden/stored again
    stored_golden.py --check   computes it again and compares

One safetensors file, for tests/unit/model/test_stored.c: the tensors of a layer for each form, and
`expected.<layer>.<module>`, the numbers that the form's program dequantizes them to: AutoAWQ's
dequantize_gemm if the package is there (only that file of it is run), compressed-tensors' compressors,
transformers' Fp8Dequantize, bitsandbytes' dequantization. GPTQ's is two lines, repeated here.
"""
import argparse
import importlib.util
import json
import pathlib
import sys

import torch
from safetensors.torch import load_file, save_file

FILE = pathlib.Path(__file__).resolve().parents[2] / "tests/golden/stored/model.safetensors"
ROWS, COLS, GROUP = 24, 192, 32
PACKAGES = []


def pack(values, bits, order=None):
    """Integers [..., n] into words of 32 bits [..., n * bits / 32], the first in the lowest bits."""
    per = 32 // bits
    parts = values.to(torch.int64).reshape(*values.shape[:-1], -1, per)
    if order:
        parts = parts[..., order]
    words = sum(parts[..., i] << (bits * i) for i in range(per))
    return (words - ((words >> 31) << 32)).to(torch.int32)


def awq_dequantize(qweight, qzeros, scales, integers, zeros):
    """AutoAWQ's own function, or its formula."""
    spec = importlib.util.find_spec("awq")
    if spec is None:
        return (integers - zeros.repeat_interleave(GROUP, 0)).to(torch.int8) * \
            scales.repeat_interleave(GROUP, 0)
    PACKAGES.append("autoawq")
    path = pathlib.Path(spec.submodule_search_locations[0]) / "utils/packing_utils.py"
    one = importlib.util.spec_from_file_location("packing_utils", path)
    module = importlib.util.module_from_spec(one)
    one.loader.exec_module(module)
    return module.dequantize_gemm(qweight, qzeros, scales, 4, GROUP)


def awq(out):
    groups = COLS // GROUP
    integers = torch.randint(0, 16, (COLS, ROWS))
    zeros = torch.randint(0, 16, (groups, ROWS))
    scales = (torch.rand(groups, ROWS) * 0.02 + 0.001).half()
    order = [0, 2, 4, 6, 1, 3, 5, 7]
    qweight, qzeros = pack(integers, 4, order), pack(zeros, 4, order)
    x = "model.layers.0.self_attn.q_proj."
    out |= {x + "qweight": qweight, x + "qzeros": qzeros, x + "scales": scales,
            "expected.0.self_attn.q_proj":
                awq_dequantize(qweight, qzeros, scales, integers, zeros).t().contiguous()}


def gptq(out, layer, name, bits, group, second=False, act_order=False):
    groups, top = COLS // group, 2 ** bits
    integers = torch.randint(0, top, (COLS, ROWS))
    zeros = torch.randint(1, top, (groups, ROWS))
    scales = (torch.rand(groups, ROWS) * 0.02 + 0.001).half()
    index = torch.arange(COLS) // group
    if act_order:
        index = index[torch.randperm(COLS)]
    x = f"model.layers.{layer}.{name}."
    out |= {x + "qweight": pack(integers.t(), bits).t().contiguous(),
            x + "qzeros": pack(zeros if second else zeros - 1, bits),
            x + "scales": scales, x + "g_idx": index.to(torch.int32),
            f"expected.{layer}.{name}":
                (scales[index] * (integers - zeros[index]).to(torch.int16)).t().contiguous()}


def tensors():
    torch.manual_seed(23)
    out = {}
    awq(out)
    gptq(out, 1, "self_attn.q_proj", 4, GROUP)
    gptq(out, 1, "self_attn.k_proj", 4, GROUP, act_order=True)
    gptq(out, 1, "self_attn.v_proj", 8, 64, act_order=True)
    gptq(out, 1, "mlp.gate_proj", 4, COLS)
    gptq(out, 2, "self_attn.q_proj", 4, 64, second=True)
    gptq(out, 2, "self_attn.k_proj", 8, GROUP, second=True)
    return out


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--check", action="store_true")
    made = tensors()
    if not p.parse_args().check:
        FILE.parent.mkdir(exist_ok=True)
        save_file(made, FILE)
        return 0
    found = load_file(FILE)
    bad = [k for k in sorted(made.keys() | found.keys())
           if k not in made or k not in found or not torch.equal(made[k], found[k])]
    print(f"stored forms ({', '.join(sorted(set(PACKAGES))) or 'formulas'}): "
          f"{len(found)} tensors, {len(bad)} differ {bad}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
