"""Trains the checkpoint: `see` teaches the vision tower what each patch shows, `answer` trains the whole
on questions. State and curves lie in --out; a run that was stopped goes on where it was.

    ./dev train [--hours H] [--size nano|large] [--smoke]
"""

import argparse
import json
import math
import os
import shutil
import sys
import time

import torch
import torch.multiprocessing as mp
import torch.nn.functional as F

import data
import ops
import tokenizer as tk
from model import LARGE, Network, Shape
from shared import Mover, Shared

STAGES = {
    "see": dict(samples=32000, batch=16, rate=2e-3, matrix_rate=0.015, dense=1.0),
    "answer": dict(samples=100000, batch=16, rate=1e-3, matrix_rate=0.01, dense=0.5),
}
WARM, COOL = 150, 0.25  # steps of rising rate; the last part of a stage, of falling rate
PLACE = 8.0  # weight of the place, in thirds of the picture: its errors are small numbers
CHECK_EVERY, SMOKE_EVERY = 240, 15  # seconds


# ---- losses ----------------------------------------------------------------------------------


def dense_loss(net, rows, labels, place):
    """What each patch shows; background counts little, there is so much of it. Also the share of
    things that are named rightly."""
    *parts, where = net.dense(rows)
    shown = labels[..., 0] != 6
    weight = torch.where(shown, 1.0, 0.15)
    weight = weight / weight.sum()
    loss = sum(F.cross_entropy(p.flatten(0, 1), labels[..., i].flatten(), reduction="none") for i, p in enumerate(parts))
    loss = loss + PLACE * F.smooth_l1_loss(where, place, reduction="none").sum(-1).flatten()
    right = ((parts[0].argmax(-1) == labels[..., 0]) & (parts[1].argmax(-1) == labels[..., 1]))[shown]
    return (loss * weight.flatten()).sum(), int(right.sum()), right.numel()


def answer_loss(net, text, batch, seen):
    logits = net.say(data.rows_of(net, text, batch, seen), batch.rows, batch.wanted)
    loss = F.cross_entropy(logits, batch.target, reduction="none")
    wrong = torch.zeros(len(batch.task), dtype=torch.int64)
    wrong.index_add_(0, batch.block, (logits.argmax(-1) != batch.target).long())
    return (loss * batch.weight).sum() / batch.weight.sum(), wrong == 0


# ---- one process -----------------------------------------------------------------------------


class Process:
    def __init__(self, rank, shared, args):
        torch.set_num_threads(args.threads)
        torch.set_flush_denormal(True)
        ops.keep_memory()
        self.rank, self.shared, self.args = rank, shared, args
        self.net = Network(args.shape, shared.flat)
        self.grad = shared.grads[rank]
        self.net.gradients_into(self.grad)
        bpe = tk.Tokenizer.from_file(os.path.join(args.out, "tokenizer.json"))
        self.train = data.Source(data.LIBRARY, bpe, args.shape)
        self.check = data.Source(data.LIBRARY, bpe, args.shape, "check")
        self.mover = Mover(shared, rank, self.net.spans)

    def share(self, number, batch):
        """Which samples of step `number` are this process's."""
        each = batch // self.shared.world
        return number * batch + self.rank * each, each

    def see(self, number, batch):
        pixels, labels, place = self.train.pictures((1 << 38) + self.share(number, batch)[0], self.share(number, batch)[1])
        loss, right, n = dense_loss(self.net, self.net.see(pixels), labels, place)
        loss.backward()
        return dict(loss=(loss.item(), 1), patch=(right, n))

    def answer(self, number, batch, dense):
        first, each = self.share(number, batch)
        make = self.train.double if number % 5 == 4 else self.train.single
        b = make(first, max(1, each // 2) if number % 5 == 4 else each)
        seen = self.net.see(b.pixels)
        loss, right = answer_loss(self.net, self.train.text, b, seen)
        total = loss
        if dense > 0:
            total = total + dense * dense_loss(self.net, seen, b.labels, b.place)[0]
        total.backward()
        counts = dict(loss=(loss.item(), 1))
        for i, name in enumerate(data.TASKS):
            here = b.task == i
            counts[name] = (int(right[here].sum()), int(here.sum()))
        return counts

    @torch.no_grad()
    def examine(self, n):
        """The same questions each time, from scenes of the check split; this process's half."""
        counts = {}
        for first in range(self.rank * 8, n, 8 * self.shared.world):
            for make in (self.check.single, self.check.double):
                b = make(first, 8) if make == self.check.single else make(first, 4)
                seen = self.net.see(b.pixels)
                _, patch, shown = dense_loss(self.net, seen, b.labels, b.place)
                _, right = answer_loss(self.net, self.check.text, b, seen)
                add(counts, "patch", patch, shown)
                for i, name in enumerate(data.TASKS):
                    here = b.task == i
                    add(counts, name, int(right[here].sum()), int(here.sum()))
        return counts

    def together(self, counts):
        """Sums of all processes' counts."""
        names = ["loss", "patch", *data.TASKS]
        mine = torch.tensor([x for n in names for x in counts.get(n, (0, 0))], dtype=torch.float64)
        self.shared.sums[self.rank, : len(mine)] = mine
        self.shared.barrier.wait()
        both = self.shared.sums.sum(0)
        self.shared.barrier.wait()
        return {n: (float(both[2 * i]), float(both[2 * i + 1])) for i, n in enumerate(names)}


def add(counts, name, x, n):
    a, b = counts.get(name, (0, 0))
    counts[name] = (a + x, b + n)


def percent(counts):
    return {n: round(100 * x / k, 1) for n, (x, k) in counts.items() if k and n != "loss"}


# ---- a stage ---------------------------------------------------------------------------------


def rate_at(done, step):
    """What part of the full rate holds: rises, stays, falls; `done` in 0..1."""
    return min(1, (step + 1) / WARM) * min(1, max(0.0, 1 - done) / COOL)


def run_stage(p, name, state):
    plan = STAGES[name]
    batch, budget = plan["batch"] * p.shared.world // 2, state["seconds"][name]
    samples = max(1, int(plan["samples"] * p.args.scale))
    begin = last_check = shown_at = time.monotonic()
    counts, spent = {}, state["spent"][name]
    while True:
        elapsed = spent + time.monotonic() - begin
        number = state["step"][name]
        done = max(number * batch / samples, elapsed / budget if budget else 0)
        if p.rank == 0:
            p.shared.flag[0] = int(done >= 1 or time.monotonic() > p.args.until)
            p.shared.sums[0, 63] = done
        p.shared.barrier.wait()
        done, stop = float(p.shared.sums[0, 63]), bool(p.shared.flag[0])
        if not stop:
            if name == "see":
                new = p.see(number, batch)
            else:
                new = p.answer(number, batch, plan["dense"] * max(0, 1 - done / 0.8))
            for k, (x, n) in new.items():
                add(counts, k, x, n)
            state["updates"] += 1
            part = rate_at(done, number)
            p.mover.step(state["updates"], part * plan["rate"], part * plan["matrix_rate"])
            state["step"][name] += 1
        due = time.monotonic() - last_check > (SMOKE_EVERY if p.args.smoke else CHECK_EVERY)
        if p.rank == 0:
            p.shared.flag[0] = int(due or stop)
        p.shared.barrier.wait()
        if p.rank == 0 and sys.stdout.isatty() and time.monotonic() - shown_at > 1:
            shown_at = time.monotonic()
            print(f"\r{name} {100 * done:5.1f} %  {number * batch} samples", end="", flush=True)
        if bool(p.shared.flag[0]):
            state["spent"][name] = spent + time.monotonic() - begin
            record(p, name, state, counts, done, batch)
            counts, last_check = {}, time.monotonic()
        p.shared.barrier.wait()
        if stop:
            return done >= 1


def record(p, name, state, counts, done, batch):
    seen, checked = p.together(counts), p.together(p.examine(16 if p.args.smoke else 96) if name == "answer" else {})
    if p.rank != 0:
        return
    line = dict(
        stage=name, minutes=round(state["spent"][name] / 60, 1), samples=state["step"][name] * batch, done=round(done, 3),
        loss=round(seen["loss"][0] / seen["loss"][1], 4) if seen["loss"][1] else None, train=percent(seen), check=percent(checked),
    )  # fmt: skip
    with open(os.path.join(p.args.out, "curves.jsonl"), "a") as f:
        f.write(json.dumps(line) + "\n")
    print(("\r" if sys.stdout.isatty() else "") + json.dumps(line), flush=True)
    save(p.shared, state, p.args.out)


def save(shared, state, out):
    path = os.path.join(out, "state.pt")
    torch.save(dict(state=state, flat=shared.flat, moment=shared.moment, square=shared.square), path + ".new")
    os.replace(path + ".new", path)


def work(rank, shared, args, state):
    p = Process(rank, shared, args)
    for name in STAGES:
        if not state["finished"][name]:
            if not run_stage(p, name, state):
                return
            state["finished"][name] = True
            if rank == 0:
                save(shared, state, args.out)
            shared.barrier.wait()


# ---- the program -----------------------------------------------------------------------------


def make_tokenizer(out, vocab):
    """From questions and answers about scenes that are used for nothing else."""
    library = data.library.Scenes(data.LIBRARY)
    lines = []
    for i in range(600):
        for task in library.tasks:
            for t in library.item("train", task, (1 << 37) + i).turns:
                lines.append(f"USER: {t.question} ASSISTANT: {t.answer}")
    tk.train(lines, vocab).save(os.path.join(out, "tokenizer.json"))


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--out", help="state and curves [build/train; with --smoke build/train-smoke, made anew]")
    a.add_argument("--size", choices=("nano", "large"), default="nano")
    a.add_argument("--hours", type=float, default=2.5, help="of both stages together; see gets a tenth")
    a.add_argument("--stop-after", type=float, default=0, help="stop after so many hours, to go on another time")
    a.add_argument("--smoke", action="store_true", help="a minute or two: does the loss fall?")
    a.add_argument("--processes", type=int, default=2)
    a.add_argument("--threads", type=int, default=1, help="of each process")
    a.add_argument("--seed", type=int, default=1)
    args = a.parse_args()
    args.shape = LARGE if args.size == "large" else Shape()
    args.scale = 0.004 if args.smoke else 1.0
    args.until = time.monotonic() + 3600 * args.stop_after if args.stop_after else math.inf
    if not args.out:
        args.out = os.path.join(data.ROOT, "build", "train-smoke" if args.smoke else "train")
    if args.smoke:
        shutil.rmtree(args.out, ignore_errors=True)
    if ops.library() is None:
        print("no C compiler works here: layers in plain PyTorch, which takes about twice the time", file=sys.stderr)
    os.makedirs(args.out, exist_ok=True)
    if not os.path.exists(os.path.join(args.out, "tokenizer.json")):
        make_tokenizer(args.out, args.shape.vocab)
    n = Network(args.shape).flat.numel()
    shared = Shared(n, args.processes)
    path = os.path.join(args.out, "state.pt")
    if os.path.exists(path):
        old = torch.load(path)
        state = old["state"]
        for key in ("flat", "moment", "square"):
            getattr(shared, key).copy_(old[key])
    else:
        Network(args.shape, shared.flat).start(args.seed)
        hours = args.hours * 3600
        state = dict(
            updates=0, step=dict.fromkeys(STAGES, 0), spent=dict.fromkeys(STAGES, 0.0), finished=dict.fromkeys(STAGES, False),
            seconds=dict(see=0.1 * hours, answer=0.9 * hours),
        )  # fmt: skip
    mp.spawn(work, (shared, args, state), nprocs=args.processes)
    if not all(torch.load(path)["state"]["finished"].values()):
        sys.exit(4)  # stopped by --stop-after
    if args.smoke:
        first, *_, last = answer_losses(args.out)
        print(f"loss of answers {first} -> {last}")
        if last >= first:
            sys.exit("the loss has not fallen")


def answer_losses(out):
    with open(os.path.join(out, "curves.jsonl")) as f:
        return [line["loss"] for line in map(json.loads, f) if line["stage"] == "answer" and line["loss"] is not None]


if __name__ == "__main__":
    main()
