"""The evaluation's scenes in Python: bindings of fovea_scene.so (eval/python/api.h), with the standard library only.

    library = Scenes("build/cpu/bin/fovea_scene.so")
    scenes = library.scenes("train", first=0, n=8, objects=(1, 3))
    pixels = library.render(scenes, 144)          # bytearray [8, 144, 144, 3]
    labels = library.patches(scenes, 12)          # bytearray [8, 12, 12] of PATCH
    turns = library.ask(scenes[0], "color", seed=5)  # [Turn] or None
    item = library.item("test", "dialog", 17)     # scenes and turns

Pixels and labels are bytearrays, made for numpy.frombuffer(pixels, numpy.uint8) and
numpy.frombuffer(labels, scenes.PATCH). A scene is `bytes`: it can be kept, sent and pickled.
Everything depends on its arguments alone, and calls may run in several threads at once, for the
interpreter's lock is released while C works."""

import collections
import ctypes

VERSION = 2  # FV_API_VERSION
SPLITS = ["train", "check", "test"]
SHAPES = ["circle", "square", "triangle", "diamond", "cross", "ring"]
COLORS = ["red", "green", "blue", "yellow", "purple", "orange", "cyan", "white"]
SIZES = ["small", "medium", "large"]
KINDS = ["background", "object", "printed", "written"]

# A label as a numpy dtype; fields that do not apply are -1.
PATCH = [(f, "i1") for f in ("kind", "shape", "color", "size", "digit", "thing")]
PATCH += [("unused", "i1", 2), ("dx", "<f4"), ("dy", "<f4")]
PATCH_BYTES = 16
TEXT_BYTES = 32768  # for the turns of an item

Task = collections.namedtuple("Task", "index name chance n_image n_turn")
Turn = collections.namedtuple("Turn", "task question answer restated")
Item = collections.namedtuple("Item", "task scenes turns")


class Scenes:
    def __init__(self, path):
        self._c = c = ctypes.CDLL(path)
        c.fv_api_error.restype = c.fv_api_task.restype = ctypes.c_char_p
        c.fv_api_scene_bytes.restype = ctypes.c_size_t
        c.fv_api_score.restype = ctypes.c_double
        if c.fv_api_version() != VERSION:
            raise RuntimeError(f"{path} has version {c.fv_api_version()}, this file {VERSION}: build anew")
        self.scene_bytes = c.fv_api_scene_bytes()
        self.tasks = {t.name: t for t in map(self._task, range(c.fv_api_tasks()))}
        self._names = list(self.tasks)

    def _task(self, index):
        chance, n_image, n_turn = ctypes.c_double(), ctypes.c_int32(), ctypes.c_int32()
        name = self._c.fv_api_task(index, *map(ctypes.byref, (chance, n_image, n_turn)))
        return Task(index, name.decode(), chance.value, n_image.value, n_turn.value)

    def _must(self, result):
        if result < 0:
            raise ValueError(self._c.fv_api_error().decode())
        return result

    @staticmethod
    def _knobs(objects, numbers, written_percent, rich):
        return (ctypes.c_int32 * 6)(*objects, *numbers, written_percent, rich)

    def _turns(self, text):
        turns = [line.split("\t") for line in text.value.decode().splitlines()]
        return [Turn(self._names[int(t[0])], *t[1:]) for t in turns]

    def scenes(self, split, first, n, objects=(1, 9), numbers=(0, 3), written_percent=30, rich=False):
        """Scenes first .. first + n - 1 of a split, as a list of bytes."""
        out = ctypes.create_string_buffer(self.scene_bytes * n)
        self._must(
            self._c.fv_api_scenes(
                SPLITS.index(split), ctypes.c_uint64(first), n, self._knobs(objects, numbers, written_percent, rich), out
            )
        )
        return [out.raw[i * self.scene_bytes : (i + 1) * self.scene_bytes] for i in range(n)]

    def _many(self, function, scenes, side, bytes_each):
        out = bytearray(len(scenes) * side * side * bytes_each)
        view = (ctypes.c_char * len(out)).from_buffer(out)
        self._must(function(b"".join(scenes), len(scenes), side, view))
        return out

    def render(self, scenes, side):
        """Pixels [n, side, side, 3]."""
        return self._many(self._c.fv_api_render, scenes, side, 3)

    def patches(self, scenes, grid):
        """Labels [n, grid, grid] of PATCH."""
        return self._many(self._c.fv_api_patches, scenes, grid, PATCH_BYTES)

    def ask(self, scenes, task, seed):
        """A question about a scene (about two if the task compares), as a list of turns; None if the scene does not
        suit the task."""
        scenes = b"".join(scenes) if isinstance(scenes, (list, tuple)) else scenes
        if len(scenes) != self.tasks[task].n_image * self.scene_bytes:
            raise ValueError(f"task {task} is about {self.tasks[task].n_image} scenes")
        text = ctypes.create_string_buffer(TEXT_BYTES)
        index = self.tasks[task].index
        if self._must(self._c.fv_api_ask(scenes, index, ctypes.c_uint64(seed), text, ctypes.c_size_t(TEXT_BYTES))):
            return None
        return self._turns(text)

    def item(self, split, task, index, objects=(1, 9), numbers=(0, 3), written_percent=30, rich=False):
        """Item `index` of a task; the evaluation uses the defaults of the other parameters."""
        t = self.tasks[task]
        scenes = ctypes.create_string_buffer(2 * self.scene_bytes)
        text = ctypes.create_string_buffer(TEXT_BYTES)
        knobs = self._knobs(objects, numbers, written_percent, rich)
        self._must(
            self._c.fv_api_item(
                SPLITS.index(split), t.index, ctypes.c_uint64(index), knobs, scenes, text, ctypes.c_size_t(TEXT_BYTES)
            )
        )
        n = self.scene_bytes
        return Item(task, [scenes.raw[i * n : (i + 1) * n] for i in range(t.n_image)], self._turns(text))

    def score(self, task, answer, said):
        """The score of a reply, 0 to 1; `answer` is a turn's short answer."""
        return self._c.fv_api_score(self.tasks[task].index, answer.encode(), said.encode())
