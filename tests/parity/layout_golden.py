#!/usr/bin/env python3
"""Layouts of images, from transformers' image processors (PIL backend), processors and models.

  layout_golden.py            writes tests/golden/layout/golden.txt, which
                              tests/unit/layout/test_golden.c replays
  layout_golden.py --live N image_dump
                              compares that program on N random images of each checkpoint, and N
                              random small configurations with pixels; exits 1 on a difference

Compared are the sizes that images are resized to, tiles, visual tokens, their order (which token of
which tile, or a newline), the prompt's text and pixel values. golden.txt has one line for each image:

  FAMILY TILE PATCH MERGE LONGEST_EDGE SPLIT LEAST MOST PINPOINTS
      N_IMAGE W H TILES TOKENS ORDER TEXT RESAMPLE MEAN STD PIXELS

ORDER, TEXT and PIXELS are zlib's crc32 in hexadecimal: of the order's int32 (-1 is a newline), the
text, and the float32 of all tiles of pattern(0, W, H); - for PIXELS where they are not computed.
"""
import argparse
import json
import pathlib
import re
import sys
import types
import zlib

import numpy as np
import torch
from PIL import Image

import image_golden

ROOT = pathlib.Path(__file__).resolve().parents[2]
OUT = ROOT / "tests" / "golden" / "layout"
LLAVA, NEXT, ONEVISION, IDEFICS3, INTERNVL, MISTRAL3, QWEN_VL = 1, 2, 3, 4, 5, 6, 7
ANY_SIZE = (MISTRAL3, QWEN_VL)  # one tile, of the image's own shape
TILES = (LLAVA, IDEFICS3, INTERNVL)  # whose tokens are those of the tiles in turn
NEWLINE = -1


class Config:
    """What a family's layout depends on, and transformers' classes for it."""

    def __init__(self, family, tile, patch, merge=1, longest=0, split=0, tiles_max=0, pinpoints=(),
                 tiles_min=0):
        self.family, self.tile, self.patch, self.merge = family, tile, patch, merge
        self.longest, self.split = longest, split
        self.tiles_min, self.tiles_max = tiles_min, tiles_max
        self.pinpoints = [list(p) for p in pinpoints]  # (height, width), as in the files
        self.side = tile // patch // merge

    def line(self):
        sizes = ",".join(f"{w}x{h}" for h, w in self.pinpoints) or "-"
        return (f"{self.family} {self.tile} {self.patch} {self.merge} {self.longest} {self.split} "
                f"{self.tiles_min} {self.tiles_max} {sizes}")

    def image_processor(self, **kwargs):
        from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
        from transformers.models.got_ocr2.image_processing_pil_got_ocr2 import (
            GotOcr2ImageProcessorPil)
        from transformers.models.idefics3.image_processing_pil_idefics3 import (
            Idefics3ImageProcessorPil)
        from transformers.models.llava_next.image_processing_pil_llava_next import (
            LlavaNextImageProcessorPil)
        from transformers.models.llava_onevision.image_processing_pil_llava_onevision import (
            LlavaOnevisionImageProcessorPil)
        from transformers.models.pixtral.image_processing_pil_pixtral import (
            PixtralImageProcessorPil)
        from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import (
            Qwen2VLImageProcessorPil)
        from transformers.models.smolvlm.image_processing_pil_smolvlm import SmolVLMImageProcessorPil
        t = self.tile
        box = {"height": t, "width": t}
        if self.family == LLAVA:
            return CLIPImageProcessorPil(size={"shortest_edge": t}, crop_size=box, **kwargs)
        if self.family == NEXT:
            return LlavaNextImageProcessorPil(size={"shortest_edge": t}, crop_size=box,
                                              image_grid_pinpoints=self.pinpoints, **kwargs)
        if self.family == ONEVISION:
            return LlavaOnevisionImageProcessorPil(size=box, image_grid_pinpoints=self.pinpoints,
                                                   **kwargs)
        if self.family == INTERNVL:
            return GotOcr2ImageProcessorPil(size=box, crop_to_patches=True, min_patches=self.tiles_min,
                                            max_patches=self.tiles_max, **kwargs)
        if self.family == MISTRAL3:
            token = self.patch * self.merge
            return PixtralImageProcessorPil(size={"longest_edge": self.longest},
                                            patch_size={"height": token, "width": token}, **kwargs)
        if self.family == QWEN_VL:
            return Qwen2VLImageProcessorPil(size={"shortest_edge": self.tiles_min,
                                                  "longest_edge": self.tiles_max},
                                            patch_size=self.patch, merge_size=self.merge, **kwargs)
        of = SmolVLMImageProcessorPil if self.longest % 3 else Idefics3ImageProcessorPil
        return of(size={"longest_edge": self.longest}, max_image_size={"longest_edge": t},
                  do_image_splitting=bool(self.split), **kwargs)


# ---------------------------------------------------------------- what transformers does

def tiles_of(config, images, **kwargs):
    """The processor's output for the images of one prompt."""
    processor = config.image_processor(**kwargs)
    if config.family == IDEFICS3:
        return processor([images], return_row_col_info=True, do_pad=False)
    if config.family == ONEVISION:
        return processor([images], do_pad=False)
    if config.family in (NEXT, MISTRAL3):
        return processor(images, do_pad=False)
    if config.family == QWEN_VL:
        return {"pixel_values": [whole_image(config, processor(images[:1]))]}
    return processor(images)


def whole_image(config, out):
    """The pixels [3, h, w] of an image in patches, which are token by token and each twice."""
    (_, h, w), = out["image_grid_thw"].tolist()
    m, p = config.merge, config.patch
    grid = np.asarray(out["pixel_values"]).reshape(h // m, w // m, m, m, 3, 2, p, p)
    assert np.array_equal(grid[..., 0, :, :], grid[..., 1, :, :])
    return grid[..., 0, :, :].transpose(4, 0, 2, 5, 1, 3, 6).reshape(3, h * p, w * p)


class Recorder:
    """Runs an image processor without pixels, and notes the sizes that it resizes to."""

    def __enter__(self):
        from transformers.image_processing_backends import PilBackend
        self.sizes, self.resize = [], PilBackend.resize

        def resize(processor, image, size, *_, **kwargs):
            if size.shortest_edge:
                h, w = image.shape[-2:]
                short, long = min(h, w), max(h, w)
                other = int(size.shortest_edge * long / short)
                size = types.SimpleNamespace(height=other if w <= h else size.shortest_edge,
                                             width=size.shortest_edge if w <= h else other)
            self.sizes.append([int(size.width), int(size.height)])
            return np.broadcast_to(np.uint8(0), (3, int(size.height), int(size.width)))

        PilBackend.resize = resize
        return self

    def __exit__(self, *_):
        from transformers.image_processing_backends import PilBackend
        PilBackend.resize = self.resize

    def run(self, config, w, h, n_image):
        """Number of tiles, rows and columns of an image without pixels."""
        p = config.image_processor(do_rescale=False, do_normalize=False)
        blank = np.broadcast_to(np.uint8(0), (3, h, w))
        common = {"do_resize": True, "resample": 3, "do_rescale": False, "rescale_factor": 1,
                  "do_normalize": False, "image_mean": 0, "image_std": 1, "do_pad": False,
                  "return_tensors": None, "size": p.size}
        self.sizes.clear()
        if config.family == IDEFICS3:
            out = p._preprocess([[blank]], max_image_size=p.max_image_size,
                                do_image_splitting=bool(config.split), return_row_col_info=True,
                                **common)
            return len(out["pixel_values"][0]), out["rows"][0][0], out["cols"][0][0]
        if config.family == MISTRAL3:
            p._preprocess([blank], do_center_crop=False, crop_size=None, patch_size=p.patch_size,
                          **common)
            return 1, 0, 0
        if config.family == QWEN_VL:
            p._preprocess([blank], patch_size=config.patch, merge_size=config.merge,
                          temporal_patch_size=2, **common)
            return 1, 0, 0
        if config.family == INTERNVL:
            out = p._preprocess([blank], crop_to_patches=True, min_patches=config.tiles_min,
                                max_patches=config.tiles_max, **common)
            return len(out["pixel_values"]), 0, 0
        common |= {"crop_size": p.crop_size, "image_grid_pinpoints": config.pinpoints}
        if config.family == NEXT:
            out = p._preprocess([blank], do_center_crop=True, **common)
        else:
            out = p._preprocess([blank] * n_image, batch_num_images=[n_image], pad_size=None,
                                disable_grouping=None, do_center_crop=False, **common)
        return len(out["pixel_values"][0]), 0, 0


def view_sizes(config, sizes, n_tile):
    """The resizes of each view, among all that a processor asked for."""
    if config.family == LLAVA:
        return [sizes[:1]]
    if config.family == IDEFICS3:
        return [sizes] if n_tile == 1 else [sizes[:2], sizes]
    if n_tile == 1:
        return [sizes[:1]]
    if config.family == INTERNVL:
        return [sizes[:1], sizes[1:]]
    return [sizes[1:2], sizes[:1]]  # the tiles' size is computed first, the whole image stands first


def order_of(config, sizes, w, h, n_tile):
    """Which token of which tile stands where; and, where a grid was scaled down, its size."""
    if config.family in ANY_SIZE:
        token = config.patch * config.merge
        (across, down), = sizes[0]
        return np.arange(across // token * (down // token), dtype=np.int32), None
    n = config.side ** 2
    features = torch.arange(n_tile * n, dtype=torch.float64).reshape(n_tile, n, 1)
    scaled = []
    if config.family in TILES:
        return features.flatten().numpy().astype(np.int32), None
    from transformers.models.llava_next.modeling_llava_next import LlavaNextModel
    from transformers.models.llava_onevision.modeling_llava_onevision import LlavaOnevisionModel
    model = types.SimpleNamespace(config=types.SimpleNamespace(
        vision_config=types.SimpleNamespace(image_size=config.tile, patch_size=config.patch),
        image_grid_pinpoints=config.pinpoints))
    newline = torch.tensor([NEWLINE], dtype=torch.float64)

    def note(grid, size, **_):
        scaled.append(size)
        return grid  # the grid that would be scaled

    interpolate, torch.nn.functional.interpolate = torch.nn.functional.interpolate, note
    try:
        if config.family == NEXT:
            out = LlavaNextModel.pack_image_features(model, [features], [[h, w]], "default", newline)
        else:
            out = LlavaOnevisionModel.pack_image_features(
                model, [features], [[h, w]], newline, f"anyres_max_{config.tiles_max}")
    finally:
        torch.nn.functional.interpolate = interpolate
    return out[0][0].flatten().numpy().astype(np.int32), scaled[0] if scaled else None


def text_of(config, sizes, w, h, n_image, n_tile, rows, cols):
    """What the processor writes for an image, with all its image tokens."""
    from transformers.models.idefics3.processing_idefics3 import Idefics3Processor
    from transformers.models.internvl.processing_internvl import InternVLProcessor
    from transformers.models.llava.processing_llava import LlavaProcessor
    from transformers.models.llava_next.processing_llava_next import LlavaNextProcessor
    from transformers.models.llava_onevision.processing_llava_onevision import (
        LlavaOnevisionProcessor)
    from transformers.models.pixtral.processing_pixtral import PixtralProcessor
    from transformers.models.qwen2_vl.processing_qwen2_vl import Qwen2VLProcessor
    of = {LLAVA: LlavaProcessor, NEXT: LlavaNextProcessor, ONEVISION: LlavaOnevisionProcessor,
          IDEFICS3: Idefics3Processor, INTERNVL: InternVLProcessor, MISTRAL3: PixtralProcessor,
          QWEN_VL: Qwen2VLProcessor}[config.family]
    p = object.__new__(of)
    p.image_token, p.patch_size, p.num_additional_image_tokens = "<image>", config.patch, 1
    p.vision_feature_select_strategy = "full" if config.family == ONEVISION else "default"
    p.num_image_tokens = p.image_seq_len = config.side ** 2
    p.image_seq_length, p.start_image_token, p.end_image_token = config.side ** 2, "<img>", "</img>"
    p.spatial_merge_size = config.merge
    p.image_break_token, p.image_end_token = "[IMG_BREAK]", "[IMG_END]"
    if config.family == MISTRAL3:
        (w, h), = sizes[0]
    p.vision_aspect_ratio = f"anyres_max_{config.tiles_max}"
    p.fake_image_token, p.global_image_tag = "<fake_token_around_image>", "<global-img>"
    p.image_processor = types.SimpleNamespace(image_grid_pinpoints=config.pinpoints,
                                              merge_size=config.merge)
    if config.family == QWEN_VL:
        (across, down), = sizes[0]
        grid = np.array([[1, down // config.patch, across // config.patch]])
        return p.replace_image_token({"image_grid_thw": grid}, 0)
    tile = np.broadcast_to(np.float32(0), (1, 3, config.tile, config.tile))
    return p.replace_image_token({"pixel_values": [tile], "image_sizes": [[h, w]] * n_image,
                                  "num_patches": [n_tile], "batch_num_images": [n_image], "rows": [[rows]],
                                  "cols": [[cols]]}, 0)


class Expected:
    def __init__(self, config, w, h, n_image):
        with Recorder() as recorder:
            if config.family == LLAVA:
                config.image_processor().resize(np.broadcast_to(np.uint8(0), (3, h, w)),
                                                config.image_processor().size)
                self.n_tile, rows, cols = 1, 0, 0
            else:
                self.n_tile, rows, cols = recorder.run(config, w, h, n_image)
            self.sizes = view_sizes(config, recorder.sizes, self.n_tile)
        self.order, self.scaled = order_of(config, self.sizes, w, h, self.n_tile)
        self.text = text_of(config, self.sizes, w, h, n_image, self.n_tile, rows, cols)
        self.n = self.text.count("<image>")
        self.n_text = 3 + rows * (2 * cols + 1) if config.family == IDEFICS3 else 0
        self.n_text = 2 if config.family == INTERNVL else self.n_text
        if config.family == MISTRAL3:
            self.n_text = self.sizes[0][0][1] // config.patch // config.merge
        if not self.scaled:
            assert len(self.order) == self.n, (config.line(), w, h)


def pixels_of(config, image, n_image, resample, mean, std):
    out = tiles_of(config, [Image.fromarray(image)] * n_image, resample=resample,
                   image_mean=[mean] * 3, image_std=[std] * 3)["pixel_values"]
    if config.family in ANY_SIZE:
        return np.ascontiguousarray(out[0].astype(np.float32)).flatten()
    first = out if config.family == INTERNVL else out[0] if config.family != LLAVA else out[:1]
    if config.family in (IDEFICS3, INTERNVL) and n_image > 1:
        first = first[:len(first) // n_image]
    return np.ascontiguousarray(np.stack(list(first)).astype(np.float32))


# ---------------------------------------------------------------- what fovea says

def our_order(config, layout):
    """As order_of, from the spans; a grid that is scaled down is the one before."""
    n, s, out = config.side ** 2, config.side, []
    if config.family == QWEN_VL:
        span, = layout["span"]
        assert span["crop"] == [0, 0, span["w"], span["n"] // span["w"]]
        return np.arange(span["n"], dtype=np.int32)
    if config.family == MISTRAL3:  # a row of one tile each
        assert all(span["crop"] == [0, i, span["w"], 1] for i, span in enumerate(layout["span"]))
        return np.arange(sum(span["n"] for span in layout["span"]), dtype=np.int32)
    for span in layout["span"]:
        cols, rows = span["grid"]
        tiles = span["tile"] * n + np.arange(cols * rows * n).reshape(rows, cols, s, s)
        grid = tiles.transpose(0, 2, 1, 3).reshape(rows * s, cols * s)
        x, y, w, h = span["crop"]
        grid = grid[y:y + h, x:x + w]
        if span["column"]:
            grid = np.pad(grid, ((0, 0), (0, 1)), constant_values=NEWLINE)
        out += [grid.flatten(), np.full(span["end"], NEWLINE)]
    return np.concatenate(out).astype(np.int32)


def our_scaled(layout):
    for span in layout["span"]:
        w = span["w"] - span["column"]
        if [w, span["h"]] != span["crop"][2:]:
            return [span["h"], w]
    return None


def our_text(layout):
    pieces = layout["text"].split("<image>")
    out = pieces[0]
    assert len(pieces) == len(layout["span"]) + 1
    for span, piece in zip(layout["span"], pieces[1:]):
        out += "<image>" * span["n"] + piece
    return out


def differences(config, layout, want):
    """Names of what differs."""
    got = {"tiles": layout["n_tile"], "tokens": layout["n_visual"],
           "sizes": [v["resize"] for v in layout["view"]], "scaled": our_scaled(layout),
           "text": our_text(layout), "tokens of text": layout["n_text"]}
    expected = {"tiles": want.n_tile, "tokens": want.n, "sizes": want.sizes, "scaled": want.scaled,
                "text": want.text, "tokens of text": want.n_text}
    out = [f"{k}: {str(got[k])[:200]}, expected {str(expected[k])[:200]}" for k in got
           if got[k] != expected[k]]
    if not np.array_equal(our_order(config, layout), want.order):
        out.append("order")
    return out


class Dump(image_golden.Dump):
    def layout(self, config, w, h, n_image):
        """A dictionary, or a string when it is a failure."""
        line = f"layout {config.line()} {n_image} {w} {h}"
        answer = self.ask(line, b"", np.uint8, lambda w, h: (-1,))
        return answer if isinstance(answer, str) else json.loads(answer.tobytes())

    def tiles(self, config, image, n_image, resample, mean, std):
        h, w, _ = image.shape
        line = (f"tiles {config.line()} {n_image} {resample} {float(np.float32(mean)).hex()} "
                f"{float(np.float32(std)).hex()} {w} {h}")
        return self.ask(line, image.tobytes(), np.float32,
                        lambda *_: (-1,) if config.family in ANY_SIZE else
                        (-1, 3, config.tile, config.tile))


# ---------------------------------------------------------------- cases

NEXT_SIZES = ([336, 672], [672, 336], [672, 672], [1008, 336], [336, 1008])
GRID_6 = [[384 * r, 384 * c] for r in range(1, 7) for c in range(1, 7)]
CHECKPOINTS = {
    "LLaVA-1.5": Config(LLAVA, 336, 14),
    "LLaVA-NeXT": Config(NEXT, 336, 14, pinpoints=NEXT_SIZES),
    "LLaVA-OneVision": Config(ONEVISION, 384, 14, tiles_max=9, pinpoints=GRID_6),
    "Idefics3-8B": Config(IDEFICS3, 364, 14, 2, longest=1456, split=1),
    "SmolVLM-2.2B": Config(IDEFICS3, 384, 14, 3, longest=1536, split=1),
    "SmolVLM-500M": Config(IDEFICS3, 512, 16, 4, longest=2048, split=1),
    "SmolVLM-500M, not split": Config(IDEFICS3, 512, 16, 4, longest=2048, split=0),
    "InternVL3": Config(INTERNVL, 448, 14, 2, tiles_min=1, tiles_max=12),
    "Mistral Small 3.1": Config(MISTRAL3, 1540, 14, 2, longest=1540),
    "Qwen2.5-VL": Config(QWEN_VL, 28, 14, 2, tiles_min=3136, tiles_max=12845056),
}
SIZES = ((1, 1), (336, 336), (384, 384), (640, 480), (480, 640), (1, 500), (500, 1), (1, 10000),
         (10000, 1), (4000, 3000), (3000, 4000), (672, 671), (1009, 336), (337, 1008), (5000, 700),
         (700, 5000), (2048, 1024), (1365, 2048), (2049, 2047), (97, 3001), (8000, 8000))
SMALL = (
    Config(LLAVA, 24, 8),
    Config(NEXT, 16, 4, pinpoints=([16, 32], [32, 16], [32, 32], [48, 16], [16, 48])),
    Config(NEXT, 15, 4, pinpoints=([15, 15], [30, 45])),
    Config(ONEVISION, 20, 6, tiles_max=2, pinpoints=[[20 * r, 20 * c] for r in (1, 2, 3)
                                                     for c in (1, 2, 3)]),
    Config(IDEFICS3, 16, 4, 2, longest=64, split=1),
    Config(IDEFICS3, 18, 6, 3, longest=61, split=1),
    Config(IDEFICS3, 16, 4, 2, longest=64, split=0),
    Config(INTERNVL, 16, 4, 2, tiles_min=1, tiles_max=6),
    Config(INTERNVL, 15, 5, 1, tiles_min=2, tiles_max=5),
    Config(MISTRAL3, 64, 4, 2, longest=64),
    Config(MISTRAL3, 50, 7, 1, longest=50),
    Config(QWEN_VL, 8, 4, 2, tiles_min=500, tiles_max=2000),
    Config(QWEN_VL, 5, 5, 1, tiles_min=1, tiles_max=1234),
)
SMALL_SIZES = ((1, 1), (16, 16), (40, 30), (30, 40), (1, 90), (90, 1), (33, 100), (61, 61), (64, 20))
# The error for an image that transformers' processor fails on or refuses.
REFUSED = re.compile("no pixels left|times as long as it is (?:narrow|wide)")
VALUES = (1, 0.5, 0.5)  # resample, mean, std


def random_size(rng, config):
    """Any size; often strips, exact ties and sizes beside those of tiles."""
    kind = rng.integers(6)
    if kind == 0:
        w, h = 1, int(2 ** rng.uniform(0, 13))
    elif kind == 1:
        w, h = (int(config.tile * rng.integers(1, 8) + rng.integers(-1, 2)) for _ in range(2))
    elif kind == 2:
        w, h = int(rng.integers(1, 40)), int(2 ** rng.uniform(0, 13.2))
    elif kind == 3:
        by = int(rng.integers(1, 1500))
        w, h = by * int(rng.integers(1, 7)), by * int(rng.integers(1, 7))
    else:
        w, h = (int(2 ** rng.uniform(3, 12.5)) for _ in range(2))
    return (w, h) if rng.integers(2) else (h, w)


def random_config(rng):
    family, patch, merge = int(rng.integers(1, 8)), int(rng.integers(2, 7)), int(rng.integers(1, 4))
    if family not in (IDEFICS3, INTERNVL) + ANY_SIZE:
        merge = 1
    tile = patch * merge * int(rng.integers(1, 5)) + int(rng.integers(0, patch))
    if family == QWEN_VL:
        return Config(family, patch * merge, patch, merge, tiles_min=int(rng.integers(1, 3000)),
                      tiles_max=int(rng.integers(1, 9000)))
    if family == MISTRAL3:
        return Config(family, tile, patch, merge, longest=int(rng.integers(patch * merge, 100)))
    if family == IDEFICS3:
        return Config(family, tile, patch, merge, longest=int(rng.integers(1, 5 * tile)),
                      split=int(rng.integers(4) > 0))
    if family == INTERNVL:
        least = int(rng.integers(1, 5))
        return Config(family, tile, patch, merge, tiles_min=least,
                      tiles_max=least + int(rng.integers(0, 9)))
    if family == LLAVA:
        return Config(family, tile, patch)
    grids = [[tile * int(rng.integers(1, 5)), tile * int(rng.integers(1, 5))]
             for _ in range(rng.integers(1, 7))]
    return Config(family, tile, patch, tiles_max=int(rng.integers(1, 10)), pinpoints=grids)


def has_layout(config, w, h):
    """Mistral 3's processor scales a strip to nothing, and fails; Qwen2-VL's refuses one."""
    if config.family == QWEN_VL:
        return max(w, h) <= 200 * min(w, h)
    return config.family != MISTRAL3 or max(w, h) <= config.longest * min(w, h)


def write_golden():
    import transformers

    OUT.mkdir(parents=True, exist_ok=True)
    lines = [f"# written by tests/parity/layout_golden.py with transformers "
             f"{transformers.__version__}"]
    for config, sizes, pixels in ([(c, SIZES, False) for c in CHECKPOINTS.values()]
                                  + [(c, SMALL_SIZES, True) for c in SMALL]):
        for n_image in (1, 2) if config.family == ONEVISION else (1,):
            for w, h in sizes:
                if not has_layout(config, w, h):
                    continue
                want = Expected(config, w, h, n_image)
                image = image_golden.pattern(0, w, h) if pixels else None
                crc = (f"{zlib.crc32(pixels_of(config, image, n_image, *VALUES)):08x}" if pixels
                       else "-")
                lines.append(f"{config.line()} {n_image} {w} {h} {want.n_tile} {want.n} "
                             f"{zlib.crc32(want.order):08x} {zlib.crc32(want.text.encode()):08x} "
                             f"{VALUES[0]} {VALUES[1]} {VALUES[2]} {crc}")
    (OUT / "golden.txt").write_text("\n".join(lines) + "\n")
    print(f"{len(lines) - 1} layouts in {OUT.relative_to(ROOT)}")


def live(program, n, seed):
    rng, bad, total = np.random.default_rng(seed), 0, 0
    dump = Dump(program)

    def check(name, config, w, h, n_image):
        """Whether there is a layout, which is then compared."""
        nonlocal bad, total
        layout = dump.layout(config, w, h, n_image)
        if isinstance(layout, str):
            return layout
        total += 1
        wrong = differences(config, layout, Expected(config, w, h, n_image))
        if n_image == 1 and layout["n_visual"] > layout["max"]:
            wrong.append(f"{layout['n_visual']} tokens, more than {layout['max']}")
        for sentence in wrong:
            print(f"{name}: {config.line()}: {n_image} of {w} x {h}: {sentence}")
        bad += bool(wrong)
        return None

    for name, config in CHECKPOINTS.items():
        for i in range(n):
            w, h = SIZES[i] if i < len(SIZES) else random_size(rng, config)
            n_image = int(rng.integers(1, 4)) if config.family == ONEVISION else 1
            why = check(name, config, w, h, n_image)
            if why and (has_layout(config, w, h) or not REFUSED.search(why)):
                print(f"{name}: {w} x {h}: {why}")
                bad += 1
        print(f"{name}: {n} layouts", flush=True)
    print(f"{total - bad} of {total} layouts equal")
    n_tile, worse, refused = 0, 0, 0
    for i in range(n):
        config = SMALL[i % len(SMALL)] if i % 3 == 0 else random_config(rng)
        w, h = (int(2 ** rng.uniform(0, 8)) for _ in range(2))
        n_image, resample = int(rng.integers(1, 3)), int(rng.integers(4))
        mean, std = (float(np.float32(v)) for v in (rng.uniform(0, 1), rng.uniform(0.1, 1)))
        why = check("random", config, w, h, n_image)
        if why:
            if "no row or column is left" not in why and (
                    has_layout(config, w, h) or not REFUSED.search(why)):
                print(f"random: {config.line()}: {w} x {h}: {why}")
                bad += 1
            refused += 1
            continue
        image = image_golden.random_image(rng, w, h)
        got = dump.tiles(config, image, n_image, resample, mean, std)
        want = pixels_of(config, image, n_image, resample, mean, std)
        n_tile += len(want)
        worse += image_golden.compare(f"{config.line()}: {w} x {h}", got, want)
    print(f"random configurations: {n - refused}, refused {refused}; pixels of {n_tile} tiles, "
          f"images that differ: {worse}")
    return 1 if bad or worse else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--live", type=int, metavar="N", help="compare N random cases")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("program", nargs="?", help="image_dump, for --live")
    args = parser.parse_args()
    if args.live:
        return live(args.program, args.live, args.seed)
    write_golden()
    return 0


if __name__ == "__main__":
    sys.exit(main())
