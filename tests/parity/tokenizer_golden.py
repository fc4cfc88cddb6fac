#!/usr/bin/env python3
"""Tokenizers made here, and what Hugging Face `tokenizers` answers with them.

    tokenizer_golden.py                        writes tests/golden/tokenizer again
    tokenizer_golden.py --live 20000 PROGRAM   new strings, a new seed, checked by PROGRAM

For each form (Llama-2, GPT-2, ...) there is <form>.json, a tokenizer.json trained on corpus.txt,
and <form>.bin, strings with their ids and the text that these decode to. PROGRAM is the built
unit_text: it reads the directory that FOVEA_TOKENIZER_GOLDEN names.

<form>.bin, little endian: "FVTOK1\\n\\0", u32 count, then per case
    u8 flags   1 special tokens added   2 ids only, nothing to encode
               4 decoded == text        8 decoded without specials == decoded
    u32 bytes, text      u32 n, n x u16 ids
    u32 bytes, decoded (unless 4)      u32 bytes, decoded without specials (unless 8)
"""
import argparse
import base64
import collections
import io
import json
import os
import pathlib
import random
import struct
import subprocess
import sys
import tempfile
import unicodedata

import sentencepiece
import tokenizers
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

ROOT = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden" / "tokenizer"
CORPUS = (GOLDEN / "corpus.txt").read_text(encoding="utf-8")

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
          r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace("{1,3}", "")
BYTE_TOKENS = [f"<0x{b:02X}>" for b in range(256)]


# ---- forms ----

def train(pre, vocab_size, **options):
    """A BPE vocabulary and its merges, from the corpus."""
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre
    trainer = trainers.BpeTrainer(vocab_size=vocab_size, show_progress=False, **options)
    tok.train_from_iterator(CORPUS.splitlines(keepends=True), trainer)
    model = json.loads(tok.to_str())["model"]
    return model["vocab"], model["merges"]


def spaced_model(head, vocab_size, n_char):
    """As SentencePiece numbers it: specials, bytes, then the pieces."""
    # The trainer breaks ties between rare characters at random, so it is told which to take.
    count = collections.Counter(CORPUS.replace(" ", "▁"))
    alphabet = sorted(count, key=lambda c: (-count[c], c))[:n_char]
    return train(pre_tokenizers.Metaspace(), vocab_size, special_tokens=head,
                 initial_alphabet=alphabet, limit_alphabet=n_char)


def byte_model(pre, vocab_size, head=()):
    return train(pre_tokenizers.Sequence([pre, pre_tokenizers.ByteLevel(
        add_prefix_space=False, use_regex=False)]), vocab_size, special_tokens=list(head),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet())


def added(id_, content, special=True, **flags):
    token = {"id": id_, "content": content, "single_word": False, "lstrip": False,
             "rstrip": False, "normalized": False, "special": special}
    return token | flags


def template(special, before=(), after=()):
    def piece(t):
        return {"SpecialToken": {"id": t, "type_id": 0}}
    single = [*map(piece, before), {"Sequence": {"id": "A", "type_id": 0}}, *map(piece, after)]
    names = {t: {"id": t, "ids": [special[t]], "tokens": [t]} for t in [*before, *after]}
    return {"type": "TemplateProcessing", "single": single,
            "pair": [*single, {"Sequence": {"id": "B", "type_id": 1}}], "special_tokens": names}


def sequence(key, *items):
    return {"type": "Sequence", key: list(items)}


def byte_level(prefix=False, regex=False, trim=False):
    return {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": trim,
            "use_regex": regex}


def split(regex, behavior="Isolated", invert=False):
    return {"type": "Split", "pattern": {"Regex": regex}, "behavior": behavior, "invert": invert}


def metaspace(scheme, cut, mark="▁"):
    return {"type": "Metaspace", "replacement": mark, "prepend_scheme": scheme, "split": cut}


def replace(pattern, content):
    return {"type": "Replace", "pattern": {"String": pattern}, "content": content}


def tokenizer_json(vocab, merges, added_tokens, normalizer=None, pre=None, post=None,
                   decoder=None, **model):
    options = {"dropout": None, "unk_token": None, "continuing_subword_prefix": None,
               "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
               "ignore_merges": False} | model
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added_tokens,
            "normalizer": normalizer, "pre_tokenizer": pre, "post_processor": post,
            "decoder": decoder,
            "model": {"type": "BPE", **options, "vocab": vocab, "merges": merges} if merges is not None else
                     {"type": "Unigram", **model, "vocab": vocab}}


def llama2_family():
    head = ["<unk>", "<s>", "</s>"]
    vocab, merges = spaced_model(head + BYTE_TOKENS, 1100, 200)
    n = len(vocab)
    tokens = [added(i, t) for i, t in enumerate(head)] + [added(n, "<image>"), added(n + 1, "<pad>")]
    shared = dict(post=template(vocab, before=["<s>"]), unk_token="<unk>", byte_fallback=True,
                  fuse_unk=True)
    decoder = [replace("▁", " "), {"type": "ByteFallback"}, {"type": "Fuse"}]
    strip = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
    prepend = sequence("normalizers", {"type": "Prepend", "prepend": "▁"}, replace(" ", "▁"))
    yield "llama2", tokenizer_json(
        vocab, merges, tokens, normalizer=prepend,
        decoder=sequence("decoders", *decoder, strip), **shared)
    yield "metaspace-first", tokenizer_json(
        vocab, merges, tokens, pre=metaspace("first", False),
        decoder=sequence("decoders", *decoder, strip), **shared)
    yield "metaspace-always", tokenizer_json(
        vocab, merges, tokens, pre=metaspace("always", True),
        decoder=sequence("decoders", {"type": "ByteFallback"}, metaspace("always", True)), **shared)
    yield "metaspace-never", tokenizer_json(
        vocab, [" ".join(m) for m in merges], tokens, pre=metaspace("never", True),
        decoder=sequence("decoders", *decoder), **shared)


def byte_family():
    vocab, merges = byte_model(pre_tokenizers.Split(Regex(GPT2), "isolated"), 900)
    end = [added(len(vocab), "<|endoftext|>")]
    yield "gpt2", tokenizer_json(vocab, [" ".join(m) for m in merges], end,
                                 pre=byte_level(regex=True, trim=True),
                                 post=byte_level(trim=True), decoder=byte_level(True, True, True))

    vocab, merges = byte_model(pre_tokenizers.Split(Regex(LLAMA3), "isolated"), 1000)
    n = len(vocab)
    # Whole words without the merges that would make them: what ignore_merges is for.
    for word in ["Ġharbour", "ĠASSISTANT", "xyzzy", "123"]:
        vocab.setdefault(word, len(vocab))
    n = len(vocab)
    names = ["<|begin_of_text|>", "<|end_of_text|>", "<|reserved_special_token_0|>",
             "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<image>"]
    tokens = [added(n + i, t) for i, t in enumerate(names)]
    yield "llama3", tokenizer_json(
        vocab, merges, tokens, pre=sequence("pretokenizers", split(LLAMA3), byte_level()),
        post=sequence("processors", byte_level(trim=True),
                      template({names[0]: n}, before=[names[0]])),
        decoder=byte_level(True, True, True), ignore_merges=True)

    vocab, merges = byte_model(pre_tokenizers.Split(Regex(QWEN2), "isolated"), 900)
    n = len(vocab)
    names = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>",
             "<|image_pad|>", "<|video_pad|>"]
    tokens = [added(n + i, t) for i, t in enumerate(names)]
    tokens += [added(n + 7, "<tool_call>", special=False), added(n + 8, "</tool_call>", special=False)]
    yield "qwen2", tokenizer_json(
        vocab, merges, tokens, normalizer={"type": "NFC"},
        pre=sequence("pretokenizers", split(QWEN2), byte_level()), post=byte_level(),
        decoder=byte_level())

    names = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<repo_name>"]
    vocab, merges = byte_model(pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.Split(Regex(GPT2), "isolated")]), 800, head=names)
    tokens = [added(i, t) for i, t in enumerate(names)]
    more = ["<fake_token_around_image>", "<image>", "<end_of_utterance>", "<row_1_col_1>"]
    tokens += [added(len(vocab) + i, t) for i, t in enumerate(more)]
    yield "smollm2", tokenizer_json(
        vocab, merges, tokens, pre=sequence(
            "pretokenizers", {"type": "Digits", "individual_digits": True},
            byte_level(regex=True, trim=True)),
        decoder=byte_level(True, True, True), unk_token="<|endoftext|>")


def odd_family():
    """What the others leave out: flags of added tokens, other normal forms, unknown characters."""
    # Byte tokens for Cyrillic only: there they stand beside characters that become <unk>.
    cyrillic = [BYTE_TOKENS[b] for b in [0xD0, 0xD1, *range(0x80, 0xC0)]]
    vocab, merges = spaced_model(["<unk>", "<s>", "</s>", *cyrillic], 500, 90)
    n = len(vocab)
    tokens = [added(i, t) for i, t in enumerate(["<unk>", "<s>", "</s>"])] + [
        added(n, "<left>", lstrip=True), added(n + 1, "<right>", rstrip=True),
        added(n + 2, "<both>", lstrip=True, rstrip=True),
        added(n + 3, "word", single_word=True, special=False),
        added(n + 4, "Ärger", normalized=True, special=False),
        added(n + 5, "<ﬁn>", normalized=True),
        added(n + 6, "<le", special=False), added(n + 7, "  ", special=False, rstrip=True),
        added(n + 8, "\t", special=False)]
    yield "odd-unk", tokenizer_json(
        vocab, merges, tokens,
        normalizer=sequence("normalizers", {"type": "NFKC"}, replace("the", "a b"), sequence(
            "normalizers", replace("é", ""), {"type": "Prepend", "prepend": "_ "})),
        pre=metaspace("always", True), decoder=metaspace("never", True),
        post=template(vocab, before=["<s>"], after=["</s>"]), unk_token="<unk>",
        byte_fallback=True)
    yield "odd-fuse", tokenizer_json(
        vocab, merges, tokens, normalizer={"type": "NFC"}, pre=metaspace("first", False, "_"),
        unk_token="<unk>", fuse_unk=True)

    vocab, merges = byte_model(pre_tokenizers.Split(Regex(LLAMA3), "isolated"), 600)
    n = len(vocab)
    tokens = [added(n, "<x>"), added(n + 1, "é è", normalized=True, special=False),
              added(n + 2, "ẛ̣", normalized=True), added(n + 3, "⅓", special=False)]
    yield "odd-bytes", tokenizer_json(
        vocab, merges, tokens, normalizer={"type": "NFD"},
        pre=sequence("pretokenizers", {"type": "Digits", "individual_digits": False},
                     split(LLAMA3, "Removed", True), byte_level(prefix=True, regex=True)),
        post=sequence("processors", byte_level(), template(
            {"<x>": n}, after=["<x>"])), decoder=sequence("decoders", byte_level(),
        {"type": "Strip", "content": " ", "start": 2, "stop": 0}))
    yield "odd-nfkd", tokenizer_json(
        vocab, merges, [], normalizer={"type": "NFKD"},
        pre=sequence("pretokenizers", split(QWEN2), byte_level()),
        decoder=sequence("decoders", replace("Ġ", "Ġ"), byte_level()))


DEEPSEEK = [r"\p{N}{1,3}", "[一-龥\u3040-ゟ゠-ヿ]+",
            r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
            r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"]
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
O200K = "|".join([rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
                  rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
                  r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])
TEKKEN = O200K.replace("(?i:'s|'t|'re|'ve|'m|'ll|'d)?", "").replace("{1,3}", "")


def regex_family():
    """Expressions that the engine has no matcher of its own for."""
    for name, cuts in {"deepseek": DEEPSEEK, "o200k": [O200K], "tekken": [TEKKEN]}.items():
        vocab, merges = byte_model(pre_tokenizers.Sequence(
            [pre_tokenizers.Split(Regex(c), "isolated") for c in cuts]), 700)
        tokens = [added(len(vocab), "<｜User｜>"), added(len(vocab) + 1, "<s>")]
        yield name, tokenizer_json(
            vocab, merges, tokens, pre=sequence("pretokenizers", *[split(c) for c in cuts], byte_level()),
            decoder=byte_level())
    vocab, merges = byte_model(pre_tokenizers.Split(Regex(r"\w+"), "isolated"), 500)
    yield "odd-regex", tokenizer_json(
        vocab, merges, [], pre=sequence("pretokenizers", split(r"(?<=[a-m])x*|\d", "Isolated"), split(r"[^\s]+", "Removed", True),
                                        split("(?i)e", "Removed"), byte_level()), decoder=byte_level())


def gemma_family():
    """Spaces become a mark, and are then what the text is cut at."""
    head = ["<pad>", "<eos>", "<bos>", "<unk>"]
    vocab, merges = spaced_model(head + BYTE_TOKENS, 1100, 200)
    n = len(vocab)
    names = ["<start_of_image>", "<end_of_image>", "<image_soft_token>", "<start_of_turn>"]
    tokens = [added(i, t) for i, t in enumerate(head)] + [added(n + i, t) for i, t in enumerate(names)]
    yield "gemma", tokenizer_json(
        vocab, merges, tokens, normalizer=replace(" ", "▁"),
        pre={"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False},
        post=template(vocab, before=["<bos>"]), decoder=sequence(
            "decoders", replace("▁", " "), {"type": "ByteFallback"}, {"type": "Fuse"}),
        unk_token="<unk>", byte_fallback=True, fuse_unk=True)


RULES = {"\uff21": "A", "\uff22": "B", "\ufb01": "fi", "\ufdfa": "صلى الله عليه وسلم", "①": "1", "e\u0301": "\u00e9", "\t": " ",
         "\u3000": " ", "\u200b": "", "\r\n": "\n", "\r": " ", "½": " 1/2", "\u1100\u1161": "\uac00", "👍": "+1", "👍🏽": "++", "'s": "_s_"}


def charsmap(full):
    """precompiled_charsmap of SentencePiece: with its rules nmt_nfkc_cf, or with those above."""
    model, options = io.BytesIO(), {"normalization_rule_name": "nmt_nfkc_cf"}
    with tempfile.NamedTemporaryFile("w", suffix=".tsv") as tsv:
        for a, b in RULES.items():
            tsv.write(" ".join(f"{ord(c):x}" for c in a) + "\t" + " ".join(f"{ord(c):x}" for c in b) + "\n")
        tsv.flush()
        if not full:
            options = {"normalization_rule_tsv": tsv.name}
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(CORPUS.splitlines()), model_writer=model, vocab_size=900, hard_vocab_limit=False,
            minloglevel=2, num_threads=1, character_coverage=0.98, **options)
    return protobuf_member(protobuf_member(model.getvalue(), 3), 2)


def protobuf_member(data, number):
    """The last member of this number, which holds bytes, of a message."""
    at, found = 0, b""
    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value
    while at < len(data):
        tag = varint()
        if tag & 7 == 2:
            n = varint()
            if tag >> 3 == number:
                found = data[at:at + n]
            at += n
        elif tag & 7 == 0:
            varint()
        else:
            at += {1: 8, 5: 4}[tag & 7]
    return found


def unigram_model(head, vocab_size, pre):
    tok = Tokenizer(models.Unigram())
    tok.pre_tokenizer = pre
    tok.train_from_iterator(CORPUS.splitlines(keepends=True), trainers.UnigramTrainer(
        vocab_size=vocab_size, show_progress=False, special_tokens=head, unk_token=head[-1]))
    return json.loads(tok.to_str())["model"]["vocab"]


def unigram_family(full):
    """Unigram models: of XLM-R's form, of T5's, and with bytes for unknown characters."""
    precompiled = {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(charsmap(full)).decode()}
    spaces = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}
    head = ["<s>", "<pad>", "</s>", "<unk>"]
    vocab = unigram_model(head, 900, pre_tokenizers.Metaspace())
    ids = {t: i for i, (t, _) in enumerate(vocab)}
    tokens = [added(i, t) for i, t in enumerate(head)] + [added(len(vocab), "<mask>", lstrip=True)]
    yield "unigram", tokenizer_json(
        vocab, None, tokens, normalizer=sequence("normalizers", precompiled, spaces), pre=metaspace("always", True),
        post=template(ids, before=["<s>"], after=["</s>"]), decoder=metaspace("always", True), unk_id=3)
    strip = {"type": "Strip", "strip_left": False, "strip_right": True}
    yield "unigram-words", tokenizer_json(
        vocab, None, tokens[:4], normalizer=sequence("normalizers", precompiled, strip, spaces | {"content": "▁"}),
        pre=sequence("pretokenizers", {"type": "WhitespaceSplit"}, metaspace("always", True)),
        decoder=metaspace("always", True), unk_id=3)
    vocab = unigram_model(["<unk>"], 800, pre_tokenizers.Metaspace(split=False))
    vocab = vocab[:1] + [[t, 0.0] for t in BYTE_TOKENS] + vocab[1:]
    yield "unigram-bytes", tokenizer_json(
        vocab, None, [added(0, "<unk>")], normalizer=replace(" ", "▁"), pre=metaspace("never", False),
        decoder=sequence("decoders", replace("▁", " "), {"type": "ByteFallback"}, {"type": "Fuse"}),
        unk_id=0, byte_fallback=True)


def forms(full=False):
    yield from llama2_family()
    yield from byte_family()
    yield from odd_family()
    yield from regex_family()
    yield from gemma_family()
    yield from unigram_family(full)


# ---- strings ----

ASSIGNED = [c for c in range(0x21, 0x32000)
            if unicodedata.category(chr(c)) not in ("Cn", "Cs", "Co")]
MARKS = [c for c in ASSIGNED if unicodedata.combining(chr(c))]
NUMBERS = [c for c in ASSIGNED if unicodedata.category(chr(c))[0] == "N"]
COMPOSED = [c for c in ASSIGNED if unicodedata.decomposition(chr(c))]
SPACES = [" ", " ", " ", "  ", "\n", "\n\n", "\r\n", "\r", "\t", "\u00a0", "\u2003", "\u3000",
          "\u2028", "\u2029", "\u0085", "\v", "\f", "\u200b", "\u1680", "\u202f", "\u180e", "\x1c"]
PIECES = ["'s", "'S", "'ſ", "'T", "'t", "'re", "'RE", "'Re", "'vE", "'ve", "'m", "'M", "'ll", "'lL",
          "'LL", "'d", "'D", "'", "''", "'x", "’s", "I'm", "we'LL", "don't", "DON'T", "it's",
          "▁", "▁▁", "Ġ", "Ċ", "_", "é", "é", "the", "word", "words", "<0x41>", "<0x0a>",
          "<0xZZ>", "<", ">", "<s", "s>", "<image", "image>", "<|", "|>", "�", "\x00",
          "\x7f", "\x1b[0m", "\ufeff", "\u200d", "\u200c", "👩‍💻", "👨‍👩‍👧‍👦", "👍🏽", "🏳️‍🌈", "🇩🇪🇯🇵", "1️⃣",
          "ﬁ", "①", "½", "Ⅳ", "٣", "१२", "〇", "Å", "Ω", "가", "각", "한국", "ｱ", "㍿", "ﷺ", "ẛ̣",
          "ß", "ẞ", "İ", "ı", "ǆ", "\U0010ffff", "\ue000", "...", "!!!", "?!", "--", "::", "()",
          "{}", "==", "0", "12", "123", "1234", "12345", "3.14", "1e-9", "0x1F", "2024-01-31"]


class Strings:
    def __init__(self, seed, tokens):
        self.r = random.Random(seed)
        self.tokens = tokens

    def corpus(self):
        n = self.r.choice([1, 2, 5, 20, 60, 120])
        at = self.r.randrange(len(CORPUS) - n)
        return CORPUS[at:at + n]

    def words(self):
        words = self.r.sample(CORPUS.split(), self.r.randint(1, 6))
        return "".join(w + self.r.choice(SPACES) for w in words)

    def pieces(self):
        return "".join(self.r.choices(PIECES, k=self.r.randint(1, 8)))

    def spaces(self):
        return self.r.choice(SPACES) * self.r.choice([1, 2, 3, 7, 40]) + self.r.choice(SPACES)

    def scalars(self):
        return "".join(chr(self.r.choice(ASSIGNED)) for _ in range(self.r.randint(1, 12)))

    def block(self):
        """Neighbours: many characters of one script."""
        at = self.r.randrange(len(ASSIGNED) - 64)
        return "".join(chr(c) for c in self.r.choices(ASSIGNED[at:at + 64], k=self.r.randint(2, 16)))

    def marks(self):
        base = self.r.choice(["a", "e", "Ö", "ｶ", "가", "\u1100\u1161", "क", "ש", chr(self.r.choice(COMPOSED))])
        common = [0x300, 0x301, 0x308, 0x323, 0x327, 0x328, 0x345, 0x5b0, 0x3099, 0x309a, 0x11a8]
        pool = MARKS if self.r.random() < 0.5 else common
        return base + "".join(chr(c) for c in self.r.choices(pool, k=self.r.randint(1, 6)))

    def numbers(self):
        return "".join(chr(c) for c in self.r.choices(NUMBERS, k=self.r.randint(1, 7)))

    def controls(self):
        return "".join(chr(self.r.randrange(0xa0)) for _ in range(self.r.randint(1, 10)))

    def token(self):
        t = self.r.choice(self.tokens)
        around = ["", "", " ", "  ", "\n", "x", "é"]
        return self.r.choice(around) + t * self.r.choice([1, 1, 2, 5]) + self.r.choice(around)

    def one(self):
        kinds = [self.corpus, self.words, self.pieces, self.spaces, self.scalars, self.block,
                 self.marks, self.numbers, self.controls]
        if self.tokens:
            kinds += [self.token, self.token]
        return "".join(self.r.choice(kinds)() for _ in range(self.r.choice([1, 1, 2, 2, 3, 5])))

    def fixed(self):
        yield from ["", " ", "  ", "\n", "\x00", "a", "é", "😀", "▁", " a", "a ", "'s", "\u0301"]
        yield from ["a" * 999, " " * 700, "\n" * 300, "ab" * 400, "0123456789" * 40, "😀" * 100,
                    "e\u0301\u0323" * 100, CORPUS[:2000], CORPUS[-1200:]]
        yield from ["".join(p) for p in ((t, " ", t) for t in self.tokens)]


def ids_only(r, tok):
    """Ids as a sampler may give them: half a character, bytes that are none, specials."""
    n = tok.get_vocab_size()
    out = []
    for _ in range(r.randint(1, 4)):
        low = r.choice([0, 0, max(0, n - 40)])
        high = r.choice([n, min(n, 260), n])
        out += [r.randrange(min(low, high - 1), high) for _ in range(r.randint(1, 6))]
        bytes_ = r.choice(["é", "你好", "😀", "a\n", "\xff"]).encode(r.choice(["utf-8", "utf-8", "utf-16"]))
        for b in bytes_[:r.randint(1, len(bytes_))]:
            id_ = tok.token_to_id(f"<0x{b:02X}>")
            out += [] if id_ is None else [id_]
    return out


# ---- writing ----

def blob(text):
    data = text.encode("utf-8")
    return struct.pack("<I", len(data)) + data


def case(tok, text, ids, special, only):
    decoded = tok.decode(ids, skip_special_tokens=False)
    skipped = tok.decode(ids, skip_special_tokens=True)
    flags = special | 2 * only | 4 * (decoded == text) | 8 * (skipped == decoded)
    out = struct.pack("<B", flags) + blob(text) + struct.pack("<I", len(ids))
    out += struct.pack(f"<{len(ids)}H", *ids)
    out += b"" if flags & 4 else blob(decoded)
    out += b"" if flags & 8 else blob(skipped)
    return out


def write(directory, seed, per_form, full=False):
    total = 0
    directory.mkdir(parents=True, exist_ok=True)
    for number, (name, spec) in enumerate(forms(full)):
        text = json.dumps(spec, ensure_ascii=False, separators=(",", ":"))
        (directory / f"{name}.json").write_text(text + "\n", encoding="utf-8")
        tok = Tokenizer.from_str(text)
        assert all(tok.token_to_id(t["content"]) == t["id"] for t in spec["added_tokens"]), name
        strings = Strings(seed * 1000 + number, [t["content"] for t in spec["added_tokens"]])
        texts = list(strings.fixed())
        texts += [strings.one() for _ in range(per_form - len(texts))]
        cases = []
        for t in texts:
            special = strings.r.random() < 0.5
            cases.append(case(tok, t, tok.encode(t, add_special_tokens=special).ids, special, False))
        for _ in range(per_form // 8):
            cases.append(case(tok, "", ids_only(strings.r, tok), False, True))
        data = b"FVTOK1\n\0" + struct.pack("<I", len(cases)) + b"".join(cases)
        (directory / f"{name}.bin").write_bytes(data)
        total += len(texts)
        print(f"{name}: {len(spec['model']['vocab'])} tokens, {len(texts)} strings, "
              f"{len(text)} + {len(data)} bytes")
    print(f"{total} strings, tokenizers {tokenizers.__version__}, seed {seed}")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("--live", type=int, metavar="N", help="check N new strings with PROGRAM")
    p.add_argument("--seed", type=int, help="of the strings (default: 1; with --live: random)")
    p.add_argument("--out", type=pathlib.Path, default=GOLDEN, help="directory to write")
    p.add_argument("program", nargs="?", help="the built unit_text")
    a = p.parse_args()
    n_form = sum(1 for _ in forms())
    if a.live is None:
        write(a.out, 1 if a.seed is None else a.seed, 866)
        return 0
    if not a.program:
        p.error("--live needs the built unit_text")
    seed = random.SystemRandom().randrange(1 << 31) if a.seed is None else a.seed
    with tempfile.TemporaryDirectory() as tmp:
        write(pathlib.Path(tmp), seed, -(-a.live // n_form), full=True)
        env = os.environ | {"FOVEA_TOKENIZER_GOLDEN": tmp}
        return subprocess.run([a.program, "--filter", "tokenizer/ids_text_and_stream*"], env=env,
                              check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
