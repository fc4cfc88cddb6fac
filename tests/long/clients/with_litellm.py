"""LiteLLM's proxy, unmodified, in front of the gateway: a whole answer, a stream, its health check.

usage: with_litellm.py HOST:PORT PICTURE; exits with 77 without litellm[proxy]
"""
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

from client import QUESTION, WAIT_S, base_url, check, name, picture_url, skip_without

program = os.path.join(os.path.dirname(sys.executable), "litellm")
if not os.path.exists(program):
    skip_without("no litellm beside python", "litellm")
KEY = "sk-0f1e2d3c4b5a69788796a5b4c3d2e1f0"
with socket.socket() as s:
    s.bind(("127.0.0.1", 0))
    at = f"http://127.0.0.1:{s.getsockname()[1]}"


def get(path, body=None):
    headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    return urllib.request.urlopen(urllib.request.Request(at + path, data, headers), timeout=WAIT_S).read().decode()


def await_proxy(proxy):
    end = time.monotonic() + WAIT_S
    while time.monotonic() < end and proxy.poll() is None:
        try:
            get("/health/liveliness")
            return
        except OSError:
            time.sleep(0.2)
    raise AssertionError("the proxy does not start")


work = tempfile.mkdtemp()
with open(f"{work}/config.yaml", "w", encoding="utf-8") as f:
    json.dump({"model_list": [{"model_name": "pictures", "model_info": {"mode": "chat"},
                               "litellm_params": {"model": "openai/" + name, "api_base": base_url, "api_key": "unused"}}]}, f)
env = {**os.environ, "LITELLM_MASTER_KEY": KEY, "LITELLM_LOCAL_MODEL_COST_MAP": "True", "NO_DOCS": "True"}
with open(f"{work}/log", "wb") as log:
    proxy = subprocess.Popen([program, "--config", f"{work}/config.yaml", "--host", "127.0.0.1", "--port", at.rsplit(":", 1)[1],
                              "--telemetry", "False"], env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
try:
    await_proxy(proxy)
    body = {"model": "pictures", "temperature": 0, "messages": [{"role": "user", "content": [
        {"type": "text", "text": QUESTION}, {"type": "image_url", "image_url": {"url": picture_url}}]}]}
    check(json.loads(get("/v1/chat/completions", body))["choices"][0]["message"]["content"], "whole")
    events = [json.loads(l[6:]) for l in get("/v1/chat/completions", {**body, "stream": True}).splitlines() if l.startswith("data: {")]
    check("".join(e["choices"][0]["delta"].get("content") or "" for e in events if e["choices"]), "stream")
    health = json.loads(get("/health"))
    assert health["healthy_count"] == 1 and health["unhealthy_count"] == 0, health
except Exception:
    with open(f"{work}/log", encoding="utf-8", errors="replace") as f:
        print(f.read()[-3000:])
    raise
finally:
    proxy.terminate()
    proxy.wait(WAIT_S)
    shutil.rmtree(work)
