"""Bodies that cost more than they should: each is refused for what it is, and the gateway's memory stays near what it was.
A body that nobody has a right to send is not read. usage: gateway_bodies.py HOST:PORT KEY PID

The router knows its callers. PID is that of `fovea up`, whose child the gateway is."""
import base64
import json
import os
import socket
import sys
import threading
import time

address, key, parent = sys.argv[1:]
host, port = address.rsplit(":", 1)
N = 48 << 20  # bytes of a body
RISE_MIB = 160  # of the gateway; a tree of the first body below takes 4900
WAIT_S = 120
CHAT, TEXT = "/v1/chat/completions", "/v1/completions"


def gateway_pid():
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat", encoding="ascii") as f:
                name, rest = f.read().split("(", 1)[1].rsplit(")", 1)
        except OSError:
            continue
        if name == "fovea-gateway" and rest.split()[1] == parent:
            return pid
    raise AssertionError("the gateway does not run")


pid = gateway_pid()


def memory(field):
    with open(f"/proc/{pid}/status", encoding="ascii") as f:
        return next(int(line.split()[1]) // 1024 for line in f if line.startswith(field))


def head(path, n, shown, more=""):
    authorization = f"Authorization: Bearer {shown}\r\n" if shown else ""
    return f"POST {path} HTTP/1.1\r\nHost: localhost\r\n{authorization}{more}Content-Length: {n}\r\n\r\n".encode()


def read_answer(s):
    got = b""
    while b"\r\n\r\n" not in got:
        piece = s.recv(65536)
        assert piece, f"closed after {got!r}"
        got += piece
    top, body = got.split(b"\r\n\r\n", 1)
    fields = dict(line.lower().split(b": ", 1) for line in top.split(b"\r\n")[1:])
    while len(body) < int(fields[b"content-length"]):
        body += s.recv(65536)
    return int(top.split()[1]), fields, json.loads(body)


def post(path, body, shown=key):
    with socket.create_connection((host, int(port)), WAIT_S) as s:
        try:
            s.sendall(head(path, len(body), shown))
            s.sendall(body)
        except OSError:
            pass  # it has heard enough; its answer is there
        status, _, answer = read_answer(s)
        return status, answer["error"]["message"] if "error" in answer else answer


def fill(begin, item, end):
    return begin + b",".join([item] * ((N - len(begin) - len(end)) // (len(item) + 1))) + end


def numbered(begin, end):
    return begin + b",".join(b'"%d":0' % i for i in range(1000000, 1000000 + N // 12)) + end


# ---- who may send a body ---------------------------------------------------------------------------

def check_unread():
    """Nothing but the head is sent, and the answer comes."""
    for shown, more in ((None, ""), ("another", ""), (None, "Expect: 100-continue\r\n")):
        for path in (CHAT, TEXT, "/tokenize", "/detokenize"):
            with socket.create_connection((host, int(port)), WAIT_S) as s:
                s.sendall(head(path, 60 << 20, shown, more))
                status, fields, _ = read_answer(s)
                assert status == 401 and fields[b"connection"] == b"close", (path, status, fields)
                assert fields[b"www-authenticate"] == b"bearer"
    with socket.create_connection((host, int(port)), WAIT_S) as s:
        body = json.dumps({"prompt": "x"}).encode()
        s.sendall(head("/tokenize", len(body), key, "Expect: 100-continue\r\n"))
        assert s.recv(65536).startswith(b"HTTP/1.1 100 "), "who may send a body is asked to"
        s.sendall(body)
        assert read_answer(s)[0] == 200


def check_tenant_beside_strangers():
    """Large bodies without a key, one after another, and a tenant who is answered meanwhile."""
    over = threading.Event()
    body = fill(b'{"messages":[', b"{}", b"]}")[:8 << 20]
    statuses = []

    def send():
        while not over.is_set():
            statuses.append(post(CHAT, body, None)[0])

    thread = threading.Thread(target=send)
    thread.start()
    chat = json.dumps({"messages": [{"role": "user", "content": "hello"}], "max_tokens": 2}).encode()
    answers = [post(CHAT, chat)[0] for _ in range(20)]
    over.set()
    thread.join()
    assert answers == [200] * 20, answers
    assert statuses and set(statuses) == {401}, statuses


# ---- what a body costs -----------------------------------------------------------------------------

picture = base64.b64encode(b"no picture, but base64" * 30000)
part = b'{"type":"image_url","image_url":{"url":"data:image/png;base64,' + picture + b'"}}'
bodies = (
    (CHAT, fill(b'{"messages":[', b"{}", b"]}"), 400, "has no role"),
    (CHAT, fill(b'{"messages":[', b'{"role":"user","content":""}', b"]}"), 400, "more than 4096 messages"),
    (CHAT, fill(b'{"messages":[', b"[]", b"]}"), 400, "must be an object"),
    (CHAT, numbered(b'{"logit_bias":{', b"}}"), 400, "more than 300 ids"),
    (CHAT, numbered(b'{"user":{', b"}}"), 400, "more than 65536 keys"),
    (CHAT, fill(b'{"user":[', b"1.5", b"]}"), 413, "of JSON beside"),
    (CHAT, fill(b'{"user":[', b"[]", b"]}"), 413, "of JSON beside"),
    (CHAT, fill(b'{"user":[', b'""', b"]}"), 413, "of JSON beside"),
    (CHAT, b'{"user":' + b"[" * N, 400, "inside of each other"),
    (CHAT, b'{"user":' + b" " * N, 413, "of JSON beside"),
    (CHAT, b'{"user":' + b"1" * N, 400, "characters"),
    (CHAT, fill(b'{"stop":[', b'""', b"]}"), 400, "more than 16 stop"),
    (CHAT, fill(b'{"tools":[', b"{}", b"]}"), 413, "of JSON beside"),
    (CHAT, numbered(b"{", b"}"), 400, "more than 65536 keys"),
    (TEXT, fill(b'{"prompt":[', b'""', b"]}"), 400, "more than 128 prompts"),
    (CHAT, fill(b'{"messages":[{"role":"user","content":[', b'{"type":"text","text":""}', b"]}]}"), 400, "more than 4096"),
    (CHAT, b'{"messages":[{"role":"user","content":"' + b"x" * N + b'"}]}', 413, "of JSON beside"),
    (CHAT, b'{"messages":[{"role":"user","content":"' + b"\\n" * (N // 2) + b'"}]}', 413, "of JSON beside"),
    (TEXT, fill(b'{"prompt":[', b"1", b"]}"), 400, "token ids"),
    ("/detokenize", fill(b'{"tokens":[', b"1", b"]}"), 400, "token ids"),
    ("/tokenize", b'{"prompt":"' + b"x" * N + b'"}', 413, "of JSON beside"),
    (CHAT, b'{"messages":[{"role":"user","content":[' + b",".join([part] * (N // len(part))) + b"]}]}", 400, "not JPEG, PNG"),
)


def check_cost():
    before = memory("VmRSS")
    for path, body, status, word in bodies:
        got, said = post(path, body)
        assert got == status and word in said, (path, body[:60], got, said)
    deadline = time.time() + WAIT_S
    while memory("VmRSS") > before + RISE_MIB and time.time() < deadline:
        time.sleep(0.1)
    assert memory("VmHWM") <= before + RISE_MIB, (before, memory("VmHWM"))


check_unread()
check_tenant_beside_strangers()
check_cost()
