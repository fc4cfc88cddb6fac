"""prune=fastv: FastV (arXiv 2403.06764; pkunlp-icler/FastV, modeling_llama.py). From layer K on, the
round(n (1 - R)) visual tokens stay that the last row of layer K - 1 attends to most; halves are
rounded to even, as Python does it. mode=mask: all rows stay, and nobody sees the others."""
import copy

import numpy as np

from network import VISUAL, Prompt, Run, Shape, case, network_of, top, words
from prune import Ranked


class FastV(Ranked):
    def __init__(self, layer, keep=0.5):
        super().__init__()
        self.layer, self.share = layer, keep

    def steps(self, run):
        return {self.layer: round(float((run.prompt.modality == VISUAL).sum() * self.share))}


class Masked(FastV):
    """Every row runs in every layer; from layer K on, columns of the other visual tokens are masked.
    They lie after those that are seen."""

    def layer_begins(self, run, layer):
        if layer != self.layer:
            return
        visual = np.flatnonzero(run.modality == VISUAL)
        best = top(self.alpha[layer - 1][visual], self.steps(run)[layer])
        self.seen, self.masked = visual[best], np.setdiff1d(visual, visual[best])

    def attended(self, run, layer, scores, p):
        if layer < self.layer:
            return super().attended(run, layer, scores, p)
        scores = scores.copy()
        scores[:, :, self.masked] = -np.inf
        most = scores.max(axis=-1, keepdims=True)
        e = np.exp(scores - np.where(np.isinf(most), 0, most))
        # A masked row at the start of the prompt sees nothing.
        return e / np.maximum(e.sum(axis=-1, keepdims=True), 1e-300)

    def layer_ends(self, run, layer):
        for head in run.store[layer] if layer >= self.layer else []:
            order = np.concatenate([self.seen, self.masked])
            head[VISUAL].keep(np.searchsorted(head[VISUAL].pos, order))

    def read(self, run, layer, head, rows):
        if layer >= self.layer:
            rows = copy.copy(rows)
            rows.keep(np.arange(len(self.seen)))
        return rows


def methods(words):
    given = dict(words["fastv"])
    return [(Masked if given.pop("mode", "drop") == "mask" else FastV)(**given)]


def own_view(policy, layout, seed):
    """What masked rows themselves come to, in the last layer's first KV head: the sum of key and value."""
    net = network_of(Shape())
    run = Run(net, Prompt(net, layout, seed), methods(words(policy)))
    run.prefill()
    rows, seen = run.store[-1][0][VISUAL], len(run.methods[0].seen)
    return {"policy": policy, "layout": layout, "seed": seed,
            "sums": [float(f"{x:.6g}") for x in (rows.k + rows.v)[seen:].sum(axis=1)]}


def render():
    return {"own_view": own_view("prune=fastv,layer=1,keep=0.3,mode=mask", "t5 v35 t3 v36 t6", 11),
            "networks": [
        case("prune=fastv,layer=1,keep=0.25", methods, answer=1),
        case("prune=fastv,layer=2,keep=0.5", methods, "t5 v35 t3 v36 t6"),  # 35.5: to 36
        case("prune=fastv,layer=2,keep=0.5", methods, "t2 v33 t1", answer=1),  # 16.5: to 16
        case("prune=fastv,layer=3,keep=0", methods, "t1 v1 t1", answer=1),
        case("prune=fastv,layer=1,keep=0.1", methods, "t9 v129 t65", answer=1,
             shape=Shape(n_layer=2, n_head=6, n_kv=1, d_head=20)),
        case("prune=fastv,layer=1,keep=0.35", methods, "v200 t7", answer=1,
             shape=Shape(n_layer=2, n_head=3, n_kv=3, d_head=40)),
        case("prune=fastv,layer=2,keep=0.3,mode=mask", methods, "t5 v35 t3 v36 t6"),
        case("prune=fastv,layer=1,keep=0,mode=mask", methods, "v9 t7", answer=1,
             shape=Shape(n_layer=3, n_head=6, n_kv=1, d_head=20))]}
