"""Evaluation results as Markdown: numbers with intervals, tables, and the marked parts of files that hold them."""
import json
import re
import sys

from runs import ROOT

ENOUGH = 220  # items, for intervals to say anything
FACTS_BYTES = 62  # at most, for all facts of an image: tests/unit/eval/scenes/test_scene_code.c


def percent(s):
    return f"{100 * s['value']:.1f} ({100 * s['low']:.1f} to {100 * s['high']:.1f})"


def points(d):
    return f"{100 * d['value']:+.1f} ({100 * d['low']:+.1f} to {100 * d['high']:+.1f})"


def score(g):
    """The first policy's own score; of the others the difference from it."""
    return points(g["difference"]) if g["difference"] else percent(g["score"])


def line(cells):
    return "| " + " | ".join(cells) + " |"


def head(cells):
    yield line(cells)
    yield line(["---"] * len(cells))


def too_few(items):
    return f" **{items} items are too few for a comparison.**" if items < ENOUGH else ""


def asked(suite):
    """How the evaluation was run, in a sentence or two."""
    dialogs = "Dialogs are kept conversations" if suite["dialog"] == "kept" else "Each turn of a dialog sends the whole chat"
    first = ("every token, including the first, is computed from the compressed KV" if suite["first"] == "held"
             else "the first token is computed in the prefill, from the full KV")
    return f"{dialogs}, and {first} ([what is scored]({{eval}}README.md))."


def saturation(exam):
    """The smallest share of exact's bytes, 1/n, at which a plain coder loses nothing that the items show, nor at any
    larger one; its bits, and the items (saturation.py)."""
    result = json.loads((ROOT / f"eval/results/saturation-{exam}.json").read_text())
    exact, *rows = result["rows"]
    times = 1
    for r in rows:
        if "bits=" not in r["policy"] or not r["difference"]["low"] <= 0 <= r["difference"]["high"]:
            break
        times = round(exact["held"] / r["held"])
    return times, result["bits"], result["items"]


def facts(exam, exact_bytes):
    """What is proved of plain scenes; exact_bytes: one image's visual KV under exact."""
    if exam != "nano":
        return ""
    times = int(float(f"{exact_bytes / FACTS_BYTES:.2g}"))
    return (f"Everything the questions ask about an image fits in {FACTS_BYTES} bytes, {times} times less "
            "than `exact` holds ([proof]({root}tests/unit/eval/scenes/test_scene_code.c)). ")


def no_ranking(exam, exact_bytes):
    """Accompanies every table of scores."""
    saturated, bits, items = saturation(exam)
    return (f"**This is not a ranking of methods.** {facts(exam, exact_bytes)}A plain coder, PCA over all layers with {bits} bits a coefficient, "
            f"loses nothing that {items} items show down to 1/{saturated} of `exact` ([saturation]({{root}}docs/methods/latent.md)): above that "
            "size no method is better than another here. A row shows what a policy "
            "costs one small checkpoint on drawn scenes; it says nothing about photographs.")


def held(kv):
    """Bytes of visual KV while an answer grows: mean of after prefill and after the last token."""
    return max((kv["visual"] + kv["visual_end"]) / 2, 1)


def front(some, interval, size):
    """The Pareto front, from small to large: the smallest, and each whose interval (low, high; higher is better) is above
    the interval of the one before. Those that intervals do not separate are left out."""
    best = []
    for a in sorted(some, key=lambda a: (size(a), -interval(a)[0])):
        if not best or interval(a)[0] > interval(best[-1])[1]:
            best.append(a)
    return best


def filled(path, name, script, lines, title=None):
    """The text of `path` with these lines between its marks of that name; with a title, the marks need not be there yet."""
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
    """Writes the file; with check, ends with an error when it differs."""
    if check and (not path.exists() or text != path.read_text()):
        sys.exit(f"{path} differs from the results: run {script}")
    if not check:
        path.write_text(text)
