"""How many dimensions hold 90 % of the energy of an image's keys and values: of each layer the matrix of all heads, [visual tokens, d],
keys before rotation, nothing subtracted.

    python spectra.py checkpoints/mini [--images 16] [--plain]    a table of means over images of the split TEST
"""

import argparse
import os

import torch

import data
import mini
import tokenizer as tk
from model import Network, Shape
from qcache import load, visual_rows

SHARE = 0.9


def dimensions(x):
    energy = torch.linalg.eigvalsh(x.t() @ x).flip(0).cumsum(0)
    return int((energy < SHARE * energy[-1]).sum()) + 1


@torch.no_grad()
def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("checkpoint")
    a.add_argument("--images", type=int, default=16)
    a.add_argument("--plain", action="store_true", help="plain scenes instead of rich ones")
    args = a.parse_args()
    mini.SHAPE = Shape(side=mini.side_of(args.checkpoint))
    net = Network(mini.SHAPE)
    load(net, args.checkpoint)
    bpe = tk.Tokenizer.from_file(os.path.join(args.checkpoint, "tokenizer.json"))
    source = data.Source(data.LIBRARY, bpe, mini.SHAPE, "test", **({} if args.plain else mini.RICH))
    found = torch.zeros(args.images, mini.SHAPE.layers, 2)
    for i in range(args.images):
        b = source.single(i, 1, 1)
        x = data.rows_of(net, source.text, b, net.see(b.pixels))
        _, kv = mini.say(net, x, b.rows, b.wanted, visual_rows(source.text, b, mini.SHAPE.rows))
        for layer, both in enumerate(kv):
            for j, m in enumerate(both.double().split(mini.SHAPE.d, -1)):
                found[i, layer, j] = dimensions(m)
    print("| layer | keys: mean, least | values: mean, least |\n| --- | --- | --- |")
    for layer, x in enumerate(found.unbind(1)):
        cells = [f"{m:.1f}, {least:.0f}" for m, least in zip(x.mean(0), x.amin(0))]
        print(f"| {layer} | {cells[0]} | {cells[1]} |")


if __name__ == "__main__":
    main()
