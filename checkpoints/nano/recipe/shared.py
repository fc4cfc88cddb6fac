"""Processes that train one network: each computes gradients of its own samples, then each moves its
share of the parameters by the mean gradient. Parameters and gradients lie in shared memory, so
nothing is sent.

Matrices of the layers and of the projector move by Muon (Jordan et al. 2024): the mean gradient's momentum, made
orthogonal by five Newton-Schulz steps, so that all its directions count alike. Everything else moves
by AdamW (Loshchilov and Hutter 2019). On questions about ideal pictures Muon needed about two thirds
of the samples that AdamW alone needed until colours of shapes and grid cells were learned."""

import math

import torch
import torch.multiprocessing as mp

import ops


class Shared:
    """What the processes share. Made once, before they start."""

    def __init__(self, n, world):
        self.world = world
        self.flat = torch.zeros(n).share_memory_()
        self.grads = [torch.zeros(n).share_memory_() for _ in range(world)]
        self.moment = torch.zeros(n).share_memory_()
        self.square = torch.zeros(n).share_memory_()
        self.squares = torch.zeros(world).share_memory_()  # of each one's part of the gradient
        self.sums = torch.zeros(world, 64, dtype=torch.float64).share_memory_()  # counters of each
        self.flag = torch.zeros(1, dtype=torch.int64).share_memory_()  # the end has come
        self.barrier = mp.get_context("spawn").Barrier(world)


def pieces(spans):
    """Matrices for Muon, (begin, rows, columns), and the stretches of all else, (begin, end).
    Queries, keys and values, gate and up, lie in one tensor each and are matrices of their own."""
    matrices, rest = [], []
    for name, (at, size) in spans.items():
        end = at + math.prod(size)
        if len(size) == 2 and name.startswith(("vision.", "project", "text.")):
            parts = 3 if name.endswith("qkv") else 2 if name.endswith("gate_up") else 1
            rows = size[0] // parts
            matrices += [(at + i * rows * size[1], rows, size[1]) for i in range(parts)]
        elif rest and rest[-1][1] == at:
            rest[-1] = (rest[-1][0], end)
        else:
            rest.append((at, end))
    return matrices, rest


def shares(spans, world):
    """For each process its matrices and its stretches; alike in work."""
    matrices, rest = pieces(spans)
    mine = [([], []) for _ in range(world)]
    load = [0.0] * world
    for m in sorted(matrices, key=lambda m: (-m[1] * m[2] * min(m[1:]), m[0])):
        least = load.index(min(load))
        load[least] += m[1] * m[2] * min(m[1:])
        mine[least][0].append(m)
    each = -(-sum(b - a for a, b in rest) // world)
    room, k = each, 0
    for a, b in rest:
        while a < b:
            n = min(b - a, room)
            mine[k][1].append((a, a + n))
            a, room = a + n, room - n
            if room == 0 and k < world - 1:
                room, k = each, k + 1
    return mine


def orthogonal(g):
    """The orthogonal matrix next to g, roughly: singular values come to 0.7..1.2."""
    x = ops.narrow(g / (g.norm() + 1e-7))
    if tall := g.shape[0] > g.shape[1]:
        x = x.t()
    for _ in range(5):
        a = x @ x.t()
        x = torch.addmm(x, torch.addmm(a, a, a, beta=-4.7750, alpha=2.0315), x, beta=3.4445)
    return (x.t() if tall else x).float()


class Mover:
    """One process's share of the optimiser."""

    def __init__(self, shared, rank, spans, betas=(0.9, 0.98), keep=0.95, pull=0.1, clip=1.0):
        self.shared, self.rank = shared, rank
        self.matrices, self.rest = shares(spans, shared.world)[rank]
        self.betas, self.keep, self.pull, self.clip = betas, keep, pull, clip

    def step(self, number, rate, matrix_rate):
        """The `number`-th step, from 1. Gradients are 0 then."""
        s = self.shared
        s.barrier.wait()  # all gradients are there
        mine = [(a, b) for a, b in self.rest] + [(a, a + n * m) for a, n, m in self.matrices]
        g = [self.mean(a, b) for a, b in mine]
        s.squares[self.rank] = sum(float(x.square().sum()) for x in g)
        s.barrier.wait()
        norm = math.sqrt(float(s.squares.sum()))
        torch._foreach_mul_(g, min(1.0, self.clip / (norm + 1e-6)))
        for (a, b), x in zip(self.rest, g):
            self.adam(number, rate, slice(a, b), x)
        for (a, n, m), x in zip(self.matrices, g[len(self.rest) :]):
            if x.any():  # the first stage knows nothing of the text model
                self.muon(matrix_rate, slice(a, a + n * m), x, (n, m))
        s.barrier.wait()  # all parameters have moved

    def mean(self, a, b):
        """Of the gradients, which are 0 then."""
        parts = [g[a:b] for g in self.shared.grads]
        mean = torch.stack(parts).mean(0)
        for part in parts:
            part.zero_()
        return mean

    def adam(self, number, rate, cut, g):
        m, v, w = self.shared.moment[cut], self.shared.square[cut], self.shared.flat[cut]
        m.lerp_(g, 1 - self.betas[0])
        v.mul_(self.betas[1]).addcmul_(g, g, value=1 - self.betas[1])
        scale = rate / (1 - self.betas[0] ** number)
        w.addcdiv_(m, (v / (1 - self.betas[1] ** number)).sqrt_().add_(1e-8), value=-scale)

    def muon(self, rate, cut, g, size):
        m, w = self.shared.moment[cut], self.shared.flat[cut].view(size)
        m.lerp_(g, 1 - self.keep)
        step = orthogonal(g.lerp_(m, self.keep).view(size))
        w.mul_(1 - rate * self.pull).add_(step, alpha=-rate * max(1.0, size[0] / size[1]) ** 0.5)
