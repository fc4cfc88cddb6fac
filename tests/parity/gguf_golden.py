#!/usr/bin/env python3
"""Blocks of GGUF with random contents, and what gguf-py dequantizes them to.

    gguf_golden.py           writes tests/golden/gguf/blocks.gguf again
    gguf_golden.py --check   dequantizes its blocks again and compares

For tests/unit/model/test_gguf_weights.c: tensors named after their type and, in f32, `expected.<type>`.
"""
import argparse
import pathlib
import sys

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType as T, GGUFReader, GGUFWriter
from gguf.quants import dequantize

FILE = pathlib.Path(__file__).resolve().parents[2] / "tests/golden/gguf/blocks.gguf"
ROWS, COLS = 4, 512
# Where the scales of a block are, in f16.
SCALES = {T.Q4_0: [0], T.Q4_1: [0, 2], T.Q5_0: [0], T.Q5_1: [0, 2], T.Q8_0: [0], T.Q4_K: [0, 2], T.Q5_K: [0, 2],
          T.Q6_K: [208], T.Q2_K: [80, 82], T.Q3_K: [108], T.IQ4_NL: [0], T.IQ4_XS: [0], T.IQ3_XXS: [0],
          T.IQ3_S: [0], T.MXFP4: []}


def blocks(kind, random):
    n, size = GGML_QUANT_SIZES[kind]
    raw = random.integers(0, 256, (ROWS, COLS // n, size), np.uint8)
    for at in SCALES[kind]:
        scale = random.normal(0, 0.02, (ROWS, COLS // n)).astype(np.float16)
        raw[:, :, at:at + 2] = scale[..., None].view(np.uint8)
    if kind == T.MXFP4:  # a power of two
        raw[:, :, 0] = random.integers(100, 130, (ROWS, COLS // n), np.uint8)
    return raw.reshape(ROWS, -1)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--check", action="store_true")
    if p.parse_args().check:
        found = {t.name: t for t in GGUFReader(FILE).tensors}
        bad = [k.name for k in SCALES
               if not np.array_equal(dequantize(found[k.name].data, k), found[f"expected.{k.name}"].data)]
        print(f"gguf-py: {len(SCALES)} types of blocks, {len(bad)} differ {bad}")
        return 1 if bad else 0
    random = np.random.default_rng(17)
    FILE.parent.mkdir(exist_ok=True)
    out = GGUFWriter(FILE, "blocks")
    for kind in SCALES:
        raw = blocks(kind, random)
        out.add_tensor(kind.name, raw, raw_dtype=kind)
        out.add_tensor(f"expected.{kind.name}", dequantize(raw, kind))
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
