"""eval/compare.py: its policies against the program, a small run of each half, and what it writes.

usage: check_compare.py ROOT FOVEA TMP"""

import json
import os
import pathlib
import subprocess
import sys
import types

root, fovea, tmp = sys.argv[1:]
sys.path.insert(0, root + "/eval")
import budgets  # noqa: E402
import compare  # noqa: E402
import runs  # noqa: E402
import timings  # noqa: E402

program = types.SimpleNamespace(fovea=fovea)
tmp = pathlib.Path(tmp) / f"compare-{os.getpid()}"
tmp.mkdir(parents=True)


def what_is_committed_agrees():
    compare.tables(True)


def every_policy_is_taken_and_aims_well():
    listed = runs.policies(program)
    for layers in (2, 12, 32, 80):
        for budget in budgets.SHARES:
            texts = [text for _, text in compare.budget_round(listed, budget, layers)]
            assert {t.split(",")[0] for t in texts} >= set(compare.BASELINES), (budget, texts)
            assert len(set(texts)) == len(texts) <= 60, texts
            assert not runs.complaint(program, *texts), runs.complaint(program, *texts)
    for (method, budget), name in budgets.PUBLISHED.items():
        preset = next(p for p in listed["presets"] if p["name"] == name)
        assert compare.method_of(preset["policy"]) == method and budget in budgets.SHARES, name


def a_refused_policy_ends_it():
    rows = runs.rows_of(program, [("a", "prune=grid"), ("b", "prune=grid,keep=0.5"), ("c", "prune=grid,keep=0.25")])
    assert [r["names"] for r in rows] == [["exact"], ["a", "b"], ["c"]], rows
    try:
        runs.rows_of(program, [("good", "prune=grid"), ("bad", "prune=grid,keep=2")])
    except SystemExit as e:
        assert "bad" in str(e) and "keep" in str(e), e
    else:
        assert False, "it went on"


def methods_that_it_does_not_know_are_asked_once():
    listed = {"stages": [{"name": "prune", "methods": [{"name": "grid"}, {"name": "new"}, {"name": "shown"}]}],
              "presets": [{"name": "paper-shown", "policy": "prune=shown,keep=0.5"}]}
    first, *others = budgets.SHARES
    assert [t for _, t in compare.budget_round(listed, first, 12) if "grid" not in t] == ["prune=new"]
    row = compare.told_row({"names": ["prune=new"], "policy": "prune=new"}, listed,
                           {"policy": "prune=new", "note": None, "items_with_note": 0, "groups": []}, first)
    assert row["method"] == "prune=new" and row["budget"] is None, row
    assert all("grid" in t for b in others for _, t in compare.budget_round(listed, b, 12))


def run(*arguments):
    """The command with results, page and tables of its own."""
    code = ("import sys, pathlib; sys.path.insert(0, sys.argv[1] + '/eval'); import compare, timings; tmp = pathlib.Path(sys.argv[2])\n"
            "class Files: result, page, presets, tasks = (tmp / n for n in ('r.json', 'r.html', 'a.md', 'b.md'))\n"
            "compare.presets.tables = lambda check: (tmp / 'figure').write_text('made')\n"
            "compare.Files, compare.exams.EXAMS = lambda exam: Files, {'nano': compare.exams.EXAMS['nano']}\n"
            "compare.preset_round = lambda listed: [(p, 'preset=' + p) for p in compare.budgets.PUBLISHED.values() if p in ('paper-csp', 'paper-h2o')]\n"
            "timings.REQUESTS.clear(); timings.REQUESTS.update({1: 1, 2: 2}); timings.network = lambda args: args.checkpoint\n"
            "sys.argv = ['compare.py'] + sys.argv[3:]; compare.main()")
    for name in ("a.md", "b.md"):
        if not (tmp / name).exists():
            (tmp / name).write_text("above\n<!-- comparison: made by eval/compare.py -->\n<!-- end of comparison -->\nbelow\n")
    env = {k: v for k, v in os.environ.items() if not k.startswith("FOVEA_")}
    return subprocess.run([sys.executable, "-c", code, root, str(tmp), "--fovea", fovea, "--out", str(tmp / "out"),
                           "--checkpoint", root + "/checkpoints/nano", *arguments], env=env, capture_output=True, text=True)


def every_policy_of_a_budget_answers():
    said = run("--items", "11", "--budgets", "1/8", "--no-timings")
    assert said.returncode == 0, said.stderr
    report = json.loads((tmp / "r.json").read_text())
    rows, whole = report["rows"], report["rows"][0]["groups"][-1]["visual"]
    assert rows[0]["names"] == ["exact"] and report["timings"] is None
    assert len({r["policy"] for r in rows}) == len(rows) > 20, len(rows)
    for r in rows:
        g, stage = r["groups"][-1], (r["method"] or "").split("=")[0]
        if r["budget"] == "1/8" and stage != "evict" and r["method"] != "prune=vtw":
            assert 1 / 12 < g["visual"] / whole < 1 / 5.3, (r["policy"], g["visual"] / whole)
    text = (tmp / "a.md").read_text()
    assert text.startswith("above\n") and text.endswith("below\n") and "too few" in text, text
    assert "`prune=random,layer=0,keep=0.125`" in text and "`prune=grid" in text, text
    assert "| `select=csp` |" in (tmp / "b.md").read_text()


def times_stand_beside_it():
    said = run("--timings-only")
    assert said.returncode == 0, said.stderr
    report = json.loads((tmp / "r.json").read_text())
    assert len(report["rows"]) > 20, "the rows stay"
    rows = {(r["name"], r["concurrency"]): r for r in report["timings"]["rows"]}
    assert set(rows) == {(p, n) for p in timings.POLICIES for n in (1, 2)}, rows
    for (name, n), r in rows.items():
        assert r["requests"] == n and r["ttft_ms"] > 0 and r["tpot_ms"] > 0 and r["tokens_per_s"] > 0, r
    for name in ("paper-st3", "paper-csp"):
        assert rows[name, 1]["sent"] < rows["exact", 1]["sent"] and rows[name, 1]["resident"] < rows["exact", 1]["resident"]
    assert "TPOT" in (tmp / "a.md").read_text() and (tmp / "figure").exists()


def another_run_asks_nothing_again():
    before = (tmp / "r.json").read_text()
    said = run("--items", "11", "--budgets", "1/8", "--no-timings")
    assert said.returncode == 0 and (tmp / "r.json").read_text() == before, said.stderr
    assert run("--check").returncode == 0
    page = (tmp / "r.html").read_text()
    assert json.loads(page.split("const data = ")[1].split(";\n")[0].replace("<\\/", "</")) == json.loads(before)
    assert "http://" not in page.replace("http://www.w3.org/2000/svg", "") and "https://" not in page and "@FIGURES" not in page
    (tmp / "r.json").write_text(before.replace('"items": 11', '"items": 12'))
    said = run("--check")
    assert said.returncode != 0 and "--tables" in said.stderr, said.stderr


for check in [what_is_committed_agrees, every_policy_is_taken_and_aims_well, a_refused_policy_ends_it,
              methods_that_it_does_not_know_are_asked_once, every_policy_of_a_budget_answers, times_stand_beside_it,
              another_run_asks_nothing_again]:
    check()
    print(f"ok: {check.__name__.replace('_', ' ')}")
