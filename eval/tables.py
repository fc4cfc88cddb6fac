"""What scripts tell of an exam in Markdown: numbers with their intervals, tables, and where they stand in a file."""
import re
import sys

ENOUGH = 220  # items, for intervals to say anything
FACTS_BYTES = 62  # that all facts of a picture fit, at most: tests/unit/eval/scenes/test_scene_code.c


def percent(s):
    return f"{100 * s['value']:.1f} ({100 * s['low']:.1f} to {100 * s['high']:.1f})"


def points(d):
    return f"{100 * d['value']:+.1f} ({100 * d['low']:+.1f} to {100 * d['high']:+.1f})"


def score(g):
    """Of the first policy itself, of the others the difference to it."""
    return points(g["difference"]) if g["difference"] else percent(g["score"])


def line(cells):
    return "| " + " | ".join(cells) + " |"


def head(cells):
    yield line(cells)
    yield line(["---"] * len(cells))


def too_few(items):
    return f" **{items} items show the form of the table and rank nothing.**" if items < ENOUGH else ""


def asked(exam):
    """How an exam was asked, in a sentence or two."""
    dialogs = "Dialogs are kept conversations" if exam["dialog"] == "kept" else "Each turn of a dialog sends the whole chat"
    first = ("every token, the first one too, comes from what is held" if exam["first"] == "held"
             else "the first token is the prefill's, where all rows are there")
    return f"{dialogs}, and {first} ([what is scored]({{eval}}README.md))."


def no_ranking(exact_bytes):
    """Beside every table of scores; of one picture's visual KV under exact."""
    times = int(float(f"{exact_bytes / FACTS_BYTES:.2g}"))
    return (f"**This is no ranking.** All that the exam asks of a picture fits {FACTS_BYTES} bytes: a coder that knew its world would "
            f"keep {times} times less than `exact`, and pass ([proof]({{root}}tests/unit/eval/scenes/test_scene_code.c)). A row says what a policy "
            "damages in one small checkpoint that sees drawn scenes; it says nothing of photographs.")


def held(kv):
    """Bytes of visual KV while an answer grows: mean of after prefill and after the last token."""
    return max((kv["visual"] + kv["visual_end"]) / 2, 1)


def front(some, interval, size):
    """Those that are worth their size, from small to large: the smallest, and whoever's interval (low, high; more is
    better) lies above that of the one before. What intervals do not separate makes no step."""
    best = []
    for a in sorted(some, key=lambda a: (size(a), -interval(a)[0])):
        if not best or interval(a)[0] > interval(best[-1])[1]:
            best.append(a)
    return best


def filled(path, name, script, lines):
    """The text of `path` with these lines between the marks of that name."""
    marked = re.compile(f"(<!-- {name}: made by {script} -->\n).*?(<!-- end of {name.split()[0]} -->)", re.DOTALL)
    text, n = marked.subn(lambda m: m[1] + "\n" + "\n".join(lines).rstrip() + "\n\n" + m[2], path.read_text())
    if n != 1:
        sys.exit(f"{path}: wants the marks of the {name} once, has them {n} times")
    return text


def put(path, text, check, script):
    """Writes the file, or ends when it says anything else."""
    if check and (not path.exists() or text != path.read_text()):
        sys.exit(f"{path} is not what the results say: run {script} --tables")
    if not check:
        path.write_text(text)
