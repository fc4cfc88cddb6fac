"""condense=hired: HiRED (arXiv 2408.10945). Of the n tokens of an image of one tile the floor(n keep) stay,
in their order, that the tower's class token attends to most, probabilities of all heads added. Of
several tiles, the first shows the whole image and keeps floor(budget whole); the others divide the
rest in proportion to how many of the whole image's floor(n_whole (1 - whole)) patches of highest
first-layer attention each shows, rounded down."""
import numpy as np

from network import floor, top
from prumerge import Image


def case(seed, n, n_head, keep):
    image = Image(seed, n, n_head)
    chosen = top(image.score, floor(keep * n))
    return image.golden(f"condense=hired,keep={keep}", chosen, image.feature[chosen])


def tiled(seed, tile, shown_by, keep, whole):
    """tile[j]: the tile of token j; shown_by[i]: the tile that shows patch i of the whole image."""
    tile, shown_by = np.array(tile), np.array(shown_by)
    image = Image(seed, len(tile), 2)
    first = image.draws.uniform(len(shown_by)).astype(np.float64)
    budget = floor(keep * len(tile))
    left, chosen = budget, []
    hot = shown_by[top(first, floor((1 - whole) * len(shown_by)))]
    for t in range(tile.max() + 1):
        own = np.flatnonzero(tile == t)
        if t == 0:
            b = min(floor(budget * whole), len(own))
            left -= b
        else:
            b = min(left * int((hot == t).sum()) // len(hot), len(own)) if len(hot) else 0
        chosen += list(own[top(image.score[own], b)])
    chosen = np.sort(np.array(chosen, dtype=int))
    golden = image.golden(f"condense=hired,keep={keep},whole={whole}", chosen, image.feature[chosen])
    return {**golden, "tile": tile.tolist(), "shown_by": shown_by.tolist()}


def render():
    two = [0] * 9 + [1, 1, 1, 2, 2, 2] * 3  # two tiles side by side, read line by line
    four = [0] * 9 + [1, 1, 2, 2] * 2 + [3, 3, 4, 4] * 2
    return {"pictures": [case(1, 40, 4, 0.2), case(2, 49, 2, 0.5), case(3, 9, 1, 1),
                         case(4, 9, 1, 0), case(5, 1, 2, 0.9),
                         tiled(6, two, [1, 2, 2] * 3, 0.4, 0.5), tiled(7, two, [1, 2, 2] * 3, 0.7, 0.2),
                         tiled(8, two, [1, 2, 2] * 3, 0.3, 0.9), tiled(9, two, [1, 2, 2] * 3, 0.6, 1),
                         tiled(10, four, [1, 2, 2, 3, 4, 4, 3, 4, 4], 0.5, 0.35)]}
