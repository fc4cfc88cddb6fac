"""Files as other programs quantize them beside our own forms of the same weights, and llama.cpp on one of them.

    bench/run quantized [--layers N] [--rounds N] [--prompt N] [--tokens N] [--llama]

A random text model of width 2048, with a small vocabulary so that its output head counts as little as in a large model, is
written in bf16, and packed as AWQ, GPTQ (4 and 8 bits, groups of 128), FP8 (blocks of 128 x 128) and
GGUF's Q4_K. In each round bench_engine reads a prompt and decodes with one sequence, once with each form and with
--weights int4, int8 and bf16 on the original, on one thread: the times are CPU time, which hardly depends on what else the
machine does. A ratio is that of a round's own times against the form of the same bits, and the median of the rounds is
shown with the lowest and highest. With --exact the files' products are also measured as --weights exact decodes them. With
--llama, llama.cpp (built from the source of PyPI's llama-cpp-python) runs the same Q4_K file; its time is wall time.

Needs .venv (./dev parity).
"""
import argparse
import json
import pathlib
import shutil
import statistics
import subprocess
import sys

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests/parity"), str(ROOT / "bench/compare_engines")]
import stored_live  # noqa: E402

BIN, SCRATCH = ROOT / "build/cpu/bin", ROOT / "build/bench/quantized"
SHAPE = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 2048, "intermediate_size": 5632,
         "num_attention_heads": 16, "num_key_value_heads": 16, "vocab_size": 4096, "max_position_embeddings": 4096,
         "tie_word_embeddings": False}
FILES = {"awq": "int4", "gptq": "int4", "gptq-8": "int8", "fp8": "int8"}  # and what each is beside
CONFIGS = {"awq": {"quant_method": "awq", "bits": 4, "group_size": 128, "version": "gemm", "zero_point": True},
           "gptq": {"quant_method": "gptq", "bits": 4, "group_size": 128, "checkpoint_format": "gptq_v2"},
           "gptq-8": {"quant_method": "gptq", "bits": 8, "group_size": 128, "checkpoint_format": "gptq_v2"},
           "fp8": {"quant_method": "fp8", "weight_block_size": [128, 128]}}
PACK = {"awq": stored_live.awq, "gptq": lambda w: stored_live.gptq(w, second=True),
        "gptq-8": lambda w: stored_live.gptq(w, 8, second=True),
        "fp8": lambda w: stored_live.fp8(w, (128, 128), "weight_scale_inv")}


def packed(source, form):
    """The checkpoint with the linear layers of its layers in the form; scales are f16, as files have them."""
    from safetensors.torch import load_file, save_file
    to = SCRATCH / f"{source.name}-{form}"
    if (to / "config.json").exists():
        return to
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(source, to, ignore=shutil.ignore_patterns("config.json", "*.safetensors"))
    stored_live.GROUP = 128
    out = {}
    for name, w in load_file(source / "model.safetensors").items():
        if not stored_live.LINEAR.search(name):
            out[name] = w
            continue
        parts, _ = PACK[form](w.half() if form != "fp8" else w)
        out |= {name.removesuffix("weight") + key: t.contiguous() for key, t in parts.items() if key != "g_idx"}
    save_file(out, to / "model.safetensors", {"format": "pt"})
    config = json.loads((source / "config.json").read_text())
    (to / "config.json").write_text(json.dumps(config | {"quantization_config": CONFIGS[form]}))
    return to


def six_bits(x, most):
    return np.clip(np.rint(x / np.where(most > 0, most, 1) * 63), 0, 63).astype(np.uint8)


def q4_k(w):
    """Blocks of Q4_K [N, K / 256, 144] of a matrix: eight groups of 32 with a scale and a min of 6 bits each."""
    x = w.astype(np.float32).reshape(-1, 8, 32)
    low, high = np.minimum(x.min(-1), 0), x.max(-1)
    scale, least = (high - low) / 15, -low
    d, m = (v.max(-1, keepdims=True) for v in (scale, least))
    s6, m6 = six_bits(scale, d), six_bits(least, m)
    d16, m16 = (d / 63).astype(np.float16), (m / 63).astype(np.float16)
    step = d16.astype(np.float32) * s6
    q = np.rint((x + (m16.astype(np.float32) * m6)[..., None]) / np.where(step > 0, step, 1)[..., None])
    q = np.clip(q, 0, 15).astype(np.uint8).reshape(-1, 4, 2, 32)
    codes = (q[:, :, 0] | q[:, :, 1] << 4).reshape(-1, 128)
    first = np.concatenate([s6[:, :4] | s6[:, 4:] >> 4 << 6, m6[:, :4] | m6[:, 4:] >> 4 << 6], 1)
    scales = np.concatenate([first, s6[:, 4:] & 15 | (m6[:, 4:] & 15) << 4], 1)
    block = np.concatenate([d16.view(np.uint8), m16.view(np.uint8), scales, codes], 1)
    return block.reshape(w.shape[0], -1)


def gguf_of(source):
    """The checkpoint as a GGUF file: matrices of layers in Q4_K, embedding and head in Q8_0."""
    import gguf
    import models
    to = SCRATCH / f"{source.name}.Q4_K.gguf"
    quantize = gguf.quants.quantize

    def quantized(w, kind):
        return q4_k(w) if kind == gguf.GGMLQuantizationType.Q4_K else quantize(w, kind)

    gguf.quants.quantize = quantized
    models.write_gguf(source, to, "Q4_K", "Q8_0")
    gguf.quants.quantize = quantize
    return to


def run(checkpoint, weights, o):
    out = SCRATCH / "run.json"
    subprocess.run([BIN / "bench_engine", "--checkpoint", checkpoint, "--prompt", str(o.prompt), "--tokens", str(o.tokens),
                    "--batch", "1", "--threads", "1", "--compute", "bf16", "--weights", weights, "--json", out],
                   check=True, stdout=subprocess.DEVNULL)
    found = json.loads(out.read_text())
    return {"prefill": found["prefill_cpu"] / o.prompt, "decode": found["decode_cpu"]["1"] / o.tokens,
            "bytes": found["weight_bytes"]}


def llama(file, o):
    """Seconds per token of llama.cpp, or why not."""
    import programs
    program, why = programs.build_llama(argparse.Namespace(build_limit=3600))
    if why:
        return why
    printed, why = programs.run_for(600, program, "-m", file, "-c", "4096", "-npp", str(o.prompt), "-ntg", str(o.tokens), "-npl",
                                    "1", "-t", "1", "-tb", "1", "--output-format", "jsonl")
    rows = [json.loads(line) for line in (printed or "").splitlines() if line.startswith("{")]
    return why or {"prefill": rows[0]["t_pp"] / o.prompt, "decode": rows[0]["t_tg"] / o.tokens, "bytes": 0}


def measure(o):
    source, config = SCRATCH / f"{o.layers}-layers", SCRATCH / "shape.json"
    if not (source / "config.json").exists():
        config.write_text(json.dumps(SHAPE | {"num_hidden_layers": o.layers}))
        subprocess.run([BIN / "fovea", "synth", "--config", config, "--dtype", "bf16", "--seed", "1", "--dialect", "original",
                        "--out", source], check=True, stdout=subprocess.DEVNULL)
    runs = {"int4": (source, "int4"), "int8": (source, "int8"), "bf16": (source, "stored")}
    pairs = {"bf16": "int8"}
    for form, beside in FILES.items():
        runs[form], pairs[form] = (packed(source, form), "stored"), beside
    runs["Q4_K"], pairs["Q4_K"] = (gguf_of(source), "stored"), "int4"
    if o.exact:
        for name in ("awq", "gptq-8", "Q4_K"):
            runs[f"{name} exact"], pairs[f"{name} exact"] = (runs[name][0], "exact"), pairs[name]
    rounds = []
    for i in range(o.rounds):
        names = list(runs)[i % len(runs):] + list(runs)[:i % len(runs)]
        rounds.append({name: run(*runs[name], o) for name in names})
        if o.llama:
            found = llama(runs["Q4_K"][0], o)
            if isinstance(found, str):
                print(f"llama.cpp: {found}", flush=True)
                o.llama = False
            else:
                rounds[-1]["llama.cpp Q4_K"] = found
                pairs["llama.cpp Q4_K"] = "Q4_K"
    return rounds, pairs


def show(rounds, pairs):
    names = [name for name in rounds[0] if all(name in r for r in rounds)]
    print(f"{'form':16}{'ms a token: prefill':>20}{'decode':>9}{'MB read':>9}  beside  speed of prefill       decode")
    for name in names:
        ms = {s: 1e3 * statistics.median(r[name][s] for r in rounds) for s in ("prefill", "decode")}
        line = f"{name:16}{ms['prefill']:20.2f}{ms['decode']:9.2f}{rounds[0][name]['bytes'] / 1e6:9.0f}"
        if name in pairs:
            line += f"  {pairs[name]:6}"
            for stage in ("prefill", "decode"):
                ratios = sorted(r[pairs[name]][stage] / r[name][stage] for r in rounds)
                line += f"  {statistics.median(ratios):5.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
        print(line)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--layers", type=int, default=8)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--prompt", type=int, default=320)
    p.add_argument("--tokens", type=int, default=32)
    p.add_argument("--exact", action="store_true")
    p.add_argument("--llama", action="store_true")
    o = p.parse_args()
    SCRATCH.mkdir(parents=True, exist_ok=True)
    show(*measure(o))


if __name__ == "__main__":
    main()
