"""Two routers, two prefill and two decode workers with TLS, under load, while processes are killed and
stopped, proxies between them break connections, and certificates are replaced. Every answer is compared
with that of the same fleet at rest: what a client gets is right, a beginning of it and a status, or a
status; and each call ends.

usage: chaos.py BIN DESCRIPTOR_SET IMAGE [MINUTES [SEED]]     exits with 77 without python3-grpcio or openssl

Prints the numbers of calls: sent, right, refused by status, wrong, hung. Fails if one was wrong or hung, if
hardly any was right, if a fault never happened, or if memory is held when all is over."""
import collections
import ctypes
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from contracts import Contracts  # exits with 77 without grpc
import grpc
from issued import NAMES, issue, issue_role
from tcp_proxies import Proxies

ROUTER_MS = 15000  # a call's deadline at its router
CALL_S = 45  # and at the client: a call that ends by this one hangs
WAIT_S = 120  # for anything that must come: machines may be busy
CLIENTS = 6
# Statuses that a client may get for faults that are not its own (docs/CLIENTS.md).
STATUSES = {"UNAVAILABLE", "NOT_FOUND", "FAILED_PRECONDITION", "RESOURCE_EXHAUSTED", "DEADLINE_EXCEEDED"}

bin_dir, set_path, image_path = sys.argv[1:4]
minutes = float(sys.argv[4]) if len(sys.argv) > 4 else 1
seed = int(sys.argv[5]) if len(sys.argv) > 5 else random.randrange(1 << 30)
chance = random.Random(seed)
contracts = Contracts(set_path)
inference = contracts.messages("fovea.inference.v1")
if not shutil.which("openssl"):
    print("skip: no openssl to issue certificates")
    sys.exit(77)


def wait_until(what, holds):
    end = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < end, f"not within {WAIT_S} s: {what}"
        time.sleep(0.05)


# ---- programs --------------------------------------------------------------------------------


def free_ports(n):
    """Ports that nobody has, so that a program can be started again at its own."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(n)]
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def die_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


class Program:
    def __init__(self, folder, name, binary, *args):
        self.name, self.out = name, os.path.join(folder, f"{name}.out")
        self.argv = [os.path.join(bin_dir, binary), *args]
        self.log = open(os.path.join(folder, f"{name}.log"), "ab")
        self.process, self.stopped_until = None, 0

    def start(self):
        with open(self.out, "wb") as out:
            self.process = subprocess.Popen(self.argv, stdin=subprocess.DEVNULL, stdout=out, stderr=self.log,
                                            preexec_fn=die_with_parent)

    def listens(self):
        code = self.process.poll()
        if code is not None:
            assert code == 1, f"{self.name} ended with {code}: {self.log.name}"
            self.start()  # somebody had its port
            return False
        with open(self.out, encoding="utf-8") as f:
            return "listening on" in f.read()

    def signal(self, n):
        self.process.send_signal(n)

    def end(self):
        self.signal(signal.SIGTERM)
        code = self.process.wait(WAIT_S)
        assert code == 0, f"{self.name} ended with {code}: {self.log.name}"


class Fleet:
    def __init__(self, folder):
        self.proxies = Proxies()
        self.connections = {}  # name -> writers
        self.programs = []
        ports = free_ports(8)
        common = lambda role: ["--tls-cert", f"{folder}/{role}.crt", "--tls-key", f"{folder}/{role}.key", "--tls-ca",
                               f"{folder}/ca.crt", "--tls-age-ms", "4000", "--grace-ms", "20000", "--log", "info"]
        self.clients, joins = [], []
        for i in range(2):
            at, join_at = ports[2 * i:2 * i + 2]
            self.programs.append(Program(
                folder, f"router-{i}", "fovea-router", "--listen", f"127.0.0.1:{at}", "--fleet-listen",
                f"127.0.0.1:{join_at}", "--silence-ms", "2000", "--report-ms", "100", "--stall-ms", "3000",
                "--deadline-ms", str(ROUTER_MS), "--wait-ms", "2000", "--replays", "5", *common("router")))
            self.clients.append(self.proxy(f"clients-{i}", at))
            joins.append(f"{('127.0.0.1', 'localhost')[i]}:{self.proxy(f'join-{i}', join_at)}")
        for i, port in enumerate(ports[4:]):
            role = ("prefill", "decode")[i // 2]
            self.programs.append(Program(
                folder, f"{role}-{i % 2}", f"fovea-{role}", "--listen", f"127.0.0.1:{port}", "--advertise",
                f"127.0.0.1:{self.proxy(f'{role}-{i % 2}', port)}", "--name", f"{role}-{i % 2}", "--router",
                ",".join(joins), "--checkpoint", f"{folder}/ck", "--threads", "1", *common(role),
                *(["--lease-ms", "3000", "--attach-ms", "3000"] if role == "decode" else [])))

    def proxy(self, name, port):
        at, self.connections[name] = self.proxies.open(lambda: port)
        return at

    def start(self):
        for p in self.programs:
            p.start()
        for p in self.programs:
            wait_until(f"{p.name} listens", p.listens)

    def kill_all(self):
        for p in self.programs:
            if p.process and p.process.poll() is None:
                p.process.kill()


# ---- questions and their answers -------------------------------------------------------------


def questions(image):
    Q = inference.GenerateRequest
    text = lambda s: inference.Prompt(text=s)
    chat = inference.Prompt(chat=inference.Chat(turns=[inference.Turn(role="user", text="what is it?", n_images=1)]))
    sampling = inference.Sampling(temperature=1, seed=7)
    for n in (1, 2, 9, 40):
        yield Q(prompt=text(f"number {n}"), max_tokens=n, ignore_eos=True, digests=True)
    yield Q(prompt=text("chosen at random"), max_tokens=20, ignore_eos=True, digests=True, sampling=sampling)
    yield Q(prompt=chat, images=[inference.Image(data=image)], max_tokens=12, ignore_eos=True, digests=True)
    yield Q(prompt=text("to be continued"), max_tokens=6, ignore_eos=True, digests=True, keep_ms=20000)


def follow_up(handle):
    return inference.GenerateRequest(prompt=inference.Prompt(text=" and more"), max_tokens=6, ignore_eos=True,
                                     digests=True, conversation=handle)


class Client:
    """A client of one router."""

    def __init__(self, port, ca):
        self.channel = grpc.secure_channel(
            f"127.0.0.1:{port}", grpc.ssl_channel_credentials(ca),
            options=[("grpc.ssl_target_name_override", "fovea-router"), ("grpc.enable_http_proxy", 0),
                     ("grpc.max_reconnect_backoff_ms", 500), ("grpc.use_local_subchannel_pool", 1)])
        self.router = contracts.stub(self.channel, "fovea.inference.v1.Inference")

    def ask(self, request):
        """(ids and digests of the tokens, the handle, the status that the call ended with)"""
        tokens, handle = [], b""
        try:
            for e in self.router.Generate(request, timeout=CALL_S):
                tokens += [(t.id, t.digest) for t in e.tokens.tokens]
                if e.WhichOneof("event") == "finished":
                    handle = e.finished.conversation
        except grpc.RpcError as e:
            return tokens, b"", e.code()
        return tokens, handle, grpc.StatusCode.OK

    def idle(self):
        try:
            f = self.router.GetFleet(inference.GetFleetRequest(), timeout=CALL_S)
        except grpc.RpcError:
            return False
        held = sum(w.load.bytes_granted + w.load.bytes_held - w.load.bytes_kept for w in f.workers)
        ready = [w.role for w in f.workers if w.state == 1]
        return len(ready) == 4 and f.n_running + f.n_queued + held == 0


class Load(threading.Thread):
    """Asks again and again, and compares."""

    def __init__(self, clients, wanted, followed):
        super().__init__(daemon=True)
        self.clients, self.wanted, self.followed = clients, wanted, followed
        self.chance = random.Random(chance.random())
        self.count, self.failures, self.over = collections.Counter(), [], False

    def judge(self, request, want):
        client = self.chance.choice(self.clients)
        began = time.monotonic()
        self.count["sent"] += 1
        tokens, handle, code = client.ask(request)
        took = time.monotonic() - began
        if code == grpc.StatusCode.OK and tokens == want:
            self.count["right"] += 1
        elif tokens != want[:len(tokens)] or code == grpc.StatusCode.OK:
            self.count["wrong"] += 1
            self.failures.append(f"wrong: {code}, {tokens} instead of {want}")
        elif code == grpc.StatusCode.DEADLINE_EXCEEDED and took > CALL_S - 1:
            self.count["hung"] += 1
            self.failures.append(f"hung: {took:.1f} s, {len(tokens)} tokens")
        else:
            self.count["refused"] += 1
            self.count[code.name] += 1
            if code.name not in STATUSES or (code.name == "NOT_FOUND" and not request.conversation):
                self.failures.append(f"refused with {code}, although the request is right")
            time.sleep(0.1)  # as docs/CLIENTS.md has it; a client that asks again at once is refused thousands of times
        return handle if code == grpc.StatusCode.OK else b""

    def run(self):
        while not self.over:
            request, want = self.chance.choice(self.wanted)
            handle = self.judge(request, want)
            if handle:
                self.judge(follow_up(handle), self.followed)


# ---- faults ----------------------------------------------------------------------------------


class Chaos:
    def __init__(self, fleet, folder):
        self.fleet, self.folder = fleet, folder
        self.count = collections.Counter()
        self.due = []  # (when, what): what ends a fault

    def kill(self):
        p = chance.choice(self.fleet.programs)
        if p.process.poll() is None:
            p.process.kill()
            p.process.wait()
            self.due.append((time.monotonic() + chance.uniform(0, 1.5), p.start))

    def stop(self):
        p = chance.choice(self.fleet.programs)
        if p.process.poll() is None:
            p.signal(signal.SIGSTOP)
            process = p.process
            self.due.append((time.monotonic() + chance.uniform(0.1, 4),
                             lambda: process.poll() is None and process.send_signal(signal.SIGCONT)))

    def disconnect(self):
        self.fleet.proxies.cut(chance.choice(list(self.fleet.connections.values())))

    def rotate(self):
        issue_role(self.folder, chance.choice(list(NAMES)))

    def run(self, seconds):
        end = time.monotonic() + seconds
        faults = [self.kill, self.stop, self.disconnect, self.disconnect, self.rotate]
        while time.monotonic() < end:
            fault = chance.choice(faults)
            fault()
            self.count[fault.__name__] += 1
            rest = time.monotonic() + chance.uniform(0.2, 1.5)
            while time.monotonic() < rest:
                self.end_due(time.monotonic())
                time.sleep(0.02)
        self.end_due(float("inf"))

    def end_due(self, now):
        over = [d for d in self.due if d[0] <= now]
        self.due = [d for d in self.due if d[0] > now]
        for _, what in over:
            what()


# ---- the run ---------------------------------------------------------------------------------


def run(folder):
    issue(folder, "ca")
    for role in NAMES:
        issue_role(folder, role)
    subprocess.run([os.path.join(bin_dir, "fovea"), "synth", "--shape", "tiny", "--dtype", "f32", "--seed", "5",
                    "--out", f"{folder}/ck"], check=True, capture_output=True)
    with open(image_path, "rb") as f:
        image = f.read()
    with open(f"{folder}/ca.crt", "rb") as f:
        ca = f.read()
    fleet = Fleet(folder)
    try:
        fleet.start()
        clients = [Client(port, ca) for port in fleet.clients]
        wait_until("the fleet is complete", lambda: all(c.idle() for c in clients))
        wanted, handle = [], b""
        for q in questions(image):
            tokens, kept, code = clients[0].ask(q)
            assert code == grpc.StatusCode.OK and len(tokens) == q.max_tokens, (code, len(tokens))
            wanted.append((q, tokens))
            handle = kept or handle
        followed, _, code = clients[1].ask(follow_up(handle))  # by the other router
        assert code == grpc.StatusCode.OK, code
        loads = [Load([Client(port, ca) for port in fleet.clients], wanted, followed) for _ in range(CLIENTS)]
        for load in loads:
            load.start()
        chaos = Chaos(fleet, folder)
        chaos.run(60 * minutes)
        for load in loads:
            load.over = True
        for load in loads:
            load.join(2 * CALL_S + 10)
            assert not load.is_alive(), "a call has not ended"
        for p in fleet.programs:
            wait_until(f"{p.name} listens", p.listens)
        wait_until("the fleet is whole and idle again", lambda: all(c.idle() for c in clients))
        for q, want in wanted:
            tokens, _, code = clients[0].ask(q)
            assert code == grpc.StatusCode.OK and tokens == want, f"when all is over: {code}"
        for p in reversed(fleet.programs):
            p.end()
    finally:
        fleet.kill_all()
    total = sum((load.count for load in loads), collections.Counter())
    codes = ", ".join(f"{n} {code}" for code, n in sorted(total.items()) if code.isupper())
    print(f"seed {seed}, {minutes:g} min: " + ", ".join(f"{n} {name}" for name, n in sorted(chaos.count.items())))
    print(f"calls: {total['sent']} sent, {total['right']} right, {total['refused']} refused ({codes or 'none'}), "
          f"{total['wrong']} wrong, {total['hung']} hung")
    failures = [f for load in loads for f in load.failures]
    assert not failures, "\n".join(failures[:5])
    assert total["right"] >= total["sent"] / 4 and total["right"] > 0, "hardly any was right"
    assert minutes < 0.5 or len(chaos.count) == 4, "a fault never happened"


folder = tempfile.mkdtemp(prefix="fovea-chaos-")
try:
    run(folder)
except BaseException:
    print(f"seed {seed}; the logs are in {folder}")
    raise
shutil.rmtree(folder)
