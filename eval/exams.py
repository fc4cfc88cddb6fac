"""The exams: a checkpoint, the scenes that it knows, and the directions of pack=latent that are measured for it.

Scripts that take --exam ask one of them, with items that no search has seen.
"""
import subprocess

import runs

# scenes: for `fovea eval`; directions: options of `fovea calibrate --latent`, which measures on the training split.
EXAMS = {"nano": {"scenes": "plain", "directions": ["--items", "66", "--directions", "128"]},
         "mini": {"scenes": "rich", "directions": ["--items", "66", "--directions", "384"]}}
SEED = 2  # the search that chose the presets saw the items of 0 and 1 (search.py)


def add_arguments(parser):
    """Adds --exam to the options of runs.py; the exam gives the checkpoint if none is named."""
    parser.add_argument("--exam", choices=list(EXAMS), default="nano", help="[%(default)s]")
    parser.set_defaults(checkpoint=None)


def suffix(exam):
    """Suffix of the exam's file names; empty for the first exam."""
    return "" if exam == next(iter(EXAMS)) else f"-{exam}"


def words(exam):
    """Option that selects the exam, for commands shown in tables."""
    return f" --exam {exam}" if suffix(exam) else ""


def scenes(exam):
    return ["--scenes", EXAMS[exam]["scenes"]]


def checkpoint(args):
    """The named checkpoint, unchanged; or a folder of links to the exam's, with its directions."""
    if args.checkpoint:
        return args.checkpoint
    name, to = args.exam, runs.ROOT / f"build/eval/checkpoints/{args.exam}-{args.compute}-{args.kv_dtype}"
    to.mkdir(parents=True, exist_ok=True)
    for path in (runs.ROOT / "checkpoints" / name).iterdir():
        if not (to / path.name).exists():
            (to / path.name).unlink(missing_ok=True)  # a stale link
            (to / path.name).symlink_to(path)
    if not (to / "latent.bin").exists():
        subprocess.run([args.fovea, "calibrate", "--latent", "--checkpoint", to, "--compute", args.compute, "--kv-dtype", args.kv_dtype,
                        *scenes(name), *EXAMS[name]["directions"]], check=True)
    return str(to)
