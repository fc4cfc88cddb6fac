#!/usr/bin/env python3
"""Tokenizers in files other than tokenizer.json, and the ids that their own libraries give.

    tokenizer_files_golden.py          writes tests/golden/tokenizer_files again

FORM/tokenizer.model is trained here by SentencePiece on tests/golden/tokenizer/corpus.txt, with the options of
Llama 2's and Gemma's, and cases.json has SentencePiece's own ids. mistral/tekken.json has bytes and merges trained
by `tokenizers`, and the ids of the tokenizer that transformers' MistralConverter makes of it. `pip install
sentencepiece protobuf tokenizers transformers`.
"""
import base64
import io
import json
import pathlib
import random

import sentencepiece
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

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


def write(form, cases, **files):
    where = GOLDEN / form
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
    sentencepiece_form("llama", {"tokenizer_class": "LlamaTokenizer", "add_bos_token": True,
                                 "added_tokens_decoder": {"1400": {"content": "<image>", "special": True}}})
    sentencepiece_form("gemma", {"tokenizer_class": "GemmaTokenizer", "bos_token": "<bos>"},
                       add_dummy_prefix=False, pad_id=0, eos_id=1, bos_id=2, unk_id=3, pad_piece="<pad>",
                       eos_piece="<eos>", bos_piece="<bos>",
                       user_defined_symbols=["<start_of_turn>", "<end_of_turn>", "\n\n", "<b>"])
    tekken()


if __name__ == "__main__":
    main()
