"""Attacks on the router's front, with a neighbour who asks a question again and again and must be answered
right throughout, while the router's memory stays within bounds: those that the router withstands by
itself, and through nghttpx, set as deploy/ sets it, also those that gRPC core cannot bound. At the end 300
requests at once.

usage: front_attacks.py ROUTER PID SET PICTURE CONF BYTES_MAX [SECONDS [AFTER [router|nghttpx]]]

ROUTER is where clients call, PID the router's process, SET the contracts as a descriptor set, CONF
deploy's nghttpx.conf, BYTES_MAX how far the router's memory may rise. SECONDS (default 1) for each
attack that has no end of its own. AFTER: so many seconds after each attack the router's memory is looked at
again, and must be back within 64 MiB of what it was at the beginning; the attacks that only nghttpx stops
then also run against the router alone, where nothing but that is asked. The last argument leaves out the
other target. Exits with 77 without grpc or nghttpx.
"""
import os
import shutil
import socket
import struct
import subprocess
import sys
import threading
import time
import zlib

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from contracts import Contracts, failure  # exits with 77 without grpc
import grpc
import raw_http2 as raw

WAIT_S = 120  # for anything that must come: machines may be busy
N_AT_ONCE, N_CHANNEL = 300, 4
GENERATE = b"/fovea.inference.v1.Inference/Generate"

router, pid, set_path, picture_path, conf, bytes_max = sys.argv[1:7]
attack_s = float(sys.argv[7]) if len(sys.argv) > 7 else 0.5
after_s = float(sys.argv[8]) if len(sys.argv) > 8 else 0
only = sys.argv[9] if len(sys.argv) > 9 else None
pid, bytes_max = int(pid), int(bytes_max)
with open(picture_path, "rb") as f:
    picture = f.read()
contracts = Contracts(set_path)
inference = contracts.messages("fovea.inference.v1")
failures = []


def expect(holds, what):
    if not holds:
        failures.append(what)


def resident():
    """Bytes of the router in memory, without its files."""
    with open(f"/proc/{pid}/statm", encoding="ascii") as f:
        _, all_pages, shared = f.read().split()[:3]
    return (int(all_pages) - int(shared)) * os.sysconf("SC_PAGESIZE")


# ---- clients that keep the rules ---------------------------------------------------------------------

def channel(target):
    return grpc.insecure_channel(target, options=[("grpc.enable_http_proxy", 0),
                                                  ("grpc.use_local_subchannel_pool", 1)])


def short_question(i):
    turn = inference.Turn(role="user", text=f"and now? ({i % 5})")
    return inference.GenerateRequest(prompt=inference.Prompt(chat=inference.Chat(turns=[turn])), max_tokens=3,
                                     ignore_eos=True)


def question(i=0):
    turn = inference.Turn(role="user", text=f"what is it? ({i % 5})", n_images=1)
    return inference.GenerateRequest(
        prompt=inference.Prompt(chat=inference.Chat(turns=[turn])), images=[inference.Image(data=picture)],
        max_tokens=6, ignore_eos=True)


def ids_of(call):
    return [t.id for e in call if e.WhichOneof("event") == "tokens" for t in e.tokens.tokens]


def ask(stub, i=0):
    return ids_of(stub.Generate(question(i), timeout=WAIT_S))


def stub_at(target):
    return contracts.stub(channel(target), "fovea.inference.v1.Inference")


class Neighbour(threading.Thread):
    """Asks until it is told to stop; watches the router's memory."""

    def __init__(self, target, right):
        super().__init__(daemon=True)
        self.stub, self.right, self.stopped = stub_at(target), right, threading.Event()
        self.n, self.worst_s, self.wrong, self.failed, self.most = 0, 0.0, [], [], resident()
        threading.Thread(target=self.watch, daemon=True).start()

    def watch(self):
        while not self.stopped.wait(0.02):
            self.most = max(self.most, resident())

    def run(self):
        while True:
            begin, i = time.monotonic(), self.n
            try:
                if ask(self.stub, i) != self.right[i % 5]:
                    self.wrong.append("another answer")
            except grpc.RpcError as e:
                self.failed.append(f"{e.code().name}: {e.details()[:200]}")
            self.worst_s = max(self.worst_s, time.monotonic() - begin)
            self.n += 1
            if self.stopped.is_set():
                return


# ---- attacks: each gets where to connect, and returns what it saw -------------------------------------

def timed():
    end = time.monotonic() + attack_s
    return lambda: time.monotonic() < end


def gzip_of_zeros(mib):
    c, block = zlib.compressobj(9, zlib.DEFLATED, 31), bytes(1 << 20)
    return b"".join(c.compress(block) for _ in range(mib)) + c.flush()


zeros = gzip_of_zeros(64)


def gzip_bomb(target):
    """A message that says that it is compressed, in a call that says so, or not."""
    bomb = raw.message(zeros, compressed=1)
    e = failure(lambda: list(stub_at(target).Generate(question(), timeout=WAIT_S, compression=grpc.Compression.Gzip)))
    expect(e.code() == grpc.StatusCode.UNIMPLEMENTED and "gzip" in e.details(), f"a compressed call ends with {e}")
    for encoding in ([(b"grpc-encoding", b"gzip")], [(b"grpc-encoding", b"deflate")], [(b"grpc-encoding", b"identity")], []):
        c = raw.Connection(target)
        stream = c.begin(GENERATE, *encoding)
        c.data(stream, bomb, end=True)
        expect(c.wait_for_end(stream, WAIT_S), f"a gzip bomb with {encoding} has no answer")
        c.close()
    return f"{len(bomb)} bytes sent, four times"


def some_unfinished_messages(target):
    """A few, with less than the network's share of the memory."""
    c, sent = raw.Connection(target), 0
    for _ in range(10):
        stream = c.begin(GENERATE)
        sent += c.data(stream, raw.message(bytes(3 << 20), length=60 << 20), limit_s=1)
    time.sleep(attack_s)
    c.close()
    return f"{sent >> 20} MiB sent"


def unfinished_messages(target):
    """Many streams, each with a part of a message that never ends: more than the network's share. Where that
    is used up, gRPC ends calls, of others too; what is answered must be right, and all is well afterwards."""
    block, sent, connections = bytes(256 << 10), 0, []
    part = raw.message(b"", length=60 << 20)
    holds = timed()
    while holds() and len(connections) < 8:
        c = raw.Connection(target)
        connections.append(c)
        for _ in range(100):
            stream = c.begin(GENERATE)
            sent += c.data(stream, part, limit_s=0.5)
            for _ in range(16):
                n = c.data(stream, block, limit_s=0.1)
                sent += n
                if n < len(block) or not holds():
                    break
            if not holds() or not c.open:
                break
    for c in connections:
        c.close()
    return f"{sent >> 20} MiB sent"


def idle_calls(target):
    """Calls without a message, and more of them than a connection may have."""
    c, n = raw.Connection(target), 0
    holds = timed()
    while holds() and c.open and n < 4000:
        c.begin(GENERATE)
        n += 1
        c.read()
    c.read(0.5)
    ended = not c.open
    c.close()
    expect(ended or len(c.reset) >= n - 128, f"of {n} calls of one connection {len(c.reset)} are refused")
    return f"{n} calls, " + ("the connection was ended" if ended else f"{len(c.reset)} refused")


def large_headers(target):
    """Metadata just below and above the limit, on many streams."""
    n, holds = 0, timed()
    while holds():
        c = raw.Connection(target)
        for i in range(100):
            value = b"v" * (14000 if i % 2 else 40000)
            block = raw.call_headers(GENERATE, (b"x-large", value))
            stream, c.next_stream = c.next_stream, c.next_stream + 2
            c.send(raw.frame(raw.HEADERS, 0, stream, block[:raw.FRAME_MAX]))
            rest = block[raw.FRAME_MAX:] or b""
            while len(rest) > raw.FRAME_MAX:
                c.send(raw.frame(raw.CONTINUATION, 0, stream, rest[:raw.FRAME_MAX]))
                rest = rest[raw.FRAME_MAX:]
            c.send(raw.frame(raw.CONTINUATION, raw.END_HEADERS, stream, rest))
            n += 1
            c.read()
            if not c.open or not holds():
                break
        c.close()
    return f"{n} calls"


def endless_headers(target):
    """A header block that goes on and on, a field at a time."""
    fields, sent, holds = raw.field(b"x-a", b"b" * 4000) * 4, 0, timed()
    while holds():
        c = raw.Connection(target)
        c.send(raw.frame(raw.HEADERS, 0, 1, b"\x83\x86"))
        while holds() and c.send(raw.frame(raw.CONTINUATION, 0, 1, fields)):
            sent += len(fields)
            c.read()
            if c.goaway is not None:
                break
        c.close()
    return f"{sent >> 20} MiB sent"


def endless_value(target):
    """One header whose value is said to have 2 GB."""
    sent, holds = 0, timed()
    while holds():
        c = raw.Connection(target)
        c.send(raw.frame(raw.HEADERS, 0, 1, b"\x83\x86\x00" + raw.text(b"x-a") + raw.number(2000000000, 7)))
        while holds() and c.send(raw.frame(raw.CONTINUATION, 0, 1, b"a" * 1000)):
            sent += 1000
            c.read()
            if c.goaway is not None:
                break
        c.close()
    return f"{sent >> 10} KiB sent"


def stream_resets(target):
    """Calls that are begun and reset at once."""
    n, n_connection, holds = 0, 0, timed()
    reset = struct.pack(">I", 8)
    headers = raw.call_headers(GENERATE)
    while holds():
        c = raw.Connection(target)
        n_connection += 1
        while holds() and c.open and c.goaway is None:
            out = b""
            for _ in range(100):
                out += raw.frame(raw.HEADERS, 5, c.next_stream, headers)
                out += raw.frame(raw.RST_STREAM, 0, c.next_stream, reset)
                c.next_stream += 2
            n += 100
            c.send(out)
            c.read()
        c.close()
    return f"{n} calls on {n_connection} connections"


# ---- the course of the test ---------------------------------------------------------------------------

def under_attack(name, target, attack, right, bounded=True):
    before, begin = resident(), time.monotonic()
    neighbour = Neighbour(target, right)
    neighbour.start()
    seen = attack(target)
    neighbour.stopped.set()
    neighbour.join(WAIT_S)
    expect(not neighbour.wrong, f"{name}: the neighbour got {neighbour.wrong[:3]}")
    if not bounded:
        pass
    elif attack is not unfinished_messages:
        expect(not neighbour.is_alive(), f"{name}: the neighbour has no answer")
        expect(not neighbour.failed, f"{name}: the neighbour's calls ended with {neighbour.failed[:3]}")
    else:
        expect(ask_again(neighbour.stub) == right[0], f"{name}: the neighbour is not served afterwards")
    expect(not bounded or neighbour.most < idle + bytes_max, f"{name}: the router took {neighbour.most - idle >> 20} MiB")
    print(f"{name}: {seen}, {time.monotonic() - begin:.1f} s; neighbour {neighbour.n} calls, "
          f"{len(neighbour.failed)} failed, slowest {neighbour.worst_s:.1f} s; router {before >> 20} -> {neighbour.most >> 20} MiB", flush=True)
    if after_s:
        time.sleep(after_s)
        left = resident()
        print(f"{name}: {left >> 20} MiB {after_s:.0f} s later", flush=True)
        until = time.monotonic() + (0 if bounded else WAIT_S)  # a router that was alone has much to work off
        while left > idle + (64 << 20) and time.monotonic() < until:
            time.sleep(1)
            left = resident()
        expect(left < idle + (64 << 20), f"{name}: {left - idle >> 20} MiB are not given back")


def ask_again(stub):
    """As a client does that retries: for some seconds, until it is served."""
    until = time.monotonic() + WAIT_S
    while True:
        try:
            return ask(stub)
        except grpc.RpcError:
            if time.monotonic() > until:
                return None
            time.sleep(0.1)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def start_nghttpx(program):
    port, host_port = free_port(), router.rsplit(":", 1)
    p = subprocess.Popen([program, f"--conf={conf}", f"--frontend=127.0.0.1,{port};no-tls",
                          f"--backend={host_port[0]},{host_port[1]};;proto=h2", "--single-process"],
                         stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    end = time.monotonic() + WAIT_S
    while time.monotonic() < end and p.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return p, f"127.0.0.1:{port}"
        except OSError:
            time.sleep(0.05)
    raise AssertionError("nghttpx does not listen")


def many_at_once(target):
    """N_AT_ONCE requests, begun before the first is answered."""
    stubs = [stub_at(target) for _ in range(N_CHANNEL)]
    right = [ids_of(own.Generate(short_question(i), timeout=WAIT_S)) for i in range(5)]
    # The router refuses what it expects to be late, which on a slow machine is part of so many.
    calls = [stubs[i % N_CHANNEL].Generate(short_question(i), timeout=5 * WAIT_S) for i in range(N_AT_ONCE)]
    wrong = []
    for i, call in enumerate(calls):
        try:
            if ids_of(call) != right[i % 5]:
                wrong.append(f"request {i}: another answer")
        except grpc.RpcError as e:
            wrong.append(f"request {i}: {e.code().name}: {e.details()[:200]}")
    expect(not wrong, f"{len(wrong)} of {N_AT_ONCE} at once: {wrong[:3]}")
    print(f"{N_AT_ONCE} at once: {N_AT_ONCE - len(wrong)} right", flush=True)


nghttpx = shutil.which("nghttpx", path=os.environ["PATH"] + ":/usr/sbin")
if not nghttpx:
    print("skip: no nghttpx (package nghttp2-proxy)")
    sys.exit(77)

own = stub_at(router)
right = [ask(own, i) for i in range(5)]
idle = resident()
own_limits = [gzip_bomb, some_unfinished_messages, idle_calls, large_headers, unfinished_messages]
proxys = [endless_headers, endless_value, stream_resets]
print(f"idle: {idle >> 20} MiB", flush=True)
if only != "nghttpx":
    for attack in own_limits:
        under_attack(f"router, {attack.__name__}", router, attack, right)
    for attack in proxys if after_s else []:
        under_attack(f"router, {attack.__name__}", router, attack, right, bounded=False)
if only != "router":
    proxy, target = start_nghttpx(nghttpx)
    try:
        expect([ask(stub_at(target), i) for i in range(5)] == right, "answers through nghttpx are others")
        for attack in own_limits + proxys:
            under_attack(f"nghttpx, {attack.__name__}", target, attack, right)
        expect(proxy.poll() is None, "nghttpx has ended")
        many_at_once(target)
    finally:
        proxy.kill()
        proxy.wait()
expect(ask_again(own) == right[0], "the router's answers are others now")
print("\n".join(failures) or "ok")
sys.exit(1 if failures else 0)
