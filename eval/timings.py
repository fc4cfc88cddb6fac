"""Nine policies over a fleet of one prefill and one decode worker on this machine, measured by `fovea bench`.

`exact`, to which ratios of one run are; the presets that are meant for use; and one paper for each place at which papers
act: fewer rows from layer to layer and from token to token, shared keys, chosen rows, factors. The network is `small`, 32
layers with random weights and directions of pack=latent that four questions give: what a policy decides is of no use there,
what it costs and saves is.
"""
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from runs import ROOT

POLICIES = ["exact", "quality", "fovea", "latent", "paper-st3", "paper-vla", "paper-csp", "paper-visipruner", "paper-attentionpack"]
REQUESTS = {1: 2, 4: 4, 16: 16}  # by number of clients, each of which sends one after another
SHAPE = ["--shape", "small", "--seed", "1"]
LOAD = {"max_tokens": 12, "picture": "tests/golden/demo.png",
        "prompt": "What is its colour, and what stands beside it?"}
START_S = 120


def clean():
    """The environment without fovea's variables."""
    return {k: v for k, v in os.environ.items() if not k.startswith("FOVEA_")}


def network(args):
    """The folder of the checkpoint with random weights and its directions. Makes them if they do not exist, the
    directions also if the program is newer, since it may read another format."""
    path = ROOT / "build/bench/small"
    if not (path / "config.json").exists():
        subprocess.run([args.fovea, "synth", *SHAPE, "--out", str(path)], env=clean(), check=True,
                       stdout=subprocess.DEVNULL)
    directions = path / "latent.bin"
    if not directions.exists() or directions.stat().st_mtime < Path(args.fovea).stat().st_mtime:
        print("timings: directions of pack=latent, about two minutes", file=sys.stderr, flush=True)
        subprocess.run([args.fovea, "calibrate", "--latent", "--items", "4", "--checkpoint", str(path)], env=clean(),
                       check=True, stdout=subprocess.DEVNULL)
    return path


class Fleet:
    """Runs `fovea up` during a with block; .address is its router's."""

    def __init__(self, args, checkpoint):
        self.command = [args.fovea, "up", "--checkpoint", str(checkpoint), "--listen", "127.0.0.1:0"]

    def __enter__(self):
        self.said = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(self.command, env=clean(), stdout=self.said, stderr=subprocess.STDOUT)
        try:
            self.address = self.wait()
        except BaseException:
            self.__exit__()
            raise
        return self

    def wait(self):
        until = time.monotonic() + START_S
        while True:
            self.said.seek(0)
            text = self.said.read()
            ready = re.search(r"ready on (127\.0\.0\.1:\d+)", text)
            if ready:
                return ready[1]
            if self.process.poll() is not None or time.monotonic() > until:
                sys.exit(f"fovea up does not become ready: {text.strip()}")
            time.sleep(0.1)

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGINT)
        self.process.wait()
        self.said.close()


def bench(args, address, at_once, requests):
    """The rows of `fovea bench`, one per policy."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "bench.json"
        command = [args.fovea, "bench", "--to", address, "--concurrency", str(at_once), "--requests",
                   str(requests), "--image", str(ROOT / LOAD["picture"]), "--prompt", LOAD["prompt"], "--max-tokens",
                   str(LOAD["max_tokens"]), "--ignore-eos", "--out", str(out)]
        for name in POLICIES:
            command += ["--policy", "" if name == "exact" else f"preset={name}"]
        done = subprocess.run(command, env=clean(), stdout=subprocess.DEVNULL)
        if done.returncode != 0:
            sys.exit("fovea bench failed: it says above why")
        return json.loads(out.read_text())["rows"]


def recorded():
    """The timings of the last ./dev compare, or None."""
    path = ROOT / "eval/results/compare.json"
    return json.loads(path.read_text()).get("timings") if path.exists() else None


def told(name, row):
    kv = row["bytes"]
    return {"name": name, "concurrency": row["concurrency"], "requests": row["ok"],
            "ttft_ms": row["ttft_ms"]["p50"], "tpot_ms": row["tpot_ms"]["p50"],
            "tokens_per_s": row["tokens_per_s"], "sent": kv["sent"]["mean"], "resident": kv["resident"]["mean"],
            "resident_end": kv["resident_end"]["mean"], "prompt_tokens": row["prompt_tokens"] / max(row["ok"], 1)}


def take(args, checkpoint=None, requests=REQUESTS):
    """Measures all policies, and the load of the machine before."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the fleet ends with the script
    checkpoint = checkpoint or network(args)
    load, rows = os.getloadavg()[0], []
    with Fleet(args, checkpoint) as fleet:
        for at_once, n in requests.items():
            print(f"timings: {n} requests under each of {len(POLICIES)} policies, {at_once} at a time",
                  file=sys.stderr, flush=True)
            rows += [told(*each) for each in zip(POLICIES, bench(args, fleet.address, at_once, n))]
    return {"network": Path(checkpoint).name, "load_before": round(load, 2), **LOAD, "rows": rows}
