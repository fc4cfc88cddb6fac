"""evict=vta: visual token annealing of ST3 (arXiv 2412.20105, equation 7 and algorithm 3).

When token t of the answer runs, a layer has floor(v0 beta(t)) visual tokens left of v0, those that
come first in the order T[l] of the attention that chose its rows last; beta(t) = cos(pi t / 2 tau),
0 from tau on. Layers before the first such choice keep theirs, or take its order. Where nobody
prunes by attention, layer l0 - 1 ranks the rows of l0 and all after it.

order=ema: of packed layers the rows of highest importance at that moment are those that are left
(svd.py, which renders it)."""
import numpy as np

import network
from csp import Csp
from network import VISUAL, Shape, Unclear, case, floor
from prune import Ranked
from pvtp import Pvtp


class Watch(Ranked):
    """Sees the last token's attention, and drops nothing."""

    def steps(self, run):
        return {}


class Vta(network.Method):
    def __init__(self, pruner=None, beta="cosine", tau=50, sigma=20, shallow="keep", layer=3,
                 order="prefill", packed=None):
        self.watch = pruner or Watch()
        self.packed = packed if order == "ema" else None  # whose importance says which
        self.own = None if pruner else layer
        self.beta, self.tau, self.sigma, self.shallow = beta, tau, sigma, shallow
        self.first = {}  # layer -> [rows of each KV head at first]

    def share(self, t):
        if self.beta == "exponential":
            return np.exp(-t / self.sigma)
        if t >= self.tau:
            return 0.0
        return 1 - t / self.tau if self.beta == "linear" else np.cos(np.pi * t / 2 / self.tau)

    def taps(self, run):
        """layer -> the layer whose attention ranks its rows"""
        n = run.shape.n_layer
        taps = dict(self.watch.taps) if self.own is None else {
            layer: self.own - 1 for layer in range(self.own, n)}
        if self.shallow == "rank_by_first_tap":
            taps = {layer: taps[min(taps)] for layer in range(min(taps))} | taps
        return taps

    def prefilled(self, run):
        for layer, tap in self.taps(run).items():
            for head in run.store[layer]:
                score = self.watch.alpha[tap][head[VISUAL].pos]
                order = np.argsort(-score, kind="stable")
                if len(order) > 1 and np.diff(-score[order]).min() < 1e-6 * score.max():
                    raise Unclear("two rows are worth the same")
                head[VISUAL].keep(order)
            self.first[layer] = [len(head[VISUAL].pos) for head in run.store[layer]]

    def step_begins(self, run, t):
        for layer, first in self.first.items():
            left = [min(len(head[VISUAL].pos), floor(n * self.share(t)))
                    for head, n in zip(run.store[layer], first)]
            if self.packed and layer in self.packed.layers:
                self.packed.keep_best(run, layer, left[0])
                continue
            for head, n in zip(run.store[layer], left):
                head[VISUAL].keep(np.arange(n))


def methods(words):
    pruner = Pvtp(**words["pvtp"]) if "pvtp" in words else None
    vta = Vta(pruner, **words["vta"])
    select = [Csp(**words["csp"])] if "csp" in words else []
    return [vta.watch, *select, vta]


def render():
    deep, few = Shape(n_layer=6), "t5 v30 t9"
    return {"networks": [
        case("evict=vta,tau=5,layer=2", methods, few, answer=6),
        case("evict=vta,tau=4,layer=3,shallow=rank_by_first_tap,beta=linear", methods, few),
        case("evict=vta,layer=1,beta=exponential,sigma=2.5", methods, "t3 v12 t2 v12 t2"),
        case("prune=pvtp,layer=2,stride=2,first=0.2,ratio=0.4;evict=vta,tau=4", methods, few,
             shape=deep),
        case("prune=pvtp,layer=2,stride=2,first=0.2,ratio=0.4;evict=vta,tau=4,"
             "shallow=rank_by_first_tap", methods, few, shape=deep),
        case("select=csp,heavy=0.4,recent=0.2;evict=vta,tau=5,layer=2", methods, few)]}
