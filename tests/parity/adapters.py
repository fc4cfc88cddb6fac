#!/usr/bin/env python3
"""LoRA adapters: fovea's logits and tokens against PEFT's, on random networks and random adapters.

    adapters.py                   two networks of each kind, an adapter each
    adapters.py --write-golden    writes tests/golden/engine/lora_* again

Ranks and scales differ from module to module (rank_pattern, alpha_pattern, use_rslora); the modules are given by a list
of names or by an expression. transformers and PEFT compute in float32. The limits are those of run.py.
"""
import argparse
import copy
import json
import pathlib
import random
import re
import shutil
import sys
import tempfile
import time

import peft
import torch

import cases
import compare
import engine
import families
import golden
import reference
import run

SEED = 77


def linears(model):
    """Paths of the linear layers of the text model's layers; experts have none."""
    at = re.compile(r"(?:^|\.)(?:language_model|text_model|model)\.layers\.\d+\.")
    return [name for name, m in model.named_modules()
            if isinstance(m, torch.nn.Linear) and at.search(name) and "vision" not in name and "visual" not in name]


def adapter_of(model, rng):
    """A configuration of some of the model's linear layers."""
    paths = linears(model)
    names = sorted({p.rpartition(".")[2] for p in paths})
    some = sorted(rng.sample(names, rng.randint(2, len(names))))
    plain = all(p.rpartition(".")[2] not in some or p in paths for p, _ in model.named_modules())
    # PEFT takes the first pattern that matches, and sorts them when it saves: no module may match two ranks.
    one = rng.choice([p for p in paths if p.rpartition(".")[2] in some[1:]])
    expression = r".*\.layers\.\d+\.(?:self_attn|linear_attn|mlp|mlp\.shared_experts?)\.(?:" + "|".join(some) + ")"
    if not plain:
        expression = r"(?:.*language_model|model\.text_model|.*\.language_model\.model)" + expression
    return peft.LoraConfig(
        r=rng.choice([2, 4, 7]), lora_alpha=rng.choice([3, 8, 16]), use_rslora=rng.random() < 0.4,
        target_modules=some if plain and rng.random() < 0.6 else expression,
        rank_pattern={some[0]: 5, one: 3} if rng.random() < 0.6 else {},
        alpha_pattern={r"layers\.[01]\.(self_attn|mlp)\." + some[-1]: 11, one: 2.5} if rng.random() < 0.6 else {},
        init_lora_weights=False, lora_dropout=0.1)


class Adapted:
    """Wraps a case: its checkpoint is made as usual, and its reference has the adapter."""

    def __init__(self, case, number):
        self.case, self.rng = case, random.Random(SEED * 1000 + number)

    def reference(self, theirs, directory):
        torch.manual_seed(self.rng.randrange(1 << 30))
        ref = run.reference_of(self.case, theirs)
        config = adapter_of(ref.model, self.rng)
        wrapped = peft.get_peft_model(ref.model, config)
        wrapped.eval()
        wrapped.save_pretrained(directory)
        return ref, config


def run_case(adapted, program, directory):
    case = adapted.case
    images = run.put_images(case, directory)
    ours, theirs = run.put_checkpoints(case, program, directory)
    ref, config = adapted.reference(theirs, directory / "adapter")
    case.options = (*case.options, "--adapter", f"lora={directory / 'adapter'}")
    made = program.trace(case, ours, images, directory / "trace", run.N_TOKENS)
    expected = ref.run(case, images, run.N_TOKENS, forced=made["tokens"], directory=directory)
    result = compare.compare(made, expected, ref.n_vocab)
    # An adapter that changed nothing would agree too.
    plain = program.trace(without_adapter(case), ours, images, directory / "plain", 1)
    if compare.relative_max(plain["logits"][0], made["logits"][0]) < 100 * compare.LOGITS_LIMIT:
        result.wrong.append("the adapter changes nothing")
    case.about = f"{'expression' if isinstance(config.target_modules, str) else 'list'}, {case.about}"
    return result


def without_adapter(case):
    other = copy.copy(case)
    other.options = case.options[:-2]
    return other


def chosen(n):
    wanted = ("qwen2_5_vl", "qwen3_vl", "gemma3", "llava_phi3", "qwen3_5", "qwen3_5_moe", "llava_next", "internvl",
              "idefics3", "mistral3", "gemma4", "glm4v", "glm4v_moe", "glm_ocr")
    of_families = [c for c in families.make_family_cases(n, SEED, pairs=False) if c.name.rpartition("_")[0] in wanted]
    all_cases = (cases.make_cases(n, SEED) + cases.make_text_cases(2 * n, SEED) + cases.make_sliding_cases(n, SEED)
                 + cases.make_gemma_text_cases(n, SEED) + cases.make_small_text_cases(n, SEED) + of_families)
    return [Adapted(c, i) for i, c in enumerate(all_cases)]


def write_golden(program, directory):
    reference.setup(1)
    keep = ("text_0", "text_1", "gemma3_text_0", "small_text_0", "qwen2_5_vl_0", "llava_phi3_0", "qwen3_5_0")
    for adapted in chosen(1):
        case, name = adapted.case, adapted.case.name
        if name not in keep:
            continue
        while True:
            shutil.rmtree(directory, ignore_errors=True)
            images = run.put_images(case, directory)
            ours, theirs = run.put_checkpoints(case, program, directory)
            ref, _ = adapted.reference(theirs, directory / "adapter")
            made = ref.run(case, images, run.N_TOKENS, directory=directory)
            made["by"] = f"peft {peft.__version__}"
            clear = golden.clear_winners(made, ref.n_vocab) and not made.get("close")
            if clear and "\0" not in made["answer"] and golden.well_conditioned(ref, case, images, directory, made):
                break
            case.seed += 1
        case.name = f"lora_{name}"
        shutil.rmtree(golden.GOLDEN / case.name, ignore_errors=True)
        golden.write_case(case, made, ours)
        folder = golden.GOLDEN / case.name / "adapter"
        folder.mkdir()
        shutil.copyfile(directory / "adapter/adapter_model.safetensors", folder / "adapter_model.safetensors")
        config = json.loads((directory / "adapter/adapter_config.json").read_text(encoding="utf-8"))
        config["base_model_name_or_path"] = None
        (folder / "adapter_config.json").write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")
        print(f"{case.name:20} {case.about}", flush=True)
    return 0


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("program", nargs="?", type=pathlib.Path, default=run.ROOT / "build/cpu/bin/fovea")
    p.add_argument("--count", type=int, default=2, help="networks of each kind (default 2)")
    p.add_argument("--only", default="", help="those whose names begin so")
    p.add_argument("--write-golden", action="store_true")
    a = p.parse_args()
    reference.setup(2)
    program = engine.Engine(a.program)
    wrong = 0
    with tempfile.TemporaryDirectory() as scratch:
        if a.write_golden:
            return write_golden(program, pathlib.Path(scratch) / "case")
        for adapted in chosen(a.count):
            if not adapted.case.name.startswith(a.only):
                continue
            begin = time.monotonic()
            try:
                result = run_case(adapted, program, pathlib.Path(scratch) / adapted.case.name)
            except engine.EngineError as e:
                result = compare.Result(wrong=[str(e)])
            run.show(adapted.case, result, time.monotonic() - begin)
            wrong += bool(result.wrong)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
