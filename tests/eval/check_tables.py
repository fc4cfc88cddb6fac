"""eval/tables.py and eval/presets.py: what the tables of the presets say of made-up results.

usage: check_tables.py ROOT"""

import json
import pathlib
import sys
import tempfile

root = pathlib.Path(sys.argv[1])
sys.path.insert(0, str(root / "eval"))
import bytask  # noqa: E402
import compare  # noqa: E402
import exams  # noqa: E402
import figure  # noqa: E402
import presets  # noqa: E402
import search  # noqa: E402
import tables  # noqa: E402

TASKS = ["shape", "number", "caption"]


def span(value, wide):
    return {"value": value, "low": value - wide, "high": value + wide}


def result(losses, kept_start, kept_end, exact=2_000_000):
    """Of one policy: points lost by task; None: it is the first."""
    def one(name, lost):
        return {"group": name, "score": span(0.9, 0.01), "difference": None if losses is None else span(-lost / 100, 0.02),
                "kv_bytes": {"visual_exact": exact, "visual": kept_start, "visual_end": kept_end, "sent": 1}}
    mean = sum(losses) / len(losses) if losses else 0
    return {"note": None, "items_with_note": 0,
            "groups": [one(*pair) for pair in zip(TASKS, losses or [0] * len(TASKS))] + [one("all", mean)]}


def report(items=330, **more):
    suite = {"items": items, "seed": 2, "tasks": TASKS, "checkpoint": "0123", "kv_dtype": "bf16", "dialog": "kept", "first": "held"}
    rows = [{"names": ["exact"]}, {"names": ["quality"]}, {"names": ["paper-tova"]}]
    return {"exam": "nano", "eval": suite, "by": {"commit": "abc"}, "rows": rows,
            "results": [result(None, 2_000_000, 2_000_000), result([0, 4, 1], 125_000, 125_000), result([1, 20, 50], 2_000_000, 500_000)],
            **more}


def steps_of_the_front_are_told_apart():
    for case in json.loads((root / "tests/eval/fronts.json").read_text()):
        some = list(enumerate(case["points"]))
        found = tables.front(some, lambda p: p[1][1:], lambda p: p[1][0])
        assert [i for i, _ in found] == case["front"], case["why"]


def one_ratio_is_quoted_and_it_is_of_the_same_width():
    lines = list(presets.summary(report()))
    text = "\n".join(lines)
    head = next(x for x in lines if x.startswith("| policy"))
    assert head.split("|")[-2].strip() == "compression", head
    assert "16.0x |" in next(x for x in lines if x.startswith("| `quality`")), text
    assert "1.6x |" in next(x for x in lines if x.startswith("| `paper-tova`")), "mean of after prefill and at the end"
    assert "all KV in bf16" in text and "f32" not in text, text


def a_row_names_its_worst_task():
    lines = list(presets.summary(report()))
    assert "number -4.0 (-6.0 to -2.0)" in next(x for x in lines if x.startswith("| `quality`")), lines
    assert "caption -50.0 (-52.0 to -48.0)" in next(x for x in lines if x.startswith("| `paper-tova`")), lines
    exact = next(x for x in lines if x.startswith("| `exact`"))
    assert exact.startswith("| `exact` | 90.0 (89.0 to 91.0) |  |"), exact


def the_preset_for_use_is_told_by_task_worst_first():
    lines = list(presets.summary(report()))
    at = next(i for i, x in enumerate(lines) if x.startswith("`quality` by task, worst first, 330 items of seed 2"))
    assert lines[at + 2] == "| number | caption | shape |", lines[at:]
    assert lines[at + 4].startswith("| -4.0 (-6.0 to -2.0) | -1.0 "), lines[at:]
    assert "overall -1.7 (-3.7 to +0.3), 16.0x smaller" in lines[at], lines[at]
    larger = report()
    larger["closer"] = {"eval": {**larger["eval"], "items": 1650}, "results": [result(None, 1, 1), result([3, 2, 1], 100_000, 100_000)]}
    lines = list(presets.summary(larger))
    at = next(i for i, x in enumerate(lines) if x.startswith("`quality` by task"))
    assert "1650 items of seed 2, 550 per task" in lines[at] and lines[at + 2] == "| shape | number | caption |", lines[at:]


def it_is_asked_with_items_that_the_search_has_not_seen():
    assert exams.SEED not in (search.SEED, search.FINAL_SEED)
    for path in sorted([*root.glob("eval/results/presets*.json"), *root.glob("eval/results/compare*.json")]):
        found = json.loads(path.read_text())["eval"]
        assert found["seed"] not in (search.SEED, search.FINAL_SEED), path
        assert found["kv_dtype"] in ("bf16", "f16") and (found["dialog"], found["first"]) == ("kept", "held"), found


def tables_say_how_it_was_asked_and_that_they_are_no_ranking():
    made = report()
    for lines, base in ((presets.summary(made), root / "docs"), (presets.tasks(made), root / "eval")):
        text = "\n".join(lines)
        assert "This is not a ranking" in text and f"fits in {tables.FACTS_BYTES} bytes" in text and "32000 times less" in text, text
        assert "Dialogs are kept conversations, and every token, including the first, is computed from the compressed KV" in text, text
        assert "seed 2" in text and "commit `abc`" in text and "110 per task" in text, text
        for link in [part.split(")")[0] for part in text.split("](")[1:]]:
            assert (base / link).exists(), link
    text = "\n".join(presets.summary({**made, "exam": "mini"}))
    assert "`./dev eval --exam mini --items" in text and "This is not a ranking" in text and "fits in" not in text, text
    made["eval"].update(dialog="whole", first="prefill")
    text = "\n".join(presets.summary(made))
    assert "Each turn of a dialog sends the whole chat, and the first token is computed in the prefill" in text, text


def a_page_that_is_not_there_is_begun():
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "PAGE.md"
        path.write_text(tables.filled(path, "evaluation of x", "a.py", ["one"], "First"))
        path.write_text(tables.filled(path, "comparison", "b.py", ["two"], "Second"))
        again = tables.filled(path, "evaluation of x", "a.py", ["three"], "First")
        assert again == ("# First\n\n<!-- evaluation of x: made by a.py -->\n\nthree\n\n<!-- end of evaluation -->\n\n"
                         "# Second\n\n<!-- comparison: made by b.py -->\n\ntwo\n\n<!-- end of comparison -->\n"), again
        try:
            tables.filled(path, "other", "c.py", [])
        except SystemExit as e:
            assert "marks of other once, found them 0 times" in str(e), e
        else:
            assert False, "marks are asked for where there is no title"


def few_items_rank_nothing():
    assert "11 items are too few for a comparison" in "\n".join(presets.summary(report(11)))
    assert "too few" not in "\n".join(presets.summary(report(330)))


def the_comparison_has_no_step_that_intervals_do_not_make():
    def row(name, size, lost, wide):
        d = [-lost / 100, (-lost - wide) / 100, (-lost + wide) / 100]
        g = {"score": [0.9 - lost / 100, 0, 1], "difference": d if name != "exact" else None, "visual": size, "visual_end": size, "sent": size}
        return {"names": [name], "preset": True, "method": None, "budget": None, "asked": name, "groups": [g, g]}
    rows = [row("exact", 1000, 0, 0), row("small", 30, 2.0, 0.5), row("same", 40, 1.6, 0.5), row("better", 90, 0.5, 0.5), row("worse", 500, 9, 1)]
    made = {"eval": {**report()["eval"], "exam": "nano", "budgets": ["1/8"], "commit": "abc"}, "rows": rows, "timings": None,
            "groups": [{"group": "shape"}, {"group": "all"}]}
    text = "\n".join(compare.summary(made))
    names = [x.split("`")[1] for x in text.splitlines() if x.startswith("| `")]
    assert names == ["exact", "better", "small"], text
    assert "This is not a ranking" in text and "policies that intervals do not separate are left out" in text, text
    assert compare.bounds(rows[1]["groups"][1]) == (0.875, 0.885)


def the_figure_has_a_fleets_times_below_where_there_are_some():
    def row(name, clients, ms):
        return {"name": name, "concurrency": clients, "ttft_ms": ms, "tpot_ms": ms, "tokens_per_s": 1000 / ms, "sent": 2**20 * ms}
    points = [("exact", 100, 90, 88, 92), ("quality", 7, 89, 87, 91)]
    times = {"network": "small", "rows": [row(n, c, ms * c) for c in (1, 16) for n, ms in (("exact", 100), ("paper-x", 50), ("slow", 400))]}
    plain, more = figure.svg(points), figure.svg(points, times)
    assert "clients" not in plain.split("</style>")[1] and "first token" not in plain
    assert more.count('<circle class="clients0"') == more.count('<circle class="clients1"') == 6, "two policies in three panels"
    assert more.count('<circle class="clients"') == 2, "bytes are the same for any number of clients"
    for words in (">x<", ">slow<", "1 and 16 clients", ">1/2<", ">4x<", "time to first token", "tokens/s"):
        assert words in more, words


def a_task_that_misses_a_margin_is_named():
    def row(task, value, wide):
        return {"task": task, "items": 1000, "exact": span(0.9, 0.02), "difference": span(value / 100, wide / 100)}
    rows = [row("shape", 0.1, 0.5), row("number", -1.1, 0.5), row("count", -0.9, 1.2), row("caption", -1.0, 0.9), row("all", -3, 1)]
    made = {"policy": "p", "items": 4000, "commit": "abc", "directions": ["--items", "66"], "seed": 2, "compute": "f32", "kv_dtype": "bf16",
            "bytes_visual": 100, "bytes_exact": 6400, "rows": rows}
    text = "\n".join(bytask.table("mini", made))
    assert "Tasks that lose more than 1 point: `number`. Tasks whose interval reaches -2: `count`." in text, text
    assert "1000 items a task" in text and "64.0x smaller" in text and "`fovea calibrate --latent --scenes rich --items 66`" in text, text
    assert [x.split()[1] for x in text.splitlines() if x.startswith("| ")][2:] == ["number", "caption", "count", "shape", "all"], text
    made["rows"] = rows[:1]
    assert "more than 1 point: none. Tasks whose interval reaches -2: none." in "\n".join(bytask.table("mini", made))


for check in [v for v in list(globals().values()) if callable(v) and getattr(v, "__module__", "") == "__main__"]:
    if check not in (span, result, report):
        check()
        print("ok:", check.__name__.replace("_", " "))
