"""condense=prumerge_plus: PruMerge+. After the rows that prumerge keeps stand, of every step-th row
of all but the last, those that are not among them; step = floor(floor(n / kept) / 3), at least 1."""
import numpy as np

from prumerge import Image, first, merged


def case(seed, n, keep=0, neighbours=32, sharp=3):
    image = Image(seed, n, 1, sharp)
    chosen = first(image, keep)
    step = max(n // len(chosen) // 3, 1)
    even = [j for j in range(0, n - 1, step) if j not in chosen]
    source, rows = merged(image, np.append(chosen, even).astype(int), neighbours)
    return image.golden(f"condense=prumerge_plus,keep={keep},neighbours={neighbours}", source, rows)


def render():
    return {"pictures": [case(1, 49), case(2, 64, sharp=9), case(3, 36, sharp=0),
                         case(4, 40, keep=0.05, neighbours=4), case(5, 12, keep=0.5), case(7, 1)]}
