"""select=snapkv (arXiv 2404.14469): the last w rows look at the rows ahead of them.

    s^h_j = sum of A^h_ij over the window's rows i,  j < n - w;  pooled along j, k wide, one apart
    p_j   = mean over the query heads of a KV head, after the pooling

The highest stay, beside the window. An average counts what lies beyond an end as 0.
"""
import numpy as np

from budget import Budget, come_to, group_of
from network import case, floor


class Snapkv(Budget):
    def __init__(self, heavy=0.1, recent=0.1, window=0, capacity=0, kernel=5, pool="mean",
                 group="mean"):
        super().__init__(heavy, recent)
        self.window, self.capacity, self.kernel = window, capacity, kernel
        self.pool, self.group = pool, group
        self.sums = {}

    def sizes(self, n):
        if not self.capacity and self.heavy + self.recent >= 1:
            return None
        capacity = self.capacity or floor(self.heavy * n) + floor(self.recent * n)
        window = min(self.window or floor(self.recent * n), capacity)
        return capacity - window, window

    def attended(self, run, layer, scores, p):
        sizes = self.sizes(len(run.prompt.ids))
        if sizes and sizes[1] < len(run.x):
            n = len(run.x) - sizes[1]
            self.sums[layer] = self.pooled(p[:, n:, :n].sum(axis=1))
        return p

    def pooled(self, s):
        half = self.kernel // 2
        fill = 0.0 if self.pool == "mean" else -np.inf
        wide = np.pad(s, ((0, 0), (half, half)), constant_values=fill)
        views = np.lib.stride_tricks.sliding_window_view(wide, self.kernel, axis=1)
        return come_to(self.pool)(views, axis=2)

    def score(self, run, layer, g, pos):
        return come_to(self.group)(self.sums[layer][group_of(run, g)], axis=0)


def methods(words):
    return [Snapkv(**words["snapkv"])]


def render():
    mixed = "t5 v35 t3 v35 t6"
    late = "t3 v40 t1"  # the window has rows of the image
    return {"networks": [
        case("select=snapkv", methods, mixed),
        case("select=snapkv,heavy=0.3,recent=0.2,kernel=7", methods, late, answer=1),
        case("select=snapkv,window=3,capacity=20,kernel=1,group=max", methods, mixed, answer=1),
        case("select=snapkv,window=9,heavy=0.2,kernel=3", methods, mixed, answer=1),
        case("select=snapkv,heavy=0.25,kernel=7,pool=max", methods, mixed, answer=1)]}
