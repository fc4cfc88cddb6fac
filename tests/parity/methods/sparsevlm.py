"""prune=sparsevlm: SparseVLM (arXiv 2410.04417; Gumpest/SparseVLMs, score.py, utils.py).

Scorers are text tokens after the images of more than the mean of m, where m = mean over visual tokens of
softmax over these text tokens of E_V E_T^T, E the input embeddings. After each of three layers, with
s[h] = mean over scorers of A[h]:
  v1  rows stay by the mean of s over heads. Of those that leave the best 30 % are merged by density
      peaks into a tenth as many means, after the last visual token; rows that are left have positions
      0, 1, 2, ..., and a token of the answer stands in each layer after what that layer has.
  v2  A, after its softmax, is divided by B, the scaled scores of queries and keys of ones (rotation
      alone), ahead of any; heads are those of greatest sum of s over visual tokens, and rows stay by the
      sum over such heads."""
import numpy as np

import network
from network import VISUAL, Shape, Unclear, case, floor, rotate, softmax, top

TOKENS = {"v1": {192: [300, 200, 110], 128: [303, 110, 36], 96: [238, 48, 26], 64: [66, 30, 17]},
          "v2": {192: [300, 200, 118], 128: [238, 108, 60], 96: [246, 54, 28], 64: [66, 34, 20]}}


def clusters(x, k):
    """Members of each of k clusters, and their centres."""
    apart = np.linalg.norm(x[:, None] - x[None], axis=-1) / np.sqrt(x.shape[1])
    density = np.exp(-(np.sort(apart, axis=1)[:, :k] ** 2).mean(axis=1))
    delta = np.array([min([apart[i, j] for j in range(len(x)) if density[j] > density[i]
                           or (density[j] == density[i] and j < i)], default=apart.max())
                      for i in range(len(x))])
    score = delta * density
    top(score, k)  # or it is unclear
    centre = np.argsort(-score, kind="stable")[:k]
    of = apart[:, centre].argmin(axis=1)
    of[centre] = np.arange(k)
    return [np.flatnonzero(of == g) for g in range(k)], centre


def mapped(layer, n_layer):
    return int(np.floor(layer * n_layer / 32 + 0.5))


class SparseVlm(network.Method):
    def __init__(self, version="v1", tokens=192, first=None, second=None, third=None, heads=0.4375):
        self.version, self.tokens = version, TOKENS[version][tokens]
        self.given, self.heads = (first, second, third), heads
        self.scorers = self.score = None
        self.gone = {}  # layer -> rows that the prompt has fewer there
        self.answering = False

    def steps(self, run):
        """{layer: share that stays after it}; of steps that fall together the last counts."""
        N = run.shape.n_layer
        return {mapped(paper, N) if layer is None else layer: keep / 576
                for layer, paper, keep in zip(self.given, (2, 6, 15), self.tokens)}

    def find_scorers(self, run):
        visual = np.flatnonzero(run.modality == VISUAL)
        after = visual[-1] + 1
        m = softmax(run.x[visual] @ run.x[after:].T).mean(axis=0)
        if len(m) > 1 and np.abs(m - m.mean()).min() < 1e-4 * m.mean():
            raise Unclear("a scorer on the edge")
        chosen = np.flatnonzero(m > m.mean() * (1 + 1e-9))
        self.scorers = (chosen if len(chosen) else np.arange(len(m))) - len(m)

    def attended(self, run, layer, scores, p):
        if layer == 0:
            self.find_scorers(run)
        if layer not in self.steps(run):
            return p
        visual, D = run.modality == VISUAL, run.shape.d_head
        if self.version == "v1":
            self.score = p[:, self.scorers][:, :, visual].mean(axis=(0, 1))
            return p
        ones = rotate(np.ones((len(run.pos), D)), run.pos)
        turn = ones @ ones.T / np.sqrt(D)
        s = (p[:, self.scorers] / turn[self.scorers])[:, :, visual].mean(axis=1)
        heads = top(s.sum(axis=1), max(floor(self.heads * len(s)), 1))
        self.score = s[heads].sum(axis=0)
        return p

    def layer_begins(self, run, layer):
        visual = np.flatnonzero(run.modality == VISUAL)
        if layer - 1 in self.steps(run) and len(visual):
            V = (run.prompt.modality == VISUAL).sum()
            keep = min(floor(V * self.steps(run)[layer - 1]), len(visual) - 1)
            (self.merge if self.version == "v1" else self.drop)(run, visual, keep)
        self.gone[layer] = len(run.prompt.ids) - len(run.x)

    def drop(self, run, visual, keep):
        stay = visual[top(self.score, keep)]
        run.keep(np.sort(np.concatenate([np.flatnonzero(run.modality != VISUAL), stay])))

    def merge(self, run, visual, keep):
        stay = top(self.score, keep)
        left = np.setdiff1d(np.arange(len(visual)), stay)
        n = floor(0.3 * len(left)) + 1
        k = n // 10 + 1
        if keep + k >= len(visual):
            return
        top(self.score[left], n)
        rows = visual[left[np.argsort(-self.score[left], kind="stable")[:n]]]
        members, centre = clusters(run.x[rows], k)
        new = np.array([run.x[rows[m]].mean(axis=0) for m in members])
        end = visual[-1] + 1
        before = np.setdiff1d(np.arange(end), visual[left])
        order = np.concatenate([before, rows[centre], np.arange(end, len(run.x))])
        x = np.concatenate([run.x[before], new, run.x[end:]])
        run.keep(order)
        run.x = x

    def projected(self, run, layer, q, k, modality):
        """Rotations add up: from the original position to the one that counts."""
        if self.version == "v2":
            return q, k
        move = -self.gone[layer] if self.answering else np.arange(len(run.x)) - run.pos
        return rotate(q, np.broadcast_to(move, q.shape[1])), rotate(k, np.broadcast_to(move, k.shape[1]))

    def prefilled(self, run):
        self.answering = True


def methods(words):
    return [SparseVlm(**words["sparsevlm"])]


def render():
    two, v1, v2 = "t5 v35 t3 v35 t16", "prune=sparsevlm,version=v1", "prune=sparsevlm,version=v2"
    narrow = Shape(n_layer=4, n_head=6, n_kv=1, d_head=20)
    return {"networks": [
        case(v1, methods, answer=2),
        case(v1 + ",tokens=64", methods, two, answer=2),
        case(v1 + ",tokens=128,first=0,second=2,third=3", methods, "t1 v129 t65", answer=1,
             shape=narrow),
        case(v1, methods, "t1 v2 t1", answer=1),
        case(v2, methods, answer=2),
        case(v2 + ",tokens=64,heads=1", methods, two, answer=1),
        case(v2 + ",tokens=96,first=1,second=1,third=2,heads=0.5", methods, two, answer=1),
        case(v2 + ",tokens=128,first=0,second=2,third=3", methods, "t1 v129 t65", answer=1,
             shape=narrow),
        case(v2, methods, "t1 v1 t1", answer=1)]}
