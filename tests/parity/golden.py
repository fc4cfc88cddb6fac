"""Writes tests/golden/engine: what transformers computed, for tests without Python.

    NN/case.json     prompt and how `fovea synth` makes the checkpoint from config.json; ids,
                     digests, tokens
    NN/config.json   of the checkpoint; its weights are not kept, they follow from the seed
    NN/<picture>...  the images, or the frames of a video at video_fps; NN/preprocessor_config.json, where it is not the usual one
    NN/features.f32  some rows of the tower's output, NN/embeds.f32 of the images' tokens
    NN/logits.f32    [16, vocab]; all three little-endian float32 and nothing else
    hf_*/checkpoint  written by transformers, weights and all
    lora_*/adapter   written by PEFT (adapters.py), used for the request

tests/unit/prefill-worker/job/test_golden.c reads all of it.
"""
import io
import json
import pathlib
import shutil
import struct
import sys

import numpy as np
import transformers
from PIL import Image, ImageSequence

import cases
import families
import reference
import run
import written

GOLDEN = pathlib.Path(__file__).resolve().parents[1] / "golden" / "engine"
SEED = 2024
SPREAD = 2e-5
N_CASES = 32
ROWS_MAX = 4
# The two likeliest tokens are further apart than twice what the test lets logits differ by.
GAP = 2.5e-4
MASK = (1 << 64) - 1
PRIME = (11400714785074694791, 14029467366897019727, 1609587929392839161, 9650029242287828579,
         2870177450012600261)


def rotate(x, r):
    return ((x << r) | (x >> (64 - r))) & MASK


def xxh64(data):
    """XXH64 with seed 0 (https://github.com/Cyan4973/xxHash, doc/xxhash_spec.md)."""
    p1, p2, p3, p4, p5 = PRIME

    def round_(acc, lane):
        return rotate((acc + lane * p2) & MASK, 31) * p1 & MASK

    n, at = len(data), 0
    if n >= 32:
        acc = [(p1 + p2) & MASK, p2, 0, -p1 & MASK]
        for lanes in struct.iter_unpack("<4Q", data[:n - n % 32]):
            acc = [round_(a, lane) for a, lane in zip(acc, lanes)]
        at = n - n % 32
        h = sum(rotate(a, r) for a, r in zip(acc, (1, 7, 12, 18))) & MASK
        for a in acc:
            h = ((h ^ round_(0, a)) * p1 + p4) & MASK
    else:
        h = p5
    h = (h + n) & MASK
    for at in range(at, n - 7, 8):
        h = (rotate(h ^ round_(0, struct.unpack_from("<Q", data, at)[0]), 27) * p1 + p4) & MASK
    at = n - n % 8
    if n % 8 >= 4:
        h = (rotate(h ^ struct.unpack_from("<I", data, at)[0] * p1 & MASK, 23) * p2 + p3) & MASK
        at += 4
    for byte in data[at:]:
        h = rotate(h ^ byte * p5 & MASK, 11) * p1 & MASK
    h = (h ^ h >> 33) * p2 & MASK
    h = (h ^ h >> 29) * p3 & MASK
    return f"{h ^ h >> 32:016x}"


def weights_digest(checkpoint):
    """Of all tensors' bytes, file after file, without the headers."""
    data = b""
    for path in sorted(checkpoint.glob("model*.safetensors")):
        content = path.read_bytes()
        data += content[8 + struct.unpack_from("<Q", content)[0]:]
    return xxh64(data)


def clear_winners(made, n_vocab):
    for row in made["logits"]:
        second, first = np.sort(row[:n_vocab])[-2:]
        if first - second < GAP * np.abs(row).max():
            return False
    return True


def well_conditioned(ref, case, images, directory, made):
    """Whether the reference's two forms of the delta rule, in chunks and token by token, agree well within the limit
    of the comparison; in a random network a step may enlarge rounding a hundredfold."""
    module = sys.modules[type(ref.model).__module__]
    chunks = getattr(module, "torch_chunk_gated_delta_rule", None)
    if chunks is None:
        return True
    module.torch_chunk_gated_delta_rule = lambda *a, chunk_size=0, **k: module.torch_recurrent_gated_delta_rule(*a, **k)
    other = ref.run(case, images, run.N_TOKENS, forced=made["tokens"], directory=directory)
    module.torch_chunk_gated_delta_rule = chunks
    return all(np.abs(a - b).max() < SPREAD * np.abs(a).max() for a, b in zip(made["logits"], other["logits"]))


def compute(case, program, directory):
    """The reference's results and the checkpoint that fovea reads."""
    images = run.put_images(case, directory)
    ours, theirs = run.put_checkpoints(case, program, directory)
    ref = run.reference_of(case, theirs)
    made = ref.run(case, images, run.N_TOKENS, directory=directory)
    clear = (clear_winners(made, ref.n_vocab) and not made.get("close")
             and well_conditioned(ref, case, images, directory, made))
    return ours, made, clear and "\0" not in made["answer"]  # a reader in C ends a text there


def dump(path, array):
    path.write_bytes(np.ascontiguousarray(array, dtype="<f4").tobytes())


def some_rows(array):
    return sorted(set(np.linspace(0, len(array) - 1, ROWS_MAX).astype(int).tolist()))


def describe(case, made, checkpoint):
    out = {"about": case.about, "by": " and ".join(filter(None, [made.get("by"), f"transformers {transformers.__version__}"]))}
    if not hasattr(case, "write"):
        out["synth"] = {"seed": case.seed, "dialect": case.dialect, "dtype": case.dtype,
                        "shards": case.shards, "key_form": case.key_form,
                        "weights_xxh64": weights_digest(checkpoint)}
    out |= {"prompt": case.prompt, "chat": case.chat, "system": case.system,
            "images": [name for name, _ in case.images]} | ({"video_fps": case.video[2]} if case.video else {}) | {"rendered": made["prompt"],
            "input_ids": made["input_ids"].tolist()}
    if "pixel_values" in made:
        out["pixel_values_xxh64"] = xxh64(made["pixel_values"].astype("<f4").tobytes())
        out["rows"] = some_rows(made["image_embeds"])
        if len(made["vision_features"]) != len(made["image_embeds"]):
            out["feature_rows"] = some_rows(made["vision_features"])
    out |= {"tokens": made["tokens"].tolist(), "answer": made["answer"]}
    return out


def json_text(obj):
    """One key a line, lists on one line."""
    lines = [f" {json.dumps(k)}: {json.dumps(v, ensure_ascii=False)}" for k, v in obj.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def frames_of(video):
    return [f.copy() for f in ImageSequence.Iterator(Image.open(io.BytesIO(video[1])))]


def write_case(case, made, checkpoint):
    folder = GOLDEN / case.name
    if case.video:
        folder.mkdir(parents=True)
        case.images = [(f"{i}.png", None) for i, _ in enumerate(frames_of(case.video))]
        for (name, _), frame in zip(case.images, frames_of(case.video)):
            frame.save(folder / name)
    else:
        run.put_images(case, folder)
    about = describe(case, made, checkpoint)
    (folder / "case.json").write_text(json_text(about), encoding="utf-8")
    if hasattr(case, "write"):
        shutil.copytree(checkpoint, folder / "checkpoint")
        for path in (folder / "checkpoint").iterdir():
            path.chmod(0o644)
    else:
        (folder / "config.json").write_text(json_text(case.config), encoding="utf-8")
    if case.processor:
        (folder / "preprocessor_config.json").write_text(json_text(case.processor))
    dump(folder / "logits.f32", made["logits"])
    if "rows" in about:
        dump(folder / "features.f32", made["vision_features"][about.get("feature_rows", about["rows"])])
        dump(folder / "embeds.f32", made["image_embeds"][about["rows"]])


def write(program, scratch, only=""):
    """All cases, or those whose names begin with `only`."""
    reference.setup(1)  # rounding depends on the number of threads
    kept = [c for c in written.make_written() if c.name in ("hf_llama", "hf_qwen2")]
    chosen = (cases.make_cases(N_CASES, SEED) + cases.make_text_cases(8, SEED)
              + cases.make_sliding_cases(3, SEED)
              + cases.make_gemma_text_cases(3, SEED) + cases.make_gemma4_text_cases(3, SEED) + cases.make_small_text_cases(3, SEED) + families.make_family_cases(3, SEED, pairs=False) + kept)
    if only:
        chosen = [c for c in chosen if c.name.startswith(only)]
    for case in chosen:
        checkpoint, made, clear = compute(case, program, scratch / case.name)
        while not clear and not hasattr(case, "write"):
            case.seed += 1
            checkpoint, made, clear = compute(case, program, scratch / case.name)
        if not clear:
            raise SystemExit(f"{case.name}: two tokens are about equally likely; change its seed")
        shutil.rmtree(GOLDEN / case.name, ignore_errors=True)
        write_case(case, made, checkpoint)
        print(f"{case.name:10} {case.about}", flush=True)
    total = sum(f.stat().st_size for f in GOLDEN.rglob("*") if f.is_file())
    print(f"{len(chosen)} cases, {total} bytes in {GOLDEN}")
    return 0
