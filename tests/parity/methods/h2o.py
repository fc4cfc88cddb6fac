"""select=h2o: the Heavy-Hitter Oracle (arXiv 2306.14048), once, after the prompt; evict=h2o: the
same while the answer grows.

    s_j = sum of A_ij over all rows i of the prompt        (normalise=seen: divided by n - j)

Per KV head the highest ahead of the last rows stay, and the last rows.
"""
import numpy as np

from budget import Budget, come_to, group_of
from gla import Gla
from network import case, floor
from tally import Tally
from vla import Vla


class H2o(Budget):
    def __init__(self, heavy=0.1, recent=0.1, normalise="no", group="mean"):
        super().__init__(heavy, recent)
        self.seen, self.group = normalise == "seen", group
        self.sums = {}  # layer -> [H, rows that the layer ran]

    def attended(self, run, layer, scores, p):
        self.sums[layer] = p.sum(axis=1)
        return p

    def score(self, run, layer, g, pos):
        s = come_to(self.group)(self.sums[layer][group_of(run, g)], axis=0)
        return s / (len(run.prompt.ids) - pos) if self.seen else s


class Going(Tally):
    """evict=h2o: the same sums go on with the answer, and one row leaves for each token."""

    def __init__(self, heavy=0.1, recent=0.1, normalise="no"):
        super().__init__()
        self.heavy, self.recent, self.seen = heavy, recent, normalise == "seen"

    def sizes(self, n):
        heavy, recent = floor(self.heavy * n), floor(self.recent * n)
        return None if self.heavy + self.recent >= 1 else (heavy + recent, heavy + recent, recent)

    def paid_by(self, p, seen):
        return np.nansum(p, axis=1)

    def worth(self, run, tally, pos, end):
        return tally.mean(axis=1) / (end - pos if self.seen else 1)


def methods(words):
    lazy = [Vla(**words["vla"])] if "vla" in words else [Gla(**words["gla"])] if "gla" in words else []
    return [*lazy, H2o(**words["h2o"])]


def going(words):
    return [Going(**words["h2o"])]


def render():
    mixed = "t5 v35 t3 v35 t6"
    return {"networks": [
        case("select=h2o", methods, mixed),
        case("select=h2o,heavy=0.3,recent=0.05,group=max", methods, mixed, answer=1),
        case("select=h2o,heavy=0.25,recent=0,normalise=seen", methods, "t3 v40 t1", answer=1),
        case("select=h2o,heavy=0,recent=0.3", methods, mixed, answer=1),
        case("lazy=vla,map=given,blocks=1-2;select=h2o,heavy=0.3", methods, mixed, answer=1),
        case("lazy=gla,map=given,blocks=0-1;select=h2o,heavy=0.3,recent=0.05", methods, mixed, answer=1),
        case("evict=h2o", going, mixed, answer=4),
        case("evict=h2o,heavy=0.5,recent=0.05,normalise=seen", going, mixed, answer=2)]}
