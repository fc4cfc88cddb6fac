"""lazy=vla: Q Cache, visual mode. Layers of a block use rotated queries and keys of image tokens of
their leader, its first layer; text tokens, values, output projection and MLP are their own. A block
ends where rows leave: the layer after begins another."""
import numpy as np

import network
from network import VISUAL, Shape, case
from pvtp import Pvtp


def blocks(text, n_layer):
    """"1-3/5-6" -> [0, 1, 1, 1, 4, 5, 5]: the leader of each layer"""
    leader = list(range(n_layer))
    for block in text.split("/"):
        first, last = map(int, block.split("-"))
        leader[first:last + 1] = [first] * (last + 1 - first)
    return leader


class Lazy(network.Method):
    def __init__(self, map, blocks):
        assert map == "given"
        self.map, self.leads, self.lent = blocks, None, None

    def borrows(self, modality):
        """Which rows use the leader's queries and keys."""
        return modality == VISUAL

    def layer_begins(self, run, layer):
        if layer == 0:
            self.leads = [leader == l for l, leader in
                          enumerate(blocks(self.map, run.shape.n_layer))]
        elif len(run.x) != self.lent[0].shape[1]:  # rows have left
            self.leads[layer] = True

    def projected(self, run, layer, q, k, modality):
        if not self.leads[layer]:
            own = ~self.borrows(modality)[None, :, None]
            return np.where(own, q, self.lent[0]), np.where(own, k, self.lent[1])
        self.lent = q, k
        return q, k


class Vla(Lazy):
    pass


def methods(words):
    pruner = [Pvtp(**words["pvtp"])] if "pvtp" in words else []
    return [*pruner, Vla(**words["vla"])]


def render():
    deep, two = Shape(n_layer=6), "t5 v20 t3 v20 t6"
    return {"networks": [
        case("lazy=vla,map=given,blocks=1-2", methods, two),
        case("lazy=vla,map=given,blocks=0-2/3-5", methods, two, shape=deep),
        case("lazy=vla,map=given,blocks=1-5", methods, "t3 v20 t1", shape=Shape(6, 6, 1, 20)),
        case("prune=pvtp,layer=3,stride=9;lazy=vla,map=given,blocks=1-4", methods, two, shape=deep)]}
