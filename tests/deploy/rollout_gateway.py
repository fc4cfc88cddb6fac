"""A gateway's pod is replaced as a rollout of deploy/kubernetes does it, and no HTTP client loses an answer.

An old and a new pod run as the manifest says (pod.py) before a fleet of this machine. Clients ask all the time through a TCP proxy that
stands for the Service: connections stay where they began, and new ones go to the pods that are its endpoints, which are those whose readiness
probe succeeds. The old pod gets what a kubelet sends. Clients with a new connection for each request, clients that keep theirs as long as
answers allow it, streams, and long streams that begin before and end after the deletion: all must be right.

usage: rollout_gateway.py ROOT BIN     exits with 77 where it cannot run
"""
import collections
import http.client
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time

root, bin_dir = [os.path.abspath(p) for p in sys.argv[1:3]]
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from pod import Pod
from rendered import render
from tcp_proxies import Proxies

WAIT_S = 120  # for anything that must come: machines may be busy
LONG_S = 4  # about how long a long answer takes alone; beside the other clients it takes much longer
LINGER_MS, NOTICED_S = 6000, 4  # of the pod; until the last node sends it no more connections
failures = []


def expect(holds, what):
    if not holds:
        failures.append(what)


def wait_until(what, holds):
    end = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < end, f"not within {WAIT_S} s: {what}"
        time.sleep(0.05)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def body_of(stream, n):
    return json.dumps({"messages": [{"role": "user", "content": "and now?"}], "max_tokens": n, "ignore_eos": True, "stream": stream,
                       "temperature": 0})


def read_answer(connection, stream, n):
    """The text of an answer, and whether the connection stays open."""
    connection.request("POST", "/v1/chat/completions", body_of(stream, n), {"Content-Type": "application/json"})
    r = connection.getresponse()
    text = r.read().decode()
    assert r.status == 200 and (not stream or "[DONE]" in text), f"{r.status} {text[-200:]}"
    stays = r.getheader("Connection", "").lower() != "close"
    if not stream:
        return json.loads(text)["choices"][0]["message"]["content"], stays
    parts = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
    assert not any("error" in p for p in parts), parts[-1]
    return "".join(p["choices"][0]["delta"].get("content") or "" for p in parts if p["choices"]), stays


class Client(threading.Thread):
    """Asks again and again, and compares. With `keep` it keeps its connection until an answer ends it."""

    def __init__(self, name, port, stream, keep, right, n=6):
        super().__init__(daemon=True)
        self.name, self.port, self.stream, self.keep, self.right, self.n = name, port, stream, keep, right, n
        self.count, self.over, self.ended_s, self.connection = collections.Counter(), threading.Event(), 0, None

    def ask(self):
        c = self.connection or http.client.HTTPConnection("127.0.0.1", self.port, timeout=WAIT_S)
        self.connection = None
        text, stays = read_answer(c, self.stream, self.n)
        if self.keep and stays:
            self.connection = c
        else:
            c.close()
        return text

    def run(self):
        while not self.over.is_set():
            try:
                text = self.ask()
                outcome = "right" if self.right is None or text == self.right else "another answer"
            except (OSError, http.client.HTTPException, AssertionError) as e:
                outcome = f"{type(e).__name__}: {e}"
            self.count[outcome] += 1
            self.ended_s = time.monotonic()
            time.sleep(0.02)


class Service:
    """Endpoints are the pods that are ready; a deleted one is none, but nodes notice that late."""

    def __init__(self):
        self.endpoints, self.turn = [], 0
        self.port, _ = Proxies().open(self.choose)

    def choose(self):
        self.turn += 1
        return self.endpoints[self.turn % len(self.endpoints)] if self.endpoints else None


def status_of(port, path):
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        c.request("GET", path)
        return c.getresponse().status
    except OSError:
        return 0
    finally:
        c.close()


def run(tmp):
    objects = render(root, "deploy/kubernetes/base")
    (deployment,) = [o for o in objects if o["kind"] == "Deployment" and o["metadata"]["name"] == "fovea-gateway"]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    ready_path, alive_path = (container[p]["httpGet"]["path"] for p in ("readinessProbe", "livenessProbe"))
    made = [os.path.join(bin_dir, "fovea"), "synth", "--out", f"{tmp}/tiny", "--seed", "5"]
    subprocess.run([*made, "--shape", "nano", "--dtype", "f32"], check=True, capture_output=True)
    with open(f"{tmp}/tiny/config.json", encoding="utf-8") as f:
        config = json.load(f)
    config["text_config"]["max_position_embeddings"] = 65536
    with open(f"{tmp}/tiny/config.json", "w", encoding="utf-8") as f:
        json.dump(config, f)
    with open(f"{tmp}/up.log", "wb") as log:
        up = subprocess.Popen([os.path.join(bin_dir, "fovea"), "up", "--checkpoint", f"{tmp}/tiny", "--listen", "127.0.0.1:0", "--threads", "1"],
                              stdout=log, stderr=log)
    pods, service = [], Service()
    try:
        said = lambda: re.search(r"ready on 127\.0\.0\.1:(\d+)", open(f"{tmp}/up.log", encoding="utf-8").read())
        wait_until("the fleet is ready", said)

        def start_pod():
            ports = {8080: free_port(), 9464: free_port()}
            pods.append(Pod(f"{tmp}/pod-{len(pods)}", deployment, objects, ports, {}, bin_dir,
                            {"FOVEA_ROUTER": f"127.0.0.1:{said().group(1)}", "FOVEA_LINGER_MS": str(LINGER_MS), "FOVEA_DEADLINE_MS": "600000"}))
            wait_until("the pod is ready", lambda: status_of(ports[8080], ready_path) == 200)
            return ports[8080]

        old = start_pod()
        service.endpoints = [old]
        right, _ = read_answer(http.client.HTTPConnection("127.0.0.1", old, timeout=WAIT_S), False, 6)
        begin = time.monotonic()
        read_answer(http.client.HTTPConnection("127.0.0.1", old, timeout=WAIT_S), True, 200)
        n_long = int(min(200 * LONG_S / (time.monotonic() - begin), 20000))
        clients = [Client(f"stream {stream}, keep {keep}", service.port, stream, keep, right) for stream in (False, True) for keep in (False, True)]
        long = Client("long streams", service.port, True, False, None, n_long)
        for c in (*clients, long):
            c.start()
        asked = lambda: sum(sum(c.count.values()) for c in clients)
        wait_until("the old pod is asked", lambda: asked() > 20)
        new = start_pod()
        service.endpoints = [old, new]
        before = asked()
        wait_until("both are asked", lambda: asked() > before + 20)
        idle = http.client.HTTPConnection("127.0.0.1", old)
        idle.connect()  # must not keep the pod
        long.over.set()  # its answer goes on
        began_s = time.monotonic()
        ending = pods[0].delete()
        wait_until("the old pod reports that it leaves", lambda: status_of(old, ready_path) == 503)
        expect(status_of(old, alive_path) == 200, "a pod that leaves does not seem alive")
        time.sleep(max(NOTICED_S - (time.monotonic() - began_s), 0))
        service.endpoints = [new]
        for t in (*ending, long):
            t.join(pods[0].grace_s + WAIT_S)
        idle.close()
        before = asked()
        wait_until("the new one is asked", lambda: asked() > before + 20)
        for c in clients:
            c.over.set()
        for c in (*clients, long):
            c.join(WAIT_S)
            print(f"{c.name}: " + ", ".join(f"{n} {what}" for what, n in c.count.items()), flush=True)
            expect(set(c.count) == {"right"}, f"{c.name}: {dict(c.count)}")
        (gone,) = pods[0].containers
        print(f"long streams of {n_long} tokens: the last one was over {long.ended_s - began_s:.1f} s after the deletion, the pod "
              f"{gone.ended_s - began_s:.1f} s after it", flush=True)
        expect(gone.process.returncode == 0 and not gone.killed, f"the pod ended with {gone.process.returncode}")
        expect(gone.ended_s - max(long.ended_s, began_s + LINGER_MS / 1000) <= 20, "the pod stayed after its last answer")
    finally:
        for pod in pods:
            pod.kill()
        up.terminate()
        up.wait(WAIT_S)


tmp = tempfile.mkdtemp(prefix="fovea-rollout-gateway-")
try:
    run(tmp)
finally:
    if failures:
        print(f"the logs are in {tmp}")
    else:
        shutil.rmtree(tmp)
print("\n".join(failures) or "ok")
sys.exit(1 if failures else 0)
