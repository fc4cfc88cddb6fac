#!/usr/bin/env python3
"""Times fovea against Hugging Face transformers: same weights, same machine, same threads.

    bench/compare_transformers.py                      the two networks of the published table
    bench/compare_transformers.py --shape tiny         another network of `fovea synth`

Both compute in float32 from a float32 checkpoint with random weights. One picture and 64 tokens
of text (640 rows in all, with 576 visual ones) go in, 32 tokens come out. Measured are:

    vision   tower and projector, from pixel values to rows of the text model
    prefill  the text model alone, from rows to the logits after the last one, keys and values kept
    decode   the text model, one token at a time

Each round runs fovea, then PyTorch with either of its attentions (sdpa, eager); rounds follow
each other, so that a slow minute of the machine meets all. Medians are compared; of PyTorch the
faster attention counts. PyTorch is warm when it is measured, with its weights in memory; fovea is
a new process each time, which maps its weights from the page cache within the measured time.
The time that either takes to start is not counted. Run it on a machine that does nothing else.
"""
import argparse
import json
import os
import pathlib
import platform
import shutil
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "parity"))

import reference  # import before transformers: it sets required environment variables
import torch
import transformers

ATTENTIONS = ("sdpa", "eager")
STAGES = ("vision", "prefill", "decode")
# (shape, text layers, tower layers); 0: all layers of the shape. The 7B shape is cut to fit into
# memory.
PUBLISHED = (("small", 0, 0), ("llava-1.5-7b", 2, 4))


# ---- input of both -------------------------------------------------------------------------

def make_checkpoint(program, directory, shape, layers, vision_layers):
    config = directory / "config.json"
    if not config.exists():
        subprocess.run([program, "synth", "--shape", shape, "--layers", str(layers),
                        "--vision-layers", str(vision_layers), "--dtype", "f32", "--seed", "1",
                        "--out", directory], check=True, stdout=subprocess.DEVNULL)
    return json.loads(config.read_text(encoding="utf-8"))


def make_prompt(n_text):
    """Returns a prompt with n_text tokens besides the image's: <s>, the space before the text, and
    digits; each digit is a token of the synthetic vocabulary."""
    return "<image>" + "".join(str(i % 10) for i in range(n_text - 2))


# ---- fovea ---------------------------------------------------------------------------------

# Started through a small process: until exec, a child's peak memory includes its parent's, and
# PyTorch is large.
LAUNCH = """import resource, subprocess, sys
code = subprocess.call(sys.argv[1:])
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, file=sys.stderr)
sys.exit(code)"""


def run_fovea(program, checkpoint, picture, prompt, n_tokens, threads):
    """Runs one request in a new process; returns report, tokens and the process's peak memory."""
    arguments = [program, "ask", "--checkpoint", checkpoint, "--image", picture, "--raw", "--json",
                 "--max-tokens", n_tokens, "--ignore-eos", "--temperature", 0, "--threads", threads,
                 prompt]
    env = {k: v for k, v in os.environ.items() if not k.startswith("FOVEA_")}
    done = subprocess.run([sys.executable, "-c", LAUNCH, *map(str, arguments)],
                          capture_output=True, text=True, env=env, check=False)
    if done.returncode != 0:
        raise SystemExit(f"fovea ended with {done.returncode}: {done.stderr}")
    answer = json.loads(done.stdout)
    return (answer["report"], [t["id"] for t in answer["tokens"]],
            int(done.stderr.split()[-1]) * 1024)


# ---- PyTorch -------------------------------------------------------------------------------

class Torch:
    def __init__(self, checkpoint, picture, prompt):
        self.ref = reference.Reference(checkpoint, has_vision=True)
        self.model = self.ref.model
        self.inputs = self.ref.inputs(prompt, [picture])
        self.n_rows = self.inputs["input_ids"].shape[1]

    @torch.inference_mode()
    def run(self, attention, n_tokens):
        """Returns the seconds of each stage, and the tokens."""
        model, text, ids = self.model, self.model.model.language_model, self.inputs["input_ids"]
        model.set_attn_implementation(attention)
        seconds = {}

        begin = time.perf_counter()
        images = model.get_image_features(self.inputs["pixel_values"], return_dict=True)
        rows = torch.cat(list(images.pooler_output))
        seconds["vision"] = time.perf_counter() - begin

        embeds = model.get_input_embeddings()(ids)
        mask = (ids == model.config.image_token_id).unsqueeze(-1)
        embeds = embeds.masked_scatter(mask, rows)

        begin = time.perf_counter()
        out = text(inputs_embeds=embeds, use_cache=True)
        logits = model.lm_head(out.last_hidden_state[:, -1])
        tokens = [int(logits[0, :self.ref.n_vocab].argmax())]
        seconds["prefill"] = time.perf_counter() - begin

        begin = time.perf_counter()
        while len(tokens) < n_tokens:
            out = text(input_ids=torch.tensor([[tokens[-1]]]), past_key_values=out.past_key_values,
                       use_cache=True)
            logits = model.lm_head(out.last_hidden_state[:, -1])
            tokens.append(int(logits[0, :self.ref.n_vocab].argmax()))
        seconds["decode"] = time.perf_counter() - begin
        return seconds, tokens


# ---- comparing -----------------------------------------------------------------------------

def measure(program, checkpoint, picture, a):
    prompt = make_prompt(a.text)
    other = Torch(checkpoint, picture, prompt)
    for attention in ATTENTIONS:
        other.run(attention, 2)  # warm-up: first runs are slow
    samples = {name: {stage: [] for stage in STAGES} for name in ("fovea", *ATTENTIONS)}
    peak, tokens = 0, {}
    for turn in range(a.rounds):
        time.sleep(0.5)  # PyTorch's threads spin for a moment
        report, tokens["fovea"], memory = run_fovea(program, checkpoint, picture, prompt, a.tokens,
                                                    a.threads)
        peak = max(peak, memory)
        seconds = {"fovea": report["seconds"]}
        if report["tokens"]["prompt"] != other.n_rows:
            raise SystemExit(f"the prompt has {report['tokens']['prompt']} rows here and "
                             f"{other.n_rows} there")
        for attention in ATTENTIONS:
            seconds[attention], tokens[attention] = other.run(attention, a.tokens)
        for name, measured in seconds.items():
            for stage in STAGES:
                samples[name][stage].append(measured[stage])
        print(f"  round {turn + 1} of {a.rounds}: " + ", ".join(
            f"{name} {measured['prefill']:.3f} s" for name, measured in seconds.items())
            + " for prefill", flush=True)
    bytes_ = report["bytes"]["resident_end"]
    weights = sum(f.stat().st_size for f in checkpoint.glob("*.safetensors"))
    return {"prompt_tokens": other.n_rows, "visual_tokens": report["tokens"]["visual"],
            "tokens": a.tokens, "tokens_equal": all(t == tokens["fovea"] for t in tokens.values()),
            "isa": report["isa"], "seconds": samples, "fovea_peak_bytes": peak,
            "weight_bytes": weights, "kv_bytes": bytes_["visual"] + bytes_["text"]}


def compare(result):
    """Returns medians, and fovea's speed relative to the faster attention of PyTorch."""
    median = {name: {stage: statistics.median(s) for stage, s in stages.items()}
              for name, stages in result["seconds"].items()}
    ratio, attention = {}, {}
    for stage in STAGES:
        attention[stage] = min(ATTENTIONS, key=lambda name: median[name][stage])
        ratio[stage] = median[attention[stage]][stage] / median["fovea"][stage]
    return {"median_seconds": median, "faster_attention": attention, "ratio": ratio}


def print_table(name, result):
    steps = result["tokens"] - 1
    print(f"\n{name}: {result['prompt_tokens']} prompt tokens ({result['visual_tokens']} visual), "
          f"{result['tokens']} tokens out, {result['isa']}")
    print(f"  {'':18}{'fovea':>9}{'transformers':>14}{'':8}{'ratio':>6}")
    for stage in STAGES:
        attention = result["faster_attention"][stage]
        ours, theirs = (result["median_seconds"][n][stage] for n in ("fovea", attention))
        what = f"{stage}, s"
        if stage == "decode":
            ours, theirs, what = steps / ours, steps / theirs, f"{stage}, tokens/s"
        print(f"  {what:18}{ours:9.3f}{theirs:14.3f}  {attention:6}{result['ratio'][stage]:6.2f}x")
    mib = 1 << 20
    print(f"  {'memory':18}{result['fovea_peak_bytes'] / mib:9.0f} MiB at most; weights "
          f"{result['weight_bytes'] / mib:.0f} MiB, KV {result['kv_bytes'] / mib:.0f} MiB")
    if not result["tokens_equal"]:
        print("  NOTE: the two chose different tokens")


def machine(threads):
    cpu = "unknown"
    for line in pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            cpu = line.split(":", 1)[1].strip()
            break
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, text=True,
                            capture_output=True, check=False).stdout.strip()
    return {"cpu": cpu, "cores": os.cpu_count(), "threads": threads, "kernel": platform.release(),
            "commit": commit or "unknown", "python": platform.python_version(),
            "torch": torch.__version__, "transformers": transformers.__version__,
            "time": time.strftime("%Y-%m-%dT%H:%MZ", time.gmtime())}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("--shape", help="of `fovea synth`; default: the published two")
    p.add_argument("--layers", type=int, default=0, help="text layers; 0: as the shape has")
    p.add_argument("--vision-layers", type=int, default=0, help="tower layers; likewise")
    p.add_argument("--rounds", type=int, default=7)
    p.add_argument("--threads", type=int, default=2, help="of both")
    p.add_argument("--text", type=int, default=64, help="text tokens beside the picture's")
    p.add_argument("--tokens", type=int, default=32, help="tokens to generate")
    p.add_argument("--bin", type=pathlib.Path, default=ROOT / "build" / "cpu" / "bin" / "fovea")
    p.add_argument("--scratch", type=pathlib.Path, default=ROOT / "build" / "bench",
                   help="where checkpoints are made; several GB, removed afterwards")
    p.add_argument("--out", type=pathlib.Path,
                   default=ROOT / "bench" / "results" / "compare_transformers.json")
    a = p.parse_args()
    if not a.bin.exists():
        p.error(f"there is no {a.bin}; `./dev build` makes it")
    reference.setup(a.threads)
    picture = ROOT / "tests" / "golden" / "demo.png"
    networks = [(a.shape, a.layers, a.vision_layers)] if a.shape else PUBLISHED
    results = {}
    for shape, layers, vision_layers in networks:
        checkpoint = a.scratch / "compare_transformers"
        shutil.rmtree(checkpoint, ignore_errors=True)
        config = make_checkpoint(a.bin, checkpoint, shape, layers, vision_layers)
        name = (f"{shape}, {config['text_config']['num_hidden_layers']} text and "
                f"{config['vision_config']['num_hidden_layers']} tower layers")
        print(f"== {name}", flush=True)
        results[name] = measure(a.bin, checkpoint, picture, a)
        results[name] |= compare(results[name])
        print_table(name, results[name])
        shutil.rmtree(checkpoint)
    a.out.parent.mkdir(parents=True, exist_ok=True)
    a.out.write_text(json.dumps({"machine": machine(a.threads), "networks": results}, indent=1)
                     + "\n", encoding="utf-8")
    print(f"\nnumbers are in {a.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
