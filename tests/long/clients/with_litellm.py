"""LiteLLM's proxy, unmodified, in front of the gateway: a whole answer, a stream, a schema, a call of a tool, its health
check, the Responses API with a stream, structured text and a tool, and Anthropic's messages, which it makes responses of.

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

from client import QUESTION, WAIT_S, base_url, check, name, picture, picture_url, skip_without

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


def text_of(response):
    return "".join(c["text"] for i in response["output"] if i["type"] == "message" for c in i["content"])


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
    shape = {"type": "object", "properties": {"color": {"enum": ["red", "white"]}}, "required": ["color"], "additionalProperties": False}
    named = {"name": "square", "schema": shape, "strict": True}
    said = json.loads(get("/v1/chat/completions", {**body, "response_format": {"type": "json_schema", "json_schema": named}}))
    assert json.loads(said["choices"][0]["message"]["content"])["color"] in ("red", "white"), said
    tool = {"name": "paint", "parameters": shape}
    said = json.loads(get("/v1/chat/completions", {**body, "tools": [{"type": "function", "function": tool}], "tool_choice": "required"}))
    assert json.loads(said["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"])["color"] in ("red", "white"), said
    ask = {"model": "pictures", "temperature": 0, "input": [{"role": "user", "content": [
        {"type": "input_text", "text": QUESTION}, {"type": "input_image", "image_url": picture_url}]}]}
    check(text_of(json.loads(get("/v1/responses", ask))), "response")
    events = [json.loads(l[6:]) for l in get("/v1/responses", {**ask, "stream": True}).splitlines() if l.startswith("data: {")]
    check("".join(e["delta"] for e in events if e["type"] == "response.output_text.delta"), "stream of a response")
    assert events[-1]["type"] == "response.completed", events[-1]
    said = json.loads(get("/v1/responses", {**ask, "text": {"format": {"type": "json_schema", **named}}}))
    assert json.loads(text_of(said))["color"] in ("red", "white"), said
    said = json.loads(get("/v1/responses", {**ask, "tools": [{"type": "function", **tool}], "tool_choice": "required"}))
    call = next(i for i in said["output"] if i["type"] == "function_call")
    assert json.loads(call["arguments"])["color"] in ("red", "white"), said
    said = json.loads(get("/v1/messages", {"model": "pictures", "max_tokens": 16, "temperature": 0, "messages": [{"role": "user", "content": [
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": picture}}, {"type": "text", "text": QUESTION}]}]}))
    check(said["content"][0]["text"], "message")
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
