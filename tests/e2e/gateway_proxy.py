"""Streams through proxies that give up on a server from which nothing comes for three seconds, while a prefill takes
longer: nginx where it is there, and always a small proxy of this file.

The prefill worker is stopped for a while (SIGSTOP), which is a prefill that takes so long. A whole answer is the
control: its proxy gives up, so a stream that arrives has needed its comments.

usage: gateway_proxy.py HOST:PORT PREFILL_PID PROXIES      PROXIES: a folder that may have usr/sbin/nginx
"""
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

WAIT_S = 120  # for anything that must come: machines may be busy
READ_S, STOPPED_S = 3, 4.5  # the proxies' timeout, and the prefill
server, prefill, unpacked = sys.argv[1], int(sys.argv[2]), sys.argv[3]

NGINX = """
daemon off; master_process off; pid {dir}/nginx.pid; error_log {dir}/nginx.err crit; worker_rlimit_nofile 256;
events {{ worker_connections 128; }}
http {{
  access_log off; client_body_temp_path {dir}/body; proxy_temp_path {dir}/proxy; fastcgi_temp_path {dir}/f;
  uwsgi_temp_path {dir}/u; scgi_temp_path {dir}/s;
  server {{
    listen 127.0.0.1:{port};
    location / {{ proxy_pass http://{server}; proxy_read_timeout {read_s}s; proxy_set_header Host $http_host; }}
  }}
}}
"""


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Nginx:
    def __init__(self, program, directory):
        self.port = free_port()
        path = os.path.join(directory, "nginx.conf")
        with open(path, "w", encoding="utf-8") as f:
            f.write(NGINX.format(dir=directory, port=self.port, server=server, read_s=READ_S))
        env = dict(os.environ, LD_LIBRARY_PATH=os.path.join(unpacked, "usr/lib/x86_64-linux-gnu"))
        self.process = subprocess.Popen([program, "-c", path], env=env, stderr=subprocess.DEVNULL)
        until = time.monotonic() + WAIT_S
        while time.monotonic() < until and self.process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return
            except OSError:
                time.sleep(0.05)
        raise RuntimeError("nginx does not start")

    def end(self):
        self.process.terminate()
        self.process.wait(WAIT_S)


class Small:
    """Passes one request a connection on, byte by byte, and answers 504 as nginx does."""

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client = self.listener.accept()[0]
            except OSError:
                return
            threading.Thread(target=self.serve, args=(client,), daemon=True).start()

    def serve(self, client):
        host, port = server.rsplit(":", 1)
        with client, socket.create_connection((host, int(port))) as upstream:
            threading.Thread(target=self.pump, args=(client, upstream), daemon=True).start()
            upstream.settimeout(READ_S)
            begun = False
            try:
                while piece := upstream.recv(65536):
                    client.sendall(piece)
                    begun = True
            except TimeoutError:
                if not begun:
                    client.sendall(b"HTTP/1.1 504 Gateway Time-out\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")

    @staticmethod
    def pump(client, upstream):
        try:
            while piece := client.recv(65536):
                upstream.sendall(piece)
        except OSError:
            pass

    def end(self):
        self.listener.close()


def ask(port, stream):
    """The status and the body, of a request during which the prefill worker is stopped for a while."""
    body = {"messages": [{"role": "user", "content": "Name the color of the square."}], "temperature": 0, "max_tokens": 8,
            "ignore_eos": True, "stream": stream}
    os.kill(prefill, signal.SIGSTOP)
    timer = threading.Timer(STOPPED_S, os.kill, (prefill, signal.SIGCONT))
    timer.start()
    try:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_S)
        connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Connection": "close"})
        reply = connection.getresponse()
        return reply.status, reply.read().decode()
    finally:
        timer.join()
        connection.close()


def text_of(events):
    lines = [line[6:] for line in events.split("\n") if line.startswith("data: ")]
    assert lines[-1] == "[DONE]", events
    return "".join(json.loads(line)["choices"][0]["delta"].get("content", "") for line in lines[:-1])


def check(name, proxy, wanted):
    status, events = ask(proxy.port, True)
    assert status == 200, f"{name}: a stream gets {status}: {events}"
    assert ": keep-alive\n" in events, f"{name}: {events}"
    assert text_of(events) == wanted, f"{name}: {events}"
    status, _ = ask(proxy.port, False)
    assert status == 504, f"{name}: the control gets {status}: this proxy does not give up"
    proxy.end()
    print(f"{name}: a stream arrives", flush=True)


status, whole = ask(int(server.rsplit(":", 1)[1]), False)
assert status == 200, whole
answer = json.loads(whole)["choices"][0]["message"]["content"]
check("small proxy", Small(), answer)
nginx = os.path.join(unpacked, "usr/sbin/nginx")
nginx = nginx if os.path.exists(nginx) else shutil.which("nginx", path=os.environ["PATH"] + ":/usr/sbin")
if nginx:
    with tempfile.TemporaryDirectory() as tmp:
        check("nginx", Nginx(nginx, tmp), answer)
print("ok")
