"""Writes tests/golden/prune/fastv.txt and grid.txt: which visual rows stay, as NumPy has it.

    python3 tests/parity/prune_golden.py

fastv: the last row's query against all keys, per head, softmax, mean over heads; of the visual
columns the round(n (1 - R)) highest stay (Python's round), as the authors' code does it
(pkunlp-icler/FastV, modeling_llama.py). grid: the ordered dither (Bayer) of each image.

Queries and keys are not stored: both sides draw them from SplitMix64, in multiples of 2^-9, so
that they are the same numbers in float32 and here. A case whose choice hangs on rounding (two
scores at the cut closer than 1e-6 of one another) is not written.
"""
import pathlib

import numpy as np

OUT = pathlib.Path(__file__).resolve().parent.parent / "golden" / "prune"
MASK = (1 << 64) - 1


def draw(seed, n):
    """n numbers in [-2, 2)."""
    out = np.empty(n)
    state = seed
    for i in range(n):
        state = (state + 0x9E3779B97F4A7C15) & MASK
        z = state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        z ^= z >> 31
        out[i] = ((z >> 53) - 1024) / 512
    return out


def fastv(seed, n_head, n_kv, d_head, n_visual, n_text, share):
    """(kept rows, distance of the scores on both sides of the cut)"""
    n = n_visual + n_text
    numbers = draw(seed, (n_head + n_kv * n) * d_head)
    q = numbers[: n_head * d_head].reshape(n_head, d_head)
    k = numbers[n_head * d_head:].reshape(n_kv, n, d_head)
    k = np.repeat(k, n_head // n_kv, axis=0)
    scores = np.einsum("hd,hnd->hn", q, k) / np.sqrt(d_head)
    p = np.exp(scores - scores.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    mean = p.mean(axis=0)[:n_visual]
    keep = round(n_visual * share)
    order = np.argsort(-mean, kind="stable")
    gap = 1.0 if keep in (0, n_visual) else (mean[order[keep - 1]] - mean[order[keep]]) / mean.max()
    return sorted(order[:keep].tolist()), gap


def bayer(side):
    """Bayer's matrix, 0..side^2 - 1, of a square whose side is a power of two: neighbours are far
    apart in it, so the lowest bits of row and column weigh most."""
    r, c = np.indices((side, side))
    out = np.zeros((side, side), dtype=int)
    two = np.array([[0, 2], [3, 1]])
    weight = side * side // 4
    while weight:
        out += weight * two[r % 2, c % 2]
        r, c, weight = r // 2, c // 2, weight // 4
    return out


def grid(n_image, n_rows, share):
    side = int(np.sqrt(n_rows))
    ahead = n_rows - side * side
    power = 1 << max(side - 1, 0).bit_length()
    place = np.concatenate([np.full(ahead, -1), bayer(power)[:side, :side].ravel()])
    keep = int(np.floor(share * n_image * n_rows + 1e-9))
    order = np.argsort(np.tile(place, n_image), kind="stable")
    return sorted(order[:keep].tolist())


def line(case, kept):
    return " ".join(map(str, case)) + " : " + " ".join(map(str, kept)) + "\n"


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    shapes = [  # n_head, n_kv, d_head, n_visual, n_text, share that is kept
        (1, 1, 8, 1, 1, 0.5), (1, 1, 8, 1, 3, 1), (2, 1, 16, 5, 2, 0), (2, 1, 16, 5, 2, 0.5),
        (4, 4, 24, 70, 9, 0.25), (4, 2, 24, 70, 9, 0.35), (8, 2, 32, 144, 30, 0.5),
        (6, 3, 20, 129, 65, 0.1), (8, 8, 64, 576, 50, 0.25), (8, 4, 64, 576, 50, 0.5),
        (4, 1, 48, 200, 7, 0.985), (3, 3, 40, 63, 1, 0.5)]
    with open(OUT / "fastv.txt", "w") as f:
        for shape in shapes:
            for seed in range(100, 200):
                kept, gap = fastv(seed, *shape)
                if gap > 1e-6:
                    break
            f.write(line((seed, *shape), kept))
    with open(OUT / "grid.txt", "w") as f:
        for case in [(1, 1, 1), (1, 1, 0), (1, 16, 0.25), (1, 16, 0.5), (1, 17, 0.3), (2, 16, 0.28),
                     (1, 144, 0.5), (1, 144, 0.1), (3, 49, 0.4), (1, 576, 0.25), (2, 577, 0.111),
                     (1, 576, 0.5), (1, 6, 0.5)]:
            f.write(line(case, grid(*case)))


if __name__ == "__main__":
    main()
