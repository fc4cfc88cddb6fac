"""What scripts tell of an exam in Markdown: numbers with their intervals, tables, and where they stand in a file."""
import re
import sys

ENOUGH = 2000  # items, for a row to be quoted


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
    return (f" **{items} items show the form of the table and rank nothing: that takes {ENOUGH}.**"
            if items < ENOUGH else "")


def held(kv):
    """Bytes of visual KV while an answer grows: mean of after prefill and after the last token."""
    return max((kv["visual"] + kv["visual_end"]) / 2, 1)


def front(some, good, small):
    """Those that no other beats: none is as good and as small, and better in one; from large to small."""
    def beaten(a):
        return any(good(b) >= good(a) and small(b) >= small(a) and (good(b) > good(a) or small(b) > small(a))
                   for b in some)
    return sorted((a for a in some if not beaten(a)), key=small)


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
