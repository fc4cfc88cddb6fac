"""A small text model in plain NumPy, float64, and the places where a method takes part in it.

The network, its weights and its prompts are those of tests/support/tiny_net.c, number by number.
Nothing here is fast or shared with the engine: attention is a matrix, a KV cache is a list of
arrays, and a method is a class whose functions are called where its paper says.

    d = H D - 8; RMSNorm, rotary positions (pairs half a head apart), grouped heads, SiLU-gated MLP
"""
import dataclasses
import functools

import numpy as np

from draws import Draws

VISUAL, TEXT = 0, 1
EPS = 1e-5
THETA = 10000.0


class Unclear(Exception):
    """A choice hangs on rounding: the golden would say nothing of the rule. Take another seed."""


def top(score, keep):
    """Indices of the `keep` highest scores, ascending; among equals the lower index."""
    score = np.asarray(score, dtype=np.float64)
    order = np.argsort(-score, kind="stable")
    if 0 < keep < len(score):
        last, first = score[order[keep - 1]], score[order[keep]]
        # Equal values are equal on both sides; values that are only close could fall either way.
        if last != first and last - first < 1e-5 * np.abs(score).max():
            raise Unclear(f"scores {last} and {first} on both sides of the cut")
    return np.sort(order[:keep])


def floor(x):
    """Shares are not exact in binary."""
    return int(np.floor(x + 1e-9))


def ceil(x):
    return int(np.ceil(x - 1e-9))


def softmax(s):
    e = np.exp(s - s.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def n_softmax(s, n):
    """p_i = e^s_i / (n + sum_j e^s_j)"""
    if n == 0:
        return softmax(s)
    m = np.maximum(s.max(axis=-1, keepdims=True), np.log(n))
    e = np.exp(s - m)
    return e / (n * np.exp(-m) + e.sum(axis=-1, keepdims=True))


def rotate(x, pos):
    """Rotary embedding of x [..., D] at positions pos [...]: pairs (i, i + D / 2)."""
    half = x.shape[-1] // 2
    freq = THETA ** (-2.0 * np.arange(half) / x.shape[-1])
    angle = np.asarray(pos, dtype=np.float64)[..., None] * freq
    c, s = np.cos(angle), np.sin(angle)
    lo, hi = x[..., :half], x[..., half:]
    return np.concatenate([lo * c - hi * s, hi * c + lo * s], axis=-1)


@dataclasses.dataclass(frozen=True)
class Shape:
    n_layer: int = 4
    n_head: int = 4
    n_kv: int = 2
    d_head: int = 24
    d_ffn: int = 70
    vocab: int = 31


@functools.cache
def network_of(shape):
    return Network(shape)


class Network:
    """Weights as tiny_net_open draws them."""

    def __init__(self, shape):
        self.shape = s = shape
        self.d = d = s.n_head * s.d_head - 8
        draws = Draws(7)

        def take(rows, cols, base=0.0):
            scale = np.float32(0.2) if base else np.float32(1.7) / np.sqrt(np.float32(cols))
            w = np.float32(base) + scale * draws.uniform(rows, cols)
            return w.astype(np.float64)

        self.embed = take(s.vocab, d)
        self.layer = []
        for _ in range(s.n_layer):
            w = {"attn_norm": take(1, d, 1.0)}
            for name, heads in (("q", s.n_head), ("k", s.n_kv), ("v", s.n_kv)):
                w[name] = take(heads * s.d_head, d)
            w["o"] = take(d, s.n_head * s.d_head)
            w["mlp_norm"] = take(1, d, 1.0)
            w["gate"], w["up"] = take(s.d_ffn, d), take(s.d_ffn, d)
            w["down"] = take(d, s.d_ffn)
            self.layer.append(w)
        self.norm = take(1, d, 1.0)
        self.head = take(s.vocab, d)

    @staticmethod
    def rms(x, w):
        return w * x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + EPS)

    def project(self, layer, name, x, heads):
        """[heads, rows, D]"""
        y = self.rms(x, self.layer[layer]["attn_norm"]) @ self.layer[layer][name].T
        return y.reshape(len(x), heads, self.shape.d_head).transpose(1, 0, 2)

    def mlp(self, layer, x):
        w = self.layer[layer]
        y = self.rms(x, w["mlp_norm"])
        gate = y @ w["gate"].T
        return (gate / (1 + np.exp(-gate)) * (y @ w["up"].T)) @ w["down"].T

    def logits(self, x):
        return self.rms(x, self.norm)[0] @ self.head.T


class Prompt:
    """layout: "t5 v35 t3 v35 t6", spans of text and images; drawn as tiny_prompt_make does."""

    def __init__(self, network, layout, seed):
        spans = [(span[0], int(span[1:])) for span in layout.split()]
        self.layout, self.seed = layout, seed
        self.modality = np.array([VISUAL if kind == "v" else TEXT for kind, n in spans
                                  for _ in range(n)])
        self.images = [n for kind, n in spans if kind == "v"]  # tokens of each
        draws = Draws(seed)
        n, n_visual = len(self.modality), int((self.modality == VISUAL).sum())
        share = (draws.uniform(n) + np.float32(1)) / np.float32(2)
        self.ids = (share * np.float32(network.shape.vocab - 1)).astype(np.int32)
        self.x = network.embed[self.ids]
        self.x[self.modality == VISUAL] = draws.uniform(n_visual, network.d)


@dataclasses.dataclass
class Rows:
    """What a KV head of a layer holds of one modality."""
    pos: np.ndarray  # [n]
    k: np.ndarray    # [n, D], rotated
    v: np.ndarray    # [n, D]

    def keep(self, index):
        """Rows by index, in that order; one that stands there twice is held twice."""
        self.pos, self.k, self.v = self.pos[index], self.k[index], self.v[index]

    def append(self, pos, k, v):
        self.pos = np.append(self.pos, pos)
        self.k, self.v = np.vstack([self.k, k]), np.vstack([self.v, v])


class Method:
    """What does nothing. A policy is a list of methods; each is called in turn."""

    def layer_begins(self, run, layer):
        """Before a layer of prefill: run.keep(rows) lets rows of the prompt go from here on."""

    def projected(self, run, layer, q, k, modality):
        """Queries [H, n, D] and keys [Hkv, n, D] of rows that run, rotated; and those that the
        layer uses. In prefill all rows, in the answer one."""
        return q, k

    def attended(self, run, layer, scores, p):
        """Prefill: scores [H, n, n] scaled and masked, p their softmax; and what is used."""
        return p

    def output(self, run, layer, p, v, o):
        """Prefill: o [H, n, D] = p v, before the heads come together."""

    def layer_ends(self, run, layer):
        """Its rows have been written to run.store[layer]."""

    def prefilled(self, run):
        """The prompt is through: run.store may be changed."""

    def step_begins(self, run, t):
        """Token t of the answer, counted from 1, is about to run."""

    def read(self, run, layer, head, rows):
        """The answer reads the visual tokens of a KV head: as what?"""
        return rows

    def read_text(self, run, layer, head, rows):
        """The same of its text tokens, the answer's own among them."""
        return rows

    def turn_ends(self, run):
        """The answer has come to the end of a turn, after which others follow."""

    def on_attention(self, run, layer, p, n_visual):
        """Answer: p[h] [n_visual of h's KV head + text] is the token's attention."""


class Run:
    """A prompt through the network, and then an answer that is given."""

    def __init__(self, network, prompt, methods):
        self.net, self.prompt, self.methods = network, prompt, methods
        self.shape = network.shape
        self.store = [None] * self.shape.n_layer  # [layer][KV head][modality] -> Rows
        self.decode_n = 0.0                       # n of n-softmax in the answer's attention
        self.again = False                        # the first token too is read from the store
        self.packed = ()                          # layers whose rows have no order of their own

    # ---- prefill ---------------------------------------------------------------------------

    def keep(self, rows):
        """Rows of the prompt by index into those that run; the others leave."""
        self.x, self.pos, self.modality = self.x[rows], self.pos[rows], self.modality[rows]

    def prefill(self):
        self.x, self.modality = self.prompt.x.copy(), self.prompt.modality.copy()
        self.pos = np.arange(len(self.x))
        for layer in range(self.shape.n_layer):
            for m in self.methods:
                m.layer_begins(self, layer)
            self.prefill_layer(layer)
            for m in self.methods:
                m.layer_ends(self, layer)
        for m in self.methods:
            m.prefilled(self)
        return self.last_again() if self.again else self.net.logits(self.x[-1:])

    def last_again(self):
        """The prompt's last row once more, as a token of the answer would run."""
        for heads in self.store:
            for head in heads:
                head[TEXT].keep(np.arange(len(head[TEXT].pos) - 1))
        return self.run_token(self.prompt.ids[-1], len(self.prompt.ids) - 1)

    def project(self, layer, x, pos, modality):
        s = self.shape
        q = rotate(self.net.project(layer, "q", x, s.n_head), pos)
        k = rotate(self.net.project(layer, "k", x, s.n_kv), pos)
        v = self.net.project(layer, "v", x, s.n_kv)
        for m in self.methods:
            q, k = m.projected(self, layer, q, k, modality)
        return q, k, v

    def prefill_layer(self, layer):
        s, n = self.shape, len(self.x)
        q, k, v = self.project(layer, self.x, self.pos, self.modality)
        group = s.n_head // s.n_kv
        scores = np.einsum("hid,hjd->hij", q, k.repeat(group, axis=0)) / np.sqrt(s.d_head)
        scores = np.where(np.tri(n, dtype=bool), scores, -np.inf)
        p = softmax(scores)
        for m in self.methods:
            p = m.attended(self, layer, scores, p)
        o = np.einsum("hij,hjd->hid", p, v.repeat(group, axis=0))
        for m in self.methods:
            m.output(self, layer, p, v, o)
        self.add(layer, o)
        self.store[layer] = [[Rows(self.pos[i], k[g][i], v[g][i])
                              for i in (self.modality == VISUAL, self.modality == TEXT)]
                             for g in range(s.n_kv)]

    def add(self, layer, o):
        """The layer's output and its MLP, onto self.x."""
        heads = o.transpose(1, 0, 2).reshape(len(self.x), -1)
        self.x = self.x + heads @ self.net.layer[layer]["o"].T
        self.x = self.x + self.net.mlp(layer, self.x)

    # ---- answer ----------------------------------------------------------------------------

    def step(self, t, token):
        """Token t of the answer, counted from 1, at the position after all that was there."""
        for m in self.methods:
            m.step_begins(self, t)
        return self.run_token(token, len(self.prompt.ids) + t - 1)

    def run_token(self, token, at):
        self.x, pos = self.net.embed[[token]], np.array([at])
        for layer in range(self.shape.n_layer):
            self.step_layer(layer, pos)
        return self.net.logits(self.x)

    def step_layer(self, layer, pos):
        s = self.shape
        q, k, v = self.project(layer, self.x, pos, np.array([TEXT]))
        o, attention = np.empty((s.n_head, 1, s.d_head)), []
        for g in range(s.n_kv):
            self.store[layer][g][TEXT].append(pos, k[g], v[g])
            visual, text = self.store[layer][g]
            for m in self.methods:
                visual = m.read(self, layer, g, visual)
                text = m.read_text(self, layer, g, text)
            keys, values = np.vstack([visual.k, text.k]), np.vstack([visual.v, text.v])
            for h in range(g * s.n_head // s.n_kv, (g + 1) * s.n_head // s.n_kv):
                attention.append(n_softmax(keys @ q[h, 0] / np.sqrt(s.d_head), self.decode_n))
                o[h, 0] = attention[-1] @ values
        for m in self.methods:
            m.on_attention(self, layer, attention, len(self.store[layer][0][VISUAL].pos))
        self.add(layer, o)

    # ---- what is left ----------------------------------------------------------------------

    def held(self):
        """Per layer and KV head the prompt's rows, "visual | text", in the order they lie in; of
        a packed layer by position."""
        def in_order(layer, rows):
            pos = rows.pos[rows.pos < len(self.prompt.ids)]
            return np.sort(pos) if layer in self.packed else pos
        return [[" | ".join(spans(in_order(layer, rows)) for rows in head) for head in heads]
                for layer, heads in enumerate(self.store)]


def spans(positions):
    """[0, 1, 2, 5, 5] -> "0-2 5 5\""""
    out = []
    for p in positions:
        if out and out[-1][1] + 1 == p:
            out[-1][1] = p
        else:
            out.append([p, p])
    return " ".join(str(a) if a == b else f"{a}-{b}" for a, b in out)


def words(policy):
    """"select=csp,heavy=0.3;evict=vta" -> {"csp": {"heavy": 0.3}, "vta": {}}"""
    out = {}
    for stage in policy.split(";"):
        name, *given = stage.split("=", 1)[1].split(",")
        out[name] = {}
        for word in given:
            key, value = word.split("=")
            try:
                out[name][key] = float(value) if "." in value else int(value)
            except ValueError:
                out[name][key] = value
    return out


@functools.cache
def exact(shape, layout, seed, answer):
    """All logits without a policy."""
    net = network_of(shape)
    return logits_of(Run(net, Prompt(net, layout, seed), []), answer)[1]


def logits_of(run, answer, turns=()):
    """What is held after the prompt, and [answer + 1, vocab]. A turn ends after each of `turns`
    tokens."""
    logits = [run.prefill()]
    held = run.held()
    for t, token in enumerate(ids_of(run.shape, answer)):
        logits.append(run.step(t + 1, token))
        for m in run.methods if t + 1 in turns else ():
            m.turn_ends(run)
    return held, np.array(logits)


def ids_of(shape, answer):
    return [(13 + 7 * t) % shape.vocab for t in range(answer)]


def case(policy, methods, layout="t5 v70 t9", seed=11, shape=Shape(), answer=3, turns=()):
    """A prompt under a policy, and an answer of so many tokens: what stays, and all logits.

    The engine is given `policy`; `methods(words)` makes the list of methods that render it."""
    net = network_of(shape)
    while True:
        run = Run(net, Prompt(net, layout, seed), methods(words(policy)))
        try:
            return _case(run, policy, answer, turns)
        except Unclear:
            seed += 1


def _case(run, policy, answer, turns):
    held, logits = logits_of(run, answer, turns)
    without = exact(run.shape, run.prompt.layout, run.prompt.seed, answer)
    if np.abs(logits - without).max() < 1e-2 * np.abs(without).max():
        raise AssertionError(f"{policy} changes next to nothing here, so it proves as much")
    out = {"policy": policy, "layout": run.prompt.layout, "seed": run.prompt.seed,
           "shape": dataclasses.asdict(run.shape), "answer": ids_of(run.shape, answer),
           "held": held, "logits": [[float(f"{x:.6g}") for x in row] for row in logits]}
    if turns:
        out["turn_ends"] = list(turns)
    if run.held() != held:
        out["held_at_the_end"] = run.held()
    return out
