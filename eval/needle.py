#!/usr/bin/env python3
"""A needle in images: of several images in a prompt one has a printed number or a handwritten digit, and the question asks for it.

    eval/needle.py [--items N]     writes eval/results/needle.json and the table in docs/PAPERS.md (each.py)

The others show objects only. Which image has the needle, and which of the two it is, goes round. As many images as a checkpoint has positions for.
An interrupted run resumes. Differences are from exact on the same items, in points, with 95 % intervals of paired differences.
"""
import json
import struct
import zlib

import each
import exams
import runs
import scenes
from lazy import points
from precision import paired, scores_of
from tables import head, line

POLICIES = ["exact", "preset=quality", "preset=paper-csp", "preset=paper-fastv", "prune=random,layer=2"]
SHOWN = {"nano": {"side": 144, "images": (1, 2, 4, 8)}, "mini": {"side": 288, "images": (1, 2, 3)}}
FIRST = 1 << 30  # number of the first scene
KINDS = ["number", "written"]


# ---- the questions --------------------------------------------------------------------------

def png(pixels, side):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\0" + bytes(pixels[i * 3 * side : (i + 1) * 3 * side]) for i in range(side))
    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def needle(library, kind, number, rich):
    """A scene with one number or one written digit, and the question about it."""
    shown = dict(numbers=(1, 1), written_percent=0) if kind == "number" else dict(numbers=(0, 0), written_percent=100)
    while True:  # take the next scene if the digit has no space
        scene = library.scenes("test", number, 1, objects=(1, 6), rich=rich, **shown)[0]
        turns = library.ask(scene, kind, number)
        if turns:
            return scene, turns[0]
        number += 1 << 20


def write_questions(library, folder, n_image, items, side, rich):
    """Writes a folder with questions.jsonl and its images."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = []
    for i in range(items):
        number, at = FIRST + i * 16, i // len(KINDS) % n_image
        scene, turn = needle(library, KINDS[i % len(KINDS)], number, rich)
        shown = library.scenes("test", number + 1, n_image, objects=(1, 6), numbers=(0, 0), written_percent=0, rich=rich)
        shown[at] = scene
        names = [f"{i}-{k}.png" for k in range(n_image)]
        for name, one in zip(names, shown):
            (folder / name).write_bytes(png(library.render([one], side), side))
        lines.append(json.dumps({"images": names, "question": turn.question, "answers": turn.answer, "metric": "contains"}))
    (folder / "questions.jsonl").write_text("\n".join(lines) + "\n")
    return folder / "questions.jsonl"


# ---- the evaluation -------------------------------------------------------------------------

def examine(args, exam):
    library, rich, rows = scenes.Scenes(args.scenes), exams.EXAMS[exam]["scenes"] == "rich", []
    for n in SHOWN[exam]["images"]:
        name = f"{exam}-{n}"
        questions = write_questions(library, args.out / name / "questions", n, args.items, SHOWN[exam]["side"], rich)
        runs.run_eval(args, name, POLICIES, args.items, None, more=["--data", str(questions)])
        scores = scores_of(args.out / name / "items.jsonl", len(POLICIES))
        for policy, values in zip(POLICIES, scores):
            rows.append({"images": n, "policy": policy, "correct": 100 * sum(values) / len(values),
                         "difference": paired([a - b for a, b in zip(values, scores[0])])})
    return {"items": args.items, "compute": args.compute, "kv_dtype": args.kv_dtype, "rows": rows}


# ---- the table ------------------------------------------------------------------------------

def table(exam, found):
    yield (f"`eval/needle.py --items {found['items']} --only {exam}`, commit `{found['commit']}`, products in {found['compute']}, keys and values in "
           f"{found['kv_dtype']}, every token computed from the compressed KV. `exact`: percent correct of {found['items']} questions; the others: "
           "difference from it in points.")
    yield ""
    counts = list(dict.fromkeys(r["images"] for r in found["rows"]))
    yield from head([f"`{exam}`: images in the prompt", *map(str, counts)])
    for policy in dict.fromkeys(r["policy"] for r in found["rows"]):
        of = {r["images"]: r for r in found["rows"] if r["policy"] == policy}
        cells = [f"{of[n]['correct']:.1f}" if policy == "exact" else points(of[n]["difference"]) for n in counts]
        yield line([f"`{policy}`", *cells])


def arguments(parser):
    parser.add_argument("--scenes", default=str(runs.ROOT / "build/cpu/bin/fovea_scene.so"), help="the library of scenes")
    parser.add_argument("--items", type=int, default=24)


if __name__ == "__main__":
    each.main("needle", __doc__, arguments, examine, table)
