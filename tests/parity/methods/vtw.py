"""prune=vtw: Visual Tokens Withdrawal (arXiv 2405.05803). All visual tokens leave before one layer."""
import numpy as np

import network
from network import TEXT, Shape, case


class Vtw(network.Method):
    def __init__(self, layer):
        self.layer = layer

    def layer_begins(self, run, layer):
        if layer == self.layer:
            run.keep(np.flatnonzero(run.modality == TEXT))


def methods(words):
    return [Vtw(**words["vtw"])]


def render():
    return {"networks": [
        case("prune=vtw,layer=2", methods, "t5 v20 t3 v20 t6"),
        case("prune=vtw,layer=1", methods, "v20 t1", shape=Shape(n_layer=3, n_kv=4, d_head=20))]}
