#!/usr/bin/env python3
"""Weights that compressed-tensors has packed, and what it reads them as.

    compressed_golden.py           writes tests/golden/compressed again
    compressed_golden.py --check   computes it again and compares

One safetensors file, for tests/unit/model/test_compressed.c: q_proj in W4A16 with groups of 32, k_proj the
same with zero points, v_proj a scale per row, gate_proj in W8A8; `expected.<name>` is
compressed-tensors' dequantization in bf16, of gate_proj in f32.
"""
import argparse
import pathlib
import sys

import torch
from compressed_tensors.compressors import IntQuantizationCompressor, PackedQuantizationCompressor
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from safetensors.torch import load_file, save_file

FILE = pathlib.Path(__file__).resolve().parents[2] / "tests/golden/compressed/model.safetensors"
ROWS, COLS = 24, 96


def ranges(w, group, bits, symmetric):
    """Scales and zero points of groups, from their least and largest numbers."""
    blocks = w.float().reshape(w.shape[0], -1, group)
    low, high = blocks.amin(-1).clamp(max=0), blocks.amax(-1).clamp(min=0)
    half = 2 ** (bits - 1)
    if symmetric:
        return torch.maximum(-low, high) / (half - 0.5), None
    scale = (high - low) / (2 * half - 1)
    return scale, (torch.round(-low / scale) - half).clamp(-half, half - 1).to(torch.int8)


def tensors():
    torch.manual_seed(17)
    out = {}
    for name, bits, group, symmetric, dtype in (
            ("self_attn.q_proj", 4, 32, True, torch.bfloat16),
            ("self_attn.k_proj", 4, 32, False, torch.bfloat16),
            ("self_attn.v_proj", 4, COLS, True, torch.bfloat16),
            ("mlp.gate_proj", 8, COLS, True, torch.float32)):
        w = torch.randn(ROWS, COLS).to(dtype)
        args = QuantizationArgs(num_bits=bits, type="int", symmetric=symmetric,
                                strategy="channel" if group == COLS else "group",
                                group_size=None if group == COLS else group)
        scheme = QuantizationScheme(targets=["Linear"], weights=args)
        scale, zero = ranges(w, group, bits, symmetric)
        state = {"weight": w, "weight_scale": scale.to(dtype)}
        if zero is not None:
            state["weight_zero_point"] = zero
        how = PackedQuantizationCompressor if bits == 4 else IntQuantizationCompressor
        packed = how.compress(state, scheme)
        for key, value in packed.items():
            out[f"model.layers.0.{name}.{key}"] = value.contiguous()
        out[f"expected.{name}"] = how.decompress(packed, scheme)["weight"].contiguous()
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
    print(f"compressed-tensors: {len(found)} tensors, {len(bad)} differ {bad}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
