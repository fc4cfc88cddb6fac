#!/usr/bin/env python3
"""A sheet of items to look at: pictures with their questions and answers.

    python3 eval/preview.py --out sheet.png --split test --per-task 2

Writes a PNG, with the texts in it where PIL is installed; without PIL the pictures alone. The texts
go to the terminal in either case, in the order of the pictures."""

import argparse
import os
import pathlib
import struct
import sys
import textwrap
import zlib

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import scenes  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent
MARGIN = 8


def png_write(path, width, height, rgb):
    def chunk(kind, data):
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    rows = b"".join(b"\0" + rgb[y * width * 3 : (y + 1) * width * 3] for y in range(height))
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    data = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    pathlib.Path(path).write_bytes(b"\x89PNG\r\n\x1a\n" + data)


def item_text(item):
    lines = [f"[{item.task}]"]
    for turn in item.turns:
        lines.append(f"Q: {turn.question}")
        lines.append(f"A: {turn.answer}")
        if turn.restated != turn.answer:
            lines.append(f"   {turn.restated}")
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--library", default=str(ROOT / "build/cpu/bin/fovea_scene.so"))
    parser.add_argument("--out", default="sheet.png")
    parser.add_argument("--split", choices=scenes.SPLITS, default="check")
    parser.add_argument("--task", help="one task only")
    parser.add_argument("--first", type=int, default=0, help="index of the first item of a task")
    parser.add_argument("--per-task", type=int, default=2)
    parser.add_argument("--side", type=int, default=224)
    parser.add_argument("--columns", type=int, default=4)
    a = parser.parse_args()

    library = scenes.Scenes(a.library)
    tasks = [a.task] if a.task else list(library.tasks)
    items = [library.item(a.split, t, a.first + i) for t in tasks for i in range(a.per_task)]
    try:
        from PIL import Image, ImageDraw
    except ImportError:
        ImageDraw = None
    wide = 2 * a.side + MARGIN if any(len(i.scenes) == 2 for i in items) else a.side
    cell_w = max(wide, 300 if ImageDraw else 0) + 2 * MARGIN
    texts = [[w for line in item_text(i) for w in textwrap.wrap(line, cell_w // 6) or [""]] for i in items]
    cell_h = a.side + 2 * MARGIN + (max(map(len, texts)) * 12 if ImageDraw else 0)
    width, height = cell_w * a.columns, cell_h * -(-len(items) // a.columns)
    sheet = bytearray(b"\xff" * (width * height * 3))
    for n, item in enumerate(items):
        print("\n".join(item_text(item)) + "\n")
        for k, scene in enumerate(item.scenes):
            pixels = library.render([scene], a.side)
            x = n % a.columns * cell_w + MARGIN + k * (a.side + MARGIN)
            for row in range(a.side):
                at = ((n // a.columns * cell_h + MARGIN + row) * width + x) * 3
                sheet[at : at + a.side * 3] = pixels[row * a.side * 3 : (row + 1) * a.side * 3]
    if ImageDraw:
        image = Image.frombytes("RGB", (width, height), bytes(sheet))
        draw = ImageDraw.Draw(image)
        for n, text in enumerate(texts):
            x, y = n % a.columns * cell_w + MARGIN, n // a.columns * cell_h + a.side + 2 * MARGIN
            draw.multiline_text((x, y), "\n".join(text), fill=(0, 0, 0), spacing=1)
        sheet = image.tobytes()
    png_write(a.out, width, height, bytes(sheet))


main()
