"""The figure of the presets: accuracy against visual KV held, as an SVG."""
import math

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 860, 420, 60, 20, 20, 50
SHARES = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100)  # percent of exact's visual KV, on a logarithmic axis


class Axes:
    """From the smallest share to all of it, and over all intervals in steps of ten percent."""

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
    """Each point with a place for its name: on the side with room, and where no other name is."""
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


def svg(points):
    """points: (name, share of exact's visual KV, percent correct: value, low, high)."""
    points = list(points)
    axes = Axes(points)
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="11">',
             '<style>.grid{stroke:#ddd}.bar{stroke:#8ab}.point{fill:#246}</style>',
             f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>', *grid(axes)]
    for name, x, y, low, high, at, top, anchor in placed(points, axes):
        lines += [f'<line class="bar" x1="{x:.1f}" y1="{low:.1f}" x2="{x:.1f}" y2="{high:.1f}"/>',
                  f'<circle class="point" cx="{x:.1f}" cy="{y:.1f}" r="3"/>', text(at, top + 4, name.removeprefix("paper-"), anchor)]
    return "\n".join([*lines, "</svg>", ""])
