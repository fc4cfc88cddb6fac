"""Responses in a Redis server: found by other gateways of the same key and after a restart, by their owner alone; a store that
is gone, or whose values others have written, is no answer.

usage: gateway_store.py ROUTER GATEWAY_PROGRAM PICTURE DIRECTORY
"""
import base64
import http.client
import json
import os
import shutil
import socket
import subprocess
import sys
import time

WAIT_S = 120  # for anything that must come: machines may be busy
router, program, picture, directory = sys.argv[1:]
if not shutil.which("redis-server"):
    sys.exit(77)
running = []


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


port = free_port()


def start_redis():
    p = subprocess.Popen(["redis-server", "--bind", "127.0.0.1", "--port", str(port), "--save", "", "--requirepass", "secret"],
                         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    running.append(p)
    end = time.monotonic() + WAIT_S
    while time.monotonic() < end:
        try:
            return p, redis("PING") and p
        except OSError:
            time.sleep(0.1)
    raise AssertionError("redis-server does not start")


def redis(*command):
    """One reply: bytes, an int, None, or a list of these."""
    def read(f):
        line = f.readline()[:-2]
        kind, rest = line[:1], line[1:]
        if kind == b"$":
            return f.read(int(rest) + 2)[:-2] if int(rest) >= 0 else None
        if kind == b"*":
            return [read(f) for _ in range(int(rest))]
        assert kind != b"-", line
        return int(rest) if kind == b":" else rest
    with socket.create_connection(("127.0.0.1", port), timeout=WAIT_S) as s:
        f = s.makefile("rwb")
        for c in ("AUTH", "secret"), command:
            args = [a if isinstance(a, bytes) else str(a).encode() for a in c]
            f.write(b"*%d\r\n" % len(args) + b"".join(b"$%d\r\n%s\r\n" % (len(a), a) for a in args))
        f.flush()
        read(f)
        return read(f)


def start_gateway(key="key"):
    path = os.path.join(directory, key)
    if not os.path.exists(path):
        with open(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600), "wb") as f:
            f.write(base64.b64encode(os.urandom(32)))
    p = subprocess.Popen([program, "--router", router, "--listen", "127.0.0.1:0", "--log", "error", "--responses-store-ms", "3000",
                          "--responses-store", f"redis://:secret@127.0.0.1:{port}/0", "--responses-store-key-file", path],
                         stdout=subprocess.PIPE, text=True)
    running.append(p)
    return p, p.stdout.readline().split()[-1]


def send(where, method, path, body=None, key="one"):
    connection = http.client.HTTPConnection(where, timeout=WAIT_S)
    connection.request(method, path, None if body is None else json.dumps(body), {"Authorization": "Bearer " + key})
    reply = connection.getresponse()
    text = reply.read().decode()
    connection.close()
    return reply.status, text


def respond(where, text, **more):
    status, got = send(where, "POST", "/v1/responses", dict(input=text, temperature=0, max_output_tokens=8, **more))
    assert status == 200, (status, got)
    return json.loads(got)


def check():
    server, _ = start_redis()
    first, a = start_gateway()
    _, b = start_gateway()
    _, other = start_gateway("another key")
    with open(picture, "rb") as f:
        image = {"type": "input_image", "image_url": "data:image/png;base64," + base64.b64encode(f.read()).decode()}
    one = respond(a, [{"role": "user", "content": [image, {"type": "input_text", "text": "What number is printed?"}]}])
    assert one["store"] is True
    path = "/v1/responses/" + one["id"]
    assert json.loads(send(b, "GET", path)[1]) == one, "another gateway has it"
    assert send(b, "GET", path, key="two")[0] == 404, "it is its owner's"
    assert send(other, "GET", path)[0] == 404, "gateways of another key find nothing"
    two = respond(b, "And the color?", previous_response_id=one["id"])
    three = respond(a, "Why?", previous_response_id=two["id"])
    assert three["usage"]["input_tokens"] > two["usage"]["input_tokens"] > one["usage"]["input_tokens"]
    items = json.loads(send(b, "GET", path + "/input_items")[1])["data"]
    assert items[0]["content"][0]["type"] == "input_image", items

    first.terminate()
    first.wait(WAIT_S)
    _, a = start_gateway()
    assert json.loads(send(a, "GET", path)[1]) == one, "it outlives its gateway"
    status, stream = send(a, "POST", "/v1/responses", dict(input="x", max_output_tokens=4, stream=True, previous_response_id=three["id"]))
    assert status == 200 and "event: response.incomplete" in stream or "event: response.completed" in stream, stream

    names = redis("KEYS", "*")
    values = {n: redis("GET", n) for n in names}
    assert len(names) == 4 and all(0 < redis("PTTL", n) <= 3600000 for n in names), names
    for n, v in values.items():
        assert one["id"].encode() not in n + v and b"printed" not in v and b"input_image" not in v, "the store learns no text"

    def expect_refused(why):
        for r in one, two, three:
            status, text = send(a, "GET", "/v1/responses/" + r["id"])
            assert status == 500 and "damaged" in text and "output" not in text, (why, status, text)
        status, text = send(a, "POST", "/v1/responses", dict(input="x", previous_response_id=three["id"]))
        assert status == 500 and "damaged" in text, (why, status, text)

    rotated = names[1:] + names[:1]
    for n, m in zip(names, rotated):
        redis("SET", n, values[m])
    expect_refused("values of other names")
    for rubbish in b"", b"x", b"\x01" * 29, os.urandom(1000), b"\xff" * (8 << 20):
        for n in names:
            redis("SET", n, rubbish)
        expect_refused("rubbish")
    for n, v in values.items():
        redis("SET", n, v[:len(v) // 2] + bytes([v[len(v) // 2] ^ 1]) + v[len(v) // 2 + 1:])
    expect_refused("a bit")
    for n, v in values.items():
        redis("SET", n, v)
    assert send(a, "GET", path)[0] == 200
    for n in names:
        redis("SET", n, b"\xff" * ((8 << 20) + 1))
    assert send(a, "GET", path)[0] != 200, "a value that is too large"
    time.sleep(0.5)
    for n, v in values.items():
        redis("SET", n, v)
    status, text = send(b, "DELETE", path)
    assert status == 200 and json.loads(text)["deleted"] is True, text
    assert send(b, "GET", path)[0] == send(b, "DELETE", path)[0] == 404

    server.kill()
    server.wait()
    for _ in range(2):
        begin = time.monotonic()
        status, text = send(b, "GET", "/v1/responses/" + two["id"])
        assert status == 503 and "try again later" in text and f"127.0.0.1:{port}" not in text, (status, text)
        assert respond(b, "Hello")["store"] is False, "what was not kept says so"
        assert time.monotonic() - begin < 60
    start_redis()
    end = time.monotonic() + WAIT_S
    while not respond(b, "Hello")["store"]:
        assert time.monotonic() < end, "it is used again"
        time.sleep(0.2)


try:
    check()
finally:
    for p in running:
        p.kill()
        p.wait()
