"""Methods that act on one another when they stand in one policy; each is rendered in its own file.

lazy with select=csp     layers of a block choose image tokens by their mean attention. Under vla
                         text keys are each layer's own: of each list's places, those of text go to
                         the text tokens that the layer itself attends to most.
lazy with evict=vta      a block is ranked as its leader is.
lazy with visipruner     a block ends where rows leave.
visipruner, evict=vta    rows are ranked in the first layer that is looked at, and again in the one
                         after which rows leave.
csp with pack=svd        all KV heads choose together, and what stays of the image is packed.
order=ema                of packed rows those of least importance leave; of a block, to its leader.
"""
import numpy as np

from csp import Csp
from gla import Gla
from network import TEXT, VISUAL, Shape, case, floor, top
from svd import Svd
from visipruner import VisiPruner
from vla import Vla
from vta import Vta


def leader_of(lazy, layer):
    while lazy and not lazy.leads[layer]:
        layer -= 1
    return layer


class CspTogether(Csp):
    """Csp over the blocks of a lazy method."""

    def __init__(self, lazy, **words):
        super().__init__(**words)
        self.lazy, self.modality = lazy, {}

    def attended(self, run, layer, scores, p):
        self.modality[layer] = run.modality
        return super().attended(run, layer, scores, p)

    def prefilled(self, run):
        self.alone = dict(self.sums)
        n = run.shape.n_layer
        block = {layer: [l for l in range(n) if leader_of(self.lazy, l) == leader_of(self.lazy, layer)]
                 for layer in self.sums}
        self.sums = {layer: [np.mean([self.alone[l][kind] for l in block[layer]], axis=0)
                             for kind in (0, 1)] for layer in self.alone}
        super().prefilled(run)

    def chosen(self, run, layer, kind, group, keep, n):
        reduce = np.mean if self.group == "mean" else np.max
        # The largest over heads comes before the mean over layers.
        best = top(reduce(self.sums[layer][kind][group], axis=0)[:n], keep)
        text = self.modality[layer][:n] == TEXT
        if not isinstance(self.lazy, Vla):
            return best
        own = reduce(self.alone[layer][kind][group], axis=0)[:n]
        places = int(text[best].sum())
        return np.concatenate([best[~text[best]], np.flatnonzero(text)[top(own[text], places)]])


class VtaTogether(Vta):
    def __init__(self, lazy, visipruner, svd, order="prefill", **words):
        super().__init__(None, **words)
        self.lazy, self.visipruner, self.svd, self.order = lazy, visipruner, svd, order

    def taps(self, run):
        taps = super().taps(run)
        if self.visipruner:
            n, first = run.shape.n_layer, self.visipruner.detect
            taps = {layer: first for layer in range(first + 1, n)}
            if self.visipruner.left is not None:
                taps |= {layer: self.visipruner.left for layer in range(self.visipruner.left + 1, n)}
        return {layer: taps[leader_of(self.lazy, layer)] for layer in taps
                if leader_of(self.lazy, layer) in taps}

    def step_begins(self, run, t):
        if self.order == "prefill":
            return super().step_begins(run, t)
        for layer, first in self.first.items():
            packed = self.svd.layers[leader_of(self.lazy, layer)]
            held = run.store[layer][0][VISUAL].pos
            keep = floor(first[0] * self.share(t))
            if leader_of(self.lazy, layer) == layer and keep < len(held):
                best = top(packed.importance[np.searchsorted(packed.pos, held)], keep)
                self.stay = {held[i] for i in best}
            for head in run.store[layer]:
                if keep < len(head[VISUAL].pos):
                    head[VISUAL].keep([i for i, p in enumerate(head[VISUAL].pos) if p in self.stay])
        return None


class VisiPrunerTogether(VisiPruner):
    left = None  # the layer after which rows left first

    def layer_begins(self, run, layer):
        if self.left is None and self.stay is not None and not self.stay.all():
            self.left = layer - 1
        super().layer_begins(run, layer)


def methods(words):
    lazy = (Vla(**words["vla"]) if "vla" in words else
            Gla(**words["gla"]) if "gla" in words else None)
    visipruner = VisiPrunerTogether(**words["visipruner"]) if "visipruner" in words else None
    csp = CspTogether(lazy, **words["csp"]) if "csp" in words else None
    svd = Svd(**words["svd"]) if "svd" in words else None
    if "attention" in words:
        svd.expand(**words["attention"])
    vta = VtaTogether(lazy, visipruner, svd, **words["vta"]) if "vta" in words else None
    return [m for m in (visipruner, lazy, vta and vta.watch, csp, svd, vta) if m]


def render():
    deep, few, two = Shape(n_layer=6), "t5 v30 t9", "t8 v20 t3 v20 t6"
    narrow = Shape(n_layer=4, n_head=4, n_kv=1)
    vla, gla = "lazy=vla,map=given,blocks=1-3", "lazy=gla,map=given,blocks=1-3"
    packed = "pack=svd,rank_k=16,rank_v=16,gain=0,block=16;expand=attention,alpha=0.5"
    return {"networks": [
        case(vla + ";select=csp,heavy=0.3,recent=0.2,dup=official", methods, two),
        case(gla + ";select=csp,heavy=0.3,recent=0.2,share=0.7", methods, two),
        case(vla + ";evict=vta,tau=4,layer=2,shallow=rank_by_first_tap", methods, few, answer=2),
        case("lazy=gla,map=given,blocks=0-1/2-5;evict=vta,tau=4,layer=2", methods, few, shape=deep,
             answer=2),
        case("prune=visipruner,shallow=1,detect=2,l2=0.25,exit_cos=0.9;"
             "lazy=vla,map=given,blocks=1-5", methods, few, shape=Shape(n_layer=7)),
        case("prune=visipruner,shallow=1,detect=2,cos=0.999,l2=0.25,exit_count=9;evict=vta,tau=4",
             methods, few, shape=deep, answer=2),
        case("select=csp,heavy=0.5,recent=0.1,heads=shared;" + packed, methods, "t5 v100 t9",
             shape=narrow),
        case(packed + ";evict=vta,order=ema,tau=8,layer=1", methods, "t5 v100 t9", shape=narrow,
             answer=4),
        case("lazy=vla,map=given,blocks=1-3;" + packed + ";evict=vta,order=ema,tau=8,layer=1",
             methods, "t5 v100 t9", shape=narrow)]}
