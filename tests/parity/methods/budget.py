"""What methods share that leave every KV head the same number of rows: its last ones, and those of
highest score ahead of them. Not a method."""
import numpy as np

import network
from network import floor, top


class Budget(network.Method):
    """score(run, layer, g, pos) of a KV head, one number a row at positions pos, is the method's."""

    def __init__(self, heavy, recent):
        self.heavy, self.recent = heavy, recent

    def sizes(self, n):
        """Rows chosen and last rows kept; None: all stay."""
        if self.heavy + self.recent >= 1:
            return None
        return floor(self.heavy * n), floor(self.recent * n)

    def prefilled(self, run):
        leads, kept = self.leaders(run), {}
        for layer, heads in enumerate(run.store):
            for g, head in enumerate(heads):
                if leads[layer]:
                    kept[g] = self.chosen(run, layer, g, head)
                for rows in head:
                    rows.keep(np.flatnonzero(np.isin(rows.pos, kept[g])))

    def leaders(self, run):
        """Layers that choose: those that lead a lazy block choose for all of its layers."""
        lazy = [m.leads for m in run.methods if hasattr(m, "leads")]
        return lazy[0] if lazy else [True] * len(run.store)

    def chosen(self, run, layer, g, head):
        """Positions that stay."""
        pos, sizes = np.sort(np.concatenate([rows.pos for rows in head])), self.sizes(len(run.prompt.ids))
        if sizes is None or len(pos) <= sum(sizes):
            return pos
        score = self.score(run, layer, g, pos)[:len(pos) - sizes[1]]
        return pos[np.append(top(score, sizes[0]), np.arange(len(pos) - sizes[1], len(pos)))]


def group_of(run, g):
    """The query heads of a KV head."""
    wide = run.shape.n_head // run.shape.n_kv
    return slice(g * wide, (g + 1) * wide)


def come_to(word):
    return {"mean": np.mean, "max": np.max}[word]
