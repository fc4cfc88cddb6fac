#!/usr/bin/env python3
"""GGUF files of vision models against transformers: llama.cpp's own converter writes a synthetic checkpoint's files,
fovea answers from them, and transformers from the checkpoint.

    gguf_live.py LLAMA_CPP [--only FAMILY] [--bin FOVEA]

Prompt ids, pixel values, tower output, projected rows, logits and tokens are compared as in run.py. LLAMA_CPP is a
checkout of llama.cpp.
"""
import argparse
import json
import pathlib
import random
import sys
import tempfile

import compare
import engine
import families
import gguf_vision
import reference
from cases import Case

HERE = pathlib.Path(__file__).resolve().parent
N_TOKENS = 12
# SmolVLM's files are read as Idefics3's, whose network it is; llava's have a processor of another kind.
FAMILIES = [f for f in gguf_vision.FAMILIES if f != "smolvlm"]
# Limits of the area, for which files have no keys.
AREAS = {"qwen2": (3136, 12845056), "qwen3": (65536, 16777216)}


def case_of(family, seed):
    config = json.loads((gguf_vision.GOLDEN / f"{family}.json").read_text())
    text = config.get("text_config", config)
    text["max_position_embeddings"] = 8192
    if family == "qwen3_vl_moe":
        text["moe_intermediate_size"] = 24  # transformers tells transposed matrices by their sizes
    image = families.IMAGE_TOKENS.get(family, "<image>")
    images = families.images_of(random.Random(seed), [(1.6, 1.1)], 64)
    return Case(name=family, about="", config=config, seed=seed, dialect="hub" if family != "internvl" else "v4.52",
                dtype="f32", shards=1, key_form="v4", prompt=f"A{image}B what is it?", images=images)


def set_areas(folder, family):
    """Writes the limits that published checkpoints have, which llama.cpp's files do not."""
    for name in ("preprocessor_config.json", "processor_config.json"):
        path = folder / name
        if family[:5] not in AREAS or not path.exists():
            continue
        config = json.loads(path.read_text())
        part = config.get("image_processor", config)
        if "size" in part:
            part["size"] = dict(zip(("shortest_edge", "longest_edge"), AREAS[family[:5]]))
        path.write_text(json.dumps(config))


def say_bos(folder):
    """Says whether the tokenizer puts BOS first, which llama.cpp otherwise assumes of SentencePiece."""
    path = folder / "tokenizer_config.json"
    adds = json.loads((folder / "tokenizer.json").read_text()).get("post_processor") is not None
    path.write_text(json.dumps(json.loads(path.read_text()) | {"add_bos_token": adds}))


def convert(a, folder, family, out):
    say_bos(folder)
    gguf_vision.name_classes(folder, family)
    gguf_vision.convert(a.llama_cpp, folder, out / "model.gguf", False, kind="f32")
    if family == "llava":
        gguf_vision.convert_llava(folder, out / "mmproj.gguf")
    else:
        gguf_vision.convert(a.llama_cpp, folder, out / "mmproj.gguf", True, kind="f32")


def round_as_files(folder, family):
    """Rounds to f16 what the converter stores so, whatever it is asked for."""
    from safetensors.torch import load_file, save_file
    if family not in ("gemma3", "llava"):
        return
    tensors = load_file(folder / "model.safetensors")
    for name, t in tensors.items():
        if "mm_input_projection" in name or (family == "llava" and t.ndim in (2, 4) and "language_model" not in name):
            tensors[name] = t.half().float()
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})


def run(a, program, family, directory):
    case = case_of(family, 7)
    folder, files = directory / "checkpoint", directory / "gguf"
    files.mkdir()
    paths = []
    for name, data in case.images:
        paths.append(directory / name)
        paths[-1].write_bytes(data)
    program.synth(case, folder)
    set_areas(folder, family)
    theirs_dir = directory / "theirs"
    program.synth(case, theirs_dir, dialect="hub")
    set_areas(theirs_dir, family)
    round_as_files(theirs_dir, family)
    if family.startswith("qwen3_5"):
        gguf_vision.add_mtp(folder)
    convert(a, folder, family, files)
    ours = program.trace(case, files, paths, directory / "trace", N_TOKENS)
    ref = reference.Reference(theirs_dir, True)
    theirs = ref.run(case, paths, N_TOKENS, forced=ours["tokens"], directory=directory)
    result = compare.compare(ours, theirs, ref.n_vocab)
    # Which tokens are special is not in these files, as the converter takes the tokenizers for SentencePiece.
    result.wrong = [w for w in result.wrong if not w.startswith("answer")]
    return result


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("llama_cpp", type=pathlib.Path)
    p.add_argument("--bin", type=pathlib.Path, default=gguf_vision.ROOT / "build/cpu/bin/fovea")
    p.add_argument("--only", help="this family")
    a = p.parse_args()
    reference.setup(2)
    program, bad = engine.Engine(a.bin), []
    for family in FAMILIES:
        if a.only and family != a.only:
            continue
        with tempfile.TemporaryDirectory() as scratch:
            result = run(a, program, family, pathlib.Path(scratch))
        print(f"{family:14} {'FAIL' if result.wrong else 'ok':4} vision {result.vision}  embeds {result.embeds}  "
              f"logits {result.logits_max:.1e}  tokens {result.tokens_equal}/{result.n_tokens}", flush=True)
        for sentence in result.wrong:
            print(f"    {sentence}")
        bad += [family] * bool(result.wrong)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
