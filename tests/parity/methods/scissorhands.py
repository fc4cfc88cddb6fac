"""evict=scissorhands (arXiv 2305.17118): rows that received less than an even share of the attention most often
leave, many at a time.

    low_j = number of rows i with A_ij < 1 / n_i,  n_i the rows that i sees
"""
import numpy as np

from network import case, floor
from tally import Tally


class Scissorhands(Tally):
    def __init__(self, keep=0.5, drop=0.5, recent=10, window=400):
        super().__init__()
        self.share, self.drop, self.recent, self.window = keep, drop, recent, window

    def sizes(self, n):
        most = floor(self.share * n)
        left = most - floor(self.drop * most)
        return None if self.share >= 1 else (most, left, min(self.recent, left))

    def paid_by(self, p, seen):
        return (p < 1 / seen[None, :, None]).sum(axis=1).astype(float)  # what is not seen is NaN

    def worth(self, run, tally, pos, end):
        return -tally.mean(axis=1)

    def left(self, tally):
        return np.zeros_like(tally)


def methods(words):
    return [Scissorhands(**words["scissorhands"])]


def render():
    mixed = "t5 v35 t3 v35 t6"
    return {"networks": [
        case("evict=scissorhands,keep=0.3,drop=0.1", methods, mixed, answer=6),
        case("evict=scissorhands,recent=3,window=9", methods, mixed, answer=3)]}
