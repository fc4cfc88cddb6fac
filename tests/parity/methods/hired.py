"""condense=hired: HiRED (arXiv 2408.10945), for pictures of one crop. Of n rows the floor(n keep)
stay, in their order, to which the tower's class row pays most, probabilities of all heads added."""
from network import floor, top
from prumerge import Picture


def case(seed, n, n_head, keep):
    picture = Picture(seed, n, n_head)
    chosen = top(picture.score, floor(keep * n))
    return picture.golden(f"condense=hired,keep={keep}", chosen, picture.feature[chosen])


def render():
    return {"pictures": [case(1, 40, 4, 0.2), case(2, 49, 2, 0.5), case(3, 9, 1, 1),
                         case(4, 9, 1, 0), case(5, 1, 2, 0.9)]}
