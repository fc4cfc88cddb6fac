#!/usr/bin/env python3
"""Random networks whose linear layers are quantized in each form of model/stored.h, against transformers on the
dequantized weights.

    stored_live.py FOVEA [--networks N] [--seed S] [--form NAME]

Two folders for each network: the packed one, and one with the numbers that the packed weights stand for.
transformers computes the second in f32. fovea computes the first with `--weights dequantized --compute f32`, where
all of compare.py must hold (logits within 1e-4); with `--weights exact`, where weights are decoded in products; and as it
is, where activations are quantized too if the weights are integers. The errors must be below those of BOUNDS.

Of models with a mixture of experts the experts are quantized, each in tensors of its own as files have them.
"""
import argparse
import dataclasses
import json
import pathlib
import re
import shutil
import sys
import tempfile

import torch
from safetensors.torch import load_file, save_file

import cases
import compare
import engine
import families
from run import put_images
from stored_golden import pack

# By options: activations are rounded to 8 bits per 32, if weights are integers; weights and activations to bf16.
BOUNDS = {(): 1.5e-1, ("--weights", "exact"): 4e-2}
N_TOKENS = 8
GROUP = 32
MIXTURES = ("qwen3_vl_moe", "qwen3_5_moe", "gemma4_experts", "glm4v_moe")
OF_MIXTURES = ("awq", "gptq act-order", "gptq 8 bits", "fp8 in blocks", "w8a16", "mxfp4")  # the forms tried with experts
TOGETHER = re.compile(r"(.*experts)\.(gate_up|down)_proj$")
LINEAR = re.compile(r"layers\.\d+\.(self_attn|mlp)\.[qkvo\w]+_proj\.weight$")


def ranges(w, group, top):
    """Scales and zero points of groups [N, K / group] for integers from 0 to top."""
    blocks = w.float().reshape(w.shape[0], -1, group)
    low, high = blocks.amin(-1).clamp(max=0), blocks.amax(-1).clamp(min=0)
    scale = ((high - low) / top).clamp(min=1e-6).to(w.dtype)
    return scale, torch.round(-low / scale.float()).clamp(1, top).to(torch.int64)


def rounded(w, scale, zero, group, top):
    wide = (t.repeat_interleave(group, 1) for t in (scale.float(), zero))
    scale, zero = wide
    return torch.clamp(torch.round(w.float() / scale) + zero, 0, top).to(torch.int64)


def awq(w):
    scale, zero = ranges(w, GROUP, 15)
    q = rounded(w, scale, zero, GROUP, 15)
    order = [0, 2, 4, 6, 1, 3, 5, 7]
    number = (q - zero.repeat_interleave(GROUP, 1)).to(w.dtype) * scale.repeat_interleave(GROUP, 1)
    return {"qweight": pack(q.t().contiguous(), 4, order), "qzeros": pack(zero.t().contiguous(), 4, order),
            "scales": scale.t().contiguous()}, number


def gptq(w, bits=4, act_order=False, second=False):
    top, K = 2 ** bits - 1, w.shape[1]
    order = torch.randperm(K) if act_order else torch.arange(K)
    sorted_w = w[:, order]
    scale, zero = ranges(sorted_w, GROUP, top)
    index = torch.empty(K, dtype=torch.int64)
    index[order] = torch.arange(K) // GROUP
    q = torch.clamp(torch.round(w.float() / scale.float()[:, index]) + zero[:, index], 0, top).to(torch.int64)
    number = (q - zero[:, index]).to(w.dtype) * scale[:, index]
    return {"qweight": pack(q, bits).t().contiguous(),
            "qzeros": pack((zero if second else zero - 1).t().contiguous(), bits),
            "scales": scale.t().contiguous(), "g_idx": index.to(torch.int32)}, number


def fp8(w, block, suffix):
    N, K = w.shape
    rows, cols = (N if block[0] == 0 else block[0]), (K if block[1] == 0 else block[1])
    grid = w.float().reshape(N // rows, rows, K // cols, cols)
    scale = (grid.abs().amax((1, 3)) / 448).clamp(min=1e-8)
    wide = scale[:, None, :, None]
    q = (grid / wide).to(torch.float8_e4m3fn)
    return {"weight": q.reshape(N, K), suffix: scale}, (q.float() * wide).reshape(N, K).to(w.dtype)


def from_compressor(w, compressor, args, scale, **more):
    from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
    scheme = QuantizationScheme(targets=["Linear"], weights=QuantizationArgs(**args))
    packed = compressor.compress({"weight": w, "weight_scale": scale, **more}, scheme)
    return packed, compressor.decompress(packed, scheme)["weight"].to(w.dtype)


def w8a16(w):
    from compressed_tensors.compressors.pack_quantized.base import PackedQuantizationCompressor
    scale = (w.float().abs().amax(1, keepdim=True) / 127).clamp(min=1e-6).to(w.dtype)
    return from_compressor(w, PackedQuantizationCompressor,
                           {"num_bits": 8, "symmetric": True, "type": "int", "strategy": "channel"}, scale)


def mxfp4(w):
    from compressed_tensors.compressors.mxfp4.base import MXFP4PackedCompressor
    most = w.float().reshape(w.shape[0], -1, 32).abs().amax(-1).clamp(min=1e-6)
    scale = (2.0 ** torch.ceil(torch.log2(most / 6))).to(torch.bfloat16)
    return from_compressor(w.bfloat16(), MXFP4PackedCompressor, {"num_bits": 4, "symmetric": True, "type": "float",
                                                                 "strategy": "group", "group_size": 32}, scale)


E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


def nvfp4(w):
    from compressed_tensors.compressors.nvfp4.base import NVFP4PackedCompressor
    most = w.float().reshape(w.shape[0], -1, 16).abs().amax(-1).clamp(min=1e-6)
    whole = (448 * 6 / most.max()).reshape(1)
    scale = (most / 6 * whole).to(torch.float8_e4m3fn).float()
    parts, rounded = from_compressor(w.bfloat16(), NVFP4PackedCompressor,
                                     {"num_bits": 4, "symmetric": True, "type": "float", "strategy": "tensor_group",
                                      "group_size": 16}, scale, weight_global_scale=whole)
    # The compressor rounds its numbers to bf16. These are what it rounds; fovea rounds them to the weights' own type.
    codes = torch.stack([parts["weight_packed"] & 15, parts["weight_packed"] >> 4], -1).reshape(w.shape).long()
    scales = parts["weight_scale"].float() / parts["weight_global_scale"].float()
    numbers = E2M1[codes] * scales.repeat_interleave(16, 1)
    assert torch.equal(numbers.bfloat16(), rounded)
    return parts, numbers.to(w.dtype)


def bnb4(w, double):
    import bitsandbytes.functional as f
    packed, state = f.quantize_4bit(w, blocksize=64, compress_statistics=double, quant_type="nf4")
    parts = {f"weight.{key}": value for key, value in state.as_dict(packed=True).items()}
    return {"weight": packed, **parts}, f.dequantize_4bit(packed, state).to(w.dtype)


def bnb8(w):
    import bitsandbytes.functional as f
    q, scb, _ = f.int8_vectorwise_quant(w.half())
    return {"weight": q, "SCB": scb}, f.int8_vectorwise_dequant(q, scb).to(w.dtype)


def scheme(**weights):
    return {"quant_method": "compressed-tensors", "config_groups": {"group_0": {
        "targets": ["Linear"], "weights": weights, "input_activations": None}}}


FLOAT8 = {"num_bits": 8, "type": "float", "symmetric": True}
BNB = {"quant_method": "bitsandbytes"}
FORMS = {
    "awq": (awq, {"quant_method": "awq", "bits": 4, "group_size": GROUP, "version": "gemm", "zero_point": True}),
    "gptq": (gptq, {"quant_method": "gptq", "bits": 4, "group_size": GROUP}),
    "gptq act-order": (lambda w: gptq(w, act_order=True),
                       {"quant_method": "gptq", "bits": 4, "group_size": GROUP, "desc_act": True}),
    "gptq v2": (lambda w: gptq(w, second=True), {"quant_method": "gptq", "checkpoint_format": "gptq_v2"}),
    "gptq 8 bits": (lambda w: gptq(w, 8, True), {"quant_method": "gptq", "bits": 8, "desc_act": True}),
    "fp8 in blocks": (lambda w: fp8(w, (32, 64), "weight_scale_inv"),
                      {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [32, 64]}),
    "fp8 per channel": (lambda w: fp8(w, (1, 0), "weight_scale"), scheme(**FLOAT8, strategy="channel")),
    "w8a16": (w8a16, scheme(num_bits=8, type="int", symmetric=True, strategy="channel")),
    "bitsandbytes nf4": (lambda w: bnb4(w, False), BNB),
    "bitsandbytes nf4, double": (lambda w: bnb4(w, True), BNB),
    "mxfp4": (mxfp4, scheme(num_bits=4, type="float", symmetric=True, strategy="group", group_size=32)),
    "nvfp4": (nvfp4, scheme(num_bits=4, type="float", symmetric=True, strategy="tensor_group", group_size=16)),
    "bitsandbytes int8": (bnb8, BNB),
}


def is_mixture(case):
    return case.name.rsplit("_", 1)[0] in MIXTURES


def fitted(case):
    """The case with sizes that all forms have, and weights in 16 bits."""
    config = json.loads(json.dumps(case.config))
    text = config.get("text_config", config)
    if is_mixture(case):
        text |= {"hidden_size": 128, "moe_intermediate_size": 192}
        for key in {"out_hidden_size"} & set(config["vision_config"]):
            config["vision_config"][key] = 128
        return dataclasses.replace(case, config=config, dtype="bf16" if case.dtype == "f32" else case.dtype,
                                   dialect="hub", options=())
    text |= {"hidden_size": 128, "intermediate_size": 192, "num_attention_heads": 4, "num_key_value_heads": 2,
             "head_dim": 32}
    return dataclasses.replace(case, config=config, dtype="bf16" if case.dtype == "f32" else case.dtype, shards=1,
                               dialect="hub" if case.has_vision else "original", options=())


def of_experts(name, w, d):
    """The matrices of experts that a tensor has: (name of X.weight, [out, in], where its numbers belong)."""
    found = TOGETHER.match(name)
    if not found:
        yield name, w, lambda whole, number: number
        return
    turned = w.shape[1 if found[2] == "gate_up" else 2] == d  # [E, in, out]
    for e in range(len(w)):
        matrix = w[e].t() if turned else w[e]
        half = len(matrix) // 2
        parts = {"gate": slice(0, half), "up": slice(half, None)} if found[2] == "gate_up" else {"down": slice(None)}
        for part, rows in parts.items():
            def put(whole, number, e=e, rows=rows):
                (whole[e].t() if turned else whole[e])[rows] = number
                return whole
            yield f"{found[1]}.{e}.{part}_proj.weight", matrix[rows].contiguous(), put


def quantized(checkpoint, form, packed, dense, mixture):
    """Writes the two folders; returns how many weights are packed."""
    quantize, config = FORMS[form]
    shutil.copytree(checkpoint, packed)
    shutil.copytree(checkpoint, dense)
    weights = load_file(checkpoint / "model.safetensors")
    stored, numbers, n = {}, dict(weights), 0
    for name, w in weights.items():
        if "vision" in name or not (re.search(r"\.experts\.", name) if mixture else LINEAR.search(name)):
            stored[name] = w
            continue
        numbers[name] = w.clone()
        for own, matrix, put in of_experts(name, w, 128):
            parts, number = quantize(matrix)
            numbers[name] = put(numbers[name], number)
            stored |= {own[:-len("weight")] + key: t.contiguous() for key, t in parts.items()}
            n += 1
    save_file(stored, packed / "model.safetensors", {"format": "pt"})
    save_file({k: v.contiguous() for k, v in numbers.items()}, dense / "model.safetensors", {"format": "pt"})
    path = packed / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"quantization_config": config}))
    return n


def run_case(case, form, program, directory):
    import reference
    images = put_images(case, directory)
    checkpoint, packed, dense = (directory / name for name in ("checkpoint", "packed", "dense"))
    program.synth(case, checkpoint)
    n = quantized(checkpoint, form, packed, dense, is_mixture(case))
    dense_options = dataclasses.replace(case, options=("--weights", "dequantized"))
    ours = program.trace(dense_options, packed, images, directory / "exact", N_TOKENS)
    ref = reference.Reference(dense, case.has_vision)
    theirs = ref.run(case, images, N_TOKENS, forced=ours["tokens"], directory=directory)
    result = compare.compare(ours, theirs, ref.n_vocab)
    errors = []
    for options, bound in BOUNDS.items():
        how = dataclasses.replace(case, options=options)
        trace = program.trace(how, packed, images, directory / "-".join(("packed", *options)), 1)
        errors.append(compare.relative_max(trace["logits"][0], theirs["logits"][0]))
        if not errors[-1] < bound:
            result.wrong.append(f"packed {' '.join(options)}: error of the logits {errors[-1]:.1e}, at most {bound:.1e}")
    return result, errors, n


def main():
    p = argparse.ArgumentParser()
    p.add_argument("program")
    p.add_argument("--networks", type=int, default=3)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--form", choices=sorted(FORMS))
    args = p.parse_args()
    import reference
    reference.setup(2)
    program, failed = engine.Engine(args.program), 0
    for form in [args.form] if args.form else FORMS:
        drawn = cases.make_cases(args.networks, args.seed) + cases.make_text_cases(1, args.seed)
        if form in OF_MIXTURES:
            drawn += [case for case in families.make_family_cases(1, args.seed) if is_mixture(case)]
        dense, packed = 0.0, [0.0, 0.0]
        for i, case in enumerate(drawn):
            torch.manual_seed(args.seed * 100 + i)
            with tempfile.TemporaryDirectory() as name:
                result, errors, n = run_case(fitted(case), form, program, pathlib.Path(name))
            dense, packed = max(dense, result.logits_max), [max(pair) for pair in zip(packed, errors)]
            failed += bool(result.wrong)
            for sentence in result.wrong:
                print(f"    {form}, {case.name}: {sentence}", flush=True)
        print(f"{form:25} {len(drawn)} networks, {n} weights in the last: logits {dense:.1e}, packed {packed[0]:.1e}, "
              f"exact {packed[1]:.1e}",
              flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
