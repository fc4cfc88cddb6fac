"""prune=visipruner: VisiPruner (Fan et al. 2025), with a row's influence by brute force: the last
row's attention output is computed again without it.

    c_j  = concat over heads of a^h_j v^h_j,  O = sum_j c_j;  L2_j = |c_j|,  cos_j = cos(O, O - c_j)

    layer 0          visual tokens look at the text ahead of the image only (and the first at itself);
                     text after gives all its attention to the image to the first token
    layers below f0  text after the first visual token does not attend to visual tokens; self=drop:
                     visual tokens neither. No softmax is taken again.
    DETECT           in the first layer l >= l0 where some cos_j < cos, F = {j: L2_j > l2}; the other
                     visual tokens leave before layer l + 1
    TRACK            a layer l >= l0 in which all of F have cos_j >= exit_cos counts; after
                     exit_count of them, in sum or one after the other, F leaves before layer l + 1
"""
import numpy as np

import network
from network import TEXT, VISUAL, Shape, Unclear, case


def clear(x, least):
    """x >= least, where that does not hang on rounding."""
    if len(x) and np.abs(x - least).min() < 1e-6:
        raise Unclear(f"{x} is near {least}")
    return x >= least


class VisiPruner(network.Method):
    def __init__(self, shallow, detect, cos=0.995, l2=0.2, exit_cos=0.999, exit_count=2,
                 exit="cumulative", self_attention="keep", kv_shallow="keep", filter="auto"):
        self.shallow, self.detect, self.cos, self.l2 = shallow, detect, cos, l2
        self.exit_cos, self.exit_count = exit_cos, exit_count
        self.consecutive = exit == "consecutive"
        self.visual_self, self.kv_shallow, self.filter = self_attention, kv_shallow, filter
        self.stage, self.count, self.stay = "detect", 0, None

    # ---- masks -----------------------------------------------------------------------------

    def attended(self, run, layer, scores, p):
        if layer >= self.shallow or VISUAL not in run.modality:
            return p
        visual = run.modality == VISUAL
        first = int(np.flatnonzero(visual)[0])
        after = np.arange(len(visual)) > first
        text = after & ~visual
        if layer == 0:
            mass = p[:, text][:, :, visual].sum(axis=-1)
            p = p * ~(after[:, None] & visual)
            p[:, text, first] = mass
            return p
        rows = text | visual if self.visual_self == "drop" else text
        return p * ~(rows[:, None] & visual)

    # ---- rows that leave -------------------------------------------------------------------

    def influence(self, run, p, v):
        """L2 and cosine of each visual token that runs."""
        group = run.shape.n_head // run.shape.n_kv
        v = v.repeat(group, axis=0)
        o = np.einsum("hj,hjd->hd", p[:, -1], v).ravel()
        l2, cos = [], []
        for j in np.flatnonzero(run.modality == VISUAL):
            c = (p[:, -1, j, None] * v[:, j]).ravel()
            l2.append(np.linalg.norm(c))
            cos.append(o @ (o - c) / np.linalg.norm(o) / np.linalg.norm(o - c))
        return np.array(l2), np.array(cos)

    def output(self, run, layer, p, v, o):
        self.stay = None
        if layer + 1 == run.shape.n_layer:
            return
        l2, cos = self.influence(run, p, v)
        if self.stage == "detect":
            forced = self.filter != "auto"
            if (layer == self.filter) if forced else (
                    layer >= self.detect and not clear(cos, self.cos).all()):
                self.stay = clear(l2, self.l2)
                self.stage = "track" if self.stay.any() else "over"
        elif self.stage == "track" and layer >= self.detect:
            if clear(cos, self.exit_cos).all():
                self.count += 1
            elif self.consecutive:
                self.count = 0
            if self.count >= self.exit_count:
                self.stay, self.stage = np.zeros(len(cos), dtype=bool), "over"

    def layer_begins(self, run, layer):
        if self.stay is None:
            return
        rows = run.modality == TEXT
        rows[np.flatnonzero(run.modality == VISUAL)[self.stay]] = True
        run.keep(np.flatnonzero(rows))

    def prefilled(self, run):
        if self.kv_shallow == "drop":
            for layer in run.store[:self.shallow]:
                for head in layer:
                    head[VISUAL].keep(np.arange(0))


def methods(words):
    given = dict(words["visipruner"])
    if "self" in given:
        given["self_attention"] = given.pop("self")
    return [VisiPruner(**given)]


def render():
    deep, few, two = Shape(n_layer=7), "t4 v30 t8", "t4 v14 t3 v14 t5"
    # With this seed layers 3 and 5 count towards the exit and layer 4, between them, does not.
    pattern = "prune=visipruner,shallow=1,detect=2,cos=0.9999,l2=0.3,exit_cos=0.95,exit="
    return {"networks": [
        case("prune=visipruner,shallow=2,detect=2,l2=0.25,exit_cos=0.9", methods, few, shape=deep),
        case(pattern + "cumulative", methods, few, 24, deep),
        case(pattern + "consecutive", methods, few, 24, deep, 1),
        case("prune=visipruner,shallow=3,detect=3,cos=-1,self=drop,kv_shallow=drop", methods, two,
             shape=deep),
        case("prune=visipruner,shallow=1,detect=1,filter=3,l2=1000", methods, two, answer=1,
             shape=deep)]}
