"""The figure of the presets: accuracy against visual KV held, as an SVG."""
import math

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 860, 420, 60, 20, 20, 50
X, Y = (5, 100), (30, 95)  # percent of exact's visual KV, on a logarithmic axis; percent correct


def x_of(share):
    a, b = map(math.log, X)
    return LEFT + (math.log(share) - a) / (b - a) * (WIDTH - LEFT - RIGHT)


def y_of(percent):
    return TOP + (Y[1] - percent) / (Y[1] - Y[0]) * (HEIGHT - TOP - BOTTOM)


def text(x, y, words, anchor="start", extra=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{extra}>{words}</text>'


def axes():
    for share in (5, 10, 20, 50, 100):
        x = x_of(share)
        yield f'<line class="grid" x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{HEIGHT - BOTTOM}"/>'
        yield text(x, HEIGHT - BOTTOM + 18, f"{share} %", "middle")
    for percent in range(30, 91, 10):
        y = y_of(percent)
        yield f'<line class="grid" x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}"/>'
        yield text(LEFT - 8, y + 4, f"{percent} %", "end")
    yield text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10, "visual KV held, relative to exact", "middle")
    yield text(0, 0, "questions answered correctly", "middle", f' transform="translate(14 {(TOP + HEIGHT - BOTTOM) / 2}) rotate(-90)"')


def placed(points):
    """Each point with a place for its name: on the side with room, and where no other name is."""
    taken = []
    for name, share, value, low, high in sorted(points, key=lambda p: -p[2]):
        x, y, width = x_of(share), y_of(value), 6.2 * len(name)
        anchor = "end" if x + 10 + width > WIDTH else "start"
        left = x - 7 - width if anchor == "end" else x + 7
        for step in (0, 11, -11, 22, -22, 33, 44, -33, 55, 66):
            top = y + step
            if TOP < top + 4 < HEIGHT - BOTTOM and all(abs(top - t) > 10 or left + width < l or left > l + w for l, w, t in taken):
                break
        taken.append((left, width, top))
        yield name, x, y, y_of(low), y_of(high), x - 7 if anchor == "end" else x + 7, top, anchor


def svg(points):
    """points: (name, share of exact's visual KV, percent correct: value, low, high)."""
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="11">',
             '<style>.grid{stroke:#ddd}.bar{stroke:#8ab}.point{fill:#246}</style>',
             f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>', *axes()]
    for name, x, y, low, high, at, top, anchor in placed(points):
        lines += [f'<line class="bar" x1="{x:.1f}" y1="{low:.1f}" x2="{x:.1f}" y2="{high:.1f}"/>',
                  f'<circle class="point" cx="{x:.1f}" cy="{y:.1f}" r="3"/>', text(at, top + 4, name.removeprefix("paper-"), anchor)]
    return "\n".join([*lines, "</svg>", ""])
