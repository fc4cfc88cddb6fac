#!/usr/bin/env python3
"""Greedy tokens beside llama.cpp's own: its converter writes the files of synthetic models, and both programs continue
the same prompts from them.

    llama_tokens.py LLAMA_CPP [--only FAMILY] [--bin FOVEA] [--prompts N]

LLAMA_CPP is a checkout of llama.cpp, for its converter. llama-cpp-python is asked for the logits after fovea's tokens,
in f32 as far as it goes: a step counts as equal if the greatest logit is of fovea's token, as a tie if that token's logit
is within 1e-3 of the greatest, relative to the greatest difference of two. The prompts' ids are compared, too, where
the converter writes the model's kind of tokenizer. Without llama-cpp-python it says so and ends with 0.
"""
import argparse
import dataclasses
import json
import os
import pathlib
import random
import sys
import tempfile

import engine
import gguf_live
import gguf_vision
import reference

N_TOKENS = 16
TIE = 1e-3


def prompts(rng, n):
    texts = ["The quick brown fox", "1 + 2 =", "  two  spaces,\ttab", "Сколько здесь кошек?", "日本の港", "😀 ok"]
    for _ in range(n):
        at = rng.randrange(len(CORPUS) - 60)
        texts.append(CORPUS[at:at + rng.randrange(5, 60)])
    return texts


CORPUS = (gguf_vision.ROOT / "tests/golden/tokenizer/corpus.txt").read_text(encoding="utf-8")


def load(path):
    import llama_cpp
    return llama_cpp.Llama(str(path), n_ctx=512, n_batch=512, n_threads=2, logits_all=True, verbose=bool(os.environ.get("LLAMA_VERBOSE")),
                           type_k=llama_cpp.GGML_TYPE_F32, type_v=llama_cpp.GGML_TYPE_F32, flash_attn=False)


def n_token(folder):
    made = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    return 1 + max([*made["model"]["vocab"].values(), *(t["id"] for t in made["added_tokens"])])


def judge(logits, tokens):
    """(equal, ties, worst relative gap of the others) of the rows of logits before each token."""
    equal = ties = 0
    worst = 0.0
    for row, token in zip(logits, tokens):
        gap = float(row.max() - row[token]) / max(float(row.max() - row.min()), 1e-9)
        if int(row.argmax()) == token:
            equal += 1
        elif gap <= TIE:
            ties += 1
        else:
            worst = max(worst, gap)
    return equal, ties, worst


def run(a, program, family, directory, rng):
    case = gguf_live.case_of(family, 7)
    folder, files = directory / "checkpoint", directory / "gguf"
    files.mkdir()
    program.synth(case, folder)
    # llama.cpp wants a row of the embedding for each token and no other, and heads of one size in recurrent layers.
    text = case.config.get("text_config", case.config)
    text["vocab_size"] = n_token(folder)
    if "linear_key_head_dim" in text:
        text["linear_value_head_dim"] = text["linear_key_head_dim"]
    program.synth(case, folder)
    gguf_live.set_areas(folder, family)
    if family.startswith("qwen3_5"):
        gguf_vision.add_mtp(folder)
    gguf_live.convert(a, folder, family, files)
    llm = load(files / "model.gguf")
    equal = ties = ids_equal = n = 0
    worst = 0.0
    texts = prompts(rng, a.prompts)
    for i, text in enumerate(texts):
        one = dataclasses.replace(case, prompt=text, images=[], chat=False)
        ours = program.trace(one, files, [], directory / f"trace{i}", N_TOKENS)
        ids, tokens = [int(x) for x in ours["input_ids"].ravel()], [int(x) for x in ours["tokens"].ravel()]
        ids_equal += llm.tokenize(text.encode(), add_bos=True, special=True) == ids
        llm.reset()
        llm.eval(ids + tokens[:-1])
        rows = llm.scores[len(ids) - 1:len(ids) - 1 + len(tokens)]
        e, t, w = judge(rows, tokens)
        equal, ties, worst, n = equal + e, ties + t, max(worst, w), n + len(tokens)
    llm.close()
    return equal, ties, n, ids_equal, len(texts), worst


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("llama_cpp", type=pathlib.Path)
    p.add_argument("--bin", type=pathlib.Path, default=gguf_vision.ROOT / "build/cpu/bin/fovea")
    p.add_argument("--only", help="this family")
    p.add_argument("--prompts", type=int, default=4, help="of the corpus, besides six of their own (default 4)")
    a = p.parse_args()
    try:
        import llama_cpp
    except ImportError as e:
        print(f"skip: llama-cpp-python is not installed ({e}): pip install llama-cpp-python")
        return 0
    print(f"llama-cpp-python {llama_cpp.__version__}")
    reference.setup(2)
    program, rng, bad = engine.Engine(a.bin), random.Random(1), []
    for family in gguf_live.FAMILIES:
        if a.only and family != a.only:
            continue
        with tempfile.TemporaryDirectory() as scratch:
            try:
                equal, ties, n, ids, texts, worst = run(a, program, family, pathlib.Path(scratch), rng)
            except (ValueError, RuntimeError) as e:
                print(f"{family:14} FAIL {type(e).__name__}: {e}", flush=True)
                bad.append(family)
                continue
        wrong = equal + ties != n
        print(f"{family:14} {'FAIL' if wrong else 'ok':4} tokens {equal}/{n}, {ties} ties"
              + (f", worst gap {worst:.1e}" if wrong else "") + f"; ids of {ids}/{texts} prompts", flush=True)
        bad += [family] * wrong
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
