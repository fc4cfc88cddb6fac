"""Evaluation results as Markdown: numbers with intervals, tables, and the marked parts of files that hold them."""
import json
import re
import sys

from runs import ROOT

ENOUGH = 220  # items from which on intervals are meaningful
FACTS_BYTES = 62  # upper bound for all facts of an image: tests/unit/eval/scenes/test_scene_code.c


def percent(s):
    return f"{100 * s['value']:.1f} ({100 * s['low']:.1f} to {100 * s['high']:.1f})"


def points(d):
    return f"{100 * d['value']:+.1f} ({100 * d['low']:+.1f} to {100 * d['high']:+.1f})"


def score(g):
    """The first policy's score, or another policy's difference from it."""
    return points(g["difference"]) if g["difference"] else percent(g["score"])


def line(cells):
    return "| " + " | ".join(cells) + " |"


def head(cells):
    yield line(cells)
    yield line(["---"] * len(cells))


def too_few(items):
    return f" **{items} items are too few for a comparison.**" if items < ENOUGH else ""


def asked(suite):
    """Describes how the evaluation was run."""
    dialogs = "Dialogs are kept conversations" if suite["dialog"] == "kept" else "Each turn of a dialog sends the whole chat"
    first = ("every token, including the first, is computed from the compressed KV" if suite["first"] == "held"
             else "the first token is computed in the prefill, from the full KV")
    return f"{dialogs}, and {first} ([what is scored]({{eval}}README.md))."


def saturation(exam):
    """n of the smallest share 1/n of exact's bytes at which, as at all larger ones, a plain coder shows no loss on the
    items; its bits, and the number of items (saturation.py)."""
    result = json.loads((ROOT / f"eval/results/saturation-{exam}.json").read_text())
    exact, *rows = result["rows"]
    times = 1
    for r in rows:
        if "bits=" not in r["policy"] or not r["difference"]["low"] <= 0 <= r["difference"]["high"]:
            break
        times = round(exact["held"] / r["held"])
    return times, result["bits"], result["items"]


def facts(exam, exact_bytes):
    """The fact proved about plain scenes; exact_bytes: one image's visual KV under exact."""
    if exam != "nano":
        return ""
    times = int(float(f"{exact_bytes / FACTS_BYTES:.2g}"))
    return (f"Everything the questions ask about an image fits in {FACTS_BYTES} bytes, {times} times less "
            "than `exact` holds ([proof]({root}tests/unit/eval/scenes/test_scene_code.c)). ")


def no_ranking(exam, exact_bytes):
    """The paragraph that accompanies every table of scores."""
    saturated, bits, items = saturation(exam)
    return (f"**This is not a ranking of methods.** {facts(exam, exact_bytes)}A plain coder, PCA over all layers with {bits} bits a coefficient, "
            f"loses nothing that {items} items show down to 1/{saturated} of `exact` ([saturation]({{root}}docs/methods/latent.md)): above that "
            "size no method is better than another here. A row shows what a policy "
            "costs one small checkpoint on drawn scenes; it says nothing about photographs.")


def held(kv):
    """Bytes of visual KV during an answer: mean of those after prefill and after the last token."""
    return max((kv["visual"] + kv["visual_end"]) / 2, 1)


def front(some, interval, size):
    """The Pareto front, from small to large: the smallest, and each whose interval (low, high; higher is better) is
    above that of the one before. Rows with overlapping intervals are left out."""
    best = []
    for a in sorted(some, key=lambda a: (size(a), -interval(a)[0])):
        if not best or interval(a)[0] > interval(best[-1])[1]:
            best.append(a)
    return best


def filled(path, name, script, lines, title=None):
    """The text of `path` with these lines between its marks of that name; with a title, missing marks are added."""
    mark, end = f"<!-- {name}: made by {script} -->\n", f"<!-- end of {name.split()[0]} -->"
    text = path.read_text() if path.exists() or not title else ""
    if title and mark not in text:
        text += f"{text and chr(10)}# {title}\n\n{mark}{end}\n"
    marked = re.compile(f"({mark}).*?({end})", re.DOTALL)
    text, n = marked.subn(lambda m: m[1] + "\n" + "\n".join(lines).rstrip() + "\n\n" + m[2], text)
    if n != 1:
        sys.exit(f"{path}: expected the marks of {name} once, found them {n} times")
    return text


def put(path, text, check, script):
    """Writes the file; with check, exits with an error if it differs."""
    if check and (not path.exists() or text != path.read_text()):
        sys.exit(f"{path} differs from the results: run {script}")
    if not check:
        path.write_text(text)
