"""checkpoints/nano-vla: fovea takes its trained tensors, and the others through links. Lazy layers cost nano 24 points, and
this checkpoint next to nothing; a delta that is not read, or not the trained one, shows.

usage: check_lazy.py ROOT FOVEA TMP"""

import json
import os
import pathlib
import shutil
import subprocess
import sys

root, fovea, tmp = sys.argv[1:]
sys.path.insert(0, root + "/eval")
import lazy  # noqa: E402

ITEMS = 110
AT_MOST = 6  # points; the interval of so many items is wider than the table's


def correct(checkpoint, policy, out):
    subprocess.run([fovea, "eval", "--checkpoint", f"{root}/checkpoints/{checkpoint}", "--items", str(ITEMS), "--seed", str(lazy.exams.SEED),
                    "--compute", "f32", "--policy", policy, "--out", str(out / checkpoint)], check=True, stdout=subprocess.DEVNULL)
    report = json.loads((out / checkpoint / "results.json").read_text())
    return 100 * next(g["score"]["value"] for g in report["results"][0]["groups"] if g["group"] == "all")


def main():
    out = pathlib.Path(tmp) / f"lazy-{os.getpid()}"
    try:
        exact, trained = correct(lazy.BASE, "exact", out), correct(lazy.TRAINED, lazy.LAZY, out)
    finally:
        shutil.rmtree(out, ignore_errors=True)
    print(f"{lazy.BASE} under exact {exact:.1f} %, {lazy.TRAINED} with lazy layers {trained:.1f} %")
    if trained < exact - AT_MOST:
        sys.exit(f"{lazy.TRAINED} loses more than {AT_MOST} points")


main()
