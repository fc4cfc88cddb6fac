"""pack=minicache: MiniCache (arXiv 2405.14366) on image tokens. From layer `start` on, layers 2p and
2p + 1 are merged where both have the same image tokens, keys and values apart. Per row and KV head
with vectors m1 and m2 of the two layers, u = m / |m| and W the angle between u1 and u2:

    e = (sin((1 - t) W) u1 + sin(t W) u2) / sin W
    m1 -> |m1| e,  m2 -> |m2| e
    m1 and m2 stay as they are where W > W_max - gamma (W_max - W_min), over all rows and heads

Where sin W is next to nothing, e = (1 - t) u1 + t u2; where one vector is 0, e is the other's u and
W counts as 0.

Keys are turned back to the start of their block of b positions, counted from the first image row,
before they are merged: b = 1 is before rotation, b = 0 as the cache holds them.

Two layers whose four parts would take no less memory than their rows stay as they are: directions
once, keys in tiles of 16 rows, and with each layer 4 bytes for each norm of such a tile, and of what
stays its numbers, 2 bytes each for its head and 4 for each row; every array in whole pieces of 64
bytes.

first=packed: the prompt's last row runs once more on what was merged, and the first token is its.
"""
import numpy as np

import network
from draws import Draws
from network import VISUAL, Shape, Unclear, case, rotate
from pvtp import Pvtp
from vta import Vta


def unit(x):
    """Directions, and 0 where there is none; and norms."""
    norm = np.linalg.norm(x, axis=-1, keepdims=True)
    return np.divide(x, norm, out=np.zeros_like(x), where=norm > 0), norm


def angles(m1, m2):
    (u1, n1), (u2, n2) = unit(m1), unit(m2)
    angle = np.arccos(np.clip((u1 * u2).sum(axis=-1), -1, 1))
    return np.where(((n1 > 0) & (n2 > 0))[..., 0], angle, 0.0)


def stays(m1, m2, gamma):
    """[n, heads]"""
    angle = angles(m1, m2)
    cut = angle.max() - gamma * (angle.max() - angle.min())
    near = np.abs(angle - cut) < 1e-6
    if near.any() and not (angle.max() == cut):
        raise Unclear("an angle lies where those begin that stay")
    return angle > cut


def merged(m1, m2, t, gamma):
    """What m1 and m2 [n, heads, D] are read as, and what stays."""
    kept = stays(m1, m2, gamma)[..., None]
    (u1, n1), (u2, n2) = unit(m1), unit(m2)
    angle = angles(m1, m2)[..., None]
    sine = np.sin(angle)
    arc = sine > 1e-6
    safe = np.where(arc, sine, 1)
    e = np.where(arc, (np.sin((1 - t) * angle) * u1 + np.sin(t * angle) * u2) / safe,
                 (1 - t) * u1 + t * u2)
    e = np.where(n1 == 0, u2, np.where(n2 == 0, u1, e))
    return np.where(kept, m1, n1 * e), np.where(kept, m2, n2 * e), kept[..., 0]


def size(kind, n, heads, width, kept, element, borrows):
    """Bytes of one part."""
    def pieces(x):
        return -(-x // 64) * 64
    tile = -(-n // 16) * 16
    directions = heads * (tile if kind == "keys" else n) * width * element
    return (pieces(0 if borrows else directions) + pieces(4 * heads * tile) +
            pieces(4 * (n + 1) if kept else 0) + pieces(2 * kept) +
            pieces(kept * width * element))


def sizes(n, heads, width, kept, element=4):
    """Of the four parts of two layers; kept: of keys and of values."""
    return sum(size(kind, n, heads, width, k, element, borrows) for borrows in (False, True)
               for kind, k in zip(("keys", "values"), kept))


class Minicache(network.Method):
    def __init__(self, start=None, t=0.6, gamma=0.05, block=1, first="raw"):
        self.start, self.t, self.gamma, self.block, self.first = start, t, gamma, block, first
        self.layers = {}  # layer -> positions, keys [n, Hkv, D] turned back, their anchors, values

    def first_layer(self, s):
        start = round(16 * s.n_layer / 32) if self.start is None else self.start
        return start + start % 2

    def prefilled(self, run):
        s, run.again = run.shape, self.first == "packed"
        for layer in range(self.first_layer(s), s.n_layer - 1, 2):
            self.merge(run, layer)
        run.packed = self.layers

    def merge(self, run, layer):
        s, pairs = run.shape, [run.store[layer], run.store[layer + 1]]
        pos = pairs[0][0][VISUAL].pos
        raw = 16 * len(pos) * s.n_kv * s.d_head
        if (len(pos) == 0 or not np.array_equal(pos, pairs[1][0][VISUAL].pos) or
                sizes(len(pos), s.n_kv, s.d_head, (0, 0)) >= raw):
            return
        anchor = (pos.min() + (pos - pos.min()) // self.block * self.block if self.block
                  else np.zeros_like(pos))
        k = [np.stack([rotate(head[VISUAL].k, -anchor) for head in heads], 1) for heads in pairs]
        v = [np.stack([head[VISUAL].v for head in heads], 1) for heads in pairs]
        *k, kept_k = merged(*k, self.t, self.gamma)
        *v, kept_v = merged(*v, self.t, self.gamma)
        if sizes(len(pos), s.n_kv, s.d_head, (int(kept_k.sum()), int(kept_v.sum()))) >= raw:
            return
        for i in range(2):
            self.layers[layer + i] = (pos.copy(), k[i], anchor, v[i])

    def read(self, run, layer, head, rows):
        if layer not in self.layers:
            return rows
        pos, k, anchor, v = self.layers[layer]
        at = np.array([np.flatnonzero(pos == p)[0] for p in rows.pos], dtype=int)
        return network.Rows(rows.pos, rotate(k[at, head], anchor[at]), v[at, head])


def methods(words):
    minicache = Minicache(**words["minicache"])
    pruner = [Pvtp(**words["pvtp"])] if "pvtp" in words else []
    if "vta" in words:
        vta = Vta(**words["vta"])
        return [vta.watch, minicache, vta]
    return [*pruner, minicache]


def parts(kind, t, gamma, rows, heads, width, seed=5):
    """Two layers of drawn numbers, the second the first and as much again; some rows stand out."""
    while True:
        draws = Draws(seed)
        m1 = draws.uniform(rows, heads, width)
        m2 = m1 + draws.uniform(rows, heads, width)
        m1[1] = m2[2] = 0
        m2[3] = -m1[3]
        m2[4] = 2 * m1[4]
        try:
            a, b, kept = merged(m1.astype(np.float64), m2.astype(np.float64), t, gamma)
            break
        except Unclear:
            seed += 1
    n = int(kept.sum())
    return {"kind": kind, "t": t, "gamma": gamma, "rows": rows, "heads": heads, "width": width,
            "seed": seed, "kept": [int(x) for x in kept.ravel()],
            "bytes": [size(kind, rows, heads, width, n, 4, borrows) for borrows in (False, True)],
            "numbers": [float(f"{x:.7g}") for x in np.concatenate([a.ravel(), b.ravel()])]}


def render():
    deep = Shape(n_layer=6, n_head=4, n_kv=1)
    return {
        "parts": [parts(kind, t, gamma, 9, 2, 3) for kind in ("keys", "values")
                  for t, gamma in ((0.6, 0.05), (0.5, 0), (0.25, 0.4), (0, 0.6))],
        "networks": [
            case("pack=minicache", methods, "t5 v20 t3 v20 t6"),
            case("pack=minicache,start=0,t=0.5,gamma=0.3,block=0,first=packed", methods,
                 "t5 v30 t6", answer=2),
            case("pack=minicache,start=1,block=7", methods, "t3 v19 t2 v19 t4", shape=deep),
            case("pack=minicache,start=0,gamma=0.2;evict=vta,tau=4,layer=1,"
                 "shallow=rank_by_first_tap", methods, "t3 v30 t8", shape=deep),
            case("prune=pvtp,layer=3,stride=9,first=0.3,ratio=0.1;pack=minicache,start=0,t=0.4",
                 methods, "t3 v40 t8", shape=deep)]}
