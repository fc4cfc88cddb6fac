#!/usr/bin/env python3
"""Compares fovea with Hugging Face transformers, stage by stage, on random small networks.

    run.py                     36 LLaVA networks of `fovea synth`, 40 text models, 12 whose attention
                               slides, 12 networks of each other family, checkpoints that transformers wrote,
                               and the scripts beside this one: tokenizers, pictures, methods
    run.py --answers 500       items of the evaluation: greedy answers of checkpoints/nano
    run.py --bf16 30           errors of computing in bf16, ours and transformers' (precision.py)
    run.py --llama-cpp DIR     vision models as this checkout's converter writes them in GGUF (gguf_live.py)
    run.py --methods           the compression methods in NumPy alone (methods/goldens.py)
    run.py --write-golden      writes tests/golden/engine again, for tests/unit/prefill-worker/job/test_golden.c

For each network: the prompt's ids and the pixel values must be equal, the tower's output and the
projected rows within 2e-5 (relative L2), the logits of 16 greedy steps within 1e-4 (greatest
difference over greatest value), the 16 tokens equal. transformers computes in float32 whatever
the weights are stored as. Ends with 1 when anything differs.
"""
import argparse
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import traceback

import cases
import compare
import engine
import internvl_chat

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
N_TOKENS = 16
METHODS = "compression methods in NumPy"


def put_images(case, directory):
    directory.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, data in case.images:
        paths.append(directory / name)
        paths[-1].write_bytes(data)
    if getattr(case, "video", None):
        (directory / case.video[0]).write_bytes(case.video[1])
    return paths


def put_checkpoints(case, program, directory):
    """Writes the case's checkpoint; returns the folders that fovea and transformers read."""
    import reference
    ours = directory / "checkpoint"
    if hasattr(case, "write"):
        case.write(ours)
        return ours, ours
    program.synth(case, ours)
    if case.config["model_type"] == "shieldgemma2":
        return ours, as_gemma3(ours, directory / "checkpoint_gemma3")
    if case.config["model_type"] == "internvl_chat":
        return ours, internvl_chat.convert(ours, directory / "checkpoint_internvl")
    kind = "llava" if case.has_vision else "text"
    if case.dialect in reference.LOADABLE[kind]:
        return ours, ours
    theirs = directory / "checkpoint_hub"
    program.synth(case, theirs, dialect="hub")
    return ours, theirs


def as_gemma3(checkpoint, directory):
    """The network that ShieldGemma 2's class has in it, which by itself says more than Yes and No."""
    shutil.copytree(checkpoint, directory)
    path = directory / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(config | {"model_type": "gemma3", "architectures": ["Gemma3ForConditionalGeneration"]}))
    return directory


def reference_of(case, directory):
    import mobilevlm
    import reference
    if getattr(case, "config", {}).get("model_type") == "mobilevlm":
        return mobilevlm.Reference(directory)
    return reference.Reference(directory, case.has_vision)


def run_case(case, program, directory):
    images = put_images(case, directory)
    our_dir, their_dir = put_checkpoints(case, program, directory)
    ours = program.trace(case, our_dir, images, directory / "trace", N_TOKENS)
    ref = reference_of(case, their_dir)
    theirs = ref.run(case, images, N_TOKENS, forced=ours["tokens"], directory=directory)
    return compare.compare(ours, theirs, ref.n_vocab)


def show(case, result, seconds):
    def number(x):
        return f"{x:.1e}" if x is not None else "      -"
    word = "FAIL" if result.wrong else "ok"
    tie = f" {result.ties} tie{'s' if result.ties > 1 else ''}" if result.ties else ""
    print(f"{case.name:14} {word:4} vision {number(result.vision)}  embeds {number(result.embeds)}"
          f"  logits {number(result.logits_max)}  tokens {result.tokens_equal}/{result.n_tokens}"
          f"{tie}  {seconds:.1f} s  {case.about}", flush=True)
    for sentence in result.wrong:
        print(f"    {sentence}", flush=True)


def run_cases(all_cases, program, directory):
    results = []
    for case in all_cases:
        begin = time.monotonic()
        try:
            result = run_case(case, program, directory / case.name)
        except Exception as e:  # one case that breaks must not hide the others
            result = compare.Result(wrong=[f"{type(e).__name__}: {e}"])
            if not isinstance(e, engine.EngineError):
                traceback.print_exc()
        show(case, result, time.monotonic() - begin)
        results.append((case, result))
    return results


def worst(results, field):
    values = [getattr(r, field) for _, r in results if getattr(r, field) is not None]
    return max(values, default=0.0)


def agreeing(results, *stages):
    """How many requests ran and had nothing wrong in these stages, as "n/m"."""
    ran = [r for _, r in results if r.n_tokens]
    good = [r for r in ran if not any(w.startswith(stages) for w in r.wrong)]
    return f"{len(good)}/{len(ran)}"


def print_table(results, scripts, seconds):
    def row(name, count, text):
        print(f"  {name:34} {count:>9}  {text}")
    with_vision = [(c, r) for c, r in results if r.vision is not None]
    failed = [c.name for c, r in results if r.wrong]
    steps = sum(r.n_tokens for _, r in results)
    ties = sum(r.ties for _, r in results)
    print("\ncompared with transformers                equal  worst")
    row("checkpoints", f"{len(results) - len(failed)}/{len(results)}", "all of what follows")
    row("prompt text and ids", agreeing(results, "prompt", "input_ids"), "must be equal")
    row("pixel values", agreeing(with_vision, "pixel_values"), "must be equal bit for bit")
    if any(r.torchvision is not None for _, r in results):
        row("pixel values of videos", "", f"torchvision's, the default, differ by {worst(results, 'torchvision'):.1e}")
    row("tower output", agreeing(with_vision, "vision_features"),
        f"{worst(results, 'vision'):.1e} relative L2, limit {compare.ROWS_LIMIT:.0e}")
    row("projected rows", agreeing(with_vision, "image_embeds"),
        f"{worst(results, 'embeds'):.1e} relative L2, limit {compare.ROWS_LIMIT:.0e}")
    row(f"logits of {steps} steps", agreeing(results, "logits"),
        f"{worst(results, 'logits_max'):.1e} of the greatest, limit {compare.LOGITS_LIMIT:.0e}; "
        f"{worst(results, 'logits_l2'):.1e} relative L2")
    row("greedy tokens", f"{sum(r.tokens_equal for _, r in results)}/{steps}",
        f"{ties} ties: two logits within {compare.TIE:.0e}")
    routed, close = sum(r.routed for _, r in results), sum(r.close for _, r in results)
    if routed:
        row("choices of experts", f"{routed - close}/{routed}", "the others too close to tell, and their networks left out")
    row("text of the answer", agreeing(results, "answer"), "must be equal")
    for name, ok in scripts:
        row(name, "ok" if ok else "FAIL", "")
    print(f"{seconds:.0f} s" + (f"; FAILED: {', '.join(failed)}" if failed else ""))


# ---- the scripts beside this one -----------------------------------------------------------

def run_scripts(tests, seed, only=None):
    """Live modes of the other scripts; each prints its own findings."""
    commands = {"tokenizers, 3000 new strings":
                ["tokenizer_golden.py", "--live", "3000", tests / "unit_text",
                 "--seed", seed],
                "SentencePiece models, 6000 texts":
                ["tokenizer_files_golden.py", "--live", "6000", "--seed", seed, tests / "unit_text"],
                "conversations, 600 new ones through 28 chat templates":
                ["jinja_golden.py", "--live", "600", "--seed", seed, tests / "unit_text"],
                "200 chats as clients send them through 28 chat templates":
                ["chat_live.py", "--seed", seed, tests / "chat_render"],
                "pictures, 150 new ones":
                ["image_golden.py", "--live", "150", "--seed", seed, tests / "image_dump"],
                "images of all formats and orientations, 150 new ones":
                ["image_formats.py", "--live", "150", "--seed", seed, tests / "image_dump"],
                "layouts of 10 checkpoints, 1000 images each, and 1000 small ones with pixels":
                ["layout_golden.py", "--live", "1000", "--seed", seed, tests / "image_dump"],
                "weights of compressed-tensors": ["compressed_golden.py", "--check"],
                "weights in other programs' forms": ["stored_golden.py", "--check"],
                "networks in other programs' forms":
                ["stored_live.py", tests.parent / "bin/fovea", "--seed", seed],
                "networks in Mistral's own layout":
                ["mistral_live.py", tests.parent / "bin/fovea", "--seed", seed],
                "blocks of GGUF": ["gguf_golden.py", "--check"],
                "LoRA adapters of PEFT": ["adapters.py", tests.parent / "bin" / "fovea"],
                METHODS: ["methods/goldens.py"]}
    done = []
    for name, (script, *arguments) in commands.items():
        if only and name != only:
            continue
        missing = [str(p) for p in (HERE / script, *(a for a in arguments if "/" in str(a)))
                   if not pathlib.Path(p).exists()]
        if missing:
            print(f"skip: {name}: there is no {missing[0]}")
            continue
        print(f"== {script}", flush=True)
        code = subprocess.run([sys.executable, HERE / script, *map(str, arguments)],
                              check=False).returncode
        done.append((name, code == 0))
    return done


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("--configs", type=int, default=36, help="random networks (default 36)")
    p.add_argument("--seed", type=int, default=1, help="of the networks (default 1)")
    p.add_argument("--bin", type=pathlib.Path, default=ROOT / "build" / "cpu" / "bin" / "fovea")
    p.add_argument("--only", help="run this case, or those of this family; with --write-golden, those that begin so")
    p.add_argument("--keep", type=pathlib.Path, help="leave checkpoints and results there")
    p.add_argument("--threads", type=int, default=2, help="of PyTorch (default 2)")
    p.add_argument("--answers", type=int, metavar="N", help="compare answers to N items of the evaluation")
    p.add_argument("--bf16", type=int, metavar="N", help="compare errors of bf16 on N networks")
    p.add_argument("--llama-cpp", type=pathlib.Path, metavar="DIR", help="compare answers from its converter's GGUF files")
    p.add_argument("--methods", action="store_true", help="compare the methods' renderings alone")
    p.add_argument("--write-golden", action="store_true", help="write tests/golden/engine")
    a = p.parse_args()
    if not a.bin.exists():
        p.error(f"there is no {a.bin}; `./dev build` makes it")
    tests = a.bin.resolve().parents[1] / "tests"
    if a.methods:
        return 0 if all(ok for _, ok in run_scripts(tests, a.seed, METHODS)) else 1

    if a.llama_cpp:
        return subprocess.run([sys.executable, HERE / "gguf_live.py", a.llama_cpp, "--bin", a.bin],
                              check=False).returncode

    begin = time.monotonic()
    import families
    import reference
    import written
    reference.setup(a.threads)
    program = engine.Engine(a.bin)
    with tempfile.TemporaryDirectory() as scratch:
        directory = a.keep or pathlib.Path(scratch)
        if a.write_golden:
            import golden
            return golden.write(program, directory, a.only or "")
        if a.answers:
            import answers
            return 0 if answers.run(program, a.answers, directory / "eval") else 1
        if a.bf16:
            import precision
            return 0 if precision.run(program, a.bf16, a.seed, directory) else 1
        chosen = (cases.make_cases(a.configs, a.seed) + cases.make_text_cases(40, a.seed)
                  + cases.make_sliding_cases(12, a.seed)
                  + cases.make_gemma_text_cases(12, a.seed) + cases.make_gemma4_text_cases(12, a.seed) + cases.make_small_text_cases(12, a.seed)
                  + families.make_family_cases(12, a.seed) + written.make_written())
        if a.only:
            chosen = [c for c in chosen if a.only in (c.name, c.name.rpartition("_")[0])]
        for case in chosen:
            shutil.rmtree(directory / case.name, ignore_errors=True)
        results = run_cases(chosen, program, directory)
    scripts = [] if a.only else run_scripts(tests, a.seed)
    print_table(results, scripts, time.monotonic() - begin)
    unclear = sum(r.close for _, r in results) > 0.01 * sum(r.routed for _, r in results)
    return 1 if unclear or any(r.wrong for _, r in results) or not all(ok for _, ok in scripts) else 0


if __name__ == "__main__":
    sys.exit(main())
