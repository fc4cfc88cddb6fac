"""Runs `fovea eval` for scripts that evaluate many policies, and reads its results.

Progress is printed as lines when stderr is not a terminal; on a terminal, fovea shows its own bar.
An interrupted evaluation resumes: each has its own folder.
"""
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SAY_EVERY_S = 30


def add_arguments(parser, out):
    parser.add_argument("--fovea", default=str(ROOT / "build/cpu/bin/fovea"), help="the program")
    parser.add_argument("--commit", help="that --fovea was built from, where it is not this tree's")
    parser.add_argument("--checkpoint", default=str(ROOT / "checkpoints/nano"))
    parser.add_argument("--out", type=Path, default=ROOT / out, help="folder for results; answers found there are reused")
    # 16 bits, as caches are served; bf16 is the checkpoints' type, and no key exceeds its range
    parser.add_argument("--kv-dtype", default="bf16", help="how keys and values are stored, exact's too")
    parser.add_argument("--compute", default="f32", help="data type of matrix products")
    parser.add_argument("--concurrency", default="8", help="items at a time")


def git(*words):
    return subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True)


def machine():
    with open("/proc/cpuinfo") as file:
        rows = file.read().splitlines()
    name = next((row.split(":", 1)[1].strip() for row in rows if row.startswith("model name")), "unknown CPU")
    return f"{name}, {sum(1 for row in rows if row.startswith('processor'))} cores"


def stamp(args, written=()):
    """Origin of the numbers; files that the script itself has `written` do not count as changes of the sources."""
    commit = args.commit or git("rev-parse", "--short", "HEAD").stdout.strip() or "unknown"
    own = [f":!{path.relative_to(ROOT)}" for path in written if path.is_relative_to(ROOT)]
    dirty = not args.commit and git("diff", "--quiet", "HEAD", "--", ".", *own).returncode == 1
    return {"commit": commit + ("-dirty" if dirty else ""), "machine": machine(),
            "date": time.strftime("%Y-%m-%d", time.gmtime())}


# ---- policies ------------------------------------------------------------------------------

def policies(args):
    """The output of `fovea policies`: stages with their methods, presets, conflicts."""
    listed = subprocess.run([args.fovea, "policies", "--json"], capture_output=True, text=True, check=True)
    return json.loads(listed.stdout)


def complaint(args, *texts):
    """fovea's error for these policies, before it evaluates anything; "" if it accepts them."""
    command = [args.fovea, "eval"] + [word for text in texts for word in ("--policy", text)]
    env = {k: v for k, v in os.environ.items() if not k.startswith("FOVEA_")}
    said = subprocess.run(command, env=env, capture_output=True, text=True).stderr
    return "" if "--checkpoint MODEL is needed" in said else said


def rows_of(args, wanted):
    """Rows of a table: exact first, then the wanted (name, policy); names of the same policy share a row.
    A policy that fovea refuses ends the script."""
    rows = [{"names": ["exact"], "policy": "exact"}]
    for name, text in wanted:
        said = complaint(args, *(r["policy"] for r in rows), text)
        if not said:
            rows.append({"names": [name], "policy": text})
        elif "given twice" in said:
            next(r for r in rows if "given twice" in complaint(args, r["policy"], text))["names"].append(name)
        else:
            sys.exit(f"{name}, {text}: {said.strip()}")
    return rows


# ---- an evaluation -------------------------------------------------------------------------

def answered(out):
    path = out / "items.jsonl"
    if not path.exists():
        return 0
    with open(path, "rb") as file:
        return max(sum(1 for _ in file) - 1, 0)


def clock(seconds):
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


def watch(process, out, total):
    """Prints progress until the process ends."""
    began, said, at_first = time.monotonic(), 0, None
    while process.poll() is None:
        time.sleep(0.2)
        now = time.monotonic() - began
        if now - said < SAY_EVERY_S or sys.stderr.isatty():
            continue
        said, done = now, answered(out)
        at_first = done if at_first is None else at_first
        left = (total - done) * (now - SAY_EVERY_S) / (done - at_first) if done > at_first else None
        more = f", about {clock(left)} left" if left is not None else ""
        print(f"  {done}/{total} answers, {clock(now)}{more}", file=sys.stderr, flush=True)


def run_eval(args, name, policies, items, seed=0, reuse=(), more=()):
    """Runs an evaluation in args.out/name and returns its results, one per policy, in order; `more`: options of fovea
    eval. seed None: the questions are given."""
    out = args.out / name
    out.mkdir(parents=True, exist_ok=True)
    command = [args.fovea, "eval", "--checkpoint", args.checkpoint, "--items", str(items),
               "--kv-dtype", args.kv_dtype, "--compute", args.compute, "--concurrency", args.concurrency, "--out", str(out), *more]
    command += ["--seed", str(seed)] if seed is not None else []
    for text in policies:
        command += ["--policy", text]
    for other in reuse:
        if (args.out / other / "items.jsonl").exists():
            command += ["--reuse", str(args.out / other)]
    print(f"{name}: {len(policies)} policies, {items} items" + (f", seed {seed}" if seed is not None else ""), file=sys.stderr, flush=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # fovea ends with the script
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd=os.getcwd())
    try:
        watch(process, out, len(policies) * items)
    finally:
        if process.poll() is None:
            process.terminate()
        process.wait()
    if process.returncode != 0:
        sys.exit(f"{Path(sys.argv[0]).name}: fovea eval failed ({process.returncode}); give the same command again "
                 "to go on")
    return json.loads((out / "results.json").read_text())


def group(result, name):
    return next(g for g in result["groups"] if g["group"] == name)
