#!/usr/bin/env python3
"""The search for a policy that keeps every answer and little KV: what the preset `quality` rests on.

    eval/search.py                         ./dev search: the whole of it; goes on where it was broken off
    eval/search.py --final 220 --screen 22,44 --result /tmp/search.json      a small one, to see it work

Candidates are combinations of lazy keys, factors (ranks, bits, blocks, energy), pruning and annealing. All are
judged with first=packed: else the first token, often the whole answer, would come from rows that are not
factored yet. Rounds, each on more items than the one before:

    grid     ranks x bits x lazy keys; and ranks that follow the energy they keep
    vary     the most promising ones as they are, and each in every way of VARY
    halve    the most promising of all that were asked so far, fewer each time
    final    the most promising that differ in size by a fifth, on items that no round before has seen (another seed)

Promising is P(loss <= 1 point) x log(times smaller): the loss is normal with the paired interval's width. Bytes
are visual KV as held, mean of after prefill and after the last token, over items. The last round chooses: the
smallest whose loss is at most 1 point with the upper end of its 95 % interval.

A policy serves when attention on what it holds is no slower than on raw rows: keys that are factored in blocks of
fewer than 16 rows are smaller, and slower (bench/results/keys.txt). Three quarters of each round's places are for
those that serve, and one of them is chosen; the others show what the bytes alone would allow.

Writes everything that was asked, with items and intervals, to eval/results/search.json.
"""
import argparse
import json
import math
import sys
from pathlib import Path

import tables
from runs import ROOT, add_arguments, complaint, group, run_eval

POINTS = 1.0  # acceptable loss
SEED, FINAL_SEED = 0, 1
AT_ONCE = 60  # policies in one evaluation; fovea takes at most 64
BLOCK_MIN = 16  # rows, for keys that are factored in blocks

RANKS = [(64, 64), (48, 32), (32, 24), (24, 16), (16, 16), (16, 12), (12, 8), (8, 6), (6, 4)]
BITS = [8, 4]
ENERGY = [0.99, 0.97, 0.95, 0.9]  # kept by ranks up to 64, per matrix
LAZY = ["", "lazy=vla,map=training_free", "lazy=vla,map=given,blocks=8-9/10-11"]

# Each takes a candidate's stages and returns changed ones, or None if it does not apply.
VARY = {
    "block=16": lambda c: with_stage(c, "pack", "block=16"),
    "block=1": lambda c: with_stage(c, "pack", "block=1"),
    "block=0": lambda c: with_stage(c, "pack", "block=0"),
    "energy=0.99": lambda c: with_stage(c, "pack", "energy=0.99"),
    "energy=0.97": lambda c: with_stage(c, "pack", "energy=0.97"),
    "more rank for keys": lambda c: ranks(c, 4, 0),
    "more rank for values": lambda c: ranks(c, 0, 4),
    "annealed over 200 tokens": lambda c: with_stage(c, "evict", "evict=vta,tau=200"),
    "annealed over 400 tokens": lambda c: with_stage(c, "evict", "evict=vta,tau=400"),
    "half of the rows from a third of the depth": lambda c: with_stage(c, "prune", "prune=fastv,layer=4,keep=0.5"),
    "half of the rows from the middle": lambda c: with_stage(c, "prune", "prune=fastv,layer=6,keep=0.5"),
    "half of each layer's rows": lambda c: with_stage(c, "select", "select=csp,heavy=0.3,recent=0.2,heads=shared"),
}

ORDER = ["prune", "lazy", "select", "pack", "evict"]


# ---- candidates ----------------------------------------------------------------------------

def text_of(stages):
    return ";".join(stages[s] for s in ORDER if stages.get(s))


def with_stage(stages, stage, words):
    """Changes a parameter of an existing stage, or adds a stage."""
    if words.startswith(stage + "="):
        return None if stages.get(stage) else {**stages, stage: words}
    name = words.split("=")[0]
    kept = [w for w in stages[stage].split(",") if not w.startswith(name + "=")]
    return {**stages, stage: ",".join(kept + [words])}


def ranks(stages, more_k, more_v):
    words = dict(w.split("=") for w in stages["pack"].split(","))
    words["rank_k"] = str(int(words["rank_k"]) + more_k)
    words["rank_v"] = str(int(words["rank_v"]) + more_v)
    return {**stages, "pack": ",".join(f"{k}={v}" for k, v in words.items())}


def grid():
    for lazy in LAZY:
        for k, v in RANKS:
            for bits in BITS:
                pack = f"pack=svd,rank_k={k},rank_v={v},bits={bits},first=packed"
                yield {"lazy": lazy, "pack": pack}
    for energy in ENERGY:
        for bits in BITS:
            yield {"lazy": "", "pack": f"pack=svd,rank_k=64,rank_v=64,energy={energy},bits={bits},gain=1,first=packed"}


class Candidates:
    """All evaluated candidates, by text; later rounds replace the answers of earlier ones."""

    def __init__(self):
        self.stages, self.asked = {}, {}

    def add(self, stages):
        if stages is not None:
            self.stages.setdefault(text_of(stages), stages)

    def note(self, text, result, items, seed, name):
        all_items = group(result, "all")
        d, kv = all_items["difference"], all_items["kv_bytes"]
        self.asked[text] = {
            "policy": text, "round": name, "items": items, "seed": seed,
            "loss": {"value": -100 * d["value"], "low": -100 * d["high"], "high": -100 * d["low"]},
            "kv_bytes": {"exact": kv["visual_exact"], "start": kv["visual"], "end": kv["visual_end"],
                         "sent_with_text": kv["sent"]},
            "times_smaller": kv["visual_exact"] / tables.held(kv),
        }

    def ranked(self):
        return sorted(self.asked, key=lambda t: -promise(self.asked[t]))

    def promising(self, n):
        return places(self.ranked(), n)

    def finalists(self, n, apart=1.2):
        """The most promising of the last halving round that differ in size, so that not all are at the limit of the loss."""
        ranked = [t for t in self.ranked() if self.asked[t]["round"] == "halve"]
        picked = []
        for text in ranked:
            times = self.asked[text]["times_smaller"]
            if all(abs(math.log(times / self.asked[p]["times_smaller"])) >= math.log(apart)
                   for p in picked if serves(p) == serves(text)):
                picked.append(text)
        return places(picked + [t for t in ranked if t not in picked], n)


def serves(text):
    words = dict(w.split("=", 1) for w in text.replace(";", ",").split(",") if "=" in w)
    return int(words.get("block", 64)) not in range(1, BLOCK_MIN)


def places(ranked, n):
    """The first n candidates; a quarter of the places is for those that do not serve."""
    others = [t for t in ranked if not serves(t)][:n // 4]
    return [t for t in ranked if serves(t)][:n - len(others)] + others


def promise(c):
    loss = c["loss"]
    sd = max((loss["high"] - loss["low"]) / (2 * 1.96), 1e-9)
    within = 0.5 * (1 + math.erf((POINTS - loss["value"]) / sd / math.sqrt(2)))
    return within * math.log(max(c["times_smaller"], 1))


# ---- rounds --------------------------------------------------------------------------------

def ask(args, found, name, texts, items, seed, reuse):
    """Evaluates candidates; each evaluation starts with exact. Folders are numbered, because an evaluation has at most
    64 policies."""
    for i in range(0, len(texts), AT_ONCE):
        part = texts[i:i + AT_ONCE]
        folder = f"{name}-{items}-{i // AT_ONCE}"
        results = run_eval(args, folder, ["exact"] + part, items, seed, reuse)["results"]
        for text, result in zip(part, results[1:]):
            found.note(text, result, items, seed, name)
        if folder not in reuse:
            reuse.append(folder)


def varied(args, found):
    """New candidates: the most promising ones, varied in every way of VARY."""
    new = []
    for text in found.promising(args.vary):
        for change in VARY.values():
            stages = change(found.stages[text])
            name = text_of(stages) if stages else None
            if name and name not in found.stages and not complaint(args, name):
                found.add(stages)
                new.append(name)
    return new


def search(args, found):
    screen, reuse = args.screen, []
    for stages in grid():
        found.add(stages)
    ask(args, found, "grid", list(found.stages), screen[0], SEED, reuse)
    new = varied(args, found)
    ask(args, found, "vary", new, screen[0], SEED, reuse)
    for items, n in zip(screen[1:], args.keep):
        ask(args, found, "halve", found.promising(n), items, SEED, reuse)
    ask(args, found, "final", found.finalists(args.keep[-1]), args.final, FINAL_SEED, [])


# ---- the report ----------------------------------------------------------------------------

def front(candidates):
    """The front, from the smallest up; a larger candidate must lose less, with disjoint intervals."""
    return tables.front(candidates, lambda c: (-c["loss"]["high"], -c["loss"]["low"]), lambda c: 1 / c["times_smaller"])


def choose(candidates):
    good = [c for c in candidates if c["loss"]["high"] <= POINTS]
    return max(good, key=lambda c: c["times_smaller"], default=None)


def line(c, widen):
    kv, loss = c["kv_bytes"], c["loss"]
    return (f"{loss['value']:+6.2f} ({loss['low']:+.2f} to {loss['high']:+.2f})  {kv['start'] / 1024:7.1f} "
            f"{kv['end'] / 1024:7.1f} {kv['sent_with_text'] / 1024:7.1f}  {c['times_smaller'] / widen:7.1f}  {c['policy']}")


def tell(report):
    widen = {"f32": 2.0, "bf16": 1.0, "f16": 1.0}[report["kv_dtype"]]  # converts exact's bytes as stored to 16 bits
    exact = report["candidates"][0]["kv_bytes"]["exact"] / 1024 / widen
    print(f"visual KV of an item under exact: {exact:.0f} KiB in 16 bits; candidates were asked with KV in {report['kv_dtype']}; "
          "points lost with paired 95 % intervals")
    head = "loss                      KiB start     end    sent  smaller  policy"
    by_round = {}
    for c in report["candidates"]:
        by_round.setdefault((c["items"], c["seed"]), []).append(c)
    for (items, seed), some in sorted(by_round.items()):
        print(f"\nfront of {len(some)} candidates with {items} items of seed {seed}\n{head}")
        for c in front(some):
            print(line(c, widen))
    for name, what in (("smallest", "smallest"), ("chosen", "smallest that serves")):
        print(f"\n{what} with at most {POINTS:g} point lost at the upper end, {report['final_items']} items:")
        print(line(report[name], widen) if report[name] else "none")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser, "build/search")
    parser.add_argument("--screen", default="110,440", help="items of grid and vary, then of each halving round")
    parser.add_argument("--vary", type=int, default=6, help="candidates that are varied")
    parser.add_argument("--keep", default="16,5", help="candidates of each halving round, then of the last")
    parser.add_argument("--final", type=int, default=2200, help="items of the last round")
    parser.add_argument("--result", type=Path, default=ROOT / "eval/results/search.json")
    parser.add_argument("--tell", action="store_true", help="only tell what the result file says")
    args = parser.parse_args()
    args.screen = [int(n) for n in args.screen.split(",")]
    args.keep = [int(n) for n in args.keep.split(",")]
    if len(args.keep) != len(args.screen) or len(args.screen) < 2:
        parser.error("--screen A,B,... wants as many numbers in --keep, and two at least")
    if not args.tell:
        found = Candidates()
        search(args, found)
        candidates = sorted(found.asked.values(), key=lambda c: (-c["seed"], -c["items"], -c["times_smaller"]))
        final = [c for c in candidates if c["round"] == "final"]
        report = {"kv_dtype": args.kv_dtype, "checkpoint": checkpoint_of(args), "final_items": args.final,
                  "points": POINTS, "smallest": choose(final),
                  "chosen": choose([c for c in final if serves(c["policy"])]), "candidates": candidates}
        args.result.parent.mkdir(parents=True, exist_ok=True)
        args.result.write_text(json.dumps(report, indent=1) + "\n")
    tell(json.loads(args.result.read_text()))


def checkpoint_of(args):
    """The fingerprint of the evaluated checkpoint."""
    with open(next(args.out.glob("final-*/items.jsonl"))) as file:
        return json.loads(file.readline())["checkpoint"]


if __name__ == "__main__":
    sys.exit(main())
