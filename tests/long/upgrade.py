"""Two versions side by side, under load: a router is replaced by that of the other version, then the workers, and all of it is rolled
back. No request fails, each answer is what one of the versions answers alone, and what old workers would answer wrongly is refused.

Gateways connect to routers without the proxy of deploy/kubernetes, which would lead them away in time: a router that ends refuses for
0.3 s what comes on connections that are still open. So clients repeat a 503 twice, as OpenAI's SDK does; tests/deploy/rollout.py has
the proxy, and clients that repeat nothing.

The older programs are built from an older commit (old_version.sh), which takes minutes the first time.

usage: upgrade.py ROOT BIN COMMIT     exits with 77 where the older commit cannot be had
"""
import collections
import http.client
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time

root, bin_dir, commit = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2]), sys.argv[3]
here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(here, "..", "support"))
from tcp_proxies import Proxies

WAIT_S, N_TOKEN = 300, 8
built = subprocess.run([os.path.join(here, "old_version.sh"), root, commit], capture_output=True, text=True)
if built.returncode:
    print(built.stdout.strip())
    sys.exit(built.returncode)
BIN = {"old": built.stdout.split()[-1], "new": bin_dir}
failures = []


def expect(holds, what):
    if not holds:
        failures.append(what)


def wait_until(what, holds):
    end = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < end, f"not within {WAIT_S} s: {what}"
        time.sleep(0.1)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def post(port, extra=None, timeout=WAIT_S):
    """Status and JSON of an answer to the same question, greedy and of N_TOKEN tokens."""
    body = {"messages": [{"role": "user", "content": "and now?"}], "max_tokens": N_TOKEN, "temperature": 0, **(extra or {"ignore_eos": True})}
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        c.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
        r = c.getresponse()
        return r.status, json.loads(r.read())
    finally:
        c.close()


def text_of(answer):
    return answer["choices"][0]["message"]["content"]


def is_ready(port):
    try:
        c = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        c.request("GET", "/health")
        return c.getresponse().status == 200
    except OSError:
        return False


class Programs:
    """Processes of both versions."""

    def __init__(self, work):
        self.work, self.n, self.running = work, 0, []
        self.token = f"{work}/token"
        with open(self.token, "w", encoding="ascii") as f:
            f.write("0123456789abcdef0123456789abcdef")

    def start(self, version, program, *words):
        self.n += 1
        log = f"{self.work}/{self.n}-{version}-{program}.log"
        with open(log, "wb") as f:
            p = subprocess.Popen([f"{BIN[version]}/{program}", *words], stdin=subprocess.DEVNULL, stdout=f, stderr=f,
                                 env={**os.environ, "FOVEA_THREADS": "1"})
        p.log = log
        self.running.append(p)
        return p

    def router(self, version, place):
        return self.start(version, "fovea-router", "--listen", f"127.0.0.1:{place.clients}", "--fleet-listen", f"127.0.0.1:{place.fleet}",
                          "--fleet-token-file", self.token, "--linger-ms", "3000", "--grace-ms", "60000")

    def pair(self, version, places):
        words = ["--router", ",".join(f"127.0.0.1:{p.fleet}" for p in places), "--checkpoint", f"{root}/checkpoints/nano",
                 "--fleet-token-file", self.token, "--grace-ms", "60000"]
        return [self.start(version, f"fovea-{role}", *words, "--listen", f"127.0.0.1:{free_port()}") for role in ("decode", "prefill")]

    def gateway(self, version, router_port):
        port = free_port()
        self.start(version, "fovea-gateway", "--listen", f"127.0.0.1:{port}", "--router", f"127.0.0.1:{router_port}")
        return port

    def end(self, *programs):
        for p in programs:
            p.terminate()
        for p in programs:
            status = p.wait(WAIT_S)
            with open(p.log, encoding="utf-8", errors="replace") as f:
                expect(status == 0, f"{p.log} ends with {status}: {f.read()[-300:]}")
            self.running.remove(p)

    def kill(self):
        for p in self.running:
            p.kill()
            p.wait()


Place = collections.namedtuple("Place", "clients fleet")


class Load(threading.Thread):
    def __init__(self, port, right):
        super().__init__(daemon=True)
        self.port, self.right, self.over, self.count = port, right, threading.Event(), collections.Counter()

    def run(self):
        while not self.over.is_set():
            try:
                status, answer = post(self.port)
                for _ in range(2):
                    if status == 503:
                        time.sleep(0.5)
                        status, answer = post(self.port)
                known = status == 200 and text_of(answer) in self.right
                self.count["right" if known else f"{status} {json.dumps(answer)[:200]}"] += 1
            except (OSError, http.client.HTTPException, ValueError) as e:
                self.count[f"{type(e).__name__}: {e}"] += 1
            time.sleep(0.02)


def joined(router):
    """How often workers have joined a router, by its log."""
    with open(router.log, encoding="utf-8", errors="replace") as f:
        return f.read().count("event=joined ")


def answer_alone(programs, version):
    place = Place(free_port(), free_port())
    started = [programs.router(version, place), *programs.pair(version, [place])]
    port = programs.gateway(version, place.clients)
    wait_until(f"{version} answers", lambda: is_ready(port))
    text = text_of(post(port)[1])
    programs.end(*reversed(started))
    return text


FORM = {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "strict": True, "schema": {"type": "integer"}}}, "max_tokens": 24}


def main(programs):
    right = {version: answer_alone(programs, version) for version in ("old", "new")}
    a, b = Place(free_port(), free_port()), Place(free_port(), free_port())
    endpoint = [a.clients]
    service, _ = Proxies().open(lambda: endpoint[0])
    gateway = programs.gateway("old", service)  # gateways are replaced last
    router = programs.router("old", a)
    workers = programs.pair("old", [a, b])
    wait_until("the old fleet answers", lambda: is_ready(gateway))
    load = [Load(gateway, set(right.values())) for _ in range(3)]
    for one in load:
        one.start()

    def others(what, n=6):
        """More answers, so that the step before is seen to work."""
        begin = [sum(one.count.values()) for one in load]
        wait_until(what, lambda: all(sum(one.count.values()) >= k + n for one, k in zip(load, begin)))

    def replace_router(version, place):
        nonlocal router
        new = programs.router(version, place)
        wait_until(f"workers join the {version} router", lambda: joined(new) >= 2)
        check = programs.gateway(version, place.clients)
        wait_until(f"the {version} router is ready", lambda: is_ready(check))
        endpoint[0] = place.clients
        programs.end(router)
        router = new
        others(f"answers through the {version} router")
        return check

    def replace_workers(version):
        nonlocal workers
        before = joined(router)
        new = programs.pair(version, [a, b])
        wait_until(f"{version} workers join", lambda: joined(router) >= before + 2)
        others("answers of both versions", 10)
        programs.end(*workers)
        workers = new
        others(f"answers of {version} workers")

    others("answers of the old fleet")
    check = replace_router("new", b)
    status, answer = post(check, FORM)
    expect(status == 501 and "upgrade them" in json.dumps(answer), f"a form that old workers do not know: {status} {answer}")
    replace_workers("new")
    status, answer = post(check, FORM)
    expect(status == 200 and isinstance(json.loads(text_of(answer)), int), f"a form that new workers know: {status} {answer}")
    replace_workers_and_back(programs, replace_workers, replace_router, a)
    replace_workers("new")  # an old router with new workers
    for one in load:
        one.over.set()
    for one in load:
        one.join(WAIT_S)
        print(dict(one.count))
        expect(set(one.count) == {"right"}, f"under load: {dict(one.count)}")
    expect(text_of(post(gateway)[1]) == right["new"], "an old router and new workers: another answer")


def replace_workers_and_back(programs, replace_workers, replace_router, place):
    """Rolled back: workers first, then the router."""
    replace_workers("old")
    replace_router("old", place)


with tempfile.TemporaryDirectory() as work:
    programs = Programs(work)
    try:
        main(programs)
    finally:
        programs.kill()
for failure in failures:
    print(failure)
sys.exit(1 if failures else 0)
