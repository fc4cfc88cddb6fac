"""The network that is trained: LLaVA as transformers has it, cut for training.

Weights live in one flat vector, so that an optimiser step is a handful of vector operations and two
processes can share it. `export` names and splits them as LlavaForConditionalGeneration does; `check`
in export.py runs both on the same rows.

A sample is one list of rows: a prefix that every block sees (text and pictures), then blocks that
see the prefix and themselves and nothing of each other. A block is one conversation, its positions
go on from the prefix's end, so training on a packed sample is training on each conversation alone.
"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F


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
        x = self.layer_norm(x, "pre")
        for i in range(s.vision_layers):
            x = self.vision_layer(x, f"vision.{i}.")
        y = F.gelu(F.linear(x[:, 1:], w["project1"], w["project1_bias"]))
        return F.linear(y, w["project2"], w["project2_bias"])

    def layer_norm(self, x, name):
        return F.layer_norm(x, (x.shape[-1],), self.w[name], self.w[name + "_bias"], 1e-5)

    def vision_layer(self, x, p):
        w, h = self.w, self.shape.vision_heads
        n, rows, d = x.shape
        qkv = F.linear(self.layer_norm(x, p + "norm1"), w[p + "qkv"], w[p + "qkv_bias"])
        q, k, v = qkv.view(n, rows, 3, h, d // h).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(n, rows, d)
        x = x + F.linear(a, w[p + "out"], w[p + "out_bias"])
        y = F.linear(self.layer_norm(x, p + "norm2"), w[p + "up"], w[p + "up_bias"])
        y = y * torch.sigmoid(1.702 * y)  # quick_gelu
        return x + F.linear(y, w[p + "down"], w[p + "down_bias"])

    def dense(self, rows):
        """What each visual row says of its patch: logits of the labels, and the offset."""
        y = self.layer_norm(rows, "dense_norm")
        y = F.linear(y, self.w["dense"], self.w["dense_bias"])
        return y.split([*self.shape.labels, 2], -1)

    # ---- the text model: Llama ----------------------------------------------------------------

    def say(self, rows, position, prefix, mask, wanted):
        """rows [n, t, d] (prefix first) -> logits [len(wanted), vocab].

        position [n, t]; the first `prefix` rows see what stands before them; mask [n, 1, t - prefix,
        t] says what the others see; wanted: indices into the flattened rows behind the prefix."""
        s, w = self.shape, self.w
        angle = position[..., None].float() * self.inverse
        cos, sin = angle.cos()[:, None], angle.sin()[:, None]
        x = rows
        for i in range(s.layers):
            x = self.text_layer(x, f"text.{i}.", cos, sin, prefix, mask, i == s.layers - 1)
        x = x.reshape(-1, s.d)[wanted]
        x = F.rms_norm(x, (s.d,), w["norm"], 1e-5)
        return x @ w["head"].t()

    def text_layer(self, x, p, cos, sin, prefix, mask, last):
        w, h = self.w, self.shape.heads
        n, t, d = x.shape
        y = F.rms_norm(x, (d,), w[p + "norm1"], 1e-5)
        q, k, v = F.linear(y, w[p + "qkv"]).view(n, t, 3, h, d // h).permute(2, 0, 3, 1, 4)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        a = F.scaled_dot_product_attention(q[:, :, prefix:], k, v, attn_mask=mask)
        if last:
            x = x[:, prefix:]
        else:
            cut = [z[:, :, :prefix] for z in (q, k, v)]
            a = torch.cat([F.scaled_dot_product_attention(*cut, is_causal=True), a], 2)
        x = x + F.linear(a.transpose(1, 2).reshape(n, -1, d), w[p + "out"])
        y = F.rms_norm(x, (d,), w[p + "norm2"], 1e-5)
        gate, up = F.linear(y, w[p + "gate_up"]).chunk(2, -1)
        return x + F.linear(F.silu(gate) * up, w[p + "down"])


def rotate(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)
