#!/usr/bin/env python3
"""Tokenizers in files other than tokenizer.json, and the ids that their own libraries give.

    tokenizer_files_golden.py                      writes tests/golden/tokenizer_files again
    tokenizer_files_golden.py --live 3000 PROGRAM  new SentencePiece models and texts, checked by PROGRAM (unit_text)

FORM/tokenizer.model is trained here by SentencePiece on tests/golden/tokenizer/corpus.txt: llama and gemma with the
options of Llama 2's and Gemma's, spiece-* as unigram and BPE models with normalizers; cases.json has SentencePiece's
own ids. mistral/tekken.json has bytes and merges trained
by `tokenizers`, and the ids of the tokenizer that transformers' MistralConverter makes of it. `pip install
sentencepiece protobuf tokenizers transformers`.
"""
import argparse
import base64
import io
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile

import sentencepiece
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

import tokenizer_golden

ROOT = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden" / "tokenizer_files"
CORPUS = (ROOT / "tests" / "golden" / "tokenizer" / "corpus.txt").read_text(encoding="utf-8")
N_CASE = 400
PATTERN = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
           r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
           r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def texts(rng):
    """Pieces of the corpus, and strings of odd characters."""
    odd = ["a", "Z", " ", "  ", "\n", "\t", "1", "42", ".", "é", "ß", "中", "日本", "😀", "\u200b", "ك", "-", "the"]
    for i in range(N_CASE):
        if i % 2:
            at = rng.randrange(len(CORPUS))
            yield CORPUS[at:at + rng.randrange(1, 80)]
        else:
            yield "".join(rng.choice(odd) for _ in range(rng.randrange(1, 12)))


def write(form, cases, directory=GOLDEN, **files):
    where = directory / form
    where.mkdir(parents=True, exist_ok=True)
    (where / "cases.json").write_text(json.dumps(cases, ensure_ascii=False, separators=(",", ":")) + "\n",
                                      encoding="utf-8")
    for name, data in files.items():
        name = name.replace("__", ".")
        (where / name).write_bytes(data if isinstance(data, bytes) else json.dumps(data, indent=1).encode() + b"\n")


def sentencepiece_form(form, config, **options):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS.splitlines()), model_writer=model, model_type="bpe", vocab_size=1400,
        character_coverage=0.98, byte_fallback=True, normalization_rule_name="identity",
        remove_extra_whitespaces=False, split_digits=True, allow_whitespace_only_pieces=True,
        minloglevel=2, num_threads=1, **options)
    sp = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    cases = [{"text": t, "ids": sp.encode(t), "decoded": sp.decode(sp.encode(t))}
             for t in texts(random.Random(form))]
    write(form, cases, tokenizer__model=model.getvalue(), tokenizer_config__json=config)


# ---- models with SentencePiece's normalizer --------------------------------------------------

SYMBOLS = ["<b>", "<image>", "[x]", "@@"]
RUN = "▁▁"  # not with unigram: two cuts of three spaces have equal sums there, and rounding decides


def hostile(rng, n):
    """Texts of all scripts, marks, controls and spaces, and the user-defined symbols."""
    strings = tokenizer_golden.Strings(rng.randrange(1 << 30), SYMBOLS)
    return [t for t in [RUN, *strings.fixed(), *(strings.one() for _ in range(n))] if "\x00" not in t]


def is_clear(sp, text):
    """Long runs of spaces can be cut in ways of equal sums. fovea's sums begin anew behind a symbol, and round otherwise."""
    return not (re.search(r"[\s▁]{5}", sp.normalize(text)) and any(s in text for s in SYMBOLS))


def spiece_form(form, directory, rng, n, rules=None, **options):
    model = io.BytesIO()
    options = {"vocab_size": 900, "character_coverage": 0.98, "hard_vocab_limit": False} | options
    with tempfile.NamedTemporaryFile("w", suffix=".tsv") as tsv:
        for a, b in (rules or {}).items():
            tsv.write(" ".join(f"{ord(c):x}" for c in a) + "\t" + " ".join(f"{ord(c):x}" for c in b) + "\n")
        tsv.flush()
        if rules:
            options["normalization_rule_tsv"] = tsv.name
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(CORPUS.splitlines()), model_writer=model, minloglevel=2, num_threads=1, **options)
    sp = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    cases = []
    for text in hostile(rng, n):
        ids = sp.encode(text)
        # An unknown token's text, and a user-defined run of spaces at the front of an answer, are not as there.
        same = sp.unk_id() not in ids and RUN not in map(sp.id_to_piece, ids)
        if not is_clear(sp, text):
            continue
        cases.append({"text": text, "ids": ids} | ({"decoded": sp.decode(ids)} if same else {}))
    write(form, cases, directory, tokenizer__model=model.getvalue(),
          tokenizer_config__json={"tokenizer_class": "LlamaTokenizer", "add_bos_token": False})


def spiece_golden():
    def put(form, **options):
        spiece_form(form, GOLDEN, random.Random(form), 300, **options)
    rules = tokenizer_golden.RULES
    put("spiece-unigram", rules=rules, user_defined_symbols=SYMBOLS[:2])
    put("spiece-bytes", byte_fallback=True, split_digits=True, remove_extra_whitespaces=False,
        normalization_rule_name="identity", allow_whitespace_only_pieces=True, vocab_size=1100)
    put("spiece-suffix", rules=rules, treat_whitespace_as_suffix=True, user_defined_symbols=SYMBOLS)
    put("spiece-bpe", rules=rules, model_type="bpe", byte_fallback=True, vocab_size=1200, user_defined_symbols=[RUN, "<b>"])


def live(n, seed, program):
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as tmp:
        for k in range(12):
            bytes_ = rng.random() < 0.5
            options = {"model_type": rng.choice(["unigram", "unigram", "bpe"]), "byte_fallback": bytes_,
                       "normalization_rule_name": rng.choice(["nmt_nfkc", "nfkc", "nmt_nfkc_cf", "identity"]),
                       "remove_extra_whitespaces": rng.random() < 0.6, "add_dummy_prefix": rng.random() < 0.7,
                       "treat_whitespace_as_suffix": rng.random() < 0.2, "split_digits": rng.random() < 0.5,
                       "allow_whitespace_only_pieces": rng.random() < 0.5,
                       "vocab_size": rng.randrange(1200, 1800), "character_coverage": rng.choice([0.98, 0.999]),
                       "user_defined_symbols": rng.sample(SYMBOLS, rng.randrange(len(SYMBOLS) + 1))}
            if options["model_type"] == "bpe":
                options["remove_extra_whitespaces"] = True
                options["user_defined_symbols"].append(RUN)
            print(k, options, flush=True)
            spiece_form(f"spiece-{k:02}", pathlib.Path(tmp), rng, -(-n // 12), **options)
        env = os.environ | {"FOVEA_TOKENIZER_FILES": tmp}
        return subprocess.run([program, "--verbose", "--filter", "tokenizer_made/sentencepiece_models*"], env=env,
                              check=False).returncode


def tekken():
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tok.train_from_iterator(CORPUS.splitlines(keepends=True), trainers.BpeTrainer(
        vocab_size=900, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    from transformers.convert_slow_tokenizer import bytes_to_unicode
    from transformers.integrations.mistral.tokenizer import MistralConverter
    byte_of = {c: b for b, c in bytes_to_unicode().items()}
    merged = [bytes(byte_of[c] for c in t)
              for t, _ in sorted(tok.get_vocab().items(), key=lambda item: item[1]) if len(t) > 1]
    vocab = [bytes([b]) for b in range(256)] + merged
    specials = ["<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[IMG]"]
    made = {"config": {"pattern": PATTERN, "num_vocab_tokens": len(vocab), "default_vocab_size": 860,
                       "default_num_special_tokens": 20, "version": "v3"},
            "vocab": [{"rank": i, "token_bytes": base64.b64encode(t).decode(),
                       "token_str": t.decode("utf-8", "ignore")} for i, t in enumerate(vocab)],
            "special_tokens": [{"rank": i, "token_str": t, "is_control": True} for i, t in enumerate(specials)]}
    write("mistral", [], tekken__json=made)
    ours = MistralConverter(str(GOLDEN / "mistral" / "tekken.json")).converted()
    cases = []
    for i, t in enumerate(texts(random.Random("tekken"))):
        t = f"[INST]{t}[/INST] [IMG]" if i % 5 == 0 else t
        ids = ours.encode(t, add_special_tokens=False).ids
        cases.append({"text": t, "ids": ids, "decoded": ours.decode(ids, skip_special_tokens=False)})
    write("mistral", cases)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("--live", type=int, metavar="N", help="check N new texts with PROGRAM")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("program", nargs="?", help="the built unit_text")
    a = p.parse_args()
    if a.live is not None:
        return live(a.live, a.seed, a.program or p.error("--live needs the built unit_text"))
    spiece_golden()
    sentencepiece_form("llama", {"tokenizer_class": "LlamaTokenizer", "add_bos_token": True,
                                 "added_tokens_decoder": {"1400": {"content": "<image>", "special": True}}})
    sentencepiece_form("gemma", {"tokenizer_class": "GemmaTokenizer", "bos_token": "<bos>"},
                       add_dummy_prefix=False, pad_id=0, eos_id=1, bos_id=2, unk_id=3, pad_piece="<pad>",
                       eos_piece="<eos>", bos_piece="<bos>",
                       user_defined_symbols=["<start_of_turn>", "<end_of_turn>", "\n\n", "<b>"])
    tekken()


    return 0


if __name__ == "__main__":
    sys.exit(main())
