"""fovea against PyTorch with transformers and against llama.cpp, on the same random text models, by class of precision.

    bench/run engines [--shape NAME:LAYERS] [--rounds N] [--prompt N] [--tokens N] [--limit S]

One prompt is read (prefill), then --tokens steps are taken by 1 and by 16 sequences that each hold a copy of it. In each
round all engines run in turn; ratios are those of one round, against the fastest peer of the stage, and their median,
lowest and highest are shown. Before, between and after the engines of a round the machine is measured (bench_machine):
where reading memory was more than 15 % slower at one time than at another, the round is repeated, up to twice as many
rounds as asked for; then the steadiest count, and the output says so. Decode shows bytes that fovea's steps read
(weights with scales, output head, keys and values) per second, as a part of the best reading of the round.

An engine that the fastest peer beats by more than 1.5x in every stage of the first round is not asked again. Of PyTorch:
eager, and compiled with freezing (decode with a static cache; a prompt is compiled too). llama.cpp is built from the
source of PyPI's llama-cpp-python; its weights are quantized by gguf-py from the same numbers, in int4 with the output
head in Q8_0 as fovea's; those in int8 and int4 also run with --no-repack, which leaves AMX out. Weights are in memory
before anything is timed. Keys and values have 16 bits in all, but in PyTorch the type of the weights. Each engine is a
process of its own: what one cannot do, what crashes, and what takes longer than --limit to start or for a round, the
table says, and it is not asked again.

Needs .venv (./dev parity) and PyPI. Run it on a machine that does nothing else.
"""
import argparse
import json
import os
import pathlib
import sys

from classes import CLASSES, ROOT, SCRATCH
from models import make_model
from programs import build_llama, fovea, llama
from pytorch import TorchEngine
from report import show
from rounds import measure, median_seconds

sys.path.insert(0, str(ROOT / "eval"))
import runs  # noqa: E402


def compare(where, precision, program, no_llama, o):
    """Opens the engines available for a class and measures them."""
    made, why, torches = {"fovea": lambda: fovea(where, precision, o)}, {}, {}
    if no_llama:
        why["llama.cpp"] = no_llama
    else:
        made["llama.cpp"] = lambda: llama(program, where, precision, o)
        if precision in ("int8", "int4"):
            made["llama.cpp --no-repack"] = lambda: llama(program, where, precision, o, "--no-repack")
    if o.no_torch:
        why["PyTorch"] = "--no-torch"
    elif CLASSES[precision][1]:
        for name, compiled in (("PyTorch eager", False), ("PyTorch compiled", True)):
            engine = TorchEngine(where, precision, compiled, o)
            if engine.why:
                why[name] = engine.why
            else:
                torches[name], made[name] = engine, engine.run

    def close(name):
        if name in torches:
            torches.pop(name).close()
    result = measure(made, o, close)
    for name in list(torches):
        close(name)
    result["not"] = {**why, **result["not"]}
    return result


def options():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--shape", action="append", help="of fovea synth, NAME:LAYERS; default small:0 and llava-1.5-7b:2")
    p.add_argument("--classes", default=",".join(CLASSES))
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--prompt", type=int, default=640)
    p.add_argument("--tokens", type=int, default=32)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--limit", type=int, default=300, help="seconds to start an engine, and of a round of it")
    p.add_argument("--build-limit", type=int, default=1800, help="seconds to build llama.cpp")
    p.add_argument("--no-llama", action="store_true")
    p.add_argument("--no-torch", action="store_true")
    p.add_argument("--json", type=pathlib.Path, help="everything measured: samples, ceilings, which rounds count")
    return p.parse_args()


def main():
    o = options()
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    SCRATCH.mkdir(parents=True, exist_ok=True)
    program, no_llama = (None, "--no-llama") if o.no_llama else build_llama(o)
    o.commit = None
    result = dict(runs.stamp(o, [ROOT / "bench/results"]), prompt=o.prompt, tokens=o.tokens, threads=o.threads,
                  rounds=o.rounds, models={})
    for shape in o.shape or ("small:0", "llava-1.5-7b:2"):
        name, layers = shape.split(":")
        where = make_model(name, int(layers))
        print(f"{shape}: {o.prompt} tokens in, {o.tokens} out, {o.threads} threads, {o.rounds} rounds", flush=True)
        one = result["models"][shape] = {}
        for precision in o.classes.split(","):
            one[precision] = compare(where, precision, program, no_llama, o)
            show(precision, one[precision], o)
            if o.json:  # after each class: the run may be stopped before the last
                o.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
        prefill = {c: median_seconds(r, "fovea", "prefill") for c, r in one.items()}
        for c in ("int8", "int4"):
            if c in prefill and "bf16" in prefill:
                print(f"  {c} prefill is {prefill['bf16'] / prefill[c]:.2f}x our bf16 (aim {1.3 if c == 'int8' else 0.9}x)")


if __name__ == "__main__":
    main()
