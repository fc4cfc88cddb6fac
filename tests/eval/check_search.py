"""eval/search.py: its candidates against the program, and its rounds with a stand-in for the program.

usage: check_search.py ROOT FOVEA TMP"""

import contextlib
import io
import json
import os
import pathlib
import re
import subprocess
import sys
import types

root, fovea, tmp = sys.argv[1:]
sys.path.insert(0, root + "/eval")
import search  # noqa: E402
import runs  # noqa: E402

program = types.SimpleNamespace(fovea=fovea)

tmp = pathlib.Path(tmp) / f"search-{os.getpid()}"

# Loses nothing down to 20 kB of factors, then a point for each kB less; says it with the width of
# an interval of so many items. Counts its own runs, and adds to items.jsonl as the program does.
STAND_IN = r"""#!/usr/bin/env python3
import json, math, os, pathlib, re, sys
a = sys.argv[2:]
of = lambda name: [a[i + 1] for i in range(len(a)) if a[i] == name]
out, n, texts = pathlib.Path(of("--out")[0]), int(of("--items")[0]), of("--policy")
if os.environ.get("BREAKS_AT") == out.name:
    sys.exit(1)
def kv(text):
    m = re.search(r"rank_k=(\d+),rank_v=(\d+),bits=(\d+)", text)
    return 400 * (int(m[1]) + int(m[2])) * int(m[3]) / 8 if m else 1e6
def result(text):
    lost = max(0, 20000 - kv(text)) / 1000
    wide = 0 if text == "exact" else 3 / math.sqrt(n)
    d = {"value": -lost / 100, "low": (-lost - wide) / 100, "high": (-lost + wide) / 100}
    groups = [{"group": "all", "difference": None if text == "exact" else d,
               "kv_bytes": {"visual_exact": 1e6, "visual": kv(text), "visual_end": kv(text), "sent": 2 * kv(text)}}]
    return {"policy": text, "groups": groups}
if of("--checkpoint") == []:
    sys.exit("--checkpoint MODEL is needed")
assert texts[0] == "exact" and len(texts) <= 64 and len(set(texts)) == len(texts), texts
(out / "items.jsonl").write_text(json.dumps({"checkpoint": "0123"}) + "\n")
(out / "results.json").write_text(json.dumps({"results": [result(t) for t in texts]}))
with open(out.parent / "runs", "a") as f:
    f.write(f"{out.name} {len(texts)} {n} {of('--seed')[0]} {','.join(of('--reuse'))}\n")
"""


def run(name, **env):
    """What the search writes and prints, with the stand-in."""
    program = tmp / "fovea"
    tmp.mkdir(exist_ok=True)
    program.write_text(STAND_IN)
    program.chmod(0o755)
    command = [sys.executable, root + "/eval/search.py", "--fovea", str(program), "--out", str(tmp / name), "--result",
               str(tmp / f"{name}.json"), "--screen", "100,400", "--keep", "8,3", "--final", "900"]
    return subprocess.run(command, env={**os.environ, **env}, capture_output=True, text=True)


def the_program_takes_every_candidate():
    found = search.Candidates()
    for stages in search.grid():
        found.add(stages)
    texts = list(found.stages)
    one_of_each = {s["lazy"]: s for s in found.stages.values()}
    assert len(one_of_each) == len(search.LAZY)
    for stages in one_of_each.values():
        varied = [search.text_of(change(stages)) for change in search.VARY.values()]
        good = [t for t in varied if not runs.complaint(program, t)]
        assert len(good) >= 7 and len(set(good)) == len(good), (good, varied)
        texts += good
    for i in range(0, len(texts), 64):
        said = runs.complaint(program, *texts[i:i + 64])
        assert not said, said
    assert runs.complaint(program, "pack=nothing") and not runs.complaint(program, "pack=svd")


def the_smallest_that_keeps_its_points_is_chosen():
    said = run("whole")
    assert said.returncode == 0, said.stderr
    report = json.loads((tmp / "whole.json").read_text())
    chosen = report["chosen"]
    assert chosen["items"] == 900 and chosen["seed"] == 1 and chosen["loss"]["high"] <= 1, chosen
    final = [c for c in report["candidates"] if c["round"] == "final"]
    assert len(final) == 3 and chosen["times_smaller"] == max(
        c["times_smaller"] for c in final if c["loss"]["high"] <= 1), final
    # 20 kB of a million lose nothing: the next that there is has 22.4
    assert abs(chosen["times_smaller"] - 1000 / 22.4) < 1e-9, chosen
    assert chosen["policy"] in said.stdout.rsplit("smallest", 1)[1], said.stdout
    assert re.search(r"977 KiB in 16 bits; candidates were asked with KV in bf16", said.stdout), said.stdout


def one_that_was_broken_off_goes_on():
    """fovea itself answers nothing twice; the search must ask for the same again, in the same folders."""
    assert run("broken", BREAKS_AT="halve-400-0").returncode != 0
    assert not (tmp / "broken.json").exists()
    said = run("broken")
    assert said.returncode == 0, said.stderr
    assert json.loads((tmp / "broken.json").read_text()) == json.loads((tmp / "whole.json").read_text())
    folders = [line.split()[0] for line in (tmp / "broken" / "runs").read_text().splitlines()]
    again = [line.split()[0] for line in (tmp / "whole" / "runs").read_text().splitlines()]
    assert folders[-len(again):] == again, (folders, again)


def the_last_round_has_items_that_no_other_saw():
    lines = [line.split(" ") for line in (tmp / "whole" / "runs").read_text().splitlines()]
    seeds = {name.split("-")[0]: (seed, reuse) for name, _, _, seed, reuse in lines}
    assert seeds["final"] == ("1", ""), seeds
    assert all(seed == "0" for name, (seed, _) in seeds.items() if name != "final"), seeds
    assert "grid-100-0" in seeds["halve"][1], seeds


def steps_of_the_front_are_told_apart():
    def c(loss, times):
        return {"loss": {"value": loss, "low": loss - 0.1, "high": loss + 0.1}, "times_smaller": times}
    all_of = [c(0, 2), c(0, 3), c(1, 3), c(0.5, 9), c(0.35, 8), c(2, 8), c(5, 20)]
    assert search.front(all_of) == [c(5, 20), c(0.5, 9), c(0, 3)], search.front(all_of)
    assert search.choose(all_of) == c(0.5, 9)
    assert search.choose([c(2, 8)]) is None


def what_was_asked_in_32_bits_is_told_in_16():
    c = {"policy": "p", "items": 11, "seed": 1, "loss": {"value": 0, "low": 0, "high": 0}, "times_smaller": 30.0,
         "kv_bytes": {"exact": 2048 * 1024, "start": 1, "end": 1, "sent_with_text": 1}}
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        search.tell({"kv_dtype": "f32", "candidates": [c], "smallest": c, "chosen": c, "final_items": 11})
    assert "1024 KiB in 16 bits" in out.getvalue() and "   15.0  p" in out.getvalue() and "30.0" not in out.getvalue(), out.getvalue()


def finalists_differ_in_size():
    found = search.Candidates()
    for i, times in enumerate([40, 39, 36, 30, 10]):
        found.asked[f"c{i}"] = {"round": "halve", "times_smaller": times, "loss": {"value": 0, "low": -1, "high": 1}}
    found.asked["grid"] = {**found.asked["c0"], "round": "grid"}
    assert found.finalists(3) == ["c0", "c3", "c4"], found.finalists(3)
    assert found.finalists(4) == ["c0", "c3", "c4", "c1"], found.finalists(4)


def what_is_slower_than_raw_rows_is_not_chosen():
    slow, fast = "pack=svd,rank_k=8,block=1", "pack=svd,rank_k=8,block=16"
    assert not search.serves(slow) and search.serves(fast)
    assert search.serves("pack=svd,block=0") and search.serves("evict=vta,tau=4;pack=svd,bits=4")
    assert search.places([slow, fast], 3) == [fast]
    many = [f"{slow},gain={i}" for i in range(9)]
    assert search.places(many + [fast], 8) == [fast] + many[:2]
    final = {"round": "halve", "times_smaller": 40, "loss": {"value": 0, "low": -1, "high": 1}}
    found = search.Candidates()
    found.asked = {fast: final, slow: {**final, "times_smaller": 50}}
    assert found.finalists(4) == [fast, slow], found.finalists(4)


def the_preset_is_what_was_chosen():
    """But for ranks' bounds, which hardly a matrix reaches: of the search, and rounded."""
    listed = json.loads(subprocess.run([fovea, "policies", "--json"], capture_output=True, text=True).stdout)
    preset = next(p["policy"] for p in listed["presets"] if p["name"] == "quality")
    chosen = json.loads((pathlib.Path(root) / "eval/results/search.json").read_text())["chosen"]["policy"]
    pack = [w for w in chosen.split(",") if not w.startswith(("rank_k=", "first="))]
    assert [w for w in preset.split(",") if not w.startswith("rank_k=")] == pack, (preset, chosen)


for check in [what_is_slower_than_raw_rows_is_not_chosen, the_preset_is_what_was_chosen, the_program_takes_every_candidate, the_smallest_that_keeps_its_points_is_chosen,
              one_that_was_broken_off_goes_on, the_last_round_has_items_that_no_other_saw,
              steps_of_the_front_are_told_apart, what_was_asked_in_32_bits_is_told_in_16, finalists_differ_in_size]:
    with contextlib.redirect_stdout(io.StringIO()):
        check()
    print(f"ok: {check.__name__.replace('_', ' ')}")
