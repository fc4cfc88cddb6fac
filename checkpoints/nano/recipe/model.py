"""The network that is trained: LLaVA as transformers has it, cut for training.

Weights live in one flat vector, so that an optimiser step is a handful of vector operations and two
processes can share it. `export` names and splits them as LlavaForConditionalGeneration does; `check`
in export.py runs both on the same rows.

A sample is one list of rows: a prefix that every block sees (text and pictures), then blocks that
see the prefix and themselves and nothing of each other. A block is one conversation, its positions
go on from the prefix's end, so training on a packed sample is training on each conversation alone.
The samples of a batch lie one after another, without filling.

ops.py computes whole layers at once where a C compiler works; the methods here say what they are.
"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F

import ops


@dataclass(frozen=True)
class Shape:
    """Sizes; names as in the project's documents."""

    side: int = 144  # pixels
    patch: int = 12
    vision_d: int = 192
    vision_layers: int = 6
    vision_heads: int = 6
    vision_m: int = 768
    d: int = 256
    layers: int = 12
    heads: int = 8
    m: int = 640
    vocab: int = 1024
    positions: int = 2048
    theta: float = 10000.0
    # what the dense labels of a patch distinguish (see data.py)
    labels: tuple = (27, 9, 4)

    @property
    def grid(self):
        return self.side // self.patch

    @property
    def rows(self):
        return self.grid**2

    @property
    def head_d(self):
        return self.d // self.heads


LARGE = Shape(side=336, patch=14, vision_d=256, vision_layers=8, vision_heads=8, vision_m=1024)


def tensors(s):
    """(name, shape, standard deviation); 0 stands for zeros and 1 with a 1-d shape for ones."""
    depth_v, depth_t = (2 * s.vision_layers) ** -0.5, (2 * s.layers) ** -0.5
    fan = lambda n: n**-0.5
    v, d, m = s.vision_d, s.d, s.m
    yield "class", (v,), 0.02
    yield "patch", (v, 3 * s.patch**2), fan(3 * s.patch**2)
    yield "position", (s.rows + 1, v), None
    yield from norm("pre", v)
    for i in range(s.vision_layers):
        p = f"vision.{i}."
        yield from norm(p + "norm1", v)
        yield p + "qkv", (3 * v, v), fan(v)
        yield p + "qkv_bias", (3 * v,), 0
        yield p + "out", (v, v), fan(v) * depth_v
        yield p + "out_bias", (v,), 0
        yield from norm(p + "norm2", v)
        yield p + "up", (s.vision_m, v), fan(v)
        yield p + "up_bias", (s.vision_m,), 0
        yield p + "down", (v, s.vision_m), fan(s.vision_m) * depth_v
        yield p + "down_bias", (v,), 0
    yield "project1", (d, v), fan(v)
    yield "project1_bias", (d,), 0
    yield "project2", (d, d), fan(d)
    yield "project2_bias", (d,), 0
    yield "embed", (s.vocab, d), 0.5
    for i in range(s.layers):
        p = f"text.{i}."
        yield p + "norm1", (d,), 1
        yield p + "qkv", (3 * d, d), fan(d)
        yield p + "out", (d, d), fan(d) * depth_t
        yield p + "norm2", (d,), 1
        yield p + "gate_up", (2 * m, d), fan(d)
        yield p + "down", (d, m), fan(m) * depth_t
    yield "norm", (d,), 1
    yield "head", (s.vocab, d), 0.02
    # Only while training: reads the labels of its patch off each visual row.
    yield from norm("dense_norm", d)
    yield "dense", (sum(s.labels) + 2, d), fan(d)
    yield "dense_bias", (sum(s.labels) + 2,), 0


def norm(name, d):
    yield name, (d,), 1
    yield name + "_bias", (d,), 0


def waves(grid, d):
    """Positions of a grid as sines and cosines of both coordinates, [grid^2, d]."""
    q = d // 4
    angle = torch.arange(grid).float()[:, None] * 100.0 ** (-torch.arange(q) / q)
    one = torch.cat([angle.sin(), angle.cos()], 1)
    both = [one[:, None].expand(grid, grid, 2 * q), one[None].expand(grid, grid, 2 * q)]
    return torch.cat(both, -1).reshape(grid * grid, 4 * q)


class Rows:
    """How the rows of a batch lie: sample s has rows bounds[s] .. bounds[s + 1], of which `prefix` are seen
    by all after them. first: where the block of each row begins, counted within its sample; 0 in the
    prefix. Without `first` every row sees its whole sample. Positions are what RoPE turns by."""

    def __init__(self, bounds, prefix=0, first=None, position=None):
        number = lambda x, kind: None if x is None else torch.as_tensor(x, dtype=kind)
        self.bounds, self.prefix = number(bounds, torch.int32), prefix
        self.first, self.position = number(first, torch.int32), number(position, torch.int64)
        self.cos = self.sin = None

    def turn(self, inverse):
        """Fills cos and sin, [rows, head_d / 2]."""
        angle = self.position[:, None].float() * inverse
        self.cos, self.sin = angle.cos(), angle.sin()

    def samples(self):
        at = self.bounds.tolist()
        return list(zip(at[:-1], at[1:]))

    def mask(self, a, b):
        """What the rows of the sample a .. b see of each other."""
        if self.first is None:
            return None
        key = torch.arange(b - a)
        return (key <= key[:, None]) & ((key < self.prefix) | (key >= self.first[a:b, None]))


class Network:
    """Views into a flat vector of parameters and what is computed with them."""

    def __init__(self, shape, flat=None):
        self.shape = shape
        self.spans, at = {}, 0
        for name, size, _ in tensors(shape):
            n = math.prod(size)
            self.spans[name] = (at, size)
            at += n
        self.flat = torch.zeros(at) if flat is None else flat
        self.w = {}
        for name, (at, size) in self.spans.items():
            view = self.flat[at : at + math.prod(size)].view(size)
            self.w[name] = view.detach().requires_grad_()
        self.fast = ops.library() is not None and ops.HEAD == shape.head_d == shape.vision_d // shape.vision_heads
        self.inverse = shape.theta ** -(torch.arange(0, shape.head_d, 2) / shape.head_d)

    def start(self, seed):
        g = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for name, size, std in tensors(self.shape):
                if name == "position":
                    self.w[name][1:] = 0.5 * waves(self.shape.grid, size[1])
                elif len(size) == 1 and std in (0, 1):
                    self.w[name].fill_(float(std))
                else:
                    self.w[name].normal_(0, std, generator=g)

    def gradients_into(self, grad):
        """Lets backward() write into the flat vector `grad`."""
        for name, (at, size) in self.spans.items():
            self.w[name].grad = grad[at : at + math.prod(size)].view(size)

    # ---- the vision tower: CLIP, last hidden state, no final norm -----------------------------

    def see(self, pixels):
        """[n, 3, side, side], normalised -> visual rows [n, rows, d]."""
        s, w = self.shape, self.w
        n, g, p = pixels.shape[0], s.grid, s.patch
        x = pixels.view(n, 3, g, p, g, p).permute(0, 2, 4, 1, 3, 5).reshape(n, g * g, 3 * p * p)
        x = torch.cat([w["class"].expand(n, 1, -1), x @ w["patch"].t()], 1) + w["position"]
        x = self.layer_norm(x, "pre").flatten(0, 1)
        rows = Rows(range(0, len(x) + 1, s.rows + 1), s.rows + 1)
        for i in range(s.vision_layers):
            layer = self.part(f"vision.{i}.")
            x = ops.VisionLayer.apply(x, layer, rows, s.vision_heads) if self.fast else self.vision_layer(x, layer, rows)
        x = x.view(n, s.rows + 1, -1)
        y = F.gelu(F.linear(x[:, 1:], w["project1"], w["project1_bias"]))
        return F.linear(y, w["project2"], w["project2_bias"])

    def layer_norm(self, x, name):
        return F.layer_norm(x, (x.shape[-1],), self.w[name], self.w[name + "_bias"], 1e-5)

    def part(self, prefix):
        return {name[len(prefix) :]: w for name, w in self.w.items() if name.startswith(prefix)}

    def vision_layer(self, x, w, rows):
        norm = lambda x, name: F.layer_norm(x, (x.shape[-1],), w[name], w[name + "_bias"], 1e-5)
        qkv = F.linear(norm(x, "norm1"), w["qkv"], w["qkv_bias"])
        a = attend(qkv, rows, self.shape.vision_heads)
        x = x + F.linear(a, w["out"], w["out_bias"])
        y = F.linear(norm(x, "norm2"), w["up"], w["up_bias"])
        y = y * torch.sigmoid(1.702 * y)  # quick_gelu
        return x + F.linear(y, w["down"], w["down_bias"])

    def dense(self, rows):
        """What each visual row says of its patch: logits of the labels, and the place."""
        y = self.layer_norm(rows, "dense_norm")
        y = F.linear(y, self.w["dense"], self.w["dense_bias"])
        return y.split([*self.shape.labels, 2], -1)

    # ---- the text model: Llama ----------------------------------------------------------------

    def say(self, x, rows, wanted):
        """x [rows, d] -> logits [len(wanted), vocab]; wanted: which rows, all after the prefix."""
        s, w = self.shape, self.w
        rows.turn(self.inverse)
        for i in range(s.layers):
            layer, asked = self.part(f"text.{i}."), wanted if i == s.layers - 1 else None
            if self.fast:
                x, _ = ops.TextLayer.apply(x, layer, rows, s.heads, asked)
            else:
                x = self.text_layer(x, layer, rows, asked)
        x = F.rms_norm(x, (s.d,), w["norm"], 1e-5)
        return x @ w["head"].t()

    def text_layer(self, x, w, rows, wanted):
        """wanted: None, or the only rows whose output is asked for."""
        d = self.shape.d
        a = attend(F.linear(F.rms_norm(x, (d,), w["norm1"], 1e-5), w["qkv"]), rows, self.shape.heads)
        if wanted is not None:
            a, x = a[wanted], x[wanted]
        x = x + F.linear(a, w["out"])
        y = F.rms_norm(x, (d,), w["norm2"], 1e-5)
        gate, up = F.linear(y, w["gate_up"]).chunk(2, -1)
        return x + F.linear(F.silu(gate) * up, w["down"])


def attend(qkv, rows, heads):
    """qkv [rows, 3 d] -> [rows, d]: each sample for itself."""
    out = []
    for a, b in rows.samples():
        q, k, v = qkv[a:b].view(b - a, 3, heads, -1).permute(1, 2, 0, 3)
        if rows.cos is not None:
            q, k = (rotate(x, rows.cos[a:b], rows.sin[a:b]) for x in (q, k))
        y = F.scaled_dot_product_attention(q[None], k[None], v[None], attn_mask=rows.mask(a, b))
        out.append(y[0].transpose(0, 1).reshape(b - a, -1))
    return torch.cat(out)


def rotate(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)
