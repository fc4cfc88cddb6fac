"""Trains a checkpoint's text model for lazy attention (Q Cache, mode VLA) and writes what has changed as a checkpoint of
its own: one file with the tensors that were trained, and links to the files of the checkpoint that it began with.

    python qcache.py --out build/qcache --blocks 2-4/5-7/8-10
    python qcache.py --out build/qcache --export checkpoints/nano-vla

In a block the visual tokens of the layers after the first, the lazy ones, take the queries and keys of the first, the
source layer; text tokens and values are each layer's own (policy/plan/lazy.c: `lazy=vla,map=given,blocks=...`).
Query, key, value and output projections and the norms of the text model are trained, a quarter of the parameters. The loss of a token of an
answer is its cross entropy plus the KL divergence from the exact network, which is the checkpoint without lazy layers,
to the lazy one. Samples are those of train.py, from scenes that it has not used, at a tenth of its rates.

A run that was stopped goes on where it was: --out has its state and its curve.
"""

import argparse
import json
import math
import os
import signal
import sys
import time

import torch
import torch.multiprocessing as mp
import torch.nn.functional as F
from safetensors import safe_open
from safetensors.torch import save_file

import data
import export
import ops
import tokenizer as tk
from model import Network, Shape, attend
from shared import Mover, Shared

BATCH = 16
RATE, MATRIX_RATE = 1e-4, 1e-3  # a tenth of train.py's
WARM, COOL = 40, 0.25  # steps of rising rate; the last part of a run, of falling rate
FIRST = 1 << 20  # number of the first sample: train.py's are below
SAVE_EVERY, CHECK_EVERY = 13, 65  # steps
CHECKED = 96  # samples
INDEX, DELTA = "model.safetensors.index.json", "model-vla.safetensors"


# ---- which layers are lazy -------------------------------------------------------------------


def sources(blocks, layers):
    """`2-4/5-7` -> for each layer its source layer: itself, or the first of its block."""
    source = list(range(layers))
    after = 0
    for block in blocks.split("/"):
        first, dash, last = block.partition("-")
        if not (dash and first.isdecimal() and last.isdecimal()):
            sys.exit(f"--blocks {blocks}: write it as 2-4/5-7")
        first, last = int(first), int(last)
        if not after <= first <= last < layers:
            sys.exit(f"--blocks {blocks}: blocks ascend, do not overlap, and end at layer {layers - 1} at the latest")
        source[first : last + 1] = [first] * (last + 1 - first)
        after = last + 1
    return source


def visual_rows(text, batch, per_image):
    """Which rows of a batch are of pictures."""
    before, between = text.prefix(batch.images)
    starts = [len(before) + i * (per_image + len(between)) for i in range(batch.images)]
    return torch.cat([a + s + torch.arange(per_image) for a, _ in batch.rows.samples() for s in starts])


# ---- the text model with lazy layers ---------------------------------------------------------


class Layer(torch.autograd.Function):
    """x [rows, d] -> (x after the layer, queries and keys of the visual rows [visual rows, 2 d] where the layer `leads` a block, or None).
    shared: those of the source layer in a lazy layer, otherwise None. wanted: as in ops.TextLayer. The gradients of what is trained
    are added straight into .grad."""

    @staticmethod
    def forward(ctx, x, shared, w, rows, heads, wanted, visual, leads):
        y1, inverse1 = ops.rms(x, w["norm1"])
        qkv = ops.product(y1, w["qkv"].t())
        qk = 2 * x.shape[1]
        if shared is not None:
            qkv[visual, :qk] = shared
        a, lse = ops.attend(qkv, rows, heads, wanted is not None)
        asked, around = (a, x) if wanted is None else (a[wanted], x[wanted])
        z = ops.add(around, ops.product(asked, w["out"].t()))
        y2, inverse2 = ops.rms(z, w["norm2"])
        gate_up = ops.product(y2, w["gate_up"].t())
        h = ops.swiglu(gate_up)
        ctx.save_for_backward(x, y1, inverse1, qkv, a, lse, asked, z, inverse2, gate_up)
        ctx.rest = w, rows, heads, wanted, visual, shared is not None
        return ops.add(z, ops.product(h, w["down"].t())), qkv[visual, :qk] if leads else None

    @staticmethod
    def backward(ctx, grad, grad_shared):
        x, y1, inverse1, qkv, a, lse, asked, z, inverse2, gate_up = ctx.saved_tensors
        w, rows, heads, wanted, visual, lazy = ctx.rest
        grad, qk = grad.contiguous(), 2 * x.shape[1]
        dgate_up = ops.swiglu_back(gate_up, ops.product(grad, w["down"]))
        around = ops.rms_back(z, w["norm2"], inverse2, ops.product(dgate_up, w["gate_up"]), grad)
        ops.add_product(w["out"], around, asked)
        da = ops.product(around, w["out"])
        if wanted is not None:
            da, around = (t.new_zeros(x.shape).index_add_(0, wanted, t) for t in (da, around))
        dqkv = ops.attend_back(qkv, rows, heads, wanted is not None, a, lse, da)
        dshared = None
        if lazy:
            dshared = dqkv[visual, :qk]
            dqkv[visual, :qk] = 0
        elif grad_shared is not None:
            dqkv[visual, :qk] += grad_shared
        ops.add_product(w["qkv"], dqkv, y1)
        dx = ops.rms_back(x, w["norm1"], inverse1, ops.product(dqkv, w["qkv"]), around)
        return dx, dshared, None, None, None, None, None, None


def plain_layer(x, shared, w, rows, heads, wanted, visual, leads):
    """The same in plain PyTorch."""
    d = x.shape[1]
    qkv = F.linear(F.rms_norm(x, (d,), w["norm1"], 1e-5), w["qkv"])
    if shared is not None:
        queries_keys, values = qkv.split([2 * d, d], -1)
        qkv = torch.cat([queries_keys.index_copy(0, visual, shared), values], -1)
    a = attend(qkv, rows, heads)
    if wanted is not None:
        a, x = a[wanted], x[wanted]
    x = x + F.linear(a, w["out"])
    gate, up = F.linear(F.rms_norm(x, (d,), w["norm2"], 1e-5), w["gate_up"]).chunk(2, -1)
    return x + F.linear(F.silu(gate) * up, w["down"]), qkv[visual, : 2 * d] if leads else None


def say(net, x, rows, wanted, visual, source):
    """x [rows, d] -> logits [len(wanted), vocab], as Network.say."""
    s, layer, shared = net.shape, Layer.apply if net.fast else plain_layer, None
    rows.turn(net.inverse)
    for i in range(s.layers):
        leads = source[i] == i and i in source[i + 1 :]
        asked = wanted if i == s.layers - 1 else None
        x, own = layer(x, None if source[i] == i else shared, net.part(f"text.{i}."), rows, s.heads, asked, visual, leads)
        shared = own if leads else shared
    return F.rms_norm(x, (s.d,), net.w["norm"], 1e-5) @ net.w["head"].t()


# ---- the checkpoint --------------------------------------------------------------------------


def trained(name):
    """Of the network's tensors."""
    return name == "norm" or name.startswith("text.") and name.endswith((".qkv", ".out", ".norm1", ".norm2"))


def trained_file(name):
    """The same of a checkpoint's tensors."""
    return name.startswith("language_model.") and ("self_attn" in name or "norm" in name)


def read_index(folder):
    with open(os.path.join(folder, INDEX)) as f:
        return json.load(f)


@torch.no_grad()
def load(net, folder):
    where = read_index(folder)["weight_map"]
    files = {name: safe_open(os.path.join(folder, name), "pt") for name in set(where.values())}
    for name, view in export.names(net):
        view.copy_(files[where[name]].get_tensor(name).view(view.shape))


def write(net, start, folder):
    """The trained tensors, an index that says which file counts for a tensor that is in two, and links to the rest."""
    os.makedirs(folder, exist_ok=True)
    delta = {n: t.to(torch.bfloat16).contiguous() for n, t in export.names(net) if trained_file(n)}
    save_file(delta, os.path.join(folder, DELTA), metadata={"format": "pt"})
    index = read_index(start)
    index["weight_map"].update(dict.fromkeys(delta, DELTA))
    export.write_json(folder, INDEX, index)
    for name in sorted(os.listdir(start)):
        here = os.path.join(folder, name)
        if name != INDEX and name.endswith((".json", ".jinja", ".safetensors")) and not os.path.lexists(here):
            os.symlink(os.path.relpath(os.path.join(start, name), folder), here)
    return sum(t.nbytes for t in delta.values())


# ---- one process -----------------------------------------------------------------------------


class Process:
    def __init__(self, rank, shared, args):
        torch.set_num_threads(args.threads)
        torch.set_flush_denormal(True)
        ops.keep_memory()
        self.rank, self.shared, self.args = rank, shared, args
        self.net, self.exact = Network(args.shape, shared.flat), Network(args.shape)
        load(self.exact, args.start)
        self.net.gradients_into(shared.grads[rank])
        for name, w in self.net.w.items():
            w.requires_grad_(trained(name))
        bpe = tk.Tokenizer.from_file(os.path.join(args.start, "tokenizer.json"))
        self.train = data.Source(data.LIBRARY, bpe, args.shape)
        self.check = data.Source(data.LIBRARY, bpe, args.shape, "check")
        # no pull to zero: weights are to stay near those that they began with
        self.mover = Mover(shared, rank, {n: s for n, s in self.net.spans.items() if trained(n)}, pull=0.0)

    def logits(self, source, b):
        """Of the exact network and of the lazy one."""
        visual = visual_rows(source.text, b, self.args.shape.rows)
        with torch.no_grad():
            x = data.rows_of(self.exact, source.text, b, self.exact.see(b.pixels))
            exact = say(self.exact, x, b.rows, b.wanted, visual, range(self.args.shape.layers))
        x = x.requires_grad_(torch.is_grad_enabled())
        return exact, say(self.net, x, b.rows, b.wanted, visual, self.args.source)

    def losses(self, source, b):
        """(cross entropy, divergence), each of all answers, and which answers each network has right."""
        exact, lazy = self.logits(source, b)
        weight = b.weight / b.weight.sum()
        entropy = F.cross_entropy(lazy, b.target, reduction="none")
        p, q = exact.log_softmax(-1), lazy.log_softmax(-1)
        divergence = F.kl_div(q, p, log_target=True, reduction="none").sum(-1)
        right = []
        for logits in (exact, lazy):
            wrong = torch.zeros(len(b.task), dtype=torch.int64)
            right.append(wrong.index_add_(0, b.block, (logits.argmax(-1) != b.target).long()) == 0)
        return (entropy * weight).sum(), (divergence * weight).sum(), *right

    def step(self, number):
        """Gradients of step `number`; its losses."""
        each = BATCH // self.shared.world
        first = FIRST + number * BATCH + self.rank * each
        b = self.train.double(first, max(1, each // 2)) if number % 5 == 4 else self.train.single(first, each)
        entropy, divergence, *_ = self.losses(self.train, b)
        (entropy + divergence).backward()
        return entropy.item(), divergence.item()

    @torch.no_grad()
    def examine(self):
        """The same samples each time, from scenes of the check split: mean divergence, and of each task how many answers each
        network has right. This process's share."""
        sums = [0.0, 0.0] + [0.0] * 3 * len(data.TASKS)
        for first in range(self.rank * 8, CHECKED, 8 * self.shared.world):
            for b in (self.check.single(first, 8), self.check.double(first, 4)):
                _, divergence, exact, lazy = self.losses(self.check, b)
                sums[0] += divergence.item()
                sums[1] += 1
                for i in range(len(data.TASKS)):
                    here = b.task == i
                    for k, x in enumerate((here, here & exact, here & lazy)):
                        sums[2 + 3 * i + k] += int(x.sum())
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
    begin, spent, sums = time.monotonic(), state["seconds"], [0.0, 0.0, 0.0]
    if state["step"] == 0:
        record(p, state, sums)
    while state["step"] * BATCH < args.samples:
        while rank == 0 and args.pause and os.path.exists(args.pause):
            time.sleep(5)
        sums = [a + b for a, b in zip(sums, (*p.step(state["step"]), 1))]
        part = rate_at(state["step"], args.samples)
        state["step"] += 1
        p.mover.step(state["step"], part * RATE, part * MATRIX_RATE)
        end = state["step"] * BATCH >= args.samples
        state["seconds"] = spent + time.monotonic() - begin
        if state["step"] % SAVE_EVERY == 0 or end:
            record(p, state, sums, state["step"] % CHECK_EVERY == 0 or end)
            sums = [0.0, 0.0, 0.0]


def record(p, state, sums, examine=True):
    """A line of the curve, and the state."""
    entropy, divergence, n = p.together(sums)
    checked = p.together(p.examine()) if examine else None
    if p.rank != 0:
        return
    line = dict(samples=state["step"] * BATCH, minutes=round(state["seconds"] / 60, 1))
    if n:
        line.update(entropy=round(entropy / n, 4), divergence=round(divergence / n, 4))
    if checked:
        of = lambda k: [sum(checked[2 + k :: 3]), *checked[2 + k :: 3]]
        names, asked = ["all", *data.TASKS], of(0)
        percent = lambda k: {t: round(100 * x / m, 1) for t, x, m in zip(names, of(k), asked) if m}
        line["check"] = dict(divergence=round(checked[0] / checked[1], 4), exact=percent(1), lazy=percent(2))
    print(json.dumps(line), flush=True)
    save(p.shared, p.net.spans, state, p.args.out)
    with open(os.path.join(p.args.out, "curve.jsonl"), "a") as f:
        f.write(json.dumps(line) + "\n")


def stretches(spans):
    return [(at, at + math.prod(size)) for name, (at, size) in spans.items() if trained(name)]


def save(shared, spans, state, out):
    path = os.path.join(out, "state.pt")
    cut = {k: torch.cat([getattr(shared, k)[a:b] for a, b in stretches(spans)]) for k in ("flat", "moment", "square")}
    torch.save(dict(state=state, **cut), path + ".new")
    os.replace(path + ".new", path)


def restore(shared, spans, old):
    sizes = [b - a for a, b in stretches(spans)]
    for k in ("flat", "moment", "square"):
        for (a, b), x in zip(stretches(spans), old[k].split(sizes)):
            getattr(shared, k)[a:b] = x


# ---- the check -------------------------------------------------------------------------------


def compare(args):
    """Layers as single operations, in f32, against plain PyTorch: logits and all gradients."""
    ops.IN_BF16 = False
    results = []
    for fast in (True, False):
        shared = Shared(Network(args.shape).flat.numel(), 1)
        load(Network(args.shape, shared.flat), args.start)
        p = Process(0, shared, args)
        p.net.fast = p.exact.fast = fast
        parts = []
        for b in (p.train.single(FIRST, 2), p.train.double(FIRST, 1)):
            exact, lazy = p.logits(p.train, b)
            entropy, divergence, *_ = p.losses(p.train, b)
            (entropy + divergence).backward()
            parts += [exact, lazy.detach()]
        results.append([*parts, *(p.net.w[n].grad.clone() for n in p.net.w if trained(n))])
    worst = max(float((a - b).norm() / b.norm()) for a, b in zip(*results))
    print(f"largest relative difference of logits and gradients {worst:.1e}")
    if worst > 1e-4:
        sys.exit("that is too much")


# ---- the program -----------------------------------------------------------------------------


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--from", dest="start", default=os.path.join(data.ROOT, "checkpoints", "nano"), help="the exact network [checkpoints/nano]")
    a.add_argument("--out", default=os.path.join(data.ROOT, "build", "qcache"), help="state and curve [build/qcache]")
    a.add_argument("--blocks", default="2-4/5-7/8-10", help="first and last layer of each block [2-4/5-7/8-10]")
    a.add_argument("--samples", type=int, default=10000, help="the rate falls over the last quarter of them [10000]")
    a.add_argument("--processes", type=int, default=2)
    a.add_argument("--threads", type=int, default=1, help="of each process [1]")
    a.add_argument("--pause", metavar="FILE", help="wait while FILE exists")
    a.add_argument("--export", metavar="DIR", help="write the state as a checkpoint instead")
    a.add_argument("--check", action="store_true", help="compare with plain PyTorch instead")
    args = a.parse_args()
    args.shape = Shape()
    args.source = sources(args.blocks, args.shape.layers)
    if ops.library() is None:
        print("no C compiler works here: layers in plain PyTorch and f32, which takes several times as long", file=sys.stderr)
    if args.check:
        return compare(args)
    if BATCH % args.processes:
        sys.exit(f"--processes {args.processes}: must divide a batch of {BATCH} samples")
    net = Network(args.shape)
    shared = Shared(net.flat.numel(), args.processes)
    load(Network(args.shape, shared.flat), args.start)
    path = os.path.join(args.out, "state.pt")
    state = dict(step=0, seconds=0.0, blocks=args.blocks)
    if os.path.exists(path):
        old = torch.load(path)
        state = old["state"]
        if state["blocks"] != args.blocks:
            sys.exit(f"{args.out} is of a run with --blocks {state['blocks']}")
        restore(shared, net.spans, old)
    elif args.export:
        sys.exit(f"{path} is missing: train first")
    if args.export:
        size = write(Network(args.shape, shared.flat), args.start, args.export)
        print(f"wrote {args.export}: {size} bytes of trained tensors after {state['step'] * BATCH} samples")
        return
    os.makedirs(args.out, exist_ok=True)
    mp.spawn(work, (shared, args, state), nprocs=args.processes)


if __name__ == "__main__":
    main()
