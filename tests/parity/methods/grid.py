"""prune=grid: rows spread evenly over each image, in the order of Bayer's ordered dither; rows of
an image beyond its largest square (a CLS row) come first. Our own baseline."""
import numpy as np

import network
from network import VISUAL, case, floor, spans


def bayer(side):
    """Bayer's matrix, 0..side^2 - 1, of a square whose side is a power of two: neighbours are far
    apart in it, so the lowest bits of row and column weigh most."""
    r, c = np.indices((side, side))
    out = np.zeros((side, side), dtype=int)
    two = np.array([[0, 2], [3, 1]])
    weight = side * side // 4
    while weight:
        out += weight * two[r % 2, c % 2]
        r, c, weight = r // 2, c // 2, weight // 4
    return out


def choose(n_image, n_rows, share):
    side = int(np.sqrt(n_rows))
    ahead = n_rows - side * side
    power = 1 << max(side - 1, 0).bit_length()
    place = np.concatenate([np.full(ahead, -1), bayer(power)[:side, :side].ravel()])
    keep = floor(share * n_image * n_rows)
    order = np.argsort(np.tile(place, n_image), kind="stable")
    return np.sort(order[:keep])


class Grid(network.Method):
    def __init__(self, layer, keep=0.5):
        self.layer, self.share = layer, keep

    def layer_begins(self, run, layer):
        if layer == self.layer:
            visual = np.flatnonzero(run.modality == VISUAL)
            n = len(run.prompt.images)
            best = visual[choose(n, len(visual) // n, self.share)]
            run.keep(np.sort(np.concatenate([np.flatnonzero(run.modality != VISUAL), best])))


def methods(words):
    return [Grid(**words["grid"])]


def render():
    images = [(1, 1, 1), (1, 1, 0), (1, 16, 0.25), (1, 16, 0.5), (1, 17, 0.3), (2, 16, 0.28),
              (1, 144, 0.5), (1, 144, 0.1), (3, 49, 0.4), (1, 576, 0.25), (2, 577, 0.111),
              (1, 576, 0.5), (1, 6, 0.5)]
    return {"choices": [{"images": n, "rows": rows, "keep": str(share),
                         "stay": spans(choose(n, rows, share))} for n, rows, share in images],
            "networks": [case("prune=grid,layer=2,keep=0.3", methods, "t5 v36 t3 v36 t6"),
                         case("prune=grid,layer=0,keep=0.5", methods, "v17 t1", answer=1)]}
