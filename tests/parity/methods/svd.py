"""pack=svd: AttentionPack (CVPR 2026). Image rows of a layer, all heads side by side and all images
together, become M ~= U B of rank R, by numpy.linalg.svd; the answer then reads U B instead of M.

Keys are factored rotated by their distance to the start of their block of b positions, counted from
the first image row: b = 1 is before rotation, b = 0 as the cache holds them. Reading them back
rotates each block's rows to where they stand, so every b is read exactly; what differs is M.

compress_text=keys: the prompt's text tokens likewise, apart from those of images and keys alone; blocks
are counted from the first text token, and values stay as they are.

recompress=T: at the end of a turn after which T text tokens or more wait, their keys, turned back to
their blocks' starts, stand below U B, and all of that is factored anew, where so many rows are worth
it. (Rows lie in pages of 64, and the engine also wants the new block to take less than what it
replaces: in the cases it does.)

first=packed: the prompt's last row runs once more on the factors, and the first token is its; its
own key is no factor.

expand=attention: the ceil(f n) rows of highest importance are read at rank R, the others at
floor(r R), by the first columns of U. Importance begins with the attention of the prompt's last token, mean
over heads, and follows the answer: I <- alpha I + (1 - alpha) attention.

evict=importance: ceil(k n) rows of highest importance stay from the first step on; evict=vta with
order=ema: so many as vta has left at each step.

A layer that has lost rows, of which v are left, becomes raw rows U B for good where these are no
larger than factors, 2 v W <= (R_k + R_v) (v + W): all are read at full rank then, and leave by what
their importance was.

The cases have ranks at which a subspace with a few directions to spare is the whole space: then the
engine's factors are the best there are, and not only 0.5 % from them.
"""
import numpy as np

import network
from csp import Csp
from draws import Draws
from network import TEXT, VISUAL, Shape, Unclear, case, ceil, floor, rotate, top
from pvtp import Pvtp
from vla import Vla
from vta import Vta


def factor(m, rank):
    """U [n, R] and B [R, W], strongest first."""
    u, s, b = np.linalg.svd(m, full_matrices=False)
    return u[:, :rank] * s[:rank], b[:rank]


class Packed:
    """A layer's image tokens as they were when prefill ended, by their place among these."""

    def __init__(self, pos, importance):
        self.pos, self.importance = pos, importance
        self.u, self.b, self.anchor = [None, None], [None, None], None
        self.raw = False


class Svd(network.Method):
    def __init__(self, rank_k=64, rank_v=64, block=64, gain=1.5, first="raw", compress_text="no",
                 rank_text=64, recompress=0):
        self.rank, self.block, self.gain = (rank_k, rank_v), block, gain
        self.first = first
        self.rank_text = rank_text if compress_text == "keys" else 0
        self.again = recompress
        self.text = {}     # layer -> positions of text tokens, their anchors, and their keys [n, Hkv D]
        self.seen = {}     # layer -> the attention of the prompt's last token
        self.layers = {}   # layer -> Packed
        self.low = None    # expand=attention: of keys and values, the share of the rank
        self.share = 1.0   # evict=importance

    def attended(self, run, layer, scores, p):
        self.seen[layer] = dict(zip(run.pos, p[:, -1].mean(axis=0)))
        return p

    def prefilled(self, run):
        s, run.again = run.shape, self.first == "packed"
        for layer, heads in enumerate(run.store):
            self.pack_text(run, layer, heads)
            pos, width = heads[0][VISUAL].pos, s.n_kv * s.d_head
            n, rank = len(pos), min(max(self.rank), len(pos), width)
            if n == 0 or n * width / (rank * (n + width)) < self.gain:
                continue
            p = self.layers[layer] = Packed(pos, np.array([self.seen[layer][j] for j in pos]))
            run.packed = self.layers
            p.anchor = self.anchors(pos)
            k = np.hstack([rotate(head[VISUAL].k, -p.anchor) for head in heads])
            for kind, m in enumerate((k, np.hstack([head[VISUAL].v for head in heads]))):
                p.u[kind], p.b[kind] = factor(m, self.rank[kind])

    def anchors(self, pos):
        base = pos.min()
        return base + (pos - base) // self.block * self.block if self.block else np.zeros_like(pos)

    def pack_text(self, run, layer, heads):
        pos = heads[0][TEXT].pos
        if run.again:
            pos = pos[pos < len(run.prompt.ids) - 1]
        self.factor_text(run, layer, heads, pos)

    def factor_text(self, run, layer, heads, pos):
        """Keys of rows pos: of those that are packed, what factors say."""
        n, width = len(pos), run.shape.n_kv * run.shape.d_head
        rank = min(self.rank_text, n, width)
        if rank == 0 or n * width / (rank * (n + width)) < self.gain:
            return
        anchor = self.anchors(pos)
        m = np.hstack([rotate(head[TEXT].k[:n], -anchor) for head in heads])
        if layer in self.text:
            old, _, m[:len(self.text[layer][0])] = self.text[layer]
            assert (pos[:len(old)] == old).all()
        u, b = factor(m, rank)
        self.text[layer] = pos, anchor, u @ b

    def turn_ends(self, run):
        for layer, heads in enumerate(run.store):
            pos = heads[0][TEXT].pos
            wait = len(pos) - len(self.text[layer][0] if layer in self.text else ())
            if self.again and wait >= self.again:
                self.factor_text(run, layer, heads, pos)

    def read_text(self, run, layer, head, rows):
        if layer not in self.text:
            return rows
        pos, anchor, k = self.text[layer]
        of_head = slice(head * run.shape.d_head, (head + 1) * run.shape.d_head)
        assert (rows.pos[:len(pos)] == pos).all()
        keys = np.vstack([rotate(k[:, of_head], anchor), rows.k[len(pos):]])
        return network.Rows(rows.pos, keys, rows.v)

    def step_begins(self, run, t):
        for layer, p in self.layers.items():
            keep = ceil(self.share * len(p.pos))
            if t == 1 and keep < len(p.pos):
                best = top(p.importance, keep)
                for head in run.store[layer]:
                    head[VISUAL].keep(best)

    def read(self, run, layer, head, rows):
        if layer not in self.layers:
            return rows
        p = self.layers[layer]
        at = np.searchsorted(p.pos, rows.pos)
        of_head = slice(head * run.shape.d_head, (head + 1) * run.shape.d_head)
        full = self.low is None or self.is_raw(p, len(at))
        k, v = (self.rebuilt(p, kind, at, full)[:, of_head] for kind in (0, 1))
        return network.Rows(rows.pos, rotate(k, p.anchor[at]), v)

    def keep_best(self, run, layer, n):
        """The n rows of highest importance stay."""
        p, heads = self.layers[layer], run.store[layer]
        score = p.importance[np.searchsorted(p.pos, heads[0][VISUAL].pos)]
        falling = -np.sort(-score)
        if 0 < n < len(score) and falling[n - 1] - falling[n] < 1e-6 * score.max():
            raise Unclear("two rows are worth the same")
        best = top(score, n)
        for head in heads:
            head[VISUAL].keep(best)
        p.raw = p.raw or self.is_raw(p, n)

    def is_raw(self, p, v):
        width, ranks = p.b[0].shape[1], len(p.b[0]) + len(p.b[1])
        return v < len(p.pos) and 2 * v * width <= ranks * (v + width)

    def rebuilt(self, p, kind, at, full):
        u = p.u[kind][at]
        if not full and self.low[kind]:
            others = np.ones(len(at), dtype=bool)
            others[top(p.importance[at], ceil(self.full * len(at)))] = False
            u[others, max(1, floor(self.low[kind] * self.rank[kind])):] = 0
        return u @ p.b[kind]

    def on_attention(self, run, layer, p, n_visual):
        if self.low and layer in self.layers and not self.layers[layer].raw:
            packed = self.layers[layer]
            at = np.searchsorted(packed.pos, run.store[layer][0][VISUAL].pos)
            mean = np.mean([row[:n_visual] for row in p], axis=0)
            packed.importance[at] = self.alpha * packed.importance[at] + (1 - self.alpha) * mean

    def expand(self, full=0.25, rank=0.25, alpha=0.25, parts="values"):
        self.full, self.alpha = full, alpha
        self.low = (rank if parts == "both" else None, rank)

    def evict(self, keep=0.5):
        self.share = keep


def methods(words):
    """Of the packed layers' policies. Rows are packed first, so that the order in which others let
    them go stays that of their places."""
    svd = Svd(**words["svd"])
    if "attention" in words:
        svd.expand(**words["attention"])
    if "importance" in words:
        svd.evict(**words["importance"])
    pruner = Pvtp(**words["pvtp"]) if "pvtp" in words else None
    lazy = [Vla(**words["vla"])] if "vla" in words else []
    select = [Csp(**words["csp"])] if "csp" in words else []
    if "vta" in words:
        vta = Vta(pruner, packed=svd, **words["vta"])
        return [vta.watch, *lazy, *select, svd, vta]
    return [*([pruner] if pruner else []), *lazy, *select, svd]


# ---- factors and codes by themselves --------------------------------------------------------

def spectrum(rows, width, directions, decay, rank, seed=3):
    """A matrix A diag(decay^i) C, A and C drawn: its singular values, and the least error of rank R
    (Eckart and Young), as a share of its norm."""
    draws = Draws(seed)
    a, c = draws.uniform(rows, directions), draws.uniform(directions, width)
    m = (a.astype(np.float64) * decay ** np.arange(directions)) @ c.astype(np.float64)
    s = np.linalg.svd(m, compute_uv=False)
    return {"rows": rows, "width": width, "directions": directions, "decay": decay, "rank": rank,
            "seed": seed, "sizes": [float(f"{x:.6g}") for x in s[:rank]],
            "error": float(f"{np.sqrt((s[rank:] ** 2).sum() / (s ** 2).sum()):.6g}")}


def affine(x, bits, half):
    """lo + step c, c = 0 .. 2^bits - 1 nearest to x; the pair in float16 where `half`."""
    most = 2**bits - 1
    lo = np.float64(np.float16(x.min()) if half else x.min())
    step = (x.max() - lo) / most
    step = np.float64(np.float16(step) if half else np.float32(step))
    exact = (x - lo) / step
    if np.abs(exact % 1 - 0.5).min() < 1e-3:
        raise Unclear("a number lies between two codes")
    return lo + step * np.clip(np.floor(exact + 0.5), 0, most)


def codes(kind, bits, rows, rank, heads, width, seed=5):
    """What is left of U [n, R] and B [R, Hkv D] in so many bits. Keys' U: a pair per column. Values'
    U: a pair per row, of numbers divided by their column's root mean square. B: a pair per row and
    head."""
    while True:
        draws = Draws(seed)
        u, b = draws.uniform(rows, rank), draws.uniform(rank, heads * width)
        u = (u * np.float32(0.5) ** np.arange(rank, dtype=np.float32)).astype(np.float64)
        b = b.astype(np.float64)
        try:
            if kind == "keys":
                u = np.array([affine(column, bits, False) for column in u.T]).T
            else:
                column = np.float32(np.sqrt((u**2).mean(axis=0))).astype(np.float64)
                u = np.array([affine(row, bits, True) for row in u / column]) * column
            b = np.array([affine(part, bits, True) for part in b.reshape(-1, width)])
            break
        except Unclear:
            seed += 1
    return {"kind": kind, "bits": bits, "rows": rows, "rank": rank, "heads": heads, "width": width,
            "seed": seed, "u": [float(f"{x:.7g}") for x in u.ravel()],
            "basis": [float(f"{x:.7g}") for x in b.ravel()]}


def render():
    narrow = Shape(n_layer=3, n_head=4, n_kv=1)  # 24 wide
    two = "t5 v35 t3 v35 t6"
    return {
        "factors": [spectrum(120, 150, 60, 0.93, 32), spectrum(150, 60, 60, 0.98, 20),
                    spectrum(40, 200, 30, 0.8, 8)],
        "codes": [codes(kind, bits, 5, 4, 2, 3) for kind in ("keys", "values") for bits in (8, 4)],
        "networks": [
            case("pack=svd,rank_k=16,rank_v=17,gain=0,block=16", methods, two, shape=narrow),
            case("pack=svd,rank_k=18,rank_v=16,gain=0,block=1,first=packed", methods, shape=narrow,
                 answer=2),
            case("pack=svd,rank_k=16,rank_v=24,gain=0,block=0", methods, shape=narrow, answer=2),
            case("pack=svd,rank_k=16,rank_v=16,gain=0,block=7", methods, "t3 v9 t2 v9 t4"),
            case("lazy=vla,map=given,blocks=1-2;pack=svd,rank_k=16,rank_v=16,gain=0,block=16",
                 methods, two, shape=narrow),
            case("pack=svd,rank_k=16,rank_v=17,gain=0,block=16,compress_text=keys,rank_text=16",
                 methods, "t30 v35 t14", shape=narrow),
            case("pack=svd,gain=0.8,block=1,compress_text=keys,rank_text=18,first=packed", methods,
                 "t40 v9 t12", shape=narrow, answer=2),
            case("pack=svd,gain=0.9,block=7,compress_text=keys,rank_text=16,recompress=2", methods,
                 "t24 v9 t14", shape=narrow, answer=4, turns=(2, 3)),
            case("pack=svd,gain=0.8,compress_text=keys,rank_text=18,recompress=3", methods,
                 "t20 v5 t14", shape=narrow, answer=4, turns=(3,)),
            case("prune=pvtp,layer=1,stride=1,first=0.2,ratio=0.5;"
                 "pack=svd,rank_k=16,rank_v=16,gain=1,block=16", methods, "t3 v70 t8", shape=narrow),
            case("pack=svd,rank_k=16,rank_v=16,gain=0,block=4;evict=vta,tau=4,layer=1", methods,
                 "t3 v30 t8", shape=narrow)]}
