"""What a form costs a batch: 16 sequences of `small` without a form and held to a JSON Schema, in pairs on one fleet, whose order
alternates. Other load on the machine moves both times of a pair, and the decode worker's CPU time less than the throughput: that
worker computes masks and forward passes on one thread, so its CPU time for a token is the cost of both.

usage: structured_pairs.py BIN_DIR FOLDER [PAIRS]; FOLDER gets the checkpoint, the schema and the fleet's log
"""
import json
import os
import pathlib
import re
import signal
import statistics
import subprocess
import sys
import time

SEQUENCES, TOKENS = 16, 24
SCHEMA = {"type": "array", "minItems": 1000, "items": {
    "type": "object", "required": ["name", "count", "color"], "additionalProperties": False,
    "properties": {"name": {"type": "string", "maxLength": 12}, "count": {"type": "integer", "minimum": 0, "maximum": 9999},
                   "color": {"enum": ["red", "green", "blue", "white"]}}}}
bin_dir, folder = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
pairs = int(sys.argv[3]) if len(sys.argv) > 3 else 12


def cpu_s(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def child(parent, name):
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            text = stat.read_text()
        except OSError:
            continue
        if f"({name})" in text and int(text.rsplit(")", 1)[1].split()[1]) == parent:
            return int(stat.parent.name)
    raise RuntimeError(f"{name} does not run")


def start():
    """A fleet, its address, and the process of its decode worker."""
    if not (folder / "small").exists():
        subprocess.run([bin_dir / "fovea", "synth", "--shape", "small", "--out", folder / "small"], check=True, stdout=subprocess.DEVNULL)
    (folder / "schema.json").write_text(json.dumps(SCHEMA))
    fleet = subprocess.Popen([bin_dir / "fovea", "up", folder / "small", "--listen", "127.0.0.1:0", "--threads", "1"],
                             stdout=subprocess.PIPE, stderr=open(folder / "log", "w"), text=True)
    for line in fleet.stdout:
        ready = re.match(r"ready on ([^ ]*):", line)
        if ready:
            return fleet, ready[1], child(fleet.pid, "fovea-decode")
    raise RuntimeError(f"the fleet did not start: see {folder / 'log'}")


def measure(address, decode, form):
    """Tokens a second, and the decode worker's CPU ms for a token."""
    before = cpu_s(decode)
    out = folder / "row.json"
    subprocess.run([bin_dir / "fovea", "bench", "--to", address, "--concurrency", str(SEQUENCES), "--requests", str(SEQUENCES),
                    "--max-tokens", str(TOKENS), "--ignore-eos", "--warmup", "0", "--out", out,
                    *(["--json-schema", folder / "schema.json"] if form else [])], check=True, stdout=subprocess.DEVNULL)
    row = json.loads(out.read_text())["rows"][0]
    assert row["ok"] == SEQUENCES and row["tokens"] == SEQUENCES * TOKENS, row
    return row["tokens_per_s"], 1e3 * (cpu_s(decode) - before) / row["tokens"]


def spread(name, ratios):
    q = statistics.quantiles(ratios, n=4)
    print(f"{name}: median {q[1]:.3f}, quartiles {q[0]:.3f} to {q[2]:.3f}, least {min(ratios):.3f}, most {max(ratios):.3f}", flush=True)


fleet, address, decode = start()
try:
    measure(address, decode, False)
    measure(address, decode, True)
    by_time, by_cpu = [], []
    for i in range(pairs):
        rows = {form: measure(address, decode, form) for form in ((False, True) if i % 2 == 0 else (True, False))}
        by_time.append(rows[True][0] / rows[False][0])
        by_cpu.append(rows[False][1] / rows[True][1])
        print(f"load {os.getloadavg()[0]:5.1f}  plain {rows[False][0]:5.1f} tokens/s {rows[False][1]:6.2f} CPU ms/token  "
              f"form {rows[True][0]:5.1f} tokens/s {rows[True][1]:6.2f} CPU ms/token", flush=True)
    spread("throughput with a form, of that without", by_time)
    spread("by the decode worker's CPU time", by_cpu)
finally:
    fleet.send_signal(signal.SIGINT)
    fleet.wait(timeout=120)
