"""eval/scenes.py and eval/preview.py against the library they stand on.

usage: check_scenes.py ROOT LIBRARY TMP"""

import pathlib
import struct
import subprocess
import sys
import threading

root, path, tmp = sys.argv[1:]
sys.path.insert(0, root + "/eval")
import scenes  # noqa: E402

library = scenes.Scenes(path)


def raises(sentence, call, *arguments, **named):
    try:
        call(*arguments, **named)
    except ValueError as error:
        assert sentence in str(error), error
    else:
        raise AssertionError(f"{call} took {arguments} {named}")


def scenes_do_not_depend_on_how_they_are_asked_for():
    many = library.scenes("train", 100, 20)
    assert many == [library.scenes("train", 100 + i, 1)[0] for i in range(20)]
    assert many != library.scenes("test", 100, 20)
    assert len(set(many)) == 20


def pixels_and_labels_have_their_shapes():
    some = library.scenes("check", 0, 3)
    pixels, labels = library.render(some, 144), library.patches(some, 12)
    assert len(pixels) == 3 * 144 * 144 * 3 and len(labels) == 3 * 144 * scenes.PATCH_BYTES
    assert pixels[144 * 144 * 3 : 2 * 144 * 144 * 3] == library.render(some[1:2], 144)
    for at in range(0, len(labels), scenes.PATCH_BYTES):
        kind, shape, color, size, digit, thing, a, b, dx, dy = struct.unpack_from("<8bff", labels, at)
        assert kind in range(4) and a == b == 0 and abs(dx) < 4 and abs(dy) < 4
        assert (kind == 1) == (shape >= 0) == (color >= 0) == (size >= 0)
        assert (kind >= 2) == (digit >= 0) and (kind == 0) == (thing < 0)


def questions_fit_their_tasks():
    one = library.scenes("train", 7, 1, objects=(6, 9))[0]
    caption = library.ask(one, "caption", 1)
    assert caption[0].task == "caption" and caption[0].answer.startswith("There are ")
    assert caption == library.ask(one, "caption", 1)
    assert library.ask(library.scenes("train", 7, 1, written_percent=0)[0], "written", 1) is None
    pair = library.scenes("train", 9, 2)
    assert library.ask(pair, "compare", 3)[0].answer in ("first", "second", "same")
    raises("about 2 scenes", library.ask, one, "compare", 1)


def items_score_full_with_their_own_answers():
    for name, task in library.tasks.items():
        item = library.item("test", name, 12345)
        assert len(item.scenes) == task.n_image and len(item.turns) == task.n_turn
        assert 0 <= task.chance < 1
        for turn in item.turns:
            assert library.score(turn.task, turn.answer, turn.restated) == 1
            assert library.score(turn.task, turn.answer, "I do not know") == 0


def what_is_out_of_range_is_refused():
    raises("0 to 9 objects", library.scenes, "train", 0, 1, objects=(0, 9))
    raises("out of range 96..1024", library.render, library.scenes("train", 0, 1), 20)
    raises("1 to 64", library.patches, library.scenes("train", 0, 1), 65)
    raises("2^40", library.item, "test", "cell", 1 << 40)


def threads_do_not_meet():
    expected = library.render(library.scenes("train", 0, 8), 144)
    results = [None] * 4

    def work(i):
        results[i] = library.render(library.scenes("train", 0, 8), 144)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert all(r == expected for r in results)


def the_preview_writes_a_picture():
    out = pathlib.Path(tmp) / "sheet.png"
    command = [sys.executable, root + "/eval/preview.py", "--library", path, "--out", str(out), "--per-task", "1"]
    texts = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert all(f"[{name}]" in texts for name in library.tasks)
    data = out.read_bytes()
    width, height = struct.unpack(">II", data[16:24])
    assert data[:8] == b"\x89PNG\r\n\x1a\n" and width > 800 and height > 600


for check in [v for v in list(globals().values()) if callable(v) and getattr(v, "__module__", "") == "__main__"]:
    if check is not raises:
        check()
        print("ok", check.__name__)
