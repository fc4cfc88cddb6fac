"""Random numbers that C draws too, so that no golden has to hold them: SplitMix64."""
import numpy as np


class Draws:
    """tests/support/rendered.h and tests/support/tiny_net.c have the same sequences."""

    def __init__(self, seed):
        self.state = seed

    def bits(self, n):
        step = np.uint64(0x9E3779B97F4A7C15)
        z = np.uint64(self.state) + step * np.arange(1, n + 1, dtype=np.uint64)
        self.state = (self.state + 0x9E3779B97F4A7C15 * n) % (1 << 64)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))

    def uniform(self, *shape):
        """float32 in [-1, 1): rendered_uniform in C."""
        n = int(np.prod(shape))
        x = (self.bits(n) >> np.uint64(11)).astype(np.float64) * 2.0**-52 - 1
        return x.astype(np.float32).reshape(shape)
