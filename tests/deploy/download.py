"""The download of a checkpoint before a worker starts (deploy/kubernetes/components/download), against a web server
of this test.

usage: download.py ROOT
"""
import functools
import hashlib
import http.server
import os
import shutil
import subprocess
import sys
import tempfile
import threading

root = os.path.abspath(sys.argv[1])
component = os.path.join(root, "deploy/kubernetes/components/download")
checkpoint = os.path.join(root, "checkpoints/nano")
if not shutil.which("curl"):
    print("skip: no curl")
    sys.exit(77)
asked = []


class Handler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        asked.append(self.path)


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=checkpoint))
threading.Thread(target=server.serve_forever, daemon=True).start()
url = f"http://127.0.0.1:{server.server_address[1]}"
into = tempfile.mkdtemp(prefix="fovea-download-")


def fetch(sums):
    return subprocess.run(["sh", f"{component}/fetch.sh", sums, into], capture_output=True, text=True, timeout=100,
                          env={**os.environ, "FOVEA_MODEL_URL": url, "no_proxy": "127.0.0.1"})


def digest(path):
    with open(path, "rb") as f:
        return hashlib.sha256(f.read()).hexdigest()


def wrong(line):
    path = os.path.join(into, "..", os.path.basename(into) + ".sums")
    with open(path, "w", encoding="utf-8") as f:
        f.write(line + "\n")
    r = fetch(path)
    os.remove(path)
    assert r.returncode != 0, line
    return r.stderr


try:
    listed = dict(reversed(line.split()) for line in open(f"{component}/SHA256SUMS", encoding="utf-8"))
    assert {n for n in os.listdir(checkpoint) if n.endswith((".safetensors", ".json"))} <= set(listed) | {"curves.jsonl"}
    r = fetch(f"{component}/SHA256SUMS")
    assert r.returncode == 0, r.stderr
    assert {n: digest(os.path.join(into, n)) for n in os.listdir(into)} == listed
    asked.clear()
    with open(f"{into}/config.json", "w", encoding="utf-8") as f:
        f.write("half")
    r = fetch(f"{component}/SHA256SUMS")  # as after a container that was ended
    assert r.returncode == 0 and asked == ["/config.json"], (r.stderr, asked)
    assert "its SHA-256 is not" in wrong(f"{'0' * 64}  tokenizer.json")
    assert digest(f"{into}/tokenizer.json") == listed["tokenizer.json"], "the right one stays"
    assert not os.path.exists(f"{into}/tokenizer.json.part")
    assert "404" in wrong(f"{'0' * 64}  nothing.json")
    for name in ("../x", "/etc/x", ".x"):
        assert "is no name of a file" in wrong(f"{'0' * 64}  {name}"), name
finally:
    shutil.rmtree(into)
print(f"ok: {len(listed)} files")
