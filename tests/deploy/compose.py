"""deploy/compose.yaml: its variables are options of their programs, and its commands, as processes of this machine with
ports and paths of this machine, make a fleet that answers and is healthy.

usage: compose.py ROOT BIN       exits with 77 without PyYAML
"""
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

try:
    import yaml
except ImportError as e:
    print(f"skip: {e} (tests/deploy/requirements.txt)")
    sys.exit(77)

root, bin_dir = map(os.path.abspath, sys.argv[1:3])
WAIT_S = 120
failures = []


def expect(holds, what):
    if not holds:
        failures.append(what)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


with open(os.path.join(root, "deploy/compose.yaml"), encoding="utf-8") as f:
    text = f.read()
compose = yaml.safe_load(text)
services = compose["services"]
known = subprocess.run([f"{bin_dir}/fovea", "options", "--markdown"], capture_output=True, text=True, check=True).stdout
for name, service in services.items():
    for variable in service["environment"]:
        expect(f"`{variable}`" in known, f"{name}: there is no {variable}")
    expect(service["read_only"] and service["cap_drop"] == ["ALL"], f"{name}: it may write, or has capabilities")
    expect(set(service.get("secrets", [])) <= set(compose["secrets"]), f"{name}: a secret that is not there")
    expect(set(service["networks"]) <= set(compose["networks"]), f"{name}: a network that is not there")
expect([n for n, s in services.items() if s.get("ports")] == ["gateway"], "others than the gateway are published")

with tempfile.TemporaryDirectory() as work:
    hub = f"{work}/hub/models--org--nano"
    os.makedirs(f"{hub}/refs")
    os.makedirs(f"{hub}/snapshots")
    os.symlink(os.path.join(root, "checkpoints/nano"), f"{hub}/snapshots/0a1b")
    with open(f"{hub}/refs/main", "w", encoding="ascii") as f:
        f.write("0a1b")
    with open(f"{work}/token", "w", encoding="ascii") as f:
        f.write("0123456789abcdef0123456789abcdef")
    ports = {p: str(free_port()) for p in ("8200", "8201", "8202", "8203", "8080")}
    given = {"MODEL": "org/nano", "FLEET_NETWORK": "127.0.0.0/8"}

    def told(value):
        """What compose makes of a value, with this machine's addresses."""
        value = re.sub(r"(?<!\$)\$\{(\w+)(?::[-?]([^}]*))?\}", lambda m: given.get(m[1], m[2] or ""), str(value)).replace("$$", "$")
        value = re.sub(r"(?:router|0\.0\.0\.0|\$HOSTNAME):(\d+)", lambda m: f"127.0.0.1:{ports[m[1]]}", value)
        value = re.sub(r"/dev/tcp/127.0.0.1/(\d+)", lambda m: f"/dev/tcp/127.0.0.1/{ports[m[1]]}", value)
        return value.replace("/run/secrets/fleet-token", f"{work}/token").replace("/huggingface", work)

    running = {}
    path = {"PATH": f"{bin_dir}:{os.environ['PATH']}"}
    try:
        for name, service in services.items():
            env = {**os.environ, **path, "FOVEA_THREADS": "1", **{k: told(v) for k, v in service["environment"].items()}}
            log = open(f"{work}/{name}.log", "wb")
            running[name] = subprocess.Popen([told(w) for w in service["command"]], env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        at = f"http://127.0.0.1:{ports['8080']}"
        check = [told(w) for w in services["gateway"]["healthcheck"]["test"][1:]]
        end = time.monotonic() + WAIT_S
        while subprocess.run(check, env={**os.environ, **path}, capture_output=True).returncode and time.monotonic() < end:
            time.sleep(0.2)
        ended = [n for n, p in running.items() if p.poll() is not None]
        logs = "".join(open(f"{work}/{n}.log", encoding="utf-8", errors="replace").read()[-1500:] for n in running)
        expect(time.monotonic() < end and not ended, f"the fleet is not healthy; ended: {ended}\n{logs}")
        if not failures:
            body = json.dumps({"model": "org/nano", "max_tokens": 4, "messages": [{"role": "user", "content": "Is it red?"}]}).encode()
            try:
                answer = json.load(urllib.request.urlopen(f"{at}/v1/chat/completions", body, timeout=WAIT_S))
            except urllib.error.HTTPError as e:
                answer = {"choices": [{"message": {"content": ""}}], "error": e.read().decode()}
            expect(answer["choices"][0]["message"]["content"], f"it does not answer: {answer}")
            try:
                urllib.request.urlopen(urllib.request.Request(f"{at}/v1/models", headers={"Host": "evil.example"}), timeout=WAIT_S)
                expect(False, "it answers to any host name")
            except urllib.error.HTTPError as e:
                expect(e.code == 403, f"another host name is {e.code}")
    finally:
        for p in running.values():
            p.terminate()
        for name, p in running.items():
            expect(p.wait(WAIT_S) == 0, f"{name} ended with {p.returncode}")

for failure in failures:
    print(failure)
sys.exit(1 if failures else 0)
