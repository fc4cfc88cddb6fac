#!/usr/bin/env python3
"""The generated part of FAMILIES.md: which methods run on which model family, tried on a random checkpoint of each.

    docs/families.py [--fovea PROGRAM]            tries, and writes the table
    docs/families.py [--fovea PROGRAM] --check    tries, and ends with 1 when the page says anything else
    docs/families.py --only FAMILY [...]          tries these alone, and takes the other columns from the page

Each method runs with images of three shapes, and with a video and an image where the family reads videos, in one
process and over a fleet, which must give the same bits; a method that is refused must be refused by both, with the same
words. `exact` must not depend on the prefill chunk, a method that keeps everything must give what `exact` gives, and
one that prunes must hold less.
"""
import argparse
import json
import re
import signal
import struct
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path.insert(0, str(ROOT / "eval"))
from tables import filled, head, line, put  # noqa: E402

PAGE = HERE / "FAMILIES.md"
FAMILIES = ["llava", "llava_next", "llava_onevision", "idefics3", "smolvlm", "internvl", "internvl_chat", "mistral3", "pixtral", "lighton_ocr", "paddleocr_vl",
            "qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe", "glm4v", "glm46v", "glm4v_moe", "glm_ocr", "gemma3", "shieldgemma2", "gemma4", "gemma4_unified", "video_llava", "mobilevlm"]
SCRIPT = "docs/families.py"
VIDEOS = ["qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe", "video_llava"]  # read them natively
SIZES = [(37, 90), (170, 41), (28, 28)]


def png(w, h):
    """Stripes that no other size has."""
    rows = b"".join(b"\0" + bytes((x * 7 + y * (c * 5 + 3) + w) & 255 for x in range(w) for c in range(3)) for y in range(h))
    chunk = lambda kind, data: struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", w, h, 8, 2, 0, 0, 0)) +
            chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


class Fleet:
    def __init__(self, fovea, checkpoint):
        self.process = subprocess.Popen([fovea, "up", "--checkpoint", checkpoint, "--listen", "127.0.0.1:0"],
                                        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL, text=True)
        for text in self.process.stdout:
            if text.startswith("ready on "):
                self.address = text.split()[2].rstrip(":")
                return
        sys.exit("the fleet did not start")

    def end(self):
        self.process.send_signal(signal.SIGINT)
        self.process.wait(60)


class Place:
    """Where a question is asked: a checkpoint here, or a fleet."""

    def __init__(self, fovea, media, *where):
        self.command = [fovea, "ask", *where, "--json", "--ignore-eos", "--max-tokens", "5", "What differs?", *media]

    def ask(self, policy, *more):
        """The report; or, where the request is refused, the sentence."""
        r = subprocess.run([*self.command, "--policy", policy, *more], capture_output=True, text=True)
        if r.returncode == 0:
            return json.loads(r.stdout)["report"], None
        said = r.stderr.strip().splitlines()[-1]
        return None, said[said.find(policy.split(",")[0] + ": "):].strip()


MASKS = ["visipruner"]  # hides tokens, and holds them

# Methods that act on what another one has made.
AFTER = {("expand", None): "pack=svd,rank_k=8,rank_v=8,gain=0;", ("evict", "importance"): "pack=svd,rank_k=8,rank_v=8,gain=0;expand=attention;"}


def candidates(stage, method):
    """Policies of the method: its defaults, then each parameter's other values."""
    name = AFTER.get((stage, None), AFTER.get((stage, method["name"]), "")) + f"{stage}={method['name']}"
    yield name
    for p in method["params"]:
        for value in p.get("words", []) or [f"{p[k]:.10g}" for k in ("min", "max") if k in p]:
            yield f"{name},{p['name']}={value}"


def fail(*words):
    sys.exit("docs/families.py: " + " ".join(str(w) for w in words))


def try_method(stage, method, here, there, exact, known):
    """(policy that acts, None), (None, None) where none does, or (None, why it is refused)."""
    why = refused = None
    key = (stage, method["name"])
    for policy in [known[key]] if key in known else candidates(stage, method):
        report, said = here.ask(policy)
        if report is None:
            why, refused = (why, refused) if why else (said, policy)
            continue
        if report["bypassed"]:
            continue
        other, _ = there.ask(policy)
        if other is None or other["digests"] != report["digests"]:
            fail(policy, "differs over a fleet:", report["digests"], other and other["digests"])
        held, before = (r["bytes"]["resident_start"]["visual"] for r in (report, exact))
        if stage == "prune" and method["name"] not in MASKS and held >= before:
            fail(f"{policy} holds {held} bytes of visual KV, and exact {before}")
        known[key] = policy
        return policy, None
    if why:
        _, other = there.ask(refused)
        if other != why:
            fail(f"{refused} is refused here with '{why}' and by a fleet with '{other}'")
    return None, why


def check_exact(name, here, there):
    exact, said = here.ask("exact")
    if exact is None:
        fail(name, said)
    for other in [here.ask("exact", "--chunk", "7")[0], here.ask("exact", "--chunk", "0")[0], there.ask("exact")[0]]:
        if other["digests"] != exact["digests"]:
            fail(name, "exact depends on the chunk or the fleet")
    if exact["tokens"]["prompt"] != exact["tokens"]["visual"] + exact["tokens"]["text"]:
        fail(name, exact["tokens"])
    start = exact["bytes"]["resident_start"]
    if exact["bytes"]["raw"] != start["visual"] + start["text"] or exact["bytes"]["raw"] % exact["tokens"]["prompt"]:
        fail(name, exact["bytes"])
    return exact


def check_keep_all(name, stages, here, exact):
    for stage in stages:
        for method in stage["methods"]:
            for p in method["params"]:
                if p["name"] == "keep" and p.get("max") == 1:
                    report, said = here.ask(f"{stage['name']}={method['name']},keep=1")
                    if report is None and stage["name"] in ("condense", "pack"):
                        continue
                    if report is None:
                        fail(name, f"{stage['name']}={method['name']},keep=1 is refused:", said)
                    if report["bypassed"] and report["digests"] != exact["digests"]:
                        fail(name, f"{stage['name']}={method['name']},keep=1 does nothing and is not exact")
                    if stage["name"] == "prune" and not report["bypassed"]:
                        fail(name, f"{stage['name']}={method['name']},keep=1 does something")


def try_media(name, media, fovea, checkpoint, fleet, stages, known):
    here = Place(fovea, media, "--checkpoint", checkpoint)
    there = Place(fovea, media, "--to", fleet.address)
    exact = check_exact(name, here, there)
    check_keep_all(name, stages, here, exact)
    return {(s["name"], m["name"]): try_method(s["name"], m, here, there, exact, known)
            for s in stages for m in s["methods"]}


def try_family(name, fovea, stages, folder, images, clip, known):
    """(column, what each method does) with images, and with a video."""
    checkpoint = f"{folder}/{name}"
    subprocess.run([fovea, "synth", "--family", name, "--shape", "tiny", "--layers", "8", "--dtype", "f32", "--out", checkpoint],
                   check=True, stdout=subprocess.DEVNULL)
    r = subprocess.run([fovea, "calibrate", "--latent", "--items", "8", "--directions", "64", "--checkpoint", checkpoint],
                       capture_output=True, text=True)
    if r.returncode and "pack" not in r.stderr:
        fail(name, r.stderr)
    fleet = Fleet(fovea, checkpoint)
    try:
        media = [x for image in images for x in ("--image", image)]
        yield f"`{name}`", try_media(name, media, fovea, checkpoint, fleet, stages, known)
        if name in VIDEOS:
            media = ["--video", clip, "--frames", "5", "--image", images[0]]
            yield f"`{name}`, video", try_media(f"{name} with a video", media, fovea, checkpoint, fleet, stages, known)
    finally:
        fleet.end()


def on_the_page(stages):
    """{column: what each method does}, as table() has it, of the page as it is."""
    lines = PAGE.read_text(encoding="utf-8").partition("<!-- methods:")[2].partition("<!-- end of methods -->")[0].splitlines()
    rows = [[c.strip() for c in x.strip("|").split("|")] for x in lines if x.startswith("|")]
    notes = dict(re.match(r"(\d+)\. (.*)\.$", x).groups() for x in lines if re.match(r"\d+\. ", x))
    keys = {f"`{s['name']}={m['name']}`": (s["name"], m["name"]) for s in stages for m in s["methods"]}

    def cell(text):
        note = re.match(r"no \((\d+)\)", text)
        why = note and notes[note[1]]
        return ("yes" if text == "yes" else None, why and f": {why[0].lower()}{why[1:]}")
    return {column: {keys[row[0]]: cell(row[i]) for row in rows[2:]} for i, column in enumerate(rows[0]) if i}


def ordered(results):
    """Columns in the order of FAMILIES, a family's video after its images."""
    def place(column):
        return FAMILIES.index(column.split("`")[1]), column.endswith("video")
    return {column: results[column] for column in sorted(results, key=place)}


def table(results):
    notes = []  # without the method's name
    yield from head(["method", *results])
    first = next(iter(results.values()))
    for key in first:
        cells = []
        for cell in results.values():
            policy, why = cell[key]
            why = why and why.split(": ", 1)[-1]
            if why and why not in notes:
                notes.append(why)
            cells.append("yes" if policy else f"no ({notes.index(why) + 1})" if why else "no effect")
        yield line([f"`{key[0]}={key[1]}`", *cells])
    yield ""
    for i, why in enumerate(notes):
        yield f"{i + 1}. {why[:1].upper()}{why[1:]}."


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fovea", default=str(ROOT / "build/cpu/bin/fovea"))
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--only", nargs="+", choices=FAMILIES, metavar="FAMILY")
    a = parser.parse_args()
    stages = json.loads(subprocess.run([a.fovea, "policies", "--json"], capture_output=True, check=True).stdout)["stages"]
    known = {}
    with tempfile.TemporaryDirectory() as folder:
        images = []
        for w, h in SIZES:
            images.append(f"{folder}/{w}x{h}.png")
            Path(images[-1]).write_bytes(png(w, h))
        clip = f"{folder}/clip.mp4"
        subprocess.run([Path(a.fovea).parent.parent / "tests/make_clip", clip], check=True)
        results = on_the_page(stages) if a.only else {}
        results |= {column: result for name in a.only or FAMILIES
                    for column, result in try_family(name, a.fovea, stages, folder, images, clip, known)}
    put(PAGE, filled(PAGE, "methods", SCRIPT, table(ordered(results))), a.check, SCRIPT)


if __name__ == "__main__":
    main()
