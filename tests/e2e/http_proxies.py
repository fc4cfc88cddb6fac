"""Mutated requests through nginx and HAProxy to an HTTP server of ours, which writes down what it has seen.

Each proxy gives each request that it passes on a name (X-Seq), and logs it. If a proxy and the server disagree on where a
request ends, the server sees one without a name, a name twice, or another method or body than the proxy has logged; or
a client gets the answer to somebody else's request. The proxies keep their connections to the server, so that what is
left over of one request would be the beginning of another client's.

usage: http_proxies.py SERVER_HOST:PORT FILE COUNT PROXIES   FILE: what the server has seen, a line "SEQ... | METHOD LENGTH"
                                                             PROXIES: a folder with usr/sbin/nginx and usr/sbin/haproxy
"""
import collections
import os
import random
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time

server, seen_path, count, unpacked = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]

NGINX = """
daemon off; master_process off; pid {dir}/nginx.pid; error_log {dir}/nginx.err crit; worker_rlimit_nofile 1024;
events {{ worker_connections 512; }}
http {{
  log_format seen '$connection-$connection_requests $request_method $content_length $upstream_status';
  access_log {dir}/nginx.log seen;
  client_body_temp_path {dir}/body; proxy_temp_path {dir}/proxy; fastcgi_temp_path {dir}/f; uwsgi_temp_path {dir}/u;
  scgi_temp_path {dir}/s; client_header_timeout 5s; client_body_timeout 5s; ignore_invalid_headers off;
  underscores_in_headers on; server_tokens off;
  upstream gateway {{ server {server}; keepalive 8; }}
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass http://gateway; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_set_header Host $http_host;
      proxy_set_header X-Seq $connection-$connection_requests; proxy_request_buffering {buffering};
      proxy_ignore_client_abort on; proxy_next_upstream off;
    }}
  }}
}}
"""

HAPROXY = """
global
  log stdout format raw local0
  maxconn 512
defaults
  mode http
  timeout connect 5s
  timeout client 5s
  timeout server 5s
  timeout http-request 5s
  retries 0
  http-reuse always
frontend front
  bind 127.0.0.1:{port}
  unique-id-format %ci-%cp-%rt
  log-format "%ID %HM %[capture.req.hdr(0)] %ST %ts"
  log global
  declare capture request len 64
  http-request capture req.hdr(Content-Length) id 0
  http-request set-header X-Seq %[unique-id]
  default_backend gateway
backend gateway
  server one {server} maxconn 64
"""


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


# ---- requests ----------------------------------------------------------------------------------

BASES = [
    b"GET /a?b=c HTTP/1.1\r\nHost: x\r\nAccept: */*\r\n\r\n",
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: x:80\r\nContent-Type: application/json\r\nContent-Length: 11\r\n\r\nhello world",
    b"POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6;a=b\r\n world\r\n0\r\n\r\n",
    b"POST /a HTTP/1.0\r\nHost: x\r\nContent-Length: 5\r\nConnection: keep-alive\r\n\r\nhello",
    b"GET http://x/a HTTP/1.1\r\nHost: x\r\nUser-Agent: one\r\nX-Forwarded-For: 1.2.3.4\r\n\r\n",
    b"PUT /a HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\nabc",
]
LINES = [
    b"Content-Length: 0", b"Content-Length: 5", b"Content-Length: 37", b"Content-Length : 5", b"Content-Length: 5, 5",
    b"Content-Length: +5", b"Content-Length: 5\x00", b"Content-Length: 0x5", b"Content_Length: 5", b"Content-Length:5",
    b"Transfer-Encoding: chunked", b"Transfer-Encoding : chunked", b"Transfer-Encoding: identity", b"Transfer-Encoding: xchunked",
    b"Transfer-Encoding: gzip, chunked", b"Transfer-Encoding: chunked, identity", b"Transfer-Encoding:\tchunked",
    b"Transfer-Encoding:\x0bchunked", b"Transfer-Encoding: \"chunked\"", b"transfer-encoding: CHUNKED", b"Transfer-Encoding: chunked\r\n ",
    b"X: y\r\n Transfer-Encoding: chunked", b"Transfer\x00-Encoding: chunked", b"Transfer-Encoding: chunked;q=1", b"TE: chunked",
    b"Host: y", b"Host : x", b"Host: x@y", b"Host: [::1]y", b"Connection: close", b"Connection: content-length, host",
    b"Connection: transfer-encoding", b"Upgrade: h2c\r\nConnection: upgrade", b"Expect: 100-continue", b"X-Seq: forged", b"X\r: y",
    b"X: a\rY: b", b"X: a\nTransfer-Encoding: chunked", b"X: \x7f\x01", b"GET /smuggled HTTP/1.1\r\nHost: x", b"", b" ",
]
PARTS = [b"\n", b"\r", b"\r\n", b"\r\n\r\n", b"\x00", b" ", b"\t", b":", b";", b"0\r\n\r\n", b"\x85", b"\xa0", b"\xff", b"GET ", b"HTTP/1.1",
         b"0", b"00000000000000000", b"ffffffffffffffff", b"-", b"#", b"?", b"%00"]
AFTER = b"GET /after HTTP/1.1\r\nHost: x\r\n\r\n"


def mutate(rng):
    request = rng.choice(BASES)
    for _ in range(rng.randint(0, 3)):
        kind, at = rng.randrange(6), rng.randrange(len(request) + 1)
        if kind <= 1:
            lines = request.split(b"\r\n")
            lines.insert(rng.randint(1, max(1, min(len(lines) - 1, 4))), rng.choice(LINES))
            request = b"\r\n".join(lines)
        elif kind == 2:
            request = request[:at] + rng.choice(PARTS) + request[at:]
        elif kind == 3:
            request = request[:at] + request[at + rng.randint(1, 3):]
        elif kind == 4 and at < len(request):
            request = request[:at] + bytes([request[at] ^ (1 << rng.randrange(8))]) + request[at + 1:]
        else:
            request = request.replace(b"\r\n", b"\n", 1) if rng.randrange(2) else request.replace(b": ", b":" + rng.choice(PARTS), 1)
    return request


def exchange(port, data):
    """All that is answered, by a proxy that sees the end of what is sent."""
    got = b""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as s:
        try:
            s.sendall(data)
            s.shutdown(socket.SHUT_WR)
            while piece := s.recv(65536):
                got += piece
        except (ConnectionResetError, BrokenPipeError):
            pass
    return got


# ---- proxies -----------------------------------------------------------------------------------

class Proxy:
    def __init__(self, name, directory, config, command, env=None):
        self.name, self.port, self.directory = name, free_port(), directory
        path = os.path.join(directory, name + ".conf")
        with open(path, "w", encoding="utf-8") as f:
            f.write(config.format(dir=directory, port=self.port, server=server,
                                  buffering="on" if name == "nginx" else "off"))
        with open(os.path.join(directory, "said.log"), "wb") as said:
            self.process = subprocess.Popen(command + [path], env=env, stdout=said, stderr=subprocess.DEVNULL)
        until = time.monotonic() + 60
        while True:
            try:
                exchange(self.port, AFTER)
                return
            except OSError:
                if self.process.poll() is not None or time.monotonic() > until:
                    raise RuntimeError(f"{name} does not start") from None
                time.sleep(0.05)

    def end(self):
        self.process.terminate()
        self.process.wait(60)


def find(name):
    path = os.path.join(unpacked, "usr/sbin", name)
    return path if os.path.exists(path) else shutil.which(name, path=os.environ["PATH"] + ":/usr/sbin")


def read_seen():
    """Name -> (method, length); and the requests whose name is not one."""
    named, odd = collections.defaultdict(list), []
    with open(seen_path, encoding="latin-1") as f:
        for line in f.read().splitlines():
            names, rest = line.split(" | ", 1)
            names = names.split()
            (named[names[0]].append(rest.split()) if len(names) == 1 and "-" in names[0] else odd.append(line))
    return named, odd


def settle():
    """Until the server sees nothing more."""
    before = -1
    while before != os.path.getsize(seen_path):
        before = os.path.getsize(seen_path)
        time.sleep(0.3)


failures = []


def compare(name, logged):
    """logged: lines "NAME METHOD LENGTH STATUS ..." of the proxy."""
    named, odd = read_seen()
    n = 0
    for line in odd:
        failures.append(f"{name}: the server has seen a request that the proxy did not mean: {line}")
    for key, requests in named.items():
        if len(requests) > 1:
            failures.append(f"{name}: {key} was seen {len(requests)} times")
    for line in logged:
        words = line.split()
        if len(words) < 4 or words[3] != "200":
            continue
        n += 1
        key, method, length = words[:3]
        got = named.pop(key, [None])[0]
        if got is None:
            failures.append(f"{name}: the proxy has an answer to a request that the server has not seen: {line}")
        elif got[0] != method or (length.isdigit() and got[1] != length):
            failures.append(f"{name}: the proxy meant {method} {length}, the server has seen {got}")
    return n


def check_answers(name, data, got):
    """The answers that a client gets are to its own requests: the server repeats their names."""
    names = re.findall(rb"\r\nX-Seq: ([^\r\n]*)", got, re.IGNORECASE)
    owners = {n.rsplit(b"-", 1)[0] for n in names}
    if len(names) != len(set(names)) or len(owners) > 1:
        failures.append(f"{name}: answers {names} to {data!r}")


def run(name, directory, seed):
    env = dict(os.environ, LD_LIBRARY_PATH=os.path.join(unpacked, "usr/lib/x86_64-linux-gnu"))
    if name == "haproxy":
        proxy = Proxy(name, directory, HAPROXY, [find(name), "-db", "-f"], env)
    else:
        proxy = Proxy(name, directory, NGINX, [find("nginx"), "-c"], env)
    rng = random.Random(seed)
    answered = 0
    for _ in range(count // 3):
        data = mutate(rng) + AFTER
        got = exchange(proxy.port, data)
        answered += got.lower().count(b"\r\nx-seq: ")
        check_answers(name, data, got)
    settle()
    proxy.end()
    with open(os.path.join(directory, "said.log" if name == "haproxy" else "nginx.log"), encoding="latin-1") as f:
        lines = f.read().splitlines()
    n = compare(name, lines)
    if n < count // 3 // 4 or answered < count // 3 // 4:
        failures.append(f"{name}: only {n} requests of {count // 3} came through ({answered} answers)")
    print(f"{name}: {count // 3} connections, {n} requests passed on")
    open(seen_path, "w", encoding="utf-8").close()


if not find("nginx") or not find("haproxy"):
    print("skip: no nginx or no haproxy (./dev test unpacks Debian's)")
    sys.exit(77)
for number, proxy_name in enumerate(["nginx", "nginx-unbuffered", "haproxy"]):
    with tempfile.TemporaryDirectory() as tmp:
        run(proxy_name, tmp, number)
print("\n".join(failures[:20]) or "ok")
sys.exit(1 if failures else 0)
