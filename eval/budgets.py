"""Which parameters give a method a share of the visual KV bytes that `exact` holds.

METHODS says it for each: share, layers of the network -> parameters, or None where the method does not come so far
down, of values in 16 bits. Layers are given as n/32 and mapped by fovea; shares of a prompt's tokens are set for prompts like the evaluation's,
nine tenths of them visual. What a policy really holds is measured with its answers; these only aim.

Where a paper's own setting lies near a share, its preset stands for it (PUBLISHED). A method that is not here is
asked once, with its defaults: a new one needs no line.
"""

SHARES = {"1/8": 1 / 8, "1/4": 1 / 4, "1/2": 1 / 2, "1/16": 1 / 16, "1/32": 1 / 32}  # in the order of evaluation

PUBLISHED = {
    ("prune=vtw", "1/2"): "paper-vtw", ("prune=fastv", "1/2"): "paper-fastv", ("prune=pdrop", "1/2"): "paper-pdrop",
    ("prune=sparsevlm", "1/2"): "paper-sparsevlm", ("prune=fitprune", "1/2"): "paper-fitprune",
    ("select=csp", "1/8"): "paper-csp", ("select=snapkv", "1/8"): "paper-snapkv", ("select=h2o", "1/8"): "paper-h2o",
    ("select=lookm", "1/8"): "paper-lookm",
}

TEXT = 0.1  # of a prompt's rows


def words(**parameters):
    return ",".join(f"{k}={v:.4g}" if isinstance(v, float) else f"{k}={v}" for k, v in parameters.items())


def mapped(layer, n):
    """Maps a layer of 32 as fovea does; the result is at least 1."""
    return max(1, (2 * layer * n + 32) // 64)


def from_layer(layer):
    """Parameters to keep all rows up to a layer, and a share of them from there on."""
    def parameters(share, n):
        above = mapped(layer, n)
        keep = (share * n - above) / (n - above)
        return words(layer=f"{layer}/32", keep=keep) if keep > 0 else None
    return parameters


def vtw(share, n):
    layer = round(32 * share)
    return words(layer=f"{layer}/32") if layer * n >= 16 else None


def solved(held, share):
    """The x in 0..1 at which held(x), which increases, equals the share; None if held(0) is larger."""
    low, high = 0.0, 1.0
    if held(low) >= share:
        return None
    for _ in range(40):
        x = (low + high) / 2
        low, high = (x, high) if held(x) < share else (low, x)
    return high


def pdrop(share, n):
    """Stages are quarters of the depth, as published, or begin earlier if those keep too much."""
    for stages in [(8, 16, 24), (2, 8, 16)]:
        a, b, c = (mapped(layer, n) for layer in stages)
        ratio = solved(lambda r: (a + (b - a) * r + (c - b) * r**2 + (n - c) * r**3) / n, share)
        if ratio is not None and ratio > 0.1:
            first, second, third = (f"{layer}/32" for layer in stages)
            return words(second=first, third=second, fourth=third, ratio=ratio)
    return None


def pvtp(share, n):
    """Steps as published; each later step drops a quarter of the rows that the first leaves."""
    layer, stride = mapped(3, n), mapped(7, n)
    steps = [max(0, (i - layer) // stride + 1) for i in range(n)]  # steps before each layer

    def held(left):
        return sum(1 if k == 0 else left * max(0, 1 - (k - 1) / 4) for k in steps) / n
    left = solved(held, share)
    return words(layer="3/32", stride="7/32", first=1 - left, ratio=left / 4) if left else None


def one_of(**parameters):
    """For methods with few settings: parameters by share, s2 for 1/2."""
    return lambda share, n: parameters.get(f"s{round(1 / share)}")


def of_prompt(share, n):
    """Shares of the whole prompt: chosen rows, and the last rows, which are text."""
    return words(heavy=(1 - TEXT) * share, recent=TEXT)


def scissorhands(share, n):
    """Half of the budget is evicted at once, before the first token."""
    keep = 2 * ((1 - TEXT) * share + TEXT)
    return words(keep=keep) if keep < 1 else None


METHODS = {
    "condense=hired": lambda share, n: words(keep=share),
    "condense=prumerge": lambda share, n: words(keep=share),
    "condense=prumerge_plus": lambda share, n: words(keep=share / 4),
    "prune=random": lambda share, n: words(layer=0, keep=share),
    "prune=grid": lambda share, n: words(layer=0, keep=share),
    "prune=vtw": vtw,
    "prune=fastv": from_layer(2),
    "prune=pvtp": pvtp,
    "prune=pdrop": pdrop,
    "prune=sparsevlm": one_of(s4="tokens=64"),
    "prune=fitprune": one_of(s8="target=90"),
    "select=streaming": lambda share, n: words(recent=(1 - TEXT) * share + TEXT, full_heads=0),
    "select=csp": of_prompt,
    "select=snapkv": of_prompt,
    "select=h2o": of_prompt,
    "select=roco": of_prompt,
    "select=lookm": of_prompt,
    "select=knorm": lambda share, n: words(heavy=share),
    "select=random": lambda share, n: words(heavy=share),
    "pack=svd": one_of(s2="rank_k=88,rank_v=80,bits=8,gain=0", s4="rank_k=48,rank_v=32,bits=8",
                       s8="rank_k=48,rank_v=32,bits=4", s16="rank_k=24,rank_v=16,bits=4",
                       s32="rank_k=12,rank_v=8,bits=4"),
    "pack=quant": one_of(s2="bits=8", s4="bits=4"),  # at least 4 of 16 bits per number
    "pack=minicache": one_of(s2="start=0"),  # merges two layers into one, no more
    "evict=vta": one_of(s2="tau=3"),
    "evict=h2o": of_prompt,
    "evict=scissorhands": scissorhands,
    "evict=tova": lambda share, n: words(keep=(1 - TEXT) * share + TEXT / 2),
}

FURTHER_DOWN = ["pack=svd", "select=snapkv", "prune=random", "prune=grid"]  # beyond 1/16


def policy(method, budget, layers):
    """The policy's text, or None if the method does not reach the budget."""
    if SHARES[budget] < 1 / 16 and method not in FURTHER_DOWN:
        return None
    parameters = METHODS[method](SHARES[budget], layers)
    return f"{method},{parameters}" if parameters is not None else None
