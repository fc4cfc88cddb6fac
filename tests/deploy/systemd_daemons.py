"""deploy/systemd: the units of the single daemons. systemd reads them with their drop-in, which confines them as
fovea.service is; their variables are options of their programs; and their commands make a fleet that answers.

usage: systemd_daemons.py ROOT BIN
"""
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

root, bin_dir = map(os.path.abspath, sys.argv[1:3])
folder = os.path.join(root, "deploy/systemd")
ROLES, WAIT_S = ("router", "prefill", "decode", "gateway"), 120
failures = []


def expect(holds, what):
    if not holds:
        failures.append(what)


def read(name):
    with open(os.path.join(folder, name), encoding="utf-8") as f:
        return f.read()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return str(s.getsockname()[1])


def settings_of(unit):
    """The variables of a unit, as systemd gives them to the daemon."""
    files = re.findall(r"^EnvironmentFile=/etc/fovea/(.*)", unit, re.M)
    pairs = re.findall(r"^Environment=(\w+)=(.*)", unit, re.M)
    return dict(pairs + [p for f in files for p in re.findall(r"^(\w+)=(.*)", read(f), re.M)])


units = {r: read(f"fovea-{r}.service") for r in ROLES}
hardening = read("fovea-.service.d/hardening.conf")
whole = read("fovea.service")
confines = [line for line in whole[whole.index("LimitNOFILE"):whole.index("[Install]")].splitlines()
            if re.match(r"\w+=", line) and not line.startswith("DynamicUser")]
expect([line for line in hardening.splitlines() if re.match(r"\w+=", line)] == confines, "fovea-.service.d: not what confines fovea.service")
table = subprocess.run([f"{bin_dir}/fovea", "options", "--markdown"], capture_output=True, text=True, check=True).stdout
for role, unit in units.items():
    kinds = {"prefill": "prefill|workers", "decode": "decode|workers"}.get(role, role)
    known = {v for line in table.splitlines() if re.search(rf"\| [^|]*\b({kinds}|members|daemons|all)\b", line)
             for v in re.findall(r"`([A-Z_]+)`", line)}
    for name in settings_of(unit):
        expect(name in known or name == "HF_HOME", f"fovea-{role}.service: {role} has no {name}")

with tempfile.TemporaryDirectory() as work:
    if shutil.which("systemd-analyze"):
        for role, unit in units.items():
            os.makedirs(f"{work}/fovea-{role}.service.d")
            with open(f"{work}/fovea-{role}.service.d/hardening.conf", "w", encoding="utf-8") as f:
                f.write(hardening)
            with open(f"{work}/fovea-{role}.service", "w", encoding="utf-8") as f:
                f.write(unit.replace("/opt/fovea/bin", bin_dir))
            said = subprocess.run(["systemd-analyze", "verify", "--man=no", f"{work}/fovea-{role}.service"], capture_output=True, text=True)
            expect(said.returncode == 0 and not said.stderr, f"systemd-analyze verify: {said.stderr}")
    else:
        print("note: no systemd-analyze")
    with open(f"{work}/fleet-token", "w", encoding="ascii") as f:
        f.write("0123456789abcdef0123456789abcdef")
    ports = {p: free_port() for p in ("8200", "8201", "8202", "8203", "8080")}
    running = {}
    try:
        for role, unit in units.items():
            told = {k: re.sub(r"127\.0\.0\.1:(\d+)", lambda m: f"127.0.0.1:{ports[m[1]]}", v).replace("%d", work)
                    for k, v in settings_of(unit).items()}
            if "FOVEA_CHECKPOINT" in told:
                told["FOVEA_CHECKPOINT"] = os.path.join(root, "checkpoints/nano")
            command = re.search(r"^ExecStart=(.*)", unit, re.M).group(1).replace("/opt/fovea/bin", bin_dir).split()
            log = open(f"{work}/{role}.log", "wb")
            running[role] = subprocess.Popen(command, env={**os.environ, "FOVEA_THREADS": "1", **told}, stdin=subprocess.DEVNULL,
                                             stdout=log, stderr=log)
        at, end = f"http://127.0.0.1:{ports['8080']}", time.monotonic() + WAIT_S
        while True:
            try:
                urllib.request.urlopen(f"{at}/health", timeout=5).close()
                break
            except (urllib.error.URLError, OSError) as e:
                for role, process in running.items():
                    with open(f"{work}/{role}.log", encoding="utf-8", errors="replace") as f:
                        assert process.poll() is None, f"{role} ended: {f.read()[-500:]}"
                assert time.monotonic() < end, f"not ready within {WAIT_S} s: {e}"
                time.sleep(0.1)
        body = {"messages": [{"role": "user", "content": "and now?"}], "max_tokens": 3}
        request = urllib.request.Request(f"{at}/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=WAIT_S) as r:
            expect(json.load(r)["usage"]["completion_tokens"] > 0, "there is no answer")
    finally:
        for process in running.values():
            process.terminate()
        for role, process in running.items():
            expect(process.wait(WAIT_S) == 0, f"fovea-{role} ends with status {process.returncode}")

for failure in failures:
    print(failure)
sys.exit(1 if failures else 0)
