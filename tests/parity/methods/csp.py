"""select=csp: Cross-Self Pruning (arXiv 2412.04652).

With A the n-softmax of the last w rows over all columns, a row j ahead of the last r has
    self_j  = sum of A_ij over window rows i of j's modality
    cross_j = sum of A_ij over window rows i of the other modality
Per KV head the first k (1 - rho) by self, the first k rho by cross, and the last r rows stay. The
paper takes one set for all heads; its code chooses per head and holds a row twice that stands in
both lists.
"""
import numpy as np

import network
from network import TEXT, VISUAL, case, floor, n_softmax, top


class Csp(network.Method):
    def __init__(self, heavy=0.1, recent=0.1, share=0.5, bias=1, nsoftmax_select=1,
                 nsoftmax_decode=0, dup="union", heads="per_kv_head", group="mean"):
        self.heavy, self.recent, self.share, self.bias = heavy, recent, share, bias
        self.n, self.decode_n = nsoftmax_select, nsoftmax_decode
        self.dup, self.heads, self.group = dup, heads, group
        self.sums = {}  # layer -> [self, cross] [H, L]

    def sizes(self, n):
        """Window, last rows that stay, chosen by self, chosen by cross; None: all stay."""
        window = floor(self.recent * n)
        budget = floor(self.heavy * n) + window
        if self.heavy + self.recent >= 1:
            return None
        last = min(floor(window * self.bias), budget)
        chosen = budget - last
        return window, last, floor(chosen * (1 - self.share)), floor(chosen * self.share)

    def attended(self, run, layer, scores, p):
        sizes = self.sizes(len(run.prompt.ids))
        if sizes:
            a = n_softmax(scores, self.n)[:, len(run.x) - sizes[0]:, :]
            same = run.modality[len(run.x) - sizes[0]:, None] == run.modality[None, :]
            self.sums[layer] = [(a * same).sum(axis=1), (a * ~same).sum(axis=1)]
        return p

    def times(self, run, layer, group):
        """How often each row is held by a KV head whose query heads are `group`."""
        _, last, n_self, n_cross = self.sizes(len(run.prompt.ids))
        n = self.sums[layer][0].shape[1]
        times = np.zeros(n, dtype=int)
        for kind, keep in enumerate((n_self, n_cross)):
            times[self.chosen(run, layer, kind, group, min(keep, n - last), n - last)] += 1
        times[n - last:] = 1
        return times if self.dup == "official" else np.minimum(times, 1)

    def chosen(self, run, layer, kind, group, keep, n):
        """Of the first n rows, the `keep` best by self (kind 0) or by cross (1)."""
        reduce = np.mean if self.group == "mean" else np.max
        return top(reduce(self.sums[layer][kind][group], axis=0)[:n], keep)

    def prefilled(self, run):
        run.decode_n = self.decode_n
        s = run.shape
        for layer, heads in enumerate(run.store):
            if layer not in self.sums:
                continue
            for g, head in enumerate(heads):
                wide = s.n_head // s.n_kv
                group = slice(None) if self.heads == "shared" else slice(g * wide, (g + 1) * wide)
                times = self.times(run, layer, group)
                # Columns are the rows that the layer ran: by position.
                pos = np.sort(np.concatenate([head[VISUAL].pos, head[TEXT].pos]))
                for rows in head:
                    at = np.searchsorted(pos, rows.pos)
                    rows.keep(np.repeat(np.arange(len(rows.pos)), times[at]))


def methods(words):
    return [Csp(**words["csp"])]


def render():
    mixed = "t5 v35 t3 v35 t6"
    late = "t3 v40 t1"  # the window has rows of the image
    return {"networks": [
        case("select=csp,heavy=0.3,recent=0.2", methods, mixed),
        case("select=csp,heavy=0.3,recent=0.2,nsoftmax_select=0,share=0.8", methods, mixed),
        case("select=csp,heavy=0.4,recent=0.25,nsoftmax_select=30,dup=official", methods, late),
        case("select=csp,heavy=0.2,recent=0.3,bias=0.5,heads=shared,dup=official", methods, late),
        case("select=csp,heavy=0.2,recent=0.1,bias=1.5,group=max,nsoftmax_decode=3", methods, mixed),
        case("select=csp,heavy=0.2,recent=0.2,share=0", methods, late, answer=1),
        case("select=csp,heavy=0.2,recent=0.2,share=1", methods, late, answer=1)]}
