"""What evict methods share whose tokens count the attention that they receive, and leave by it as the answer
grows. Not a method. Rows that are left keep their order here; the engine moves them about."""
import numpy as np

import network
from budget import group_of
from network import TEXT, VISUAL, top


class Tally(network.Method):
    """A method says what a row's attention comes to (paid_by), what a row is worth by it (worth),
    and how many rows may be there (sizes)."""

    def __init__(self):
        self.tally = {}  # (layer, g) -> {position: [G]}

    def sizes(self, n):
        """Most rows, rows that are left when there are more, last rows that stay; None: all stay."""
        raise NotImplementedError

    def paid_by(self, p, seen):
        """What rows p [G, rows, keys] that see so many keys each add, [G, keys]."""
        return p.sum(axis=1)

    def worth(self, run, tally, pos, end):
        """Of rows at pos with tallies [rows, G], after which the next one stands at `end`."""
        return tally.mean(axis=1)

    shared = False  # all heads of a layer let the same rows go
    last = False    # a row's attention takes the place of the one before
    window = None   # last rows of the prompt that count

    def attended(self, run, layer, scores, p):
        n = len(run.x)
        if self.sizes(len(run.prompt.ids)):
            rows = slice(max(0, n - (self.window or n)), n)
            seen = np.arange(1, n + 1)[rows]
            for g in range(run.shape.n_kv):
                group = p[group_of(run, g)][:, rows]
                mask = np.tri(n, dtype=bool)[rows]
                added = self.paid_by(np.where(mask, group, np.nan), seen)
                self.tally[layer, g] = {q: added[:, j] for j, q in enumerate(run.pos)}
        return p

    def step_begins(self, run, t):
        sizes = self.sizes(len(run.prompt.ids))
        for layer in range(run.shape.n_layer if sizes else 0):
            worth = [self.of_head(run, layer, g) for g in range(run.shape.n_kv)]
            if self.shared:
                worth = [np.mean(worth, axis=0)] * len(worth)
            for g in range(run.shape.n_kv):
                self.let_go(run, layer, g, worth[g], *sizes)

    def of_head(self, run, layer, g):
        pos = self.positions(run, layer, g)
        tally = np.array([self.tally[layer, g][q] for q in pos])
        return self.worth(run, tally, pos, pos[-1] + 1)

    @staticmethod
    def positions(run, layer, g):
        return np.sort(np.concatenate([rows.pos for rows in run.store[layer][g]]))

    def let_go(self, run, layer, g, worth, most, left, recent):
        pos = self.positions(run, layer, g)
        if len(pos) <= most:
            return
        ahead = len(pos) - recent
        kept = np.append(top(worth[:ahead], left - recent), np.arange(ahead, len(pos)))
        for rows in run.store[layer][g]:
            rows.keep(np.flatnonzero(np.isin(rows.pos, pos[kept])))
        old = self.tally[layer, g]
        self.tally[layer, g] = {q: self.left(old[q]) for q in pos[kept]}

    def left(self, tally):
        return tally

    def on_attention(self, run, layer, p, n_visual):
        if not self.sizes(len(run.prompt.ids)):
            return
        wide = run.shape.n_head // run.shape.n_kv
        for g, (visual, text) in enumerate(run.store[layer]):
            group = np.array(p[g * wide:(g + 1) * wide])[:, None, :]
            added = self.paid_by(group, np.array([group.shape[2]]))
            tally = self.tally[layer, g]
            for j, q in enumerate(np.concatenate([visual.pos, text.pos])):
                was = 0 if self.last else tally.get(q, np.zeros(wide))
                tally[q] = was + added[:, j]
