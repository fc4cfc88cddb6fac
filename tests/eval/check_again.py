"""eval/presets.py --again: presets that are asked once more take their places in the recorded evaluation.

usage: check_again.py ROOT FOVEA TMP"""

import json
import os
import pathlib
import subprocess
import sys

root, fovea, tmp = sys.argv[1:]
tmp = pathlib.Path(tmp) / f"again-{os.getpid()}"
tmp.mkdir(parents=True)
record = tmp / "r.json"


def run(presets, *arguments):
    """The command with results and tables of its own, where there are these presets alone."""
    code = ("import sys, pathlib; sys.path.insert(0, sys.argv[1] + '/eval'); import presets; tmp = pathlib.Path(sys.argv[2])\n"
            "class Files: result, summary, tasks, figure = (tmp / n for n in ('r.json', 'a.md', 'b.md', 'c.svg'))\n"
            "presets.Files, presets.exams.EXAMS = lambda exam: Files, {'nano': presets.exams.EXAMS['nano']}\n"
            "presets.wanted = lambda args, names=sys.argv[3].split(','): ((n, 'preset=' + n) for n in names)\n"
            "sys.argv = ['presets.py'] + sys.argv[4:]; presets.main()")
    env = {k: v for k, v in os.environ.items() if not k.startswith("FOVEA_")}
    return subprocess.run([sys.executable, "-c", code, root, str(tmp), ",".join(presets), "--fovea", fovea, "--out", str(tmp / "out"),
                           "--checkpoint", root + "/checkpoints/nano", *arguments], env=env, capture_output=True, text=True)


def told():
    report = json.loads(record.read_text())
    return {row["names"][0]: (row, result) for row, result in zip(report["rows"], report["results"])}


def a_first_evaluation_has_all_presets():
    said = run(["paper-h2o", "quality"], "--items", "11", "--closer", "11")
    assert said.returncode == 0, said.stderr
    assert list(told()) == ["exact", "paper-h2o", "quality"] and not any("by" in row for row, _ in told().values())


def one_that_is_asked_again_stays_in_its_place_and_has_its_own_stamp():
    report = json.loads(record.read_text())
    before = told()
    for g in report["results"][1]["groups"]:
        g["score"]["value"] = -1
    record.write_text(json.dumps(report))
    said = run(["paper-h2o", "quality"], "--again", "paper-h2o")
    assert said.returncode == 0, said.stderr
    after = told()
    assert list(after) == list(before)
    assert after["paper-h2o"][1]["groups"] == before["paper-h2o"][1]["groups"] and after["quality"] == before["quality"]
    commit = after["paper-h2o"][0]["by"]["commit"]
    for name in ("a.md", "b.md"):
        assert f"Answers of `paper-h2o`: commit `{commit}`." in (tmp / name).read_text()


def a_new_preset_is_added_where_the_program_lists_it():
    before = told()
    said = run(["paper-h2o", "paper-csp", "quality"], "--again", "paper-csp")
    assert said.returncode == 0, said.stderr
    after = told()
    assert list(after) == ["exact", "paper-h2o", "paper-csp", "quality"]
    assert all(after[name] == before[name] for name in before)


def a_record_whose_exact_answers_otherwise_is_left_as_it_is():
    report = json.loads(record.read_text())
    report["results"][0]["groups"][0]["score"]["value"] += 0.125
    record.write_text(json.dumps(report))
    before = record.read_text()
    said = run(["paper-h2o", "paper-csp", "quality"], "--again", "quality")
    assert said.returncode != 0 and "`exact` answers otherwise than in r.json: evaluate all of them again" in said.stderr, said.stderr
    assert record.read_text() == before


def a_preset_that_there_is_not_is_refused():
    before = record.read_text()
    said = run(["paper-h2o"], "--again", "nonsense")
    assert said.returncode != 0 and "nonsense" in said.stderr, said.stderr
    assert record.read_text() == before


for page in ("a.md", "b.md"):
    (tmp / page).write_text("<!-- evaluation of the presets: made by eval/presets.py -->\n<!-- end of evaluation -->\n")
for check in [a_first_evaluation_has_all_presets, one_that_is_asked_again_stays_in_its_place_and_has_its_own_stamp,
              a_new_preset_is_added_where_the_program_lists_it, a_record_whose_exact_answers_otherwise_is_left_as_it_is,
              a_preset_that_there_is_not_is_refused]:
    check()
    print(f"ok: {check.__name__.replace('_', ' ')}")
