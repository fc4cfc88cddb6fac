"""deploy/systemd: systemd reads the unit, the variables are those of programs that `fovea up` starts, and the command
starts a fleet with them.

usage: systemd.py ROOT BIN
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile

root, bin_dir = map(os.path.abspath, sys.argv[1:3])
failures = []


def expect(holds, what):
    if not holds:
        failures.append(what)


def read(name):
    with open(os.path.join(root, "deploy/systemd", name), encoding="utf-8") as f:
        return f.read()


unit, settings = read("fovea.service"), read("fovea.env")
rows = subprocess.run([f"{bin_dir}/fovea", "options", "--markdown"], capture_output=True, text=True, check=True).stdout
known = {v for line in rows.splitlines() if re.search(r"\| [^|]*\b(router|workers|prefill|decode|gateway|members|daemons|up|all)\b", line)
         for v in re.findall(r"`([A-Z_]+)`", line)}
given = re.findall(r"^#?([A-Z_]+)=", settings, re.M)
for name in given:
    expect(name in known, f"fovea.env: no daemon has {name}")
expect({"FOVEA_CHECKPOINT", "FOVEA_HTTP"} <= set(given), "fovea.env: names neither model nor address")
for name in re.findall(r"\bFOVEA_[A-Z_]+", unit):
    expect(name in known, f"fovea.service: there is no {name}")

# The time to stop is longer than what `fovea up` gives its children.
grace = int(re.search(r"FOVEA_GRACE_MS`?[^\n]*", rows) and re.search(r"--grace-ms[^|]*\|[^|]*\| (\d+)", rows).group(1)) / 1000
stop = int(re.search(r"^TimeoutStopSec=(\d+)", unit, re.M).group(1))
expect(stop > grace + 5, f"fovea.service: TimeoutStopSec={stop} and --grace-ms of {grace:.0f} s")

with tempfile.TemporaryDirectory() as work:
    copy = os.path.join(work, "fovea.service")
    with open(copy, "w", encoding="utf-8") as f:
        f.write(unit.replace("/opt/fovea/bin", bin_dir))
    if shutil.which("systemd-analyze"):
        said = subprocess.run(["systemd-analyze", "verify", "--man=no", copy], capture_output=True, text=True)
        expect(said.returncode == 0 and not said.stderr, f"systemd-analyze verify: {said.stderr}")
        said = subprocess.run(["systemd-analyze", "security", "--offline=true", "--threshold=20", copy], capture_output=True, text=True)
        expect(said.returncode == 0, f"systemd-analyze security: {said.stdout[-300:]}")
    else:
        print("note: no systemd-analyze")
    command = re.search(r"^ExecStart=(.*)", unit, re.M).group(1).replace("/opt/fovea/bin", bin_dir).split()
    env = {**os.environ, **dict(re.findall(r"^([A-Z_]+)=(.*)", settings, re.M)), "HF_HOME": work, "FOVEA_HTTP": "127.0.0.1:0",
           "FOVEA_LISTEN": "127.0.0.1:0", "FOVEA_THREADS": "1"}
    said = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)
    expect(said.returncode == 1 and "`hf download llava-hf/llava-1.5-7b-hf`" in said.stderr, f"without the model: {said}")
    env["FOVEA_CHECKPOINT"] = os.path.join(root, "checkpoints/nano")
    fleet = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)
    try:
        lines = [fleet.stdout.readline() for _ in range(3)]
        expect(lines[2].startswith("ready on"), f"it does not start: {lines}")
    finally:
        fleet.terminate()
        expect(fleet.wait(120) == 0, "it does not end as it should")

for failure in failures:
    print(failure)
sys.exit(1 if failures else 0)
