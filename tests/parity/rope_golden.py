#!/usr/bin/env python3
"""Positions of the Qwen-VL families and their rotations, from transformers; writes
tests/golden/rope/golden.txt, which tests/unit/model/net/test_rope.c replays.

  positions FAMILY PROMPT DELTA T,H,W T,H,W ...     one for each token of PROMPT: 5 is five text tokens,
                                                    1x2x3 an image or video of 1 frame, 2 rows, 3 columns
  angles FAMILY D SECTIONS T,H,W COS [D/2] SIN [D/2]   theta is 10000
"""
import pathlib
import random
import types

import torch
import transformers
from transformers.models.qwen2_5_vl import modeling_qwen2_5_vl as qwen2_5_vl
from transformers.models.qwen2_vl import modeling_qwen2_vl as qwen2_vl
from transformers.models.qwen3_vl import modeling_qwen3_vl as qwen3_vl

OUT = pathlib.Path(__file__).resolve().parents[1] / "golden" / "rope" / "golden.txt"
MERGE = 2
FAMILIES = {
    "qwen2_vl_text": (qwen2_vl.Qwen2VLModel, qwen2_vl.Qwen2VLRotaryEmbedding),
    "qwen2_5_vl_text": (qwen2_5_vl.Qwen2_5_VLModel, qwen2_5_vl.Qwen2_5_VLRotaryEmbedding),
    "qwen3_vl_text": (qwen3_vl.Qwen3VLModel, qwen3_vl.Qwen3VLTextRotaryEmbedding),
}
SECTIONS = {
    ("qwen2_vl_text", 16): [2, 3, 3], ("qwen2_vl_text", 24): [6, 1, 5],
    ("qwen2_5_vl_text", 16): [4, 3, 1], ("qwen2_5_vl_text", 24): [4, 4, 4],
    ("qwen3_vl_text", 16): [4, 2, 2], ("qwen3_vl_text", 24): [5, 4, 3],
}


def prompts(family, draw):
    """Parts, text between all that are visual; videos where no times come into it."""
    yield [7]
    yield [3, (1, 4, 6), 5]
    yield [(1, 1, 1), 1, (1, 5, 2), 2]
    for _ in range(5):
        parts = [draw.randint(1, 6)]
        for _ in range(draw.randint(1, 4)):
            frames = draw.choice([1, 1, 5]) if family == "qwen2_vl_text" else 1
            parts += [(frames, draw.randint(1, 4), draw.randint(1, 5)), draw.randint(1, 4)]
        yield parts
    if family == "qwen2_vl_text":
        yield [2, (6, 1, 2), 1]


def positions(family, parts):
    model, _ = FAMILIES[family]
    kinds, images, videos = [], [], []
    for part in parts:
        if isinstance(part, int):
            kinds += [0] * part
            continue
        t, h, w = part
        kinds += [2 if t > 1 else 1] * (t * h * w)
        (videos if t > 1 else images).append([t, h * MERGE, w * MERGE])
    this = types.SimpleNamespace(config=types.SimpleNamespace(
        vision_config=types.SimpleNamespace(spatial_merge_size=MERGE, tokens_per_second=2)))
    this.get_vision_position_ids = types.MethodType(model.get_vision_position_ids, this)
    kinds = torch.tensor([kinds])
    at, delta = model.get_rope_index(
        this, torch.zeros_like(kinds), kinds,
        image_grid_thw=torch.tensor(images) if images else None,
        video_grid_thw=torch.tensor(videos) if videos else None)
    return at[:, 0].T.tolist(), int(delta)


def angles(family, d_head, at):
    config = types.SimpleNamespace(
        max_position_embeddings=4096, hidden_size=2 * d_head, num_attention_heads=2, head_dim=d_head,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0,
                         "mrope_section": SECTIONS[family, d_head]})
    cos, sin = FAMILIES[family][1](config)(torch.zeros(1), torch.tensor(at).view(3, 1, 1))
    return cos[0, 0, :d_head // 2].tolist() + sin[0, 0, :d_head // 2].tolist()


def main():
    draw = random.Random(1)
    lines = [f"# written by tests/parity/rope_golden.py with transformers {transformers.__version__}"]
    for family in FAMILIES:
        for parts in prompts(family, draw):
            at, delta = positions(family, parts)
            text = "+".join(str(p) if isinstance(p, int) else "x".join(map(str, p)) for p in parts)
            lines.append(" ".join(["positions", family, text, str(delta)] +
                                  [",".join(map(str, p)) for p in at]))
    for (family, d_head), section in SECTIONS.items():
        for _ in range(2):
            at = [draw.randint(0, 400) for _ in range(3)]
            lines.append(" ".join(["angles", family, str(d_head), ",".join(map(str, section)),
                                   ",".join(map(str, at))] +
                                  [f"{x:.9g}" for x in angles(family, d_head, at)]))
    OUT.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
