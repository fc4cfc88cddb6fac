"""prune=fitprune: FitPrune (arXiv 2409.10197; ywh187/FitPrune). After layer l those visual tokens leave
whose x_j y_j is smallest, x_j = sum over text tokens of max_h A, y_j = the same over visual tokens / n.
A schedule says of 576 rows how many leave after each of its layers; on N layers and V rows, what is
left after layer l is V - floor(V C / 576), C its sum up to round((l + 1) n / N)."""
import numpy as np

import network
from network import VISUAL, Shape, case, floor, top

SCHEDULE = {
    60: [14, 33, 89, 36, 36, 20, 55, 21, 18, 4, 7, 5, 2, 5, 7, 4, 26, 5, 11, 24, 4, 18, 2, 1, 0, 0,
         1, 0, 1, 0, 0, 0],
    90: [262, 153, 80, 19, 13, 1, 2] + [0] * 8 + [1, 1, 2, 1, 2, 0, 1] + [0] * 5 + [1] + [0] * 4}


class FitPrune(network.Method):
    def __init__(self, target=60, schedule=None):
        # One number is read as a number.
        self.schedule = ([int(c) for c in str(schedule).split("/")] if target == "given"
                         else SCHEDULE[target])
        self.score = None

    def left(self, run, layer):
        """Visual tokens after a layer."""
        n, V = len(self.schedule), int((run.prompt.modality == VISUAL).sum())
        i = int(np.floor((layer + 1) * n / run.shape.n_layer + 0.5))
        return V - floor(V * sum(self.schedule[:i]) / 576)

    def attended(self, run, layer, scores, p):
        visual = run.modality == VISUAL
        most = p.max(axis=0)
        x, y = most[~visual].sum(axis=0), most[visual].sum(axis=0)
        self.score = (x * y / max(visual.sum(), 1))[visual]
        return p

    def layer_begins(self, run, layer):
        visual = np.flatnonzero(run.modality == VISUAL)
        if layer == 0 or self.left(run, layer - 1) >= len(visual):
            return
        stay = visual[top(self.score, self.left(run, layer - 1))]
        run.keep(np.sort(np.concatenate([np.flatnonzero(run.modality != VISUAL), stay])))


def methods(words):
    return [FitPrune(**words["fitprune"])]


def render():
    two = "t5 v35 t3 v35 t6"
    return {"networks": [
        case("prune=fitprune", methods, answer=2),
        case("prune=fitprune,target=90", methods, two, answer=2),
        case("prune=fitprune,target=given,schedule=100/0/200/276", methods, two, answer=1),
        case("prune=fitprune,target=given,schedule=288", methods, "t3 v9 t2", answer=1),
        case("prune=fitprune", methods, "t1 v129 t65", answer=1,
             shape=Shape(n_layer=3, n_head=6, n_kv=1, d_head=20)),
        case("prune=fitprune,target=given,schedule=576/0", methods, "t1 v1 t1", answer=1)]}
