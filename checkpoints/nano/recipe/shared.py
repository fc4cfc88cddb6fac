"""Two processes, one network: each computes gradients of its own samples, then each moves its half
of the parameters (AdamW, Loshchilov and Hutter 2019) by the mean gradient. Parameters and gradients
lie in shared memory, so nothing is sent."""

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


class Half:
    """One process's share of the optimiser. `decay` [n] is 1 where weights are pulled to zero."""

    def __init__(self, shared, rank, decay, betas=(0.9, 0.98), pull=0.02, clip=1.0):
        n = shared.flat.numel()
        a, b = n * rank // shared.world, n * (rank + 1) // shared.world
        self.shared, self.rank, self.slice = shared, rank, slice(a, b)
        self.decay, self.betas, self.pull, self.clip = decay[a:b], betas, pull, clip

    def step(self, number, rate):
        """The `number`-th step, from 1. Returns the norm of the whole gradient; gradients are 0 then."""
        s, cut = self.shared, self.slice
        s.barrier.wait()  # all gradients are there
        grads = [g[cut] for g in s.grads]
        s.squares[self.rank] = square(grads)
        s.barrier.wait()
        norm = math.sqrt(float(s.squares.sum()))
        settings = dict(
            clip=min(1.0, self.clip / (norm + 1e-6)), beta1=self.betas[0], beta2=self.betas[1], pull=rate * self.pull,
            step=rate / (1 - self.betas[0] ** number), correction=1 / (1 - self.betas[1] ** number),
        )  # fmt: skip
        move = adamw if ops.library() is None else ops.adamw
        move(settings, grads, self.decay, s.moment[cut], s.square[cut], s.flat[cut])
        for g in grads:
            g.zero_()
        s.barrier.wait()  # all parameters have moved
        return norm


def mean(grads):
    g = grads[0].clone()
    for other in grads[1:]:
        g += other
    return g / len(grads)


def square(grads):
    """The square of the length of the mean gradient."""
    return mean(grads).square().sum() if ops.library() is None else ops.gradient_square(grads)


def adamw(o, grads, decay, m, v, w):
    """What adamw in ops.c does."""
    g = mean(grads).mul_(o["clip"])
    m.lerp_(g, 1 - o["beta1"])
    v.mul_(o["beta2"]).addcmul_(g, g, value=1 - o["beta2"])
    w.mul_(1 - o["pull"] * decay)
    w.addcdiv_(m, (v * o["correction"]).sqrt_().add_(1e-8), value=-o["step"])
