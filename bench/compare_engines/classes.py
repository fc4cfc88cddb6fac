"""The compared precision classes, the stages of an engine's run, and paths."""
import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN, SCRATCH = ROOT / "build/cpu/bin", ROOT / "build/bench/engines"

BATCHES = (1, 16)
STAGES = {"prefill": "prefill", **{b: f"decode, batch {b}" for b in BATCHES}}
# file -> types of the layers and embedding, and of the output head. In int4 fovea keeps the head in
# 8 bits, so the file does too.
GGUF = {"F32": ("F32", "F32"), "BF16": ("BF16", "BF16"), "Q8_0": ("Q8_0", "Q8_0"), "Q4_0-head-Q8_0": ("Q4_0", "Q8_0")}
# class -> options of fovea, dtype of PyTorch (int8: dynamic), GGUF file
CLASSES = {"f32": (("--compute", "f32"), "float32", "F32"), "bf16": (("--compute", "bf16"), "bfloat16", "BF16"),
           "int8": (("--weights", "int8"), "int8", "Q8_0"), "int4": (("--weights", "int4"), None, "Q4_0-head-Q8_0")}
# aims against the fastest peer, by stage; then for steps, percent of the read loop's rate
AIMS = {"f32": (1.1, 1.2, 1.2), "bf16": (1.8, 1.15, 1.3), "int8": (1.2, 1.35, 1.3), "int4": (None, 1.5, 1.3)}
READ_AIMS = {"f32": 90, "bf16": 90, "int8": 90, "int4": 85}


def tokens_of(stage, o):
    return o.prompt if stage == "prefill" else stage * o.tokens
