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


def fp8(out, name, block, scale_dtype):
    """What Qwen and DeepSeek publish: a scale for each block of [block, block]."""
    rows, cols = -(-ROWS // block[0]), -(-COLS // block[1])
    weight = (torch.randn(ROWS, COLS) * 60).to(torch.float8_e4m3fn)
    scale = (torch.rand(rows, cols) * 1e-3 + 1e-5).to(scale_dtype)
    if scale_dtype == torch.float8_e8m0fnu:
        scale = (2.0 ** torch.randint(-12, -4, (rows, cols)).float()).to(scale_dtype)
    x = f"model.layers.3.{name}."
    out |= {x + "weight": weight, x + "weight_scale_inv": scale,
            f"expected.3.{name}": fp8_dequantize(weight, scale)}


def fp8_dequantize(weight, scale):
    from transformers.integrations.finegrained_fp8 import Fp8Dequantize
    return Fp8Dequantize(None)._dequantize_one(weight, scale, output_dtype=torch.bfloat16)


def compressed(out, name, compressor, args, state):
    from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
    scheme = QuantizationScheme(targets=["Linear"], weights=QuantizationArgs(**args))
    packed = compressor.compress({"weight": torch.randn(ROWS, COLS).bfloat16(), **state}, scheme)
    for key, value in packed.items():
        out[f"model.layers.4.{name}.{key}"] = value.contiguous()
    out[f"expected.4.{name}"] = compressor.decompress(packed, scheme)["weight"].bfloat16().contiguous()


def scales(groups, low=0.002):
    return (torch.rand(ROWS, groups) * 0.02 + low).bfloat16()


def all_compressed(out):
    from compressed_tensors.compressors.mxfp4.base import MXFP4PackedCompressor
    from compressed_tensors.compressors.naive_quantized.base import FloatQuantizationCompressor
    from compressed_tensors.compressors.nvfp4.base import NVFP4PackedCompressor
    from compressed_tensors.compressors.pack_quantized.base import PackedQuantizationCompressor
    PACKAGES.append("compressed-tensors")
    eight = {"num_bits": 8, "symmetric": True}
    compressed(out, "self_attn.q_proj", FloatQuantizationCompressor,
               {**eight, "type": "float", "strategy": "channel"}, {"weight_scale": scales(1)})
    compressed(out, "self_attn.k_proj", FloatQuantizationCompressor,
               {**eight, "type": "float", "strategy": "tensor"},
               {"weight_scale": torch.tensor([0.0123]).bfloat16()})
    compressed(out, "self_attn.v_proj", PackedQuantizationCompressor,
               {**eight, "type": "int", "strategy": "channel"}, {"weight_scale": scales(1)})
    compressed(out, "mlp.gate_proj", PackedQuantizationCompressor,
               {**eight, "type": "int", "strategy": "group", "group_size": GROUP},
               {"weight_scale": scales(COLS // GROUP)})
    compressed(out, "mlp.up_proj", PackedQuantizationCompressor,
               {"num_bits": 8, "symmetric": False, "type": "int", "strategy": "group", "group_size": GROUP},
               {"weight_scale": scales(COLS // GROUP),
                "weight_zero_point": torch.randint(-128, 128, (ROWS, COLS // GROUP)).to(torch.int8)})
    compressed(out, "mlp.down_proj", MXFP4PackedCompressor,
               {"num_bits": 4, "symmetric": True, "type": "float", "strategy": "group", "group_size": 32},
               {"weight_scale": 2.0 ** torch.randint(-4, 2, (ROWS, COLS // 32)).bfloat16()})
    compressed(out, "self_attn.o_proj", NVFP4PackedCompressor,
               {"num_bits": 4, "symmetric": True, "type": "float", "strategy": "tensor_group", "group_size": 16},
               {"weight_scale": (torch.rand(ROWS, COLS // 16) * 400 + 1).to(torch.float8_e4m3fn).float(),
                "weight_global_scale": torch.tensor([1024.0])})


def bnb(out):
    import bitsandbytes.functional as f
    PACKAGES.append("bitsandbytes")
    for name, kind, double in (("self_attn.q_proj", "nf4", False), ("self_attn.k_proj", "nf4", True),
                               ("self_attn.v_proj", "fp4", False)):
        packed, state = f.quantize_4bit(torch.randn(ROWS, COLS).bfloat16(), blocksize=64,
                                        compress_statistics=double, quant_type=kind)
        x = f"model.layers.5.{name}.weight"
        out[x] = packed
        for key, value in state.as_dict(packed=True).items():
            out[f"{x}.{key}"] = value.contiguous()
        out[f"expected.5.{name}"] = f.dequantize_4bit(packed, state).contiguous()
    integers, scb, _ = f.int8_vectorwise_quant(torch.randn(ROWS, COLS).half())
    x = "model.layers.5.mlp.gate_proj."
    out |= {x + "weight": integers, x + "SCB": scb,
            x + "weight_format": torch.tensor(0, dtype=torch.uint8),
            "expected.5.mlp.gate_proj": f.int8_vectorwise_dequant(integers, scb).bfloat16()}


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
    fp8(out, "self_attn.q_proj", (8, 64), torch.float32)
    fp8(out, "self_attn.k_proj", (8, 64), torch.bfloat16)
    fp8(out, "self_attn.v_proj", (8, 64), torch.float8_e8m0fnu)
    all_compressed(out)
    bnb(out)
    return out


def same(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(a.reshape(-1).view(torch.uint8),
                                                                     b.reshape(-1).view(torch.uint8))


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
           if k not in made or k not in found or not same(made[k], found[k])]
    print(f"stored forms ({', '.join(sorted(set(PACKAGES))) or 'formulas'}): "
          f"{len(found)} tensors, {len(bad)} differ {bad}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
