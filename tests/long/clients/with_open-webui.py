"""Open WebUI, unmodified, in a browser: sign up, log in, drop an image, ask, and ask again.

usage: with_open-webui.py HOST:PORT PICTURE; exits with 77 without open-webui or chromedriver
"""
import base64
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

from client import QUESTION, WAIT_S, base_url, check, picture, skip_without

program = os.path.join(os.path.dirname(sys.executable), "open-webui")
if not os.path.exists(program):
    skip_without("no open-webui beside python", "open-webui")
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "support"))
from browser import ENTER, ESCAPE, Browser

MAIL, PASSWORD = "tester@example.com", "a-long-Pass-w0rd"
SAID = "[...document.querySelectorAll('.chat-assistant')].map(e => e.innerText.trim())"
work = tempfile.mkdtemp()
with socket.socket() as s:
    s.bind(("127.0.0.1", 0))
    port = s.getsockname()[1]
at = f"http://127.0.0.1:{port}"


def await_server(server):
    end = time.monotonic() + WAIT_S
    while time.monotonic() < end and server.poll() is None:
        try:
            urllib.request.urlopen(f"{at}/health", timeout=5)
            return
        except OSError:
            time.sleep(0.5)
    raise AssertionError("it does not start")


def step(what):
    print(what, flush=True)


def sign(path, *fields):
    b.open(at + path)
    b.wait("the form", "!!document.querySelector('input[type=password]') || [...document.querySelectorAll('button')].some(e => e.innerText.includes('Get started'))")
    b.run("[...document.querySelectorAll('button')].find(e => e.innerText.includes('Get started'))?.click()")
    b.wait("the form", "!!document.querySelector('input[type=password]')")
    for selector, text in fields:
        b.type(selector, text)
    b.type("input[type=password]", PASSWORD + ENTER)
    b.wait("the chat", "!!document.getElementById('chat-input')")


def ask(text, n):
    """The answer to the n-th question, when it has not grown for two seconds."""
    b.type("#chat-input", text + ENTER)
    b.wait(f"answer {n}", f"{SAID}.length === {n} && {SAID}[{n - 1}] !== ''")
    before, now = "", b.run("return " + SAID)[-1]
    while before != now:
        time.sleep(2)
        before, now = now, b.run("return " + SAID)[-1]
    return now


env = {**os.environ, "DATA_DIR": work, "WEBUI_SECRET_KEY": base64.b64encode(os.urandom(32)).decode(), "OPENAI_API_BASE_URL": base_url,
       "OPENAI_API_KEY": "unused", "ENABLE_OLLAMA_API": "False", "RAG_EMBEDDING_ENGINE": "openai", "HF_HUB_OFFLINE": "1",
       "ENABLE_VERSION_UPDATE_CHECK": "False", "ANONYMIZED_TELEMETRY": "False", "DO_NOT_TRACK": "1", "SCARF_NO_ANALYTICS": "1"}
with open(f"{work}/log", "wb") as log:
    server = subprocess.Popen([program, "serve", "--host", "127.0.0.1", "--port", str(port)], env=env, cwd=work, stdin=subprocess.DEVNULL,
                              stdout=log, stderr=log)
b = None
try:
    await_server(server)
    step("it serves")
    b = Browser()
    b.size(1280, 900)
    sign("/", ("input[autocomplete=name]", "Tester"), ("input[type=email]", MAIL))
    step("signed up")
    b.run("localStorage.clear()")
    sign("/auth", ("input[type=email]", MAIL))
    step("logged in")
    time.sleep(2)
    b.type("body", ESCAPE)  # the notes of the release
    b.run("""const bytes = Uint8Array.from(atob(arguments[0]), c => c.charCodeAt(0)), d = new DataTransfer();
             d.items.add(new File([bytes], 'dropped.png', {type: 'image/png'}));
             for (const kind of ['dragover', 'drop'])
                 document.getElementById('chat-input').dispatchEvent(new DragEvent(kind, {dataTransfer: d, bubbles: true, cancelable: true}))""", picture)
    b.wait("the image", "!!document.querySelector('#message-input-container img')")
    check(ask(QUESTION, 1), "with the image")
    assert ask("What is the number?", 2), "the next turn has no answer"
except Exception:
    with open(f"{work}/log", encoding="utf-8", errors="replace") as f:
        print(f.read()[-3000:])
    raise
finally:
    if b:
        b.close()
    server.terminate()
    server.wait(WAIT_S)
    shutil.rmtree(work, ignore_errors=True)
