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
    source = os.path.join(HERE, "half.c")
    compiler = next(filter(None, map(shutil.which, filter(None, (os.environ.get("CC"), "cc", "gcc", "clang")))), None)
    if compiler is None:
        return None
    text = "".join(open(os.path.join(HERE, name)).read() for name in ("ops.c", "half.c"))
    key = hashlib.sha256("\0".join([text, compiler, *FLAGS, cpu()]).encode()).hexdigest()[:16]
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
    for option, value in ((M_MMAP_MAX, 0), (M_TRIM_THRESHOLD, -1), (M_TOP_PAD, 64 << 20)):
        mallopt(option, value)


def pointer(t):
    if t is None:
        return None
    assert t.is_contiguous() and t.dtype in (torch.float32, torch.int32, torch.bfloat16)
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
    matrix_call(name, ctypes.byref(a), *tensors)


# ---- parts of layers -------------------------------------------------------------------------

IN_BF16 = any(flag in cpu().split() for flag in ("amx_bf16", "avx512_bf16"))  # matrices that products read and write; elsewhere they are slower in bf16


def narrow(x):
    """An operand of a product."""
    return x.bfloat16() if IN_BF16 else x


def product(a, b):
    """a b, as what products give: bf16 or f32."""
    return narrow(a) @ narrow(b)


def empty(*size):
    """For what a product reads."""
    return torch.empty(size, dtype=torch.bfloat16 if IN_BF16 else torch.float32)


def matrix_call(name, *args):
    call(name + "_half" if IN_BF16 else name, *args)


def add(x, y):
    """x + y in f32; y is of a product."""
    z = torch.empty_like(x)
    call("add_half" if y.dtype == torch.bfloat16 else "add_float", x.numel(), x, y, z)
    return z


def add_product(weight, grad, x):
    """weight.grad += grad^T x"""
    slot(weight).add_(product(grad.t(), x))


def slot(weight):
    if weight.grad is None:
        weight.grad = torch.zeros_like(weight)
    return weight.grad


def rms(x, w):
    y, inverse = empty(*x.shape), x.new_empty(len(x))
    matrix_call("rms_forward", *x.shape, x, w.detach(), y, inverse)
    return y, inverse


def rms_back(x, w, inverse, grad, around):
    """grad: of the normed rows; around: of x otherwise."""
    dx = torch.empty_like(x)
    matrix_call("rms_backward", *x.shape, x, w.detach(), inverse, grad, around, dx, slot(w))
    return dx


def layer_norm(x, w, b):
    y, moments = empty(*x.shape), x.new_empty(len(x), 2)
    matrix_call("layer_norm_forward", *x.shape, x, w.detach(), b.detach(), y, moments)
    return y, moments


def layer_norm_back(x, w, b, moments, grad, around):
    dx = torch.empty_like(x)
    matrix_call("layer_norm_backward", *x.shape, x, w.detach(), moments, grad, around, dx, slot(w), slot(b))
    return dx


def attend(qkv, rows, heads, after):
    n, d = len(qkv), qkv.shape[1] // 3
    out, lse = torch.empty_like(qkv[:, :d], memory_format=torch.contiguous_format), torch.empty(heads, n)
    attention("attention_forward", rows, heads, after, qkv, out, lse)
    return out, lse


def attend_back(qkv, rows, heads, after, out, lse, grad):
    dqkv = torch.empty_like(qkv)
    attention("attention_backward", rows, heads, after, qkv, out, lse, grad, dqkv)
    return dqkv


def swiglu(gate_up):
    h = empty(len(gate_up), gate_up.shape[1] // 2)
    matrix_call("swiglu_forward", *h.shape, gate_up, h)
    return h


def swiglu_back(gate_up, grad):
    dgate_up = torch.empty_like(gate_up)
    matrix_call("swiglu_backward", *grad.shape, gate_up, grad, dgate_up)
    return dgate_up


# ---- layers ----------------------------------------------------------------------------------


class TextLayer(torch.autograd.Function):
    """x [rows, d] -> x after the layer, and of the rows `shown` keys before rotation and values, [shown, 2 d], or None. w: the
    layer's weights by name; wanted: None, or in the last layer the rows after the prefix whose output is asked for."""

    @staticmethod
    def forward(ctx, x, w, rows, heads, wanted, shown=None):
        y1, inverse1 = rms(x, w["norm1"])
        qkv = product(y1, w["qkv"].t())
        a, lse = attend(qkv, rows, heads, wanted is not None)
        asked, around = (a, x) if wanted is None else (a[wanted], x[wanted])
        z = add(around, product(asked, w["out"].t()))
        y2, inverse2 = rms(z, w["norm2"])
        gate_up = product(y2, w["gate_up"].t())
        h = swiglu(gate_up)
        ctx.save_for_backward(x, y1, inverse1, qkv, a, lse, asked, z, y2, inverse2, gate_up, h)
        ctx.rest = w, rows, heads, wanted, shown
        return add(z, product(h, w["down"].t())), None if shown is None else qkv[shown, x.shape[1] :].float()

    @staticmethod
    def backward(ctx, grad, grad_kv):
        x, y1, inverse1, qkv, a, lse, asked, z, y2, inverse2, gate_up, h = ctx.saved_tensors
        w, rows, heads, wanted, shown = ctx.rest
        grad = grad.contiguous()
        narrow_grad = narrow(grad)
        add_product(w["down"], narrow_grad, h)
        dgate_up = swiglu_back(gate_up, product(narrow_grad, w["down"]))
        add_product(w["gate_up"], dgate_up, y2)
        around = rms_back(z, w["norm2"], inverse2, product(dgate_up, w["gate_up"]), grad)
        narrow_around = narrow(around)
        add_product(w["out"], narrow_around, asked)
        da = product(narrow_around, w["out"])
        if wanted is not None:
            da, around = (t.new_zeros(x.shape).index_add_(0, wanted, t) for t in (da, around))
        dqkv = attend_back(qkv, rows, heads, wanted is not None, a, lse, da)
        if shown is not None:
            dqkv[shown, x.shape[1] :] += grad_kv
        add_product(w["qkv"], dqkv, y1)
        return rms_back(x, w["norm1"], inverse1, product(dqkv, w["qkv"]), around), None, None, None, None, None


class VisionLayer(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w, rows, heads):
        linear = lambda name, y: torch.addmm(narrow(w[name + "_bias"]), y, narrow(w[name]).t())
        y1, moments1 = layer_norm(x, w["norm1"], w["norm1_bias"])
        qkv = linear("qkv", y1)
        a, lse = attend(qkv, rows, heads, False)
        z = add(x, linear("out", a))
        y2, moments2 = layer_norm(z, w["norm2"], w["norm2_bias"])
        up = linear("up", y2)
        h = torch.empty_like(up)
        matrix_call("quick_gelu_forward", up.numel(), up, h)
        ctx.save_for_backward(x, y1, moments1, qkv, a, lse, z, y2, moments2, up, h)
        ctx.rest = w, rows, heads
        return add(z, linear("down", h))

    @staticmethod
    def backward(ctx, grad):
        x, y1, moments1, qkv, a, lse, z, y2, moments2, up, h = ctx.saved_tensors
        w, rows, heads = ctx.rest
        grad = grad.contiguous()

        def through(name, dy, x):
            dy = narrow(dy)
            add_product(w[name], dy, x)
            slot(w[name + "_bias"]).add_(dy.sum(0, dtype=torch.float32))
            return product(dy, w[name])

        dup = torch.empty_like(up)
        matrix_call("quick_gelu_backward", up.numel(), up, through("down", grad, h), dup)
        around = layer_norm_back(z, w["norm2"], w["norm2_bias"], moments2, through("up", dup, y2), grad)
        da = through("out", around, a)
        dqkv = attend_back(qkv, rows, heads, False, a, lse, da)
        dx = layer_norm_back(x, w["norm1"], w["norm1_bias"], moments1, through("qkv", dqkv, y1), around)
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


def compare(in_bf16, limit):
    import model

    model.ops.IN_BF16 = in_bf16
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
        print(f"{images} image(s), {1 + seed} samples, {int(rows.bounds[-1])} rows, {'bf16' if in_bf16 else 'f32'}: largest difference {apart[name]:.1e} ({name}), logits {apart['logits']:.1e}, mean {sum(apart.values()) / len(apart):.1e}")
        worst = max(worst, apart[name])
    if worst > limit:
        raise SystemExit("that is too much")


if __name__ == "__main__":
    if library() is None:
        raise SystemExit("no C compiler works here: nothing to compare")
    compare(False, 1e-4)
    compare(True, 0.1)
