"""Draws demo.png, a picture for tests: a red ball, a blue box, a green tree.

usage: python tests/golden/demo_picture.py     (needs Pillow; gives the same pixels every time)
"""
import os
import random

from PIL import Image, ImageDraw, ImageFilter

SIDE, SCALE = 448, 3  # drawn at three times the size, then scaled down: smooth edges
N = SIDE * SCALE
HORIZON = int(N * 0.60)

image = Image.new("RGB", (N, N))
draw = ImageDraw.Draw(image)


def disc(cx, cy, rx, ry, fill):
    draw.ellipse([(cx - rx) * N, (cy - ry) * N, (cx + rx) * N, (cy + ry) * N], fill=fill)


def face(*points, fill):
    draw.polygon([(x * N, y * N) for x, y in points], fill=fill)


def sky_and_ground():
    for y in range(N):
        t = y / HORIZON if y < HORIZON else (y - HORIZON) / (N - HORIZON)
        sky = (120 + 95 * t, 178 + 52 * t, 232 + 12 * t)
        ground = (206 - 30 * t, 190 - 40 * t, 150 - 46 * t)
        draw.line([(0, y), (N, y)], fill=tuple(int(c) for c in (sky if y < HORIZON else ground)))
    disc(0.14, 0.14, 0.065, 0.065, (255, 236, 150))


def shadows():
    mask = Image.new("L", (N, N), 0)
    pen = ImageDraw.Draw(mask)
    for cx, cy, rx, ry in [(0.27, 0.885, 0.17, 0.030), (0.57, 0.80, 0.17, 0.026), (0.84, 0.70, 0.12, 0.020)]:
        pen.ellipse([(cx - rx) * N, (cy - ry) * N, (cx + rx) * N, (cy + ry) * N], fill=110)
    image.paste(Image.new("RGB", (N, N), (60, 45, 30)), mask=mask.filter(ImageFilter.GaussianBlur(9 * SCALE)))


def tree():
    face((0.798, 0.70), (0.842, 0.70), (0.834, 0.48), (0.806, 0.48), fill=(112, 76, 46))
    for cx, cy, r, green in [
        (0.82, 0.33, 0.125, (38, 120, 58)),
        (0.75, 0.41, 0.090, (34, 108, 52)),
        (0.89, 0.41, 0.090, (44, 128, 62)),
        (0.82, 0.43, 0.100, (40, 118, 56)),
        (0.79, 0.29, 0.070, (62, 146, 76)),
    ]:
        disc(cx, cy, r, r, green)


def box():
    x0, x1, y0, y1, dx, dy = 0.46, 0.64, 0.58, 0.80, 0.075, -0.055
    face((x0, y0), (x1, y0), (x1, y1), (x0, y1), fill=(40, 92, 196))
    face((x0, y0), (x0 + dx, y0 + dy), (x1 + dx, y0 + dy), (x1, y0), fill=(96, 146, 236))
    face((x1, y0), (x1 + dx, y0 + dy), (x1 + dx, y1 + dy), (x1, y1), fill=(26, 64, 150))


def ball():
    cx, cy, r = 0.25, 0.735, 0.150
    for i in range(240):  # discs that shrink towards the light
        t = i / 239
        k = t**0.8
        colour = (int(150 + 105 * k), int(18 + 150 * k**3), int(22 + 140 * k**3))
        disc(cx - 0.36 * r * t, cy - 0.40 * r * t, r * (1 - t), r * (1 - t), colour)


def grain(picture):
    """One step up or down in one pixel of forty, so that flat areas are not quite flat."""
    chance = random.Random(1)
    pixels = picture.load()
    for y in range(SIDE):
        for x in range(SIDE):
            if chance.random() < 1 / 40:
                step = chance.choice((-1, 1))
                pixels[x, y] = tuple(max(0, min(255, c + step)) for c in pixels[x, y])


sky_and_ground()
shadows()
tree()
box()
ball()
picture = image.resize((SIDE, SIDE), Image.LANCZOS)
grain(picture)
picture.save(os.path.join(os.path.dirname(os.path.abspath(__file__)), "demo.png"), optimize=True)
