"""prune=pdrop: PyramidDrop (arXiv 2410.17247; Cooperx521/PyramidDrop, modeling_llama_pdrop.py).

Before layer r its own norm, queries and keys are computed on the rows as they are; of each image the
floor(n share) rows stay that the prompt's last token attends to most, mean over heads. Rows that are left
have the positions 0, 1, 2, ...; a token of the answer stands in each layer after what that layer
has, so its position falls by what has left."""
import numpy as np

import network
from network import VISUAL, Shape, case, floor, rotate, softmax, top


class PDrop(network.Method):
    def __init__(self, second=None, third=None, fourth=None, ratio=0.5):
        self.given, self.ratio = (second, third, fourth), ratio
        self.gone = {}  # layer -> rows that have left before it
        self.answering = False

    def steps(self, run):
        N = run.shape.n_layer
        return {int(np.floor(paper * N / 32 + 0.5)) if layer is None else layer: self.ratio ** (i + 1)
                for i, (layer, paper) in enumerate(zip(self.given, (8, 16, 24)))}

    def attention(self, run, layer, place):
        s = run.shape
        q = rotate(run.net.project(layer, "q", run.x[-1:], s.n_head), place[-1:])
        k = rotate(run.net.project(layer, "k", run.x, s.n_kv), place)
        k = k.repeat(s.n_head // s.n_kv, axis=0)
        return softmax((q @ k.transpose(0, 2, 1))[:, 0] / np.sqrt(s.d_head)).mean(axis=0)

    def layer_begins(self, run, layer):
        n = len(run.prompt.ids)
        if layer in self.steps(run):
            attention = self.attention(run, layer, np.arange(len(run.x)))
            first = np.flatnonzero(run.prompt.modality == VISUAL)
            ends = np.cumsum(run.prompt.images)
            image = np.searchsorted(ends, np.searchsorted(first, run.pos), side="right")
            stay = [np.flatnonzero(run.modality != VISUAL)]
            for i, each in enumerate(run.prompt.images):
                rows = np.flatnonzero((run.modality == VISUAL) & (image == i))
                stay.append(rows[top(attention[rows], floor(each * self.steps(run)[layer]))])
            run.keep(np.sort(np.concatenate(stay)))
        self.gone[layer] = n - len(run.x)

    def projected(self, run, layer, q, k, modality):
        """Rotations add up: from the original position to the one that counts."""
        move = -self.gone[layer] if self.answering else np.arange(len(run.x)) - run.pos
        return rotate(q, np.broadcast_to(move, q.shape[1])), rotate(k, np.broadcast_to(move, k.shape[1]))

    def prefilled(self, run):
        self.answering = True


def methods(words):
    return [PDrop(**words["pdrop"])]


def render():
    two = "t5 v35 t3 v35 t6"
    return {"networks": [
        case("prune=pdrop", methods, answer=3),
        case("prune=pdrop,ratio=0.7", methods, two, answer=3),
        case("prune=pdrop,second=1,third=3,fourth=3,ratio=0.6", methods, "t2 v9 v9 t4", answer=2),
        case("prune=pdrop,ratio=0.7", methods, "t2 v23 v7 t3 v12 t5", answer=2),
        case("prune=pdrop,ratio=0.3", methods, "t1 v129 t65", answer=2,
             shape=Shape(n_layer=4, n_head=6, n_kv=1, d_head=20)),
        case("prune=pdrop,ratio=0.5", methods, "t1 v1 t1", answer=1)]}
