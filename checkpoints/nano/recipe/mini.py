"""Grows nano into mini: the same layers on images with twice the side, 576 visual tokens, and rich scenes.

    python mini.py --out build/mini --samples 60000
    python mini.py --out build/mini --export checkpoints/mini
    python mini.py --from checkpoints/mini --out build/more --samples 20000    goes on from what was exported

It begins with nano's weights; positions of the vision tower are stretched. From a checkpoint of its own shape it begins with all of them; the
optimiser's moments and the reading of patches (`dense`), which no checkpoint has, begin anew, and with --first at samples that were not used yet. Everything is trained, on four losses:

  answers  cross entropy of the answers' tokens, as in train.py
  patches  what each patch shows and where that is, as in train.py
  looks    keys and values of the visual tokens, in every layer, carry what their patch looks like: of the normalised
           matrix K' = K - mean, a fixed projection P of 48 dimensions is to be the patch's look, scaled to SHARE of the
           energy: mean (P K'_j / rms(K') - s look_j)^2 / s^2, s^2 = SHARE d / 48. The look of a patch are the means of its
           3 x 3 pixels, [4, 4, 3], made white over rich images.
  spread   of an image, the energy of K, its mean included, lies in many dimensions: max(0, log ENOUGH tr(C^2) / tr(C)^2),
           C = K^T K. tr(C)^2 / tr(C^2) is the participation ratio; where it is 20, some 32 dimensions have 90 % of the energy.

Without the last two, keys and values hold what the questions ask for and no more: 7 to 9 dimensions have 90 % of their
energy in nano, 64 in a network trained on photographs. The look is the same in all layers, as neighbouring layers
share directions there too. No question asks for it: it is what a compressor should find to be of no use.

State and curve lie in --out; a run that was stopped goes on where it was, also with other --samples.
"""

import argparse
import dataclasses
import json
import math
import os
import signal
import sys
import time

import torch
import torch.multiprocessing as mp
import torch.nn.functional as F

import data
import export
import ops
import tokenizer as tk
from model import Network, Shape
from qcache import load, visual_rows
from shared import Mover, Shared
from train import dense_loss

SHAPE = Shape(side=288)
RICH = dict(objects=(1, 16), numbers=(0, 6), written_percent=50, rich=True)
BATCH, BLOCKS = 8, 16
RATE, MATRIX_RATE = 6e-4, 5e-3
WARM, COOL = 60, 0.3  # steps of rising rate; the last part of a run, of falling rate
DENSE, SHARE, ENOUGH = 0.3, 0.5, 22.0
LOOK_SPREAD = ((0, 2.0, 0.5), (3000, 0.7, 0.5), (5300, 0.25, 0.3))  # weights from a sample on; from an own checkpoint the last ones
LOOKED_AT = 96  # visual tokens of an image
FIRST = 1 << 21  # number of the first sample: those of train.py and qcache.py are below
SAVE_EVERY, CHECK_EVERY = 20, 100  # steps
CHECKED = 48  # samples


# ---- how patches look ------------------------------------------------------------------------


def blocks(pixels):
    """[n, 3, side, side] -> [n * rows, 48]: means of 3 x 3 pixels of each patch."""
    g, n = SHAPE.grid, len(pixels)
    x = F.avg_pool2d(pixels, SHAPE.patch // 4)
    return x.view(n, 3, g, 4, g, 4).permute(0, 2, 4, 1, 3, 5).reshape(n * g * g, 48)


class Look:
    """Fixed: from the first scenes, and a generator's seed."""

    def __init__(self, source):
        x = blocks(source.pixels(source.scenes.scenes("train", 1 << 36, 64, **RICH)))
        self.mean = x.mean(0)
        value, vector = torch.linalg.eigh((x - self.mean).t() @ (x - self.mean) / len(x))
        self.white = vector / value.sqrt()
        g = torch.Generator().manual_seed(3)
        random = torch.randn(2 * SHAPE.layers, SHAPE.d, 48, generator=g)
        self.onto = torch.linalg.qr(random)[0]  # of keys and values of each layer
        self.scale = math.sqrt(SHARE * SHAPE.d / 48)

    def of(self, pixels):
        return ((blocks(pixels) - self.mean) @ self.white).clamp(-3, 3)

    def loss(self, layer, kv, look):
        """(looks, spread). kv [rows, 2 d]: keys before rotation and values, LOOKED_AT rows of each image. look [rows, 48]."""
        looks = spread = 0
        for i, x in enumerate(kv.split(SHAPE.d, -1)):
            own = x.view(-1, LOOKED_AT, SHAPE.d)
            x = x - x.mean(0)
            x = x * x.square().mean().add(1e-6).rsqrt()
            looks = looks + (x @ self.onto[2 * layer + i] / self.scale - look).square().mean()
            gram = own @ own.transpose(1, 2)  # its eigenvalues are those of C
            energy = own.square().sum((1, 2))
            spread = spread + (ENOUGH * gram.square().sum((1, 2)) / energy.square()).log().clamp(min=0).mean()
        return looks / (2 * SHAPE.layers), spread / (2 * SHAPE.layers)


# ---- the text model --------------------------------------------------------------------------


def say(net, x, rows, wanted, shown):
    """As Network.say; also keys and values of each layer, [len(shown), 2 d]."""
    rows.turn(net.inverse)
    kv = []
    for i in range(SHAPE.layers):
        x, own = ops.TextLayer.apply(x, net.part(f"text.{i}."), rows, SHAPE.heads, wanted if i == SHAPE.layers - 1 else None, shown)
        kv.append(own)
    return F.rms_norm(x, (SHAPE.d,), net.w["norm"], 1e-5) @ net.w["head"].t(), kv


def side_of(folder):
    """Of a checkpoint's images, pixels."""
    with open(os.path.join(folder, "config.json")) as f:
        return json.load(f)["vision_config"]["image_size"]


@torch.no_grad()
def begin(net, folder, seed):
    """A checkpoint's weights, nano's or its own; what it does not have is drawn."""
    net.start(seed)
    side = side_of(folder)
    nano = Network(dataclasses.replace(SHAPE, side=side))
    load(nano, folder)
    for name, w in net.w.items():
        if name == "position" and side != SHAPE.side:
            grid = nano.w[name][1:].t().reshape(1, -1, nano.shape.grid, nano.shape.grid)
            w[1:] = F.interpolate(grid, (SHAPE.grid, SHAPE.grid), mode="bicubic", align_corners=False).flatten(2)[0].t()
            w[0] = nano.w[name][0]
        elif not name.startswith("dense"):
            w.copy_(nano.w[name])


# ---- one process -----------------------------------------------------------------------------


class Process:
    def __init__(self, rank, shared, args):
        torch.set_num_threads(args.threads)
        torch.set_flush_denormal(True)
        ops.keep_memory()
        self.rank, self.shared, self.first, self.further = rank, shared, FIRST + args.first, side_of(args.start) == SHAPE.side
        self.net = Network(SHAPE, shared.flat)
        self.net.gradients_into(shared.grads[rank])
        bpe = tk.Tokenizer.from_file(os.path.join(args.start, "tokenizer.json"))
        self.train = data.Source(data.LIBRARY, bpe, SHAPE, **RICH)
        self.check = data.Source(data.LIBRARY, bpe, SHAPE, "check", **RICH)
        self.look = Look(self.train)
        self.mover = Mover(shared, rank, self.net.spans)

    def losses(self, source, b, seed):
        """(answers, patches, looks, spread), and which answers are right."""
        seen = self.net.see(b.pixels)
        visual = visual_rows(source.text, b, SHAPE.rows)
        some = torch.rand(len(visual) // SHAPE.rows, SHAPE.rows, generator=torch.Generator().manual_seed(seed))
        some = some.argsort(1)[:, :LOOKED_AT]
        some = (some + SHAPE.rows * torch.arange(len(some))[:, None]).flatten()
        logits, kv = say(self.net, data.rows_of(self.net, source.text, b, seen), b.rows, b.wanted, visual[some])
        answers = F.cross_entropy(logits, b.target, reduction="none")
        wrong = torch.zeros(len(b.task), dtype=torch.int64)
        wrong.index_add_(0, b.block, (logits.detach().argmax(-1) != b.target).long())
        look = self.look.of(b.pixels)[some]
        looks, spread = (sum(x) for x in zip(*(self.look.loss(i, x, look) for i, x in enumerate(kv))))
        answers = (answers * b.weight).sum() / b.weight.sum()
        return answers, dense_loss(self.net, seen, b.labels, b.place)[0], looks, spread, wrong == 0

    def step(self, number):
        each = BATCH // self.shared.world
        first = self.first + number * BATCH + self.rank * each
        double = number % 5 == 4
        b = self.train.double(first, max(1, each // 2)) if double else self.train.single(first, each, BLOCKS)
        answers, patches, looks, spread, _ = self.losses(self.train, b, number)
        _, look, weight = LOOK_SPREAD[-1] if self.further else next(w for w in reversed(LOOK_SPREAD) if number * BATCH >= w[0])
        (answers + DENSE * patches + look * looks + weight * spread).backward()
        return answers.item(), patches.item(), looks.item(), spread.item()

    @torch.no_grad()
    def examine(self):
        """The same samples each time, from scenes of the check split: asked and right of each task."""
        sums = [0.0] * 2 * len(data.TASKS)
        for first in range(self.rank * 4, CHECKED, 4 * self.shared.world):
            for b in (self.check.single(first, 4), self.check.double(first, 2)):
                *_, right = self.losses(self.check, b, 0)
                for i in range(len(data.TASKS)):
                    here = b.task == i
                    sums[2 * i] += int(here.sum())
                    sums[2 * i + 1] += int((here & right).sum())
        return sums

    def together(self, sums):
        """Sums of all processes."""
        self.shared.sums[self.rank, : len(sums)] = torch.tensor(sums, dtype=torch.float64)
        self.shared.barrier.wait()
        both = self.shared.sums.sum(0)[: len(sums)].tolist()
        self.shared.barrier.wait()
        return both


# ---- a run -----------------------------------------------------------------------------------


def rate_at(step, samples):
    return min(1, (step + 1) / WARM) * min(1, max(0.0, 1 - step * BATCH / samples) / COOL)


def work(rank, shared, args, state):
    signal.signal(signal.SIGINT, signal.default_int_handler)  # it comes when the parent ends, and may be ignored in the background
    p = Process(rank, shared, args)
    start, spent, sums = time.monotonic(), state["seconds"], [0.0] * 5
    while state["step"] * BATCH < args.samples:
        while rank == 0 and args.pause and os.path.exists(args.pause):
            time.sleep(5)
        sums = [a + b for a, b in zip(sums, (*p.step(state["step"]), 1))]
        part = rate_at(state["step"], args.samples)
        state["step"] += 1
        p.mover.step(state["step"], part * RATE, part * MATRIX_RATE)
        end = state["step"] * BATCH >= args.samples
        state["seconds"] = spent + time.monotonic() - start
        if state["step"] % SAVE_EVERY == 0 or end:
            record(p, args, state, sums, state["step"] % CHECK_EVERY == 0 or end)
            sums = [0.0] * 5


def record(p, args, state, sums, examine):
    """A line of the curve, and the state."""
    *losses, n = p.together(sums)
    checked = p.together(p.examine()) if examine else None
    if p.rank != 0:
        return
    line = dict(samples=state["step"] * BATCH, minutes=round(state["seconds"] / 60, 1))
    line.update((name, round(x / n, 4)) for name, x in zip(("answers", "patches", "looks", "spread"), losses))
    if checked:
        line["check"] = {t: round(100 * r / k, 1) for t, k, r in zip(data.TASKS, checked[::2], checked[1::2]) if k}
    print(json.dumps(line), flush=True)
    with open(os.path.join(args.out, "curve.jsonl"), "a") as f:
        f.write(json.dumps(line) + "\n")
    path = os.path.join(args.out, "state.pt")
    torch.save(dict(state=state, flat=p.shared.flat, moment=p.shared.moment, square=p.shared.square), path + ".new")
    os.replace(path + ".new", path)


# ---- the program -----------------------------------------------------------------------------


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--from", dest="start", default=os.path.join(data.ROOT, "checkpoints", "nano"), help="what it begins with [checkpoints/nano]")
    a.add_argument("--out", default=os.path.join(data.ROOT, "build", "mini"), help="state and curve [build/mini]")
    a.add_argument("--samples", type=int, default=60000, help="the rate falls over the last third of them [60000]")
    a.add_argument("--first", type=int, default=0, help="number of the first sample [0]")
    a.add_argument("--seed", type=int, default=1)
    a.add_argument("--processes", type=int, default=2)
    a.add_argument("--threads", type=int, default=1, help="of each process [1]")
    a.add_argument("--pause", metavar="FILE", help="wait while FILE exists")
    a.add_argument("--export", metavar="DIR", help="write the state as a checkpoint instead")
    args = a.parse_args()
    if ops.library() is None:
        sys.exit("mini.py needs a C compiler")
    if BATCH % args.processes:
        sys.exit(f"--processes {args.processes}: must divide a batch of {BATCH} samples")
    shared = Shared(Network(SHAPE).flat.numel(), args.processes)
    path = os.path.join(args.out, "state.pt")
    state = dict(step=0, seconds=0.0)
    if os.path.exists(path):
        old = torch.load(path)
        state = old["state"]
        for key in ("flat", "moment", "square"):
            getattr(shared, key).copy_(old[key])
    elif args.export:
        sys.exit(f"{path} is missing: train first")
    else:
        begin(Network(SHAPE, shared.flat), args.start, args.seed)
    if args.export:
        net = Network(SHAPE, shared.flat)
        total = export.write_all(net, args.start, args.export)
        worst = export.largest_difference(net, args.start, args.export)
        print(f"wrote {args.export}: {total} bytes after {state['step'] * BATCH} samples; logits differ from transformers by {worst:.1e}")
        if worst > 1e-3:
            sys.exit("that is too much: the folder is not the network that was trained")
        return
    os.makedirs(args.out, exist_ok=True)
    mp.spawn(work, (shared, args, state), nprocs=args.processes)


if __name__ == "__main__":
    main()
