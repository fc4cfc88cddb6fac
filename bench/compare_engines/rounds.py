"""Rounds in which engines run in turn, between measurements of the machine's limits.

Other guests of a host change the memory rate within seconds. So each round runs the read loop before its first engine,
between engines and after the last one, and counts only if these rates are close to each other; other rounds are
repeated. If too few are steady, the steadiest ones count.
"""
import json
import statistics
import sys

from classes import BATCHES, BIN, SCRATCH, STAGES, tokens_of
from programs import run_for

STEADY = 1.15  # fastest reading of a round / slowest one, at most
SLOW = 1.5     # an engine slower than this against the fastest peer in every stage runs only once
REPEATS = 2    # at most so many times the requested rounds


def ceilings(o):
    """Measures the current limits: bytes per second read, and flop/s."""
    out = SCRATCH / "machine.json"
    _, why = run_for(o.limit, BIN / "bench_machine", "--threads", str(o.threads), "--rounds", "15", "--weights", "512",
                     "--json", out)
    if why:
        sys.exit(f"bench_machine {why}")
    value = {row["name"]: row["value"] * 1e9 for row in json.loads(out.read_text())["rows"]}
    return {"read": value["read loop"], "fma": value["fma loop"]}


def one_round(made, o):
    """Runs the engines of `made` in turn; removes those that failed and returns them with the reason."""
    once = {"ceilings": [ceilings(o)], "seconds": {}}
    failed = {}
    for name, run in list(made.items()):
        got = run()
        once["ceilings"].append(ceilings(o))
        if isinstance(got, str):
            failed[name] = got
            del made[name]
        else:
            once["seconds"][name] = got
    reads = [c["read"] for c in once["ceilings"]]
    once["spread"] = max(reads) / min(reads)
    print("    a round, the read loop: " + ", ".join(f"{r / 1e9:.1f}" for r in reads) + " GB/s", file=sys.stderr, flush=True)
    return once, failed


def slow_ones(seconds):
    """Returns the peers that are more than SLOW times slower than the fastest one in every stage."""
    peers = {n: s for n, s in seconds.items() if n != "fovea"}
    best = {stage: min(s[stage] for s in peers.values()) for stage in STAGES} if peers else {}
    return [n for n, s in peers.items() if all(s[stage] > SLOW * best[stage] for stage in STAGES)]


def measure(made, o, close):
    """Runs rounds of the engines {name: run} until enough are steady; calls close(name) for engines that do not run again."""
    rounds, why, once = [], {}, {}
    while sum(r["spread"] <= STEADY for r in rounds) < o.rounds and len(rounds) < REPEATS * o.rounds:
        one, failed = one_round(made, o)
        rounds.append(one)
        for name, reason in failed.items():
            why[name] = reason
            close(name)
            for r in rounds:
                r["seconds"].pop(name, None)
        if "fovea" in why:
            sys.exit(f"fovea {why['fovea']}")
        if len(rounds) == 1:
            for name in slow_ones(one["seconds"]):
                once[name] = one["seconds"][name]
                del made[name]
                close(name)
    steadiest = sorted(rounds, key=lambda r: r["spread"])[:o.rounds]
    for r in rounds:
        r["counts"] = any(r is s for s in steadiest)
        r["ratio"], r["of_read"] = compare(r, o)
    steady = all(r["spread"] <= STEADY for r in steadiest)
    return {"rounds": rounds, "steady": steady, "asked_once": once, "not": why, **summary(rounds)}


def compare(r, o):
    """Returns one round's ratios by stage: fovea to its fastest peer; bytes per second of its steps to the best reading."""
    own, ratio, of_read = r["seconds"]["fovea"], {}, {}
    for stage, name in STAGES.items():
        peers = [s[stage] for n, s in r["seconds"].items() if n != "fovea"]
        if peers:
            ratio[name] = min(peers) / own[stage]
    best = max(c["read"] for c in r["ceilings"])
    for batch in BATCHES:
        of_read[STAGES[batch]] = own["bytes"][batch] * o.tokens / own[batch] / best
    return ratio, of_read


def summary(rounds):
    counted = [r for r in rounds if r["counts"]]

    def over(what):
        found = {}
        for name in STAGES.values():
            values = [r[what][name] for r in counted if name in r[what]]
            if values:
                found[name] = {"median": statistics.median(values), "low": min(values), "high": max(values)}
        return found
    return {"ratio": over("ratio"), "of_read": over("of_read")}


def median_seconds(result, engine, stage):
    """Returns the median over the rounds that count, or the single time of an engine that ran once; None: no numbers."""
    values = [r["seconds"][engine][stage] for r in result["rounds"] if r["counts"] and engine in r["seconds"]]
    if engine in result["asked_once"]:
        values = [result["asked_once"][engine][stage]]
    return statistics.median(values) if values else None


def rates(result, stage, o):
    """Returns tokens per second of each engine with numbers."""
    engines = dict.fromkeys(n for r in result["rounds"] for n in r["seconds"])
    seconds = {n: median_seconds(result, n, stage) for n in engines}
    return {n: tokens_of(stage, o) / s for n, s in seconds.items() if s}
