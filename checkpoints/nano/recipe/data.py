"""Scenes and questions -> packed samples. A sample is addressed by a number, so a run that was
stopped goes on with the samples that it has not seen."""

import os
import random
import sys
from dataclasses import dataclass

import numpy as np
import torch

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", ".."))
sys.path.append(os.path.join(ROOT, "eval"))

import scenes as library  # noqa: E402
import tokenizer as tk  # noqa: E402
from model import Rows  # noqa: E402

LIBRARY = os.path.join(ROOT, "build", "cpu", "bin", "fovea_scene.so")

MEAN = np.array([0.48145466, 0.4578275, 0.40821073], np.float32)  # CLIP's, as the processor has them
STD = np.array([0.26862954, 0.26130258, 0.27577711], np.float32)

# How often each task is asked about a picture, from this sample on: first those that need two steps,
# then those that take longest. The last number is the share of samples that end in a caption.
ASKED = (
    (0, dict(shape=1, color=2, count=3, exists=2, relation=4, cell=4, number=3, written=2, dialog=2), 0.35),
    (21000, dict(shape=1, color=1, count=4, exists=1, relation=2, cell=2, number=4, written=3, dialog=1), 0.5),
)
TASKS = [*ASKED[0][1], "caption", "compare"]
WEIGHT = dict(caption=0.25)  # of each of its tokens; of other answers' tokens 1
END_WEIGHT = 0.2


@dataclass
class Batch:
    pixels: torch.Tensor  # [b * images, 3, side, side], normalised
    images: int  # per sample
    ids: list  # of each sample: ids after the prefix
    rows: Rows
    wanted: torch.Tensor  # rows whose next token is asked for
    target: torch.Tensor  # [len(wanted)]
    weight: torch.Tensor
    block: torch.Tensor  # [len(wanted)] which answer each belongs to
    task: torch.Tensor  # [number of answers]
    labels: torch.Tensor  # [b * images, rows, 3] for the dense loss
    place: torch.Tensor  # [b * images, rows, 2] likewise


class Text:
    """Text -> ids, piece by piece, as the tokenizer does between special tokens."""

    def __init__(self, tokenizer):
        self.t, self.known = tokenizer, {}
        id_of = tokenizer.token_to_id
        self.begin, self.end, self.image, self.pad = map(id_of, (tk.BEGIN, tk.END, tk.IMAGE, tk.PAD))

    def ids(self, text):
        if text not in self.known:
            if len(self.known) > 100000:
                self.known.clear()
            self.known[text] = self.t.encode(text, add_special_tokens=False).ids
        return self.known[text]

    def prefix(self, images):
        """Ids around the pictures: (before the first, between two)."""
        return [self.begin, *self.ids("USER: ")], self.ids("\n")

    def conversation(self, turns):
        """Turns after the picture -> ids, and which of them are answers (1) or ends (2)."""
        ids, kind = [], []
        for i, turn in enumerate(turns):
            head = "\n" if i == 0 else "USER: "
            question = self.ids(f"{head}{turn.question} ASSISTANT:")
            whole = self.ids(f"{head}{turn.question} ASSISTANT: {turn.answer}")
            assert whole[: len(question)] == question
            ids += [*whole, self.end]
            kind += [0] * len(question) + [1] * (len(whole) - len(question)) + [2]
        return ids, kind


class Source:
    """knobs: how full scenes are (Scenes.scenes); none: as in the evaluation of nano."""

    def __init__(self, path, tokenizer, shape, split="train", **knobs):
        self.scenes, self.text, self.shape, self.split = library.Scenes(path), Text(tokenizer), shape, split
        self.knobs = knobs

    # ---- pictures ----

    def pixels(self, scenes):
        side = self.shape.side
        rgb = np.frombuffer(self.scenes.render(scenes, side), np.uint8).reshape(-1, side, side, 3)
        x = (rgb.astype(np.float32) * (1 / 255) - MEAN) / STD
        return torch.from_numpy(np.ascontiguousarray(x.transpose(0, 3, 1, 2)))

    def labels(self, scenes):
        g = self.shape.grid
        p = np.frombuffer(self.scenes.patches(scenes, g), library.PATCH).reshape(len(scenes), g * g)
        what = np.full(p.shape, 6, np.int64)
        for kind, base in ((1, "shape"), (2, 7), (3, 17)):
            here = p["kind"] == kind
            what[here] = p["shape"][here] if kind == 1 else base + p["digit"][here]
        color = np.where(p["color"] < 0, 8, p["color"]).astype(np.int64)
        size = np.where(p["size"] < 0, 3, p["size"]).astype(np.int64)
        # Where the thing of a patch is, in thirds of the picture: what questions about places ask for,
        # and what a row of the tower would not tell by itself.
        y, x = np.divmod(np.arange(g * g), g)
        place = np.stack([x + 0.5 + p["dx"], y + 0.5 + p["dy"]], -1).astype(np.float32) * (3 / g)
        return torch.from_numpy(np.stack([what, color, size], -1)), torch.from_numpy(place)

    def pictures(self, first, n):
        """Only pictures and labels, for the first stage."""
        scenes = self.scenes.scenes(self.split, first, n, objects=(2, 9))
        return self.pixels(scenes), *self.labels(scenes)

    # ---- samples ----

    def single(self, first, n, blocks=12):
        """Samples about one picture each."""
        scenes = self.scenes.scenes(self.split, first, n, **self.knobs)
        asked = [self._ask(s, first + i, blocks) for i, s in enumerate(scenes)]
        return self._pack([[s] for s in scenes], asked)

    def double(self, first, n, blocks=6):
        """Samples that compare two pictures."""
        pairs = [self.scenes.scenes(self.split, (1 << 39) + 2 * (first + i), 2, **self.knobs) for i in range(n)]
        asked = []
        for i, pair in enumerate(pairs):
            some = [self.scenes.ask(pair, "compare", (first + i) * 64 + j) for j in range(2 * blocks)]
            asked.append([("compare", turns) for turns in some if turns][:blocks])
        return self._pack(pairs, asked)

    def _ask(self, scene, number, blocks):
        r = random.Random(number)
        tasks, captions = next((tasks, share) for since, tasks, share in reversed(ASKED) if number >= since)
        asked, seen = [], set()
        for j in range(6 * blocks):
            task = r.choices(list(tasks), list(tasks.values()))[0]
            turns = self.scenes.ask(scene, task, number * 64 + j)
            if not turns or (key := tuple(t.question for t in turns)) in seen:
                continue
            seen.add(key)
            asked.append((task, turns))
            if len(asked) == blocks:
                break
        if blocks > 1 and r.random() < captions:
            turns = self.scenes.ask(scene, "caption", number * 64)
            if turns:
                asked.append(("caption", turns))
        return asked

    def _pack(self, pictures, asked):
        text, rows = self.text, self.shape.rows
        images, b = len(pictures[0]), len(pictures)
        before, between = text.prefix(images)
        prefix = len(before) + images * rows + (images - 1) * len(between)
        first, position, bounds = [], [], [0]
        ids, wanted, target, weight, block, answers = [], [], [], [], [], []
        for blocks in asked:
            own = []
            first += [0] * prefix
            position += range(prefix)
            for task, turns in blocks:
                new, kind = text.conversation(turns)
                begin = prefix + len(own)
                first += [begin] * len(new)
                position += range(prefix, prefix + len(new))
                own += new
                for i in filter(kind.__getitem__, range(len(new))):
                    wanted.append(bounds[-1] + begin + i - 1)
                    target.append(new[i])
                    weight.append(WEIGHT.get(task, 1.0) * (1.0 if kind[i] == 1 else END_WEIGHT))
                    block.append(len(answers))
                answers.append(TASKS.index(task))
            ids.append(own)
            bounds.append(bounds[-1] + prefix + len(own))
        flat = [s for p in pictures for s in p]
        labels, place = self.labels(flat)
        tensor = lambda x, kind=torch.int64: torch.tensor(x, dtype=kind)
        return Batch(
            self.pixels(flat), images, ids, Rows(bounds, prefix, first, position),
            tensor(wanted), tensor(target), tensor(weight, torch.float32), tensor(block), tensor(answers),
            labels, place,
        )  # fmt: skip


def rows_of(net, text, batch, seen):
    """Embeddings of a whole batch, [rows, d]; seen are the visual rows [b * images, rows, d]."""
    before, between = text.prefix(batch.images)
    words = [before, *[between] * (batch.images - 1)]  # before each picture
    ids = [i for own in batch.ids for run in (*words, own) for i in run]
    parts = iter(torch.nn.functional.embedding(torch.tensor(ids), net.w["embed"]).split(
        [len(run) for own in batch.ids for run in (*words, own)]
    ))  # fmt: skip
    pictures, x = iter(seen), []
    for _ in batch.ids:
        for _ in words:
            x += [next(parts), next(pictures)]
        x.append(next(parts))
    return torch.cat(x)
