"""The figure of the presets, as an SVG: accuracy against visual KV held, and below what a fleet takes under some of them."""
import math

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 860, 420, 60, 20, 20, 50
ROW, NAMES, GAP = 20, 120, 40  # for the times: height of a policy, width of names, distance of panels
PANELS = (("ttft_ms", "time to first token"), ("tpot_ms", "time per token"), ("tokens_per_s", "tokens/s"), ("sent", "bytes sent, with text"))
SHARES = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100)  # percent of exact's visual KV, on a logarithmic axis


class Axes:
    """x from the smallest share to 100 %, y over all intervals in steps of ten percent."""

    def __init__(self, points):
        least = min(share for _, share, *_ in points)
        self.shares = [s for s in SHARES if s >= max(t for t in SHARES if t <= max(least, SHARES[0]))]
        self.low = 10 * math.floor(min(low for *_, low, _ in points) / 10)
        self.high = 10 * math.ceil(max(high for *_, high in points) / 10)

    def x(self, share):
        a, b = math.log(self.shares[0]), math.log(self.shares[-1])
        return LEFT + (math.log(share) - a) / (b - a) * (WIDTH - LEFT - RIGHT)

    def y(self, percent):
        return TOP + (self.high - percent) / (self.high - self.low) * (HEIGHT - TOP - BOTTOM)


def text(x, y, words, anchor="start", extra=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{extra}>{words}</text>'


def grid(axes):
    for share in axes.shares:
        x = axes.x(share)
        yield f'<line class="grid" x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{HEIGHT - BOTTOM}"/>'
        yield text(x, HEIGHT - BOTTOM + 18, f"{share} %", "middle")
    for percent in range(axes.low, axes.high + 1, 10):
        y = axes.y(percent)
        yield f'<line class="grid" x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}"/>'
        yield text(LEFT - 8, y + 4, f"{percent} %", "end")
    yield text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10, "visual KV held, relative to exact", "middle")
    yield text(0, 0, "questions answered correctly", "middle", f' transform="translate(14 {(TOP + HEIGHT - BOTTOM) / 2}) rotate(-90)"')


def placed(points, axes):
    """Yields each point with a free place for its name, on the side with space."""
    taken = []
    for name, share, value, low, high in sorted(points, key=lambda p: -p[2]):
        x, y, width = axes.x(share), axes.y(value), 6.2 * len(name)
        anchor = "end" if x + 10 + width > WIDTH else "start"
        left = x - 7 - width if anchor == "end" else x + 7
        for step in (0, 11, -11, 22, -22, 33, 44, -33, 55, 66):
            top = y + step
            if TOP < top + 4 < HEIGHT - BOTTOM and all(abs(top - t) > 10 or left + width < l or left > l + w for l, w, t in taken):
                break
        taken.append((left, width, top))
        yield name, x, y, axes.y(low), axes.y(high), x - 7 if anchor == "end" else x + 7, top, anchor


# ---- times -----------------------------------------------------------------------------------

def by_policy(times):
    """{name: {clients: row}}, in the order of the rows."""
    by = {}
    for r in times["rows"]:
        by.setdefault(r["name"], {})[r["concurrency"]] = r
    return by


def panel(by, key, title, left, width, top):
    """Marks for each policy and number of clients, relative to the first policy, on a logarithmic axis of powers of two."""
    first, *others = by.values()
    ratios = [[(n, row[n][key] / first[n][key]) for n in row] for row in others]
    steps = [math.log2(r) for row in ratios for _, r in row]
    low, high = math.floor(min(0, *steps)), math.ceil(max(0, *steps))
    every = 1 + (high - low) // 5

    def x(ratio):
        return left + (math.log2(ratio) - low) / max(high - low, 1) * width
    yield text(left + width / 2, top - 8, title, "middle")
    bottom = top + ROW * len(others)
    for step in range(low, high + 1):
        if step % every == 0:
            at = x(2.0 ** step)
            yield f'<line class="{"one" if step == 0 else "grid"}" x1="{at:.1f}" y1="{top}" x2="{at:.1f}" y2="{bottom}"/>'
            yield text(at, bottom + 14, f"{2 ** step}x" if step >= 0 else f"1/{2 ** -step}", "middle")
    for i, row in enumerate(ratios):
        for n, (_, ratio) in enumerate(row if key != "sent" else row[:1]):
            yield f'<circle class="clients{n if key != "sent" else ""}" cx="{x(ratio):.1f}" cy="{top + ROW * (i + 0.5):.1f}" r="{3 + n}"/>'


def fleet(times, top):
    """Panels side by side from `top` on, and their height."""
    by = by_policy(times)
    first, *others = by
    clients = list(by[first])
    lines = [text(LEFT, top, f"A fleet of one prefill and one decode worker, {times['network']} (random weights), relative to {first}; "
                  f"small, middle and large marks: {', '.join(map(str, clients[:-1]))} and {clients[-1]} clients")]
    top += 34
    for i, name in enumerate(others):
        lines.append(text(NAMES - 10, top + ROW * (i + 0.5) + 4, name.removeprefix("paper-"), "end"))
    width = (WIDTH - RIGHT - NAMES - GAP * (len(PANELS) - 1)) / len(PANELS)
    for i, (key, title) in enumerate(PANELS):
        lines += panel(by, key, title, NAMES + i * (width + GAP), width, top)
    return lines, 34 + ROW * len(others) + 24


# ---- the figure ------------------------------------------------------------------------------

def svg(points, times=None):
    """points: (name, share of exact's visual KV, percent correct: value, low, high); times: from timings.py."""
    points = list(points)
    axes = Axes(points)
    below, more = fleet(times, HEIGHT + 20) if times else ([], 0)
    height = HEIGHT + (20 + more if times else 0)
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="11">',
             '<style>.grid{stroke:#ddd}.one{stroke:#888}.bar{stroke:#8ab}.point,.clients{fill:#246}'
             '.clients0{fill:#246}.clients1{fill:none;stroke:#47a}.clients2{fill:none;stroke:#c63}</style>',
             f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>', *grid(axes)]
    for name, x, y, low, high, at, top, anchor in placed(points, axes):
        lines += [f'<line class="bar" x1="{x:.1f}" y1="{low:.1f}" x2="{x:.1f}" y2="{high:.1f}"/>',
                  f'<circle class="point" cx="{x:.1f}" cy="{y:.1f}" r="3"/>', text(at, top + 4, name.removeprefix("paper-"), anchor)]
    return "\n".join([*lines, *below, "</svg>", ""])
