"""What must be equal, and how equal: one list of findings per request."""
import dataclasses

import numpy as np

ROWS_LIMIT = 2e-5  # relative L2 of tower output and projected rows
LOGITS_LIMIT = 1e-4  # greatest difference over greatest value, each step
TIE = 1e-5  # two logits that are closer than this are equally likely


@dataclasses.dataclass
class Result:
    wrong: list = dataclasses.field(default_factory=list)  # sentences, first stage first
    ties: int = 0
    vision: float | None = None  # relative L2
    embeds: float | None = None
    logits_max: float = 0.0  # of the worst step
    logits_l2: float = 0.0
    torchvision: float | None = None  # greatest difference of a video's pixel values
    tokens_equal: int = 0
    n_tokens: int = 0
    routed: int = 0  # choices of experts
    close: int = 0  # in which two were about equally likely: logits are not compared then


def relative_l2(ours, theirs):
    gap = np.linalg.norm(ours.astype(np.float64) - theirs)
    return float(gap / max(np.linalg.norm(theirs.astype(np.float64)), 1e-30))


def relative_max(ours, theirs):
    return float(np.abs(ours - theirs).max() / np.abs(theirs).max())


def first_difference(ours, theirs):
    if ours.shape != theirs.shape:
        return f"shapes {ours.shape} and {theirs.shape}"
    at = np.argwhere(ours != theirs)
    return (f"{len(at)} of {theirs.size} differ, first at {tuple(map(int, at[0]))}: "
            f"{ours[tuple(at[0])]} instead of {theirs[tuple(at[0])]}")


def compare_exact(result, what, ours, theirs):
    if ours is None or theirs is None:
        if ours is not theirs:
            result.wrong.append(f"{what}: only {'ours' if theirs is None else 'theirs'} is there")
    elif not np.array_equal(ours, theirs):
        result.wrong.append(f"{what}: {first_difference(ours, theirs)}")


def compare_rows(result, what, ours, theirs):
    if ours is None or theirs is None or ours.shape != theirs.shape:
        result.wrong.append(f"{what}: shapes {getattr(ours, 'shape', None)} and "
                            f"{getattr(theirs, 'shape', None)}")
        return None
    error = relative_l2(ours, theirs)
    if not error < ROWS_LIMIT:
        result.wrong.append(f"{what}: relative L2 {error:.2e}, at most {ROWS_LIMIT:.0e}")
    return error


def compare_steps(result, ours, theirs, tokens, n_vocab):
    """tokens: ours; theirs are the logits that follow when ours are taken."""
    if ours.shape != theirs.shape or len(tokens) != len(theirs):
        result.wrong.append(f"logits: shapes {ours.shape} and {theirs.shape}, "
                            f"{len(tokens)} tokens")
        return
    result.n_tokens = len(tokens)
    for step, (a, b, token) in enumerate(zip(ours, theirs, tokens)):
        worst = relative_max(a, b)
        result.logits_max = max(result.logits_max, worst)
        result.logits_l2 = max(result.logits_l2, relative_l2(a, b))
        if not worst < LOGITS_LIMIT:
            result.wrong.append(f"logits of step {step}: {worst:.2e} relative, "
                                f"at most {LOGITS_LIMIT:.0e}")
        best = int(b[:n_vocab].argmax())
        if token == best:
            result.tokens_equal += 1
        elif token < n_vocab and (b[best] - b[token]) / np.abs(b).max() < TIE:
            result.ties += 1
        else:
            result.wrong.append(f"token of step {step}: {token} instead of {best}")


def compare(ours, theirs, n_vocab):
    """ours: Engine.trace; theirs: Reference.run with our tokens forced."""
    result = Result()
    if ours["prompt"] != theirs["prompt"]:
        result.wrong.append(f"prompt text: {ours['prompt']!r} instead of {theirs['prompt']!r}")
    compare_exact(result, "input_ids", ours["input_ids"], theirs["input_ids"])
    compare_exact(result, "pixel_values", ours.get("pixel_values"), theirs.get("pixel_values"))
    result.torchvision = theirs.get("torchvision")
    if "pixel_values" in theirs:
        result.vision = compare_rows(result, "vision_features", ours.get("vision_features"),
                                     theirs["vision_features"])
        result.embeds = compare_rows(result, "image_embeds", ours.get("image_embeds"),
                                     theirs["image_embeds"])
    for name, kept in ours.items():
        every = np.arange(len(ours["input_ids"]))
        if name.startswith("kept_") and not all(np.array_equal(head, every) for head in kept):
            result.wrong.append(f"{name}: without a policy every row must be kept")
    result.routed, result.close = theirs.get("routed", 0), theirs.get("close", 0)
    if result.close:
        return result
    compare_steps(result, ours["logits"], theirs["logits"], ours["tokens"], n_vocab)
    expected = theirs["answer"].replace("\0", "\ufffd")  # many readers end a text at a NUL
    if ours["answer"] != expected:
        result.wrong.append(f"answer: {ours['answer']!r} instead of {expected!r}")
    return result
