"""The tables of checkpoints/nano/README.md, from eval/results.json. Standard library only.

    python3 card.py            writes them
    python3 card.py --check    ends with 1 when the card says anything else
"""

import json
import pathlib
import sys

NANO = pathlib.Path(__file__).resolve().parents[1]
CARD = NANO / "README.md"


def percent(x):
    return f"{100 * x:.1f}"


def score(s):
    return f"{percent(s['value'])} ({percent(s['low'])} to {percent(s['high'])})"


def difference(d):
    return f"{100 * d['value']:+.1f} ({100 * d['low']:+.1f} to {100 * d['high']:+.1f})"


def row(*cells):
    return "| " + " | ".join(map(str, cells)) + " |"


def score_table(results):
    """One line per group: score of the first policy, then what the others lose on the same items."""
    first, *others = results
    names = [f"`{r['policy'].split(',seed=')[0]}`" for r in others]
    yield row("", "n", "chance", f"`{first['policy']}`", *names)
    yield row(*["---"] * (4 + len(others)))
    for i, g in enumerate(first["groups"]):
        cells = [difference(r["groups"][i]["difference"]) for r in others]
        yield row(g["group"], g["n"], percent(g["chance"]), score(g["score"]), *cells)


def spectra_table(spectra):
    rank = f"of {spectra['d_head']}"
    yield row("layer", f"keys: rank of 99 % {rank}", f"values: rank of 99 % {rank}", "attention on the image")
    yield row(*["---"] * 4)
    for i, layer in enumerate(spectra["layers"]):
        mass = f"{percent(layer['visual_mass'])} ± {percent(layer['visual_mass_sd'])} %"
        yield row(i, f"{layer['k_rank99']:.1f}", f"{layer['v_rank99']:.1f}", mass)


def filled(card, name, lines):
    begin, end = f"<!-- {name}: made by card.py -->\n", f"<!-- end of {name} -->"
    before, rest = card.split(begin)
    return before + begin + "\n" + "\n".join(lines) + "\n\n" + end + rest.split(end, 1)[1]


def main():
    with open(NANO / "eval" / "results.json") as f:
        results = json.load(f)
    was = CARD.read_text()
    card = filled(was, "evaluation", score_table(results["results"]))
    card = filled(card, "spectra", spectra_table(results["spectra"]))
    if "--check" in sys.argv[1:]:
        return card != was and f"{CARD} is not what eval/results.json says: run {sys.argv[0]}"
    CARD.write_text(card)


if __name__ == "__main__":
    sys.exit(main())
