"""A router's pod is replaced as a rollout of deploy/kubernetes does it, and no client loses an answer.

An old and a new pod, each a router and the proxy before it, run as the manifest says (pod.py), with workers that joined both.
Clients ask all the time, through a TCP proxy that stands for the Service: connections stay where they began, and new ones go to
the pods that are its endpoints. When the new pod is ready, the old one is deleted: it gets what a kubelet sends, and
soon is an endpoint no more. Clients in Python with and without a retry policy, new connections for each call, fovea-gateway, and answers that begin before
and end after the deletion: all must be right. With TLS the certificate is renewed first, as a Secret's volume is.

usage: rollout.py ROOT BIN DESCRIPTOR_SET plain|tls [LONG_S]     exits with 77 where it cannot run

LONG_S (6): about how long the long answers take.
"""
import collections
import http.client
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time

root, bin_dir, set_path, kind = sys.argv[1:5]
LONG_S = float(sys.argv[5]) if len(sys.argv) > 5 else 6
root, bin_dir = os.path.abspath(root), os.path.abspath(bin_dir)
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from contracts import Contracts  # exits with 77 without grpc
import grpc
from issued import issue, issue_named, issue_role
from pod import Pod
from rendered import render, skip
from tcp_proxies import Proxies

for program, package in (("nghttpx", "nghttp2-proxy"), ("haproxy", "haproxy")):
    if not os.access(f"/usr/sbin/{program}", os.X_OK):
        skip(f"no {program} (package {package})")
if not shutil.which("openssl"):
    skip("no openssl to issue certificates")
WAIT_S = 120  # for anything that must come: machines may be busy
CALL_S = 600  # a call's deadline: the router refuses what it expects to be late, and on a busy machine it guesses high
TLS = kind == "tls"
FLEET_PORT, CLIENTS_PORT = 8203, 8200
CONTEXT = 65536  # the checkpoint's, so that answers can be long
contracts = Contracts(set_path)
inference = contracts.messages("fovea.inference.v1")
health = contracts.messages("grpc.health.v1")
failures = []


def expect(holds, what):
    if not holds:
        failures.append(what)


def wait_until(what, holds):
    end = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < end, f"not within {WAIT_S} s: {what}"
        time.sleep(0.05)


# ---- certificates, in volumes as Kubernetes makes them --------------------------------------------------


class SecretVolume:
    """Files are links into ..data, itself a link to a directory, which is replaced at once."""

    def __init__(self, folder):
        self.folder, self.n = folder, 0
        os.mkdir(folder)

    def write(self, **files):
        self.n += 1
        data = os.path.join(self.folder, f"..{self.n}")
        os.mkdir(data)
        for name, path in files.items():
            shutil.copy(path, os.path.join(data, name.replace("_", ".")))
        os.symlink(os.path.basename(data), os.path.join(self.folder, "..data_tmp"))
        os.rename(os.path.join(self.folder, "..data_tmp"), os.path.join(self.folder, "..data"))
        for name in files:
            link = os.path.join(self.folder, name.replace("_", "."))
            if not os.path.lexists(link):
                os.symlink(f"..data/{os.path.basename(link)}", link)


def make_certificates(tmp):
    issue(tmp, "ca")
    volumes = {}
    for role in ("router", "prefill", "decode"):
        issue_role(tmp, role)
        volumes[role] = SecretVolume(f"{tmp}/{role}-tls")
        volumes[role].write(tls_crt=f"{tmp}/{role}.crt", tls_key=f"{tmp}/{role}.key", ca_crt=f"{tmp}/ca.crt")
    volumes["clients"] = SecretVolume(f"{tmp}/clients-tls")
    renew(tmp, volumes["clients"])
    return volumes


def renew(tmp, volume):
    issue_named(tmp, "clients", "DNS:localhost")
    volume.write(tls_crt=f"{tmp}/clients.crt", tls_key=f"{tmp}/clients.key")
    with open(f"{tmp}/clients.crt", encoding="ascii") as f:
        return f.read()


# ---- the fleet ----------------------------------------------------------------------------------------


def reserve(n):
    """Sockets with ports of their own: nobody else gets those until they are closed."""
    sockets = [socket.socket() for _ in range(n)]
    for s in sockets:
        s.bind(("127.0.0.1", 0))
    return sockets


def ports_of(sockets):
    return [s.getsockname()[1] for s in sockets]


def close_all(sockets):
    for s in sockets:
        s.close()


class Fleet:
    def __init__(self, tmp):
        self.tmp, self.programs, self.pods, self.endpoints, self.turn = tmp, [], [], [], 0
        self.objects = render(root, "deploy/kubernetes/overlays/production" if TLS else "deploy/kubernetes/base")
        (self.deployment,) = [o for o in self.objects if o["kind"] == "Deployment" and o["metadata"]["name"] == "fovea-router"]
        self.linger_s = int(next(o["data"]["FOVEA_LINGER_MS"] for o in self.objects
                                 if o["kind"] == "ConfigMap" and "FOVEA_LINGER_MS" in o["data"])) / 1000
        self.volumes = make_certificates(tmp) if TLS else {}
        with open(f"{tmp}/token", "w", encoding="ascii") as f:
            f.write("0123456789abcdef" * 4)
        os.chmod(f"{tmp}/token", 0o600)
        made = [os.path.join(bin_dir, "fovea"), "synth", "--out", f"{tmp}/tiny", "--seed", "5"]
        subprocess.run([*made, "--shape", "nano", "--dtype", "f32"], check=True, capture_output=True)
        with open(f"{tmp}/tiny/config.json", encoding="utf-8") as f:
            config = json.load(f)
        config["text_config"]["max_position_embeddings"] = CONTEXT
        with open(f"{tmp}/tiny/config.json", "w", encoding="utf-8") as f:
            json.dump(config, f)
        self.reserved = [reserve(6) for _ in range(2)]
        self.ports = [dict(zip((CLIENTS_PORT, FLEET_PORT, 8204, 8205, 8209, 9464), ports_of(r))) for r in self.reserved]
        self.service, _ = Proxies().open(self.choose)

    def choose(self):
        self.turn += 1
        return self.endpoints[self.turn % len(self.endpoints)] if self.endpoints else None

    def start_pod(self):
        n = len(self.pods)
        folders = {"/fleet": self.tmp, "/tls": f"{self.tmp}/router-tls", "/clients-tls": f"{self.tmp}/clients-tls"}
        close_all(self.reserved[n])
        self.pods.append(Pod(f"{self.tmp}/pod-{n}", self.deployment, self.objects, self.ports[n], folders, bin_dir,
                             {"FOVEA_DEADLINE_MS": str(1000 * CALL_S)}))
        return self.ports[n][CLIENTS_PORT]

    def start(self, *argv):
        log = open(f"{self.tmp}/{argv[0]}.log", "ab")
        self.programs.append(subprocess.Popen([os.path.join(bin_dir, argv[0]), *argv[1:]], stdout=log, stderr=log))

    def start_worker(self, role):
        tls = [f"--tls-{o}={self.tmp}/{role}-tls/{n}" for o, n in (("cert", "tls.crt"), ("key", "tls.key"), ("ca", "ca.crt"))]
        self.start(f"fovea-{role}", "--checkpoint", f"{self.tmp}/tiny", "--fleet-token-file", f"{self.tmp}/token", "--threads", "1",
                   "--router", ",".join(f"127.0.0.1:{p[FLEET_PORT]}" for p in self.ports), *(tls if TLS else []))

    def ready(self, port):
        """The question of the manifest's readiness probe."""
        ask = contracts.stub(channel(port), "grpc.health.v1.Health").Check
        try:
            return ask(health.HealthCheckRequest(service="fovea.inference.v1.Inference"), timeout=2).status == 1
        except grpc.RpcError:
            return False

    def close(self):
        close_all(sum(self.reserved, []))
        for pod in self.pods:
            pod.kill()
        for p in self.programs:
            p.kill()
            p.wait()


def channel(port, retries=False):
    """Without a retry policy gRPC itself begins a call again only if the server has said that it did not take it."""
    options = [("grpc.enable_http_proxy", 0), ("grpc.use_local_subchannel_pool", 1), ("grpc.max_reconnect_backoff_ms", 500)]
    if retries:
        options.append(("grpc.service_config", json.dumps({"methodConfig": [{"name": [{}], "retryPolicy": {
            "maxAttempts": 5, "initialBackoff": "0.2s", "maxBackoff": "2s", "backoffMultiplier": 2,
            "retryableStatusCodes": ["UNAVAILABLE"]}}]})))
    if not TLS:
        return grpc.insecure_channel(f"127.0.0.1:{port}", options)
    with open(f"{tmp}/ca.crt", "rb") as f:
        credentials = grpc.ssl_channel_credentials(f.read())
    return grpc.secure_channel(f"127.0.0.1:{port}", credentials, [*options, ("grpc.ssl_target_name_override", "localhost")])


# ---- clients: each asks again and again, and compares ---------------------------------------------------

N_SHORT, N_HELD, PER_ADDRESS = 6, 700, 100


def question(n):
    return inference.GenerateRequest(prompt=inference.Prompt(text="to be replaced"), max_tokens=n, ignore_eos=True)


def ids_of(stub, n):
    return [t.id for e in stub.Generate(question(n), timeout=CALL_S) if e.WhichOneof("event") == "tokens" for t in e.tokens.tokens]


class Client(threading.Thread):
    def __init__(self, name, ask, right):
        super().__init__(daemon=True)
        self.name, self.ask, self.right, self.over = name, ask, right, threading.Event()
        self.count, self.ended_s = collections.Counter(), 0

    def run(self):
        while not self.over.is_set():
            try:
                outcome = "right" if self.ask() == self.right else "another answer"
            except grpc.RpcError as e:
                outcome = f"{e.code().name}: {e.details()[:150]}"
            except (OSError, http.client.HTTPException, AssertionError) as e:
                outcome = f"{type(e).__name__}: {e}"
            self.count[outcome] += 1
            self.ended_s = time.monotonic()
            time.sleep(0.1)  # several clients: enough is under way, and the pods have the machine


def clients_of(port, right):
    def stay(retries):
        stub = contracts.stub(channel(port, retries), "fovea.inference.v1.Inference")
        return lambda: ids_of(stub, N_SHORT)

    def anew():
        with channel(port) as once:
            return ids_of(contracts.stub(once, "fovea.inference.v1.Inference"), N_SHORT)

    return [Client(name, ask, right) for name, ask in (("without retries", stay(False)), ("without retries, too", stay(False)),
                                                       ("with retries", stay(True)), ("new connections", anew))]


def by_gateway(port, stream):
    body = json.dumps({"model": "tiny", "messages": [{"role": "user", "content": "and now?"}], "max_tokens": N_SHORT, "stream": stream,
                       "temperature": 0})

    def ask():
        c = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_S)
        c.request("POST", "/v1/chat/completions", body, {"Content-Type": "application/json"})
        r = c.getresponse()
        text = r.read().decode()
        c.close()
        assert r.status == 200 and (not stream or "[DONE]" in text), f"{r.status} {text[-200:]}"
        if not stream:
            return json.loads(text)["choices"][0]["message"]["content"]
        parts = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
        return "".join(p["choices"][0]["delta"].get("content") or "" for p in parts if p["choices"])

    return ask


class Long(Client):
    """Long answers on one connection, the next one begun as soon as one is over, until just before clients are told to go: the
    last one ends long after that, however fast the machine is."""

    def __init__(self, port, n_token):
        stub = contracts.stub(channel(port), "fovea.inference.v1.Inference")
        super().__init__("long answers", lambda: len(ids_of(stub, n_token)), n_token)


def tokens_in(seconds, stub):
    """As many as an answer has in this time, on this machine as it is now."""
    begin = time.monotonic()
    n = len(ids_of(stub, 100))
    return int(min(n * seconds / (time.monotonic() - begin), CONTEXT // 2))


# ---- the course of the test ---------------------------------------------------------------------------


def served(port):
    return ssl.get_server_certificate(("127.0.0.1", port)).replace("\r", "")


def check_renewal(fleet, port):
    """A renewed certificate is served within a minute; a pair that does not fit never is."""
    before = served(port)
    issue_named(fleet.tmp, "stranger", "DNS:localhost")
    fleet.volumes["clients"].write(tls_crt=f"{fleet.tmp}/stranger.crt", tls_key=f"{fleet.tmp}/clients.key")
    time.sleep(20)
    expect(served(port) == before, "a certificate without its key is served")
    want, begin = renew(fleet.tmp, fleet.volumes["clients"]), time.monotonic()
    wait_until("the renewed certificate is served", lambda: served(port) == want)
    print(f"the renewed certificate was served after {time.monotonic() - begin:.1f} s", flush=True)
    expect(want != before, "the certificate is another one")


def check_addresses(port):
    """A single address cannot have all connections."""
    held = []
    for _ in range(N_HELD):
        try:
            c = socket.create_connection(("127.0.0.1", port), WAIT_S, ("127.0.0.2", 0))
            c.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0")  # a connection of HTTP/2 without a call
            held.append(c)
        except OSError:
            pass
    right = ids_of(contracts.stub(channel(port), "fovea.inference.v1.Inference"), N_SHORT)
    n_open = 0
    for c in held:
        c.settimeout(0.2 if n_open > PER_ADDRESS else 2)
        try:
            n_open += c.recv(9) != b""
        except OSError:
            pass
        c.close()
    print(f"{n_open} of {N_HELD} connections of one address were held", flush=True)
    expect(0 < n_open <= PER_ADDRESS, f"one address may have {n_open} connections")
    return right


def check_crash(pod, program):
    """When it ends by itself the container does, so that it is started again."""
    (proxy,) = [c for c in pod.containers if c.name == "proxy"]
    with open(f"/proc/{proxy.first()}/task/{proxy.first()}/children", encoding="ascii") as f:
        children = f.read().split()

    def name(pid):
        with open(f"/proc/{pid}/comm", encoding="ascii") as f:
            return f.read().strip()

    (victim,) = [int(pid) for pid in children if name(pid) == program]
    os.kill(victim, signal.SIGKILL)
    expect(proxy.process.wait(WAIT_S) != 0, f"the proxy's container ends well without {program}")


def run(fleet):
    for role in ("prefill", "decode"):
        fleet.start_worker(role)
    old = fleet.start_pod()
    wait_until("the old pod is ready", lambda: fleet.ready(old))
    fleet.endpoints = [old]
    reserved = reserve(1)
    (gateway_port,) = ports_of(reserved)
    close_all(reserved)
    fleet.start("fovea-gateway", "--router", f"localhost:{fleet.service}" if TLS else f"127.0.0.1:{fleet.service}",
                "--listen", f"127.0.0.1:{gateway_port}", *(["--router-tls-ca", f"{fleet.tmp}/ca.crt"] if TLS else []))
    wait_until("the gateway listens", lambda: socket.socket().connect_ex(("127.0.0.1", gateway_port)) == 0)
    right = ids_of(contracts.stub(channel(fleet.service), "fovea.inference.v1.Inference"), N_SHORT)
    text = by_gateway(gateway_port, False)()
    clients = clients_of(fleet.service, right) + [Client(f"the gateway, stream {s}", by_gateway(gateway_port, s), text) for s in (False, True)]
    for c in clients:
        c.start()
    if TLS:
        check_renewal(fleet, old)
    else:
        expect(check_addresses(old) == right, "another answer beside many connections")
    new = fleet.start_pod()
    wait_until("the new pod is ready", lambda: fleet.ready(new))
    n_token = tokens_in(LONG_S, contracts.stub(channel(fleet.service), "fovea.inference.v1.Inference"))
    longs = [Long(fleet.service, n_token) for _ in range(2)]  # all at the old pod
    for l in longs:
        l.start()
    fleet.endpoints = [old, new]
    asked = lambda: sum(sum(c.count.values()) for c in clients)
    before = asked()
    wait_until("both are asked", lambda: asked() > before + 20)
    silent = socket.create_connection(("127.0.0.1", old))  # must not keep the pod
    began_s = time.monotonic()
    ending = fleet.pods[0].delete()
    time.sleep(2)  # until the nodes know it
    fleet.endpoints = [new]
    time.sleep(fleet.linger_s - 8)  # a second later proxy.sh has clients go
    for l in longs:
        l.over.set()
    for t in ending + longs:
        t.join(fleet.pods[0].grace_s + WAIT_S)
    silent.close()
    gone_s = max(c.ended_s for c in fleet.pods[0].containers)
    before = asked()
    wait_until("the new one is asked", lambda: asked() > before + 20)
    for c in clients:
        c.over.set()
    for c in clients + longs:
        c.join(WAIT_S)
        print(f"{c.name}: " + ", ".join(f"{n} {what}" for what, n in c.count.items()), flush=True)
        expect(set(c.count) == {"right"}, f"{c.name}: {dict(c.count)}")
    last_s = max(l.ended_s for l in longs)
    for c in fleet.pods[0].containers:
        print(f"{c.name}: ended after {c.ended_s - began_s:.1f} s with {c.process.returncode}", flush=True)
        expect(c.process.returncode == 0, f"{c.name} ended with {c.process.returncode}")
        expect(not c.killed, f"{c.name} did not end by itself within {fleet.pods[0].grace_s} s")
    waited_s = gone_s - max(last_s, began_s + fleet.linger_s)
    expect(waited_s <= 20, f"the pod was gone {waited_s:.1f} s after its last answer")
    check_crash(fleet.pods[1], "haproxy" if TLS else "nghttpx")
    print(f"long answers of {n_token} tokens: the last one was over {last_s - began_s:.1f} s after the deletion, the pod "
          f"{gone_s - began_s:.1f} s after it", flush=True)


tmp = tempfile.mkdtemp(prefix="fovea-rollout-")
fleet = None
try:
    fleet = Fleet(tmp)
    run(fleet)
finally:
    if fleet:
        fleet.close()
    if failures:
        print(f"the logs are in {tmp}")
    else:
        shutil.rmtree(tmp)
print("\n".join(failures) or "ok")
sys.exit(1 if failures else 0)
