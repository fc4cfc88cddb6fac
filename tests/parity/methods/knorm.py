"""select=knorm (arXiv 2406.11430): the rows go whose keys have the largest norm."""
import numpy as np

from budget import Budget
from network import TEXT, VISUAL, case


class Knorm(Budget):
    def __init__(self, heavy=0.2, recent=0):
        super().__init__(heavy, recent)

    def score(self, run, layer, g, pos):
        head = run.store[layer][g]
        k = np.vstack([head[VISUAL].k, head[TEXT].k])
        order = np.argsort(np.concatenate([head[VISUAL].pos, head[TEXT].pos]))
        return -np.linalg.norm(k, axis=1)[order]


def methods(words):
    return [Knorm(**words["knorm"])]


def render():
    mixed = "t5 v35 t3 v35 t6"
    return {"networks": [
        case("select=knorm", methods, mixed),
        case("select=knorm,heavy=0.4,recent=0.1", methods, "t3 v40 t1", answer=1),
        case("select=knorm,heavy=0,recent=0", methods, mixed, answer=1)]}
