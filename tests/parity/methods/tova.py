"""evict=tova (arXiv 2401.06104): of more rows than the budget, those leave that the last token attended to
least, mean over all heads of the layer."""
import numpy as np

from network import case, floor
from tally import Tally


class Tova(Tally):
    shared, last, window = True, True, 1

    def __init__(self, keep=0.2):
        super().__init__()
        self.share = keep

    def sizes(self, n):
        rows = floor(self.share * n)
        return None if self.share >= 1 else (rows, rows, 0)

    def paid_by(self, p, seen):
        return np.nansum(p, axis=1)


def methods(words):
    return [Tova(**words["tova"])]


def render():
    mixed = "t5 v35 t3 v35 t6"
    return {"networks": [
        case("evict=tova", methods, mixed, answer=5),
        case("evict=tova,keep=0.9", methods, mixed, answer=4)]}
