"""Two processes, one network: each computes gradients of its own samples, then each moves its half
of the parameters (AdamW, Loshchilov and Hutter 2019) by the mean gradient. Parameters and gradients
lie in shared memory, so nothing is sent."""

import math

import torch
import torch.multiprocessing as mp


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
        """The `number`-th step, from 1. Returns the norm of the whole gradient."""
        s, cut = self.shared, self.slice
        s.barrier.wait()  # all gradients are there
        g = s.grads[0][cut].clone()
        for other in s.grads[1:]:
            g += other[cut]
        g /= s.world
        s.squares[self.rank] = g.square().sum()
        s.barrier.wait()
        norm = math.sqrt(float(s.squares.sum()))
        g *= min(1.0, self.clip / (norm + 1e-6))
        m, v, w = s.moment[cut], s.square[cut], s.flat[cut]
        m.lerp_(g, 1 - self.betas[0])
        v.mul_(self.betas[1]).addcmul_(g, g, value=1 - self.betas[1])
        scale = rate / (1 - self.betas[0] ** number)
        w.mul_(1 - rate * self.pull * self.decay)
        w.addcdiv_(m, (v / (1 - self.betas[1] ** number)).sqrt_().add_(1e-8), value=-scale)
        s.barrier.wait()  # all parameters have moved
        return norm
