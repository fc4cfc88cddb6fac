"""Layers of the network as single operations: products by torch, all between them by ops.c.

A layer adds the gradients of its weights straight into their .grad, which spares a pass over all
parameters. Without a C compiler `library` is None and model.py computes in plain PyTorch.

    python ops.py    compares both ways on random batches, outputs and all gradients
"""

import ctypes
import functools
import hashlib
import math
import os
import platform
import shutil
import subprocess

import torch

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.path.join(HERE, "..", "..", "..", "build", "train-ops")
FLAGS = ["-std=gnu11", "-O3", "-march=native", "-ffast-math", "-mprefer-vector-width=512", "-shared", "-fPIC"]
HEAD = 32  # the only width of a head that ops.c knows


# ---- the library -----------------------------------------------------------------------------


def cpu():
    """What -march=native depends on."""
    try:
        with open("/proc/cpuinfo") as f:
            return next((line for line in f if line.startswith("flags")), "")
    except OSError:
        return platform.machine()


@functools.lru_cache(None)
def library():
    """ops.c, compiled for this machine; None where that is not possible."""
    source = os.path.join(HERE, "ops.c")
    compiler = next(filter(None, map(shutil.which, filter(None, (os.environ.get("CC"), "cc", "gcc", "clang")))), None)
    if compiler is None:
        return None
    with open(source) as f:
        key = hashlib.sha256("\0".join([f.read(), compiler, *FLAGS, cpu()]).encode()).hexdigest()[:16]
    path = os.path.join(BUILD, f"ops-{key}.so")
    if not os.path.exists(path):
        os.makedirs(BUILD, exist_ok=True)
        new = f"{path}.{os.getpid()}"
        if subprocess.run([compiler, *FLAGS, source, "-o", new, "-lm"], stderr=subprocess.DEVNULL).returncode:
            return None
        os.replace(new, path)
    c = ctypes.CDLL(path)
    c.attention_scratch.restype = ctypes.c_int64
    return c


def keep_memory():
    """Lets malloc keep what it has: the tensors of a step are those of the last, and giving their
    pages back costs a seventh of the time."""
    M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_MAX = -1, -2, -4
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:
        return  # not glibc
    for option, value in ((M_MMAP_MAX, 0), (M_TRIM_THRESHOLD, 2**31 - 1), (M_TOP_PAD, 64 << 20)):
        mallopt(option, value)


def pointer(t):
    if t is None:
        return None
    assert t.is_contiguous() and t.dtype in (torch.float32, torch.int32)
    return ctypes.c_void_p(t.data_ptr())


def call(name, *args):
    """Tensors become pointers, integers int64."""
    kind = {torch.Tensor: pointer, int: ctypes.c_int64}
    getattr(library(), name)(*(kind.get(type(a), lambda x: x)(a) for a in args))


class Attention(ctypes.Structure):
    _fields_ = [(n, ctypes.c_int32) for n in ("samples", "heads", "prefix", "causal", "after")] + [
        (n, ctypes.c_void_p) for n in ("bounds", "first", "cos", "sin", "scratch")
    ]


def attention(name, rows, heads, after, *tensors):
    """rows: model.Rows; with `first` None each sample sees all of itself."""
    longest = int(rows.bounds.diff().max())
    scratch = torch.empty(library().attention_scratch(longest))
    shown = [pointer(t) for t in (rows.bounds, rows.first, rows.cos, rows.sin, scratch)]
    a = Attention(len(rows.bounds) - 1, heads, rows.prefix, int(rows.first is not None), int(after), *shown)
    call(name, ctypes.byref(a), *tensors)


# ---- parts of layers -------------------------------------------------------------------------


def add_product(weight, grad, x):
    """weight.grad += grad^T x"""
    slot(weight).addmm_(grad.t(), x)


def slot(weight):
    if weight.grad is None:
        weight.grad = torch.zeros_like(weight)
    return weight.grad


def rms(x, w):
    y, inverse = torch.empty_like(x), x.new_empty(len(x))
    call("rms_forward", *x.shape, x, w.detach(), y, inverse)
    return y, inverse


def rms_back(x, w, inverse, grad, around):
    """grad: of the normed rows; around: of x otherwise."""
    dx = torch.empty_like(x)
    call("rms_backward", *x.shape, x, w.detach(), inverse, grad, around, dx, slot(w))
    return dx


def layer_norm(x, w, b):
    y, moments = torch.empty_like(x), x.new_empty(len(x), 2)
    call("layer_norm_forward", *x.shape, x, w.detach(), b.detach(), y, moments)
    return y, moments


def layer_norm_back(x, w, b, moments, grad, around):
    dx = torch.empty_like(x)
    call("layer_norm_backward", *x.shape, x, w.detach(), moments, grad, around, dx, slot(w), slot(b))
    return dx


def attend(qkv, rows, heads, after):
    n, d = len(qkv), qkv.shape[1] // 3
    out, lse = qkv.new_empty(n, d), qkv.new_empty(heads, n)
    attention("attention_forward", rows, heads, after, qkv, out, lse)
    return out, lse


def attend_back(qkv, rows, heads, after, out, lse, grad):
    dqkv = torch.empty_like(qkv)
    attention("attention_backward", rows, heads, after, qkv, out, lse, grad, dqkv)
    return dqkv


# ---- layers ----------------------------------------------------------------------------------


class TextLayer(torch.autograd.Function):
    """x [rows, d]; w: the layer's weights by name; wanted: None, or in the last layer the rows after
    the prefix whose output is asked for."""

    @staticmethod
    def forward(ctx, x, w, rows, heads, wanted):
        y1, inverse1 = rms(x, w["norm1"])
        qkv = y1 @ w["qkv"].t()
        a, lse = attend(qkv, rows, heads, wanted is not None)
        asked, around = (a, x) if wanted is None else (a[wanted], x[wanted])
        z = torch.addmm(around, asked, w["out"].t())
        y2, inverse2 = rms(z, w["norm2"])
        gate_up = y2 @ w["gate_up"].t()
        h = z.new_empty(len(z), gate_up.shape[1] // 2)
        call("swiglu_forward", *h.shape, gate_up, h)
        ctx.save_for_backward(x, y1, inverse1, qkv, a, lse, asked, z, y2, inverse2, gate_up, h)
        ctx.rest = w, rows, heads, wanted
        return torch.addmm(z, h, w["down"].t())

    @staticmethod
    def backward(ctx, grad):
        x, y1, inverse1, qkv, a, lse, asked, z, y2, inverse2, gate_up, h = ctx.saved_tensors
        w, rows, heads, wanted = ctx.rest
        grad = grad.contiguous()
        add_product(w["down"], grad, h)
        dgate_up = torch.empty_like(gate_up)
        call("swiglu_backward", *h.shape, gate_up, grad @ w["down"], dgate_up)
        add_product(w["gate_up"], dgate_up, y2)
        around = rms_back(z, w["norm2"], inverse2, dgate_up @ w["gate_up"], grad)
        add_product(w["out"], around, asked)
        da = around @ w["out"]
        if wanted is not None:
            da, around = (torch.zeros_like(x).index_add_(0, wanted, t) for t in (da, around))
        dqkv = attend_back(qkv, rows, heads, wanted is not None, a, lse, da)
        add_product(w["qkv"], dqkv, y1)
        return rms_back(x, w["norm1"], inverse1, dqkv @ w["qkv"], around), None, None, None, None


class VisionLayer(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w, rows, heads):
        y1, moments1 = layer_norm(x, w["norm1"], w["norm1_bias"])
        qkv = torch.addmm(w["qkv_bias"], y1, w["qkv"].t())
        a, lse = attend(qkv, rows, heads, False)
        z = torch.addmm(x, a, w["out"].t()).add_(w["out_bias"])
        y2, moments2 = layer_norm(z, w["norm2"], w["norm2_bias"])
        up = torch.addmm(w["up_bias"], y2, w["up"].t())
        h = torch.empty_like(up)
        call("quick_gelu_forward", up.numel(), up, h)
        ctx.save_for_backward(x, y1, moments1, qkv, a, lse, z, y2, moments2, up, h)
        ctx.rest = w, rows, heads
        return torch.addmm(z, h, w["down"].t()).add_(w["down_bias"])

    @staticmethod
    def backward(ctx, grad):
        x, y1, moments1, qkv, a, lse, z, y2, moments2, up, h = ctx.saved_tensors
        w, rows, heads = ctx.rest
        grad = grad.contiguous()

        def add(name, dy, x):
            add_product(w[name], dy, x)
            slot(w[name + "_bias"]).add_(dy.sum(0))
            return dy @ w[name]

        dup = torch.empty_like(up)
        call("quick_gelu_backward", up.numel(), up, add("down", grad, h), dup)
        around = layer_norm_back(z, w["norm2"], w["norm2_bias"], moments2, add("up", dup, y2), grad)
        da = add("out", around, a)
        dqkv = attend_back(qkv, rows, heads, False, a, lse, da)
        dx = layer_norm_back(x, w["norm1"], w["norm1_bias"], moments1, add("qkv", dqkv, y1), around)
        return dx, None, None, None


# ---- the check -------------------------------------------------------------------------------


def random_rows(model, images, samples, generator):
    """Samples of blocks of random lengths after a prefix as data.py makes it."""
    whole = lambda low, high: int(torch.randint(low, high, (), generator=generator))
    prefix = images * 144 + whole(1, 20)
    first, position, bounds = [], [], [0]
    for _ in range(samples):
        length = prefix
        first += [0] * prefix
        position += range(prefix)
        for _ in range(whole(1, 14)):
            n = whole(1, 40)
            first += [length] * n
            position += range(prefix, prefix + n)
            length += n
        bounds.append(bounds[-1] + length)
    return model.Rows(bounds, prefix, first, position)


def outcome(model, net, fast, rows, images, generator):
    """Logits, visual rows and all gradients of one random batch."""
    net.fast = fast
    samples = len(rows.bounds) - 1
    total = int(rows.bounds[-1])
    normal = lambda *size: torch.randn(size, generator=generator)
    pixels, text = normal(samples * images, 3, net.shape.side, net.shape.side), normal(total, net.shape.d)
    after = torch.tensor([i for a, b in zip(rows.bounds[:-1], rows.bounds[1:]) for i in range(int(a) + rows.prefix, int(b))])
    wanted = after[torch.rand(len(after), generator=generator) < 0.3]
    wanted = wanted if len(wanted) else after[-1:]
    flat = torch.zeros_like(net.flat)
    net.gradients_into(flat)
    seen = net.see(pixels)
    shown = seen.reshape(samples, -1, net.shape.d)
    place = torch.stack([torch.arange(shown.shape[1]) + int(a) for a in rows.bounds[:-1]])
    logits = net.say(text.index_add(0, place.flatten(), shown.flatten(0, 1)), rows, wanted)
    target = torch.randint(net.shape.vocab, (len(wanted),), generator=generator)
    (torch.nn.functional.cross_entropy(logits, target) + seen.square().mean()).backward()
    return logits.detach(), seen.detach(), flat


def compare():
    import model

    worst = 0.0
    for seed in range(6):
        images = 1 + seed % 2
        net = model.Network(model.Shape())
        net.start(seed)
        generator = torch.Generator().manual_seed(seed)
        for name, w in net.w.items():  # no weight may be too small to matter
            w.data += 0.05 * torch.randn(w.shape, generator=generator)
        rows = random_rows(model, images, 1 + seed, generator)
        plain, fast = (outcome(model, net, f, rows, images, torch.Generator().manual_seed(seed)) for f in (False, True))
        far = lambda a, b: float((a - b).norm() / a.norm())
        apart = dict(logits=far(plain[0], fast[0]), visual=far(plain[1], fast[1]))
        for name, (at, size) in net.spans.items():
            cut = slice(at, at + math.prod(size))
            if plain[2][cut].any():
                apart[name] = far(plain[2][cut], fast[2][cut])
        name = max(apart, key=apart.get)
        print(f"{images} image(s), {1 + seed} samples, {int(rows.bounds[-1])} rows: largest difference {apart[name]:.1e} ({name})")
        worst = max(worst, apart[name])
    if worst > 1e-4:
        raise SystemExit("that is too much")


if __name__ == "__main__":
    if library() is None:
        raise SystemExit("no C compiler works here: nothing to compare")
    compare()
