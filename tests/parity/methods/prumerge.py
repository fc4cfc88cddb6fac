"""condense=prumerge: PruMerge (arXiv 2403.15388; 42Shawn/LLaVA-PruMerge, clip_encoder.py).

With s the class row's attention on the n patches, softmax(q K^T / sqrt(C)) of unsplit heads, the
rows stay whose s lies above Q3 + 1.5 (Q3 - Q1), at least one; to each of them are added s_j x_j of
the 32 rows whose keys have the greatest cosine with its own, and after them stands the sum of
s_j x_j of all rows that do not stay. Rows are in the order of s. prumerge_plus.py adds rows."""
import numpy as np

from draws import Draws
from network import floor, softmax

D, WIDTH = 24, 6


class Image:
    """What a tower says of n rows: one question, n + 1 keys with the class row's ahead, features."""

    def __init__(self, seed, n, n_head, sharp=3):
        draws = Draws(seed)
        q = draws.uniform(D).astype(np.float64) * sharp
        keys = draws.uniform(n + 1, D).astype(np.float64)
        self.seed, self.n, self.n_head, self.sharp, self.draws = seed, n, n_head, sharp, draws
        self.feature = draws.uniform(n, WIDTH).astype(np.float64)
        wide = D // n_head
        p = [softmax(keys[:, h:h + wide] @ q[h:h + wide] / np.sqrt(wide)) for h in range(0, D, wide)]
        self.score = np.sum(p, axis=0)[1:]
        self.key = keys[1:]

    def golden(self, policy, source, feature):
        return {"policy": policy, "seed": self.seed, "n": self.n, "n_head": self.n_head,
                "sharp": self.sharp, "d": D, "width": WIDTH, "source": [int(j) for j in source],
                "feature": [float(f"{x:.6g}") for x in np.asarray(feature).ravel()]}


def outliers(score):
    q1, q3 = np.percentile(score, [25, 75])
    return int((score > q3 + 1.5 * (q3 - q1)).sum())


def merged(image, chosen, neighbours):
    """Rows of `chosen`, and the one that is made of the others."""
    unit = image.key / np.linalg.norm(image.key, axis=1, keepdims=True)
    weighted = image.score[:, None] * image.feature
    rows = []
    for i in chosen:
        cosine = unit @ unit[i]
        cosine[i] = -np.inf
        near = np.argsort(-cosine, kind="stable")[:min(neighbours, image.n - 1)]
        rows.append(image.feature[i] + weighted[near].sum(axis=0))
    rest = np.setdiff1d(np.arange(image.n), chosen)
    if len(rest):
        rows.append(weighted[rest].sum(axis=0))
    return np.append(chosen, [-1] * bool(len(rest))), rows


def first(image, keep):
    count = floor(keep * image.n) if keep else outliers(image.score)
    return np.argsort(-image.score, kind="stable")[:max(count, 1)]


def case(seed, n, keep=0, neighbours=32, sharp=3):
    image = Image(seed, n, 1, sharp)
    return image.golden(f"condense=prumerge,keep={keep},neighbours={neighbours}",
                          *merged(image, first(image, keep), neighbours))


def render():
    return {"pictures": [case(1, 49), case(2, 64, sharp=9), case(3, 36, sharp=0), case(4, 50, keep=0.1),
                         case(5, 20, keep=0.3, neighbours=3), case(6, 12, keep=1), case(7, 1),
                         case(8, 12, keep=1, neighbours=0)]}
