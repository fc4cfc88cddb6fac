"""lazy=gla: Q Cache, global mode, and QK heredity of ST3 (arXiv 2412.20105): layers of a block use
rotated queries and keys of all rows of their leader, in the answer too."""
import numpy as np

from network import Shape, case
from pvtp import Pvtp
from vla import Lazy


class Gla(Lazy):
    def borrows(self, modality):
        return np.ones(len(modality), dtype=bool)


def methods(words):
    pruner = [Pvtp(**words["pvtp"])] if "pvtp" in words else []
    return [*pruner, Gla(**words["gla"])]


def render():
    deep, two = Shape(n_layer=6), "t5 v20 t3 v20 t6"
    return {"networks": [
        case("lazy=gla,map=given,blocks=1-2", methods, two),
        case("lazy=gla,map=given,blocks=0-2/3-5", methods, "t20", shape=deep),
        case("lazy=gla,map=given,blocks=1-5", methods, "t3 v20 t1", shape=Shape(6, 6, 1, 20)),
        case("prune=pvtp,layer=3,stride=9;lazy=gla,map=given,blocks=1-4", methods, two, shape=deep)]}
