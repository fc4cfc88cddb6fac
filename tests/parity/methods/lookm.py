"""select=lookm: LOOK-M (arXiv 2406.18139): H2O's sums, text before images, and rows that leave are
merged into the row of nearest key.

    x_j <- (x_j + sum of y_e) / (1 + number of e whose key is nearest to j's)
    pivotal  y_e = (x_e + x_j) / 2;  average  y_e = x_e;  weighted  y_e = cos_ej x_e, for those e
    whose cosine, mean over KV heads, is no less than the mean over all
"""
import numpy as np

import network
from budget import group_of
from network import TEXT, VISUAL, case, floor, top


class Lookm(network.Method):
    def __init__(self, heavy=0.1, recent=0.1, prior="text", merge="pivotal"):
        self.heavy, self.recent, self.prior, self.merge = heavy, recent, prior, merge
        self.sums = {}

    def attended(self, run, layer, scores, p):
        self.sums[layer] = p.sum(axis=1)
        return p

    def kept(self, run, score, pos, modality):
        """Which rows of a KV head stay, by position."""
        heavy, recent = floor(self.heavy * len(run.prompt.ids)), floor(self.recent * len(run.prompt.ids))
        n = len(pos)
        if self.heavy + self.recent >= 1 or n <= heavy + recent:
            return np.arange(n)
        ahead = np.arange(n - recent)
        first = ahead[modality[ahead] == TEXT] if self.prior == "text" else \
            ahead[pos[ahead] < 4] if self.merge != "none" else ahead[:0]
        if self.prior == "none":
            first = first[:heavy]
        rest = np.setdiff1d(ahead, first)
        chosen = rest[top(score[rest], max(0, heavy - len(first)))]
        return np.sort(np.concatenate([first, chosen, np.arange(n - recent, n)]))

    def prefilled(self, run):
        for layer, heads in enumerate(run.store):
            rows = []
            for g, head in enumerate(heads):
                pos = np.concatenate([head[VISUAL].pos, head[TEXT].pos])
                modality = np.repeat([VISUAL, TEXT], [len(head[VISUAL].pos), len(head[TEXT].pos)])
                order = np.argsort(pos)
                k = np.vstack([head[VISUAL].k, head[TEXT].k])[order]
                v = np.vstack([head[VISUAL].v, head[TEXT].v])[order]
                score = self.sums[layer][group_of(run, g)].mean(axis=0)
                stay = self.kept(run, score, pos[order], modality[order])
                rows.append((pos[order], modality[order], k, v, stay,
                             np.setdiff1d(np.arange(len(pos)), stay)))
            merged = self.merged(rows)
            for head, (pos, modality, *_, stay, _), (k, v) in zip(heads, rows, merged):
                for seg in (VISUAL, TEXT):
                    mine = modality[stay] == seg
                    head[seg].pos, head[seg].k, head[seg].v = pos[stay][mine], k[mine], v[mine]

    def merged(self, heads):
        if self.merge == "none" or any(not len(stay) or not len(leave) for *_, stay, leave in heads):
            return [(k[stay], v[stay]) for _, _, k, v, stay, _ in heads]
        unit = lambda x: x / np.linalg.norm(x, axis=1, keepdims=True)
        cosine = [unit(k[leave]) @ unit(k[stay]).T for _, _, k, _, stay, leave in heads]
        nearest, near = [c.argmax(axis=1) for c in cosine], np.array([c.max(axis=1) for c in cosine])
        for c in cosine:
            two = np.sort(c, axis=1)[:, -2:]
            if two.shape[1] == 2 and (two[:, 1] - two[:, 0] < 1e-6).any():
                raise network.Unclear("two keys are as near")
        mean = near.mean(axis=0)
        counts = mean >= near.mean() if self.merge == "weighted" else np.full(len(mean), True)
        if np.abs(mean - near.mean()).min() < 1e-6:
            raise network.Unclear("a row is as near as the mean")
        out = []
        for (_, _, k, v, stay, leave), to, c in zip(heads, nearest, near):
            sides = []
            for x in (k, v):
                total, n = x[stay].copy(), np.ones(len(stay))
                for e in np.flatnonzero(counts):
                    y = x[leave[e]]
                    if self.merge == "pivotal":
                        y = (y + x[stay[to[e]]]) / 2
                    if self.merge == "weighted":
                        y = c[e] * y
                    total[to[e]] += y
                    n[to[e]] += 1
                sides.append(total / n[:, None])
            out.append(sides)
        return out


def methods(words):
    return [Lookm(**words["lookm"])]


def render():
    mixed = "t5 v35 t3 v35 t6"
    return {"networks": [
        case("select=lookm,heavy=0.3", methods, mixed),
        case("select=lookm", methods, mixed, answer=1),
        case("select=lookm,heavy=0.4,recent=0.05,merge=average", methods, "t3 v40 t1", answer=1),
        case("select=lookm,heavy=0.3,merge=weighted", methods, mixed, answer=1),
        case("select=lookm,heavy=0.2,prior=none", methods, mixed, answer=1),
        case("select=lookm,heavy=0.2,prior=none,merge=weighted", methods, mixed, answer=1)]}
