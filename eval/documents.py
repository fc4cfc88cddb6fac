#!/usr/bin/env python3
"""Writes questions about documents for `fovea eval --span-as-visual` (docs/BENCHMARKS.md).

    python3 eval/documents.py TASK TOKENS ITEMS > items.jsonl

The documents are sentences of this project's pages (docs/*.md, under its licence) in random order. An item depends on its task, its
number and TOKENS alone, so a longer file begins with a shorter one.
"""
import glob
import json
import os
import random
import re
import sys

CITIES = "Paris London Berlin Madrid Rome Vienna Oslo Lisbon Athens Dublin Warsaw Prague".split()
THINGS = ("apple river table window garden bottle pencil candle basket hammer mirror blanket ladder pillow rocket "
          "carpet").split()
COLORS = "red blue green yellow black white orange purple brown pink".split()
DOCS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "docs")


def sentences():
    """Sentences of 30 to 200 characters, without Markdown."""
    found = []
    for path in sorted(glob.glob(os.path.join(DOCS, "*.md"))):
        with open(path, encoding="utf-8") as file:
            text = re.sub(r"[|#`*_\[\]]", " ", re.sub(r"```.*?```", " ", file.read(), flags=re.S))
        found += (s.strip() + "." for s in re.split(r"(?<=[a-z])\.\s", re.sub(r"\s+", " ", text)))
    return [s for s in found if 30 < len(s) < 200]


def question(asked, begin, answer, needles):
    return {"needles": needles, "question": asked, "begin": begin, "answers": str(answer), "metric": "contains",
            "max_tokens": 8}


def at_depths(rng, texts):
    depths = sorted(round(rng.random(), 3) for _ in texts)
    return [{"text": " " + t, "depth": d} for t, d in zip(texts, depths)]


def one_of(rng, names, values, text, asked, begin):
    """Facts of the same form about several names, of which one is asked for."""
    which = rng.randrange(len(names))
    needles = at_depths(rng, [text % pair for pair in zip(names, values)])
    return question(asked % names[which], begin % names[which], values[which], needles)


def number(rng, count):
    return one_of(rng, rng.sample(CITIES, count), [rng.randint(1000, 9999) for _ in range(count)],
                  "The secret number of %s is %d.", "What is the secret number of %s?", "The secret number of %s is")


def color(rng, count):
    return one_of(rng, rng.sample(THINGS, count), rng.sample(COLORS, count), "The color of the %s is %s.",
                  "What is the color of the %s?", "The color of the %s is")


def count(rng):
    """How often a sentence stands in the document."""
    thing, times = rng.choice(THINGS), rng.randint(1, 4)
    needles = at_depths(rng, [f"I saw a {thing}."] * times)
    return question(f'How many times does the text say "I saw a {thing}"? Answer with a number.',
                    "The number of times is", times, needles)


TASKS = {
    "number": lambda rng: number(rng, 1),   # a needle
    "color": lambda rng: color(rng, 1),
    "numbers": lambda rng: number(rng, 4),  # keys and values: all have the same form
    "colors": lambda rng: color(rng, 4),
    "count": count,
    "text": lambda rng: {},                 # for --follow
}


def main():
    if len(sys.argv) != 4 or sys.argv[1] not in TASKS:
        sys.exit(f"usage: documents.py {'|'.join(TASKS)} TOKENS ITEMS")
    task, tokens, items = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    text = sentences()
    for i in range(items):
        rng = random.Random(f"{task} {i}")
        document = []
        while sum(map(len, document)) < 7 * tokens + 3000:  # far more than it is cut to
            document.append(rng.choice(text))
        print(json.dumps({"document": " ".join(document), **TASKS[task](rng)}))


main()
