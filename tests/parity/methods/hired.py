"""condense=hired: HiRED (arXiv 2408.10945), for images of one tile. Of n rows the floor(n keep)
stay, in their order, that the tower's class token attends to most, probabilities of all heads added."""
from network import floor, top
from prumerge import Image


def case(seed, n, n_head, keep):
    image = Image(seed, n, n_head)
    chosen = top(image.score, floor(keep * n))
    return image.golden(f"condense=hired,keep={keep}", chosen, image.feature[chosen])


def render():
    return {"pictures": [case(1, 40, 4, 0.2), case(2, 49, 2, 0.5), case(3, 9, 1, 1),
                         case(4, 9, 1, 0), case(5, 1, 2, 0.9)]}
