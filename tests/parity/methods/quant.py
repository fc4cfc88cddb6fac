"""pack=quant: KVQuant (arXiv 2401.18079) with codes at equal distances. Image rows of a layer, all
images together, become codes c = 0 .. 2^bits - 1 that stand for lo + step c: keys with a pair
(lo, step) for each channel over all rows, values with one for each row over all channels. Of each
such line the ceil(share / 2 (length - 1)) smallest and as many largest numbers stay as they are, and
the pair is that of the others.

Keys are turned back to the start of their block of b positions, counted from the first image row,
before they become codes: b = 1 is before rotation, b = 0 as the cache holds them. Reading them back
rotates each to where it stands.

A layer whose codes would take no less memory than its rows stays as it is: keys in tiles of 16 rows,
8 bytes for each pair, for each number that stays 2 and those of its type and for each row 4 beside
them, every array in whole pieces of 64 bytes.

first=packed: the prompt's last row runs once more on the codes, and the first token is its.
"""
import numpy as np

import network
from draws import Draws
from network import VISUAL, Shape, Unclear, case, ceil, rotate
from pvtp import Pvtp
from vla import Vla
from vta import Vta


def outliers(share, length):
    """Of a line, at each end."""
    return ceil(share / 2 * (length - 1)) if share else 0


def line(x, bits, share, near):
    """What is left of a line of numbers; `near`: how close to a half a code may lie."""
    n, most = outliers(share, len(x)), 2**bits - 1
    out = np.zeros(len(x), dtype=bool)
    for sign in (1, -1):
        order = np.argsort(-sign * x, kind="stable")
        order = order[~out[order]]
        if 0 < n < len(order) and abs(x[order[n - 1]] - x[order[n]]) < 1e-5 * np.abs(x).max():
            raise Unclear("two numbers are as far out as each other")
        out[order[:n]] = True
    rest = x[~out]
    if len(rest) == 0 or rest.max() == rest.min():
        return np.where(out, x, rest.min() if len(rest) else 0)
    step = (rest.max() - rest.min()) / most
    exact = (x - rest.min()) / step
    if (np.abs(exact % 1 - 0.5)[~out] < near).any():
        raise Unclear("a number lies between two codes")
    code = np.clip(np.floor(exact + 0.5), 0, most)
    return np.where(out, x, rest.min() + step * code)


def coded(m, kind, bits, share, near=1e-5):
    """Of keys [n, W] by column, of values by row."""
    lines = m.T if kind == "keys" else m
    left = np.array([line(x, bits, share, near) for x in lines])
    return left.T if kind == "keys" else left


def size(kind, n, heads, width, bits, share, element):
    """Bytes of n rows of so many heads."""
    def pieces(x):
        return -(-x // 64) * 64
    def codes(length):
        return length if bits == 8 else (length + 1) // 2
    key, W = kind == "keys", heads * width
    lines, length = (W, n) if key else (n, W)
    out = 2 * lines * outliers(share, length)
    body = -(-n // 16) * width * codes(16) if key else n * codes(width)
    return (pieces(heads * body) + pieces(8 * lines) + pieces(4 * (n + 1) if out else 0) +
            pieces(2 * out) + pieces(element * out))


class Quant(network.Method):
    def __init__(self, bits=8, outliers=0, block=1, first="raw"):
        self.bits, self.share, self.block, self.first = bits, outliers, block, first
        self.layers = {}  # layer -> positions, keys [n, W] turned back, their anchors, values

    def worthwhile(self, n, s):
        both = sum(size(kind, n, s.n_kv, s.d_head, self.bits, self.share, 4)
                   for kind in ("keys", "values"))
        return n > 0 and both < 2 * 4 * n * s.n_kv * s.d_head

    def prefilled(self, run):
        s, run.again = run.shape, self.first == "packed"
        for layer, heads in enumerate(run.store):
            pos = heads[0][VISUAL].pos
            if not self.worthwhile(len(pos), s):
                continue
            anchor = (pos.min() + (pos - pos.min()) // self.block * self.block if self.block
                      else np.zeros_like(pos))
            k = np.hstack([rotate(head[VISUAL].k, -anchor) for head in heads])
            v = np.hstack([head[VISUAL].v for head in heads])
            near = 1e-5 if self.bits == 4 else 1e-4
            self.layers[layer] = (pos, coded(k, "keys", self.bits, self.share, near), anchor,
                                  coded(v, "values", self.bits, self.share, near))
        run.packed = self.layers

    def read(self, run, layer, head, rows):
        if layer not in self.layers:
            return rows
        pos, k, anchor, v = self.layers[layer]
        at = np.array([np.flatnonzero(pos == p)[0] for p in rows.pos], dtype=int)
        of_head = slice(head * run.shape.d_head, (head + 1) * run.shape.d_head)
        return network.Rows(rows.pos, rotate(k[at][:, of_head], anchor[at]), v[at][:, of_head])


def methods(words):
    quant = Quant(**words["quant"])
    pruner = [Pvtp(**words["pvtp"])] if "pvtp" in words else []
    lazy = [Vla(**words["vla"])] if "vla" in words else []
    if "vta" in words:
        vta = Vta(**words["vta"])
        return [vta.watch, *lazy, quant, vta]
    return [*pruner, *lazy, quant]


def codes(kind, bits, share, rows, heads, width, seed=5):
    """Drawn numbers, every fifth four times as large, as codes."""
    while True:
        m = Draws(seed).uniform(rows, heads * width)
        m.ravel()[::5] *= 4
        try:
            left = coded(m.astype(np.float64), kind, bits, share, 1e-3)
            break
        except Unclear:
            seed += 1
    return {"kind": kind, "bits": bits, "outliers": share, "rows": rows, "heads": heads,
            "width": width, "seed": seed,
            "bytes": size(kind, rows, heads, width, bits, share, 4),
            "numbers": [float(f"{x:.7g}") for x in left.ravel()]}


def render():
    narrow = Shape(n_layer=3, n_head=4, n_kv=1)  # 24 wide
    return {
        "codes": [codes(kind, bits, share, 19, 2, 3) for kind in ("keys", "values")
                  for bits, share in ((8, 0), (4, 0), (4, 0.01), (4, 0.3))],
        "networks": [
            case("pack=quant,bits=4", methods, "t5 v20 t3 v20 t6", shape=narrow),
            case("pack=quant,bits=4,outliers=0.05,block=0,first=packed", methods, "t5 v30 t6",
                 answer=2),
            case("pack=quant,bits=4,outliers=0.2,block=7", methods, "t3 v19 t2 v19 t4"),
            case("pack=quant,bits=4,outliers=0.1;evict=vta,tau=4,layer=1", methods, "t3 v30 t8",
                 shape=narrow),
            case("lazy=vla,map=given,blocks=1-2;pack=quant,bits=4,outliers=0.05", methods,
                 "t5 v33 t6", shape=narrow),
            case("prune=pvtp,layer=1,stride=1,first=0.5,ratio=0.4;pack=quant,bits=4", methods,
                 "t3 v40 t8", shape=narrow)]}
