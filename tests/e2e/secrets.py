"""What a fleet logs of its callers at --log debug: nothing that they keep secret.

usage: secrets.py HOST:PORT DESCRIPTOR_SET KEY LOG
       KEY is an API key that is valid; LOG is what the fleet writes to stderr. Exits 77 without grpc
"""
import base64
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from contracts import Contracts, connect, failure  # exits with 77 without grpc
import grpc

target, set_path, key, log_path = sys.argv[1:]
contracts = Contracts(set_path)
inference = contracts.messages("fovea.inference.v1")
router = contracts.stub(connect(target), "fovea.inference.v1.Inference")
PROMPT, STOP = "wistariaarbour", "pergolagate"
secrets = {"key": key.encode(), "wrong key": b"wrongwisteria", "wrong token": b"eyJh.eyJi.wistaria",
           "prompt": PROMPT.encode(), "stop string": STOP.encode()}


def request(**more):
    return inference.GenerateRequest(prompt=inference.Prompt(text=PROMPT), max_tokens=3, stop=[STOP], **more)


def ask(shown, m):
    return list(router.Generate(m, timeout=120, metadata=[("authorization", f"Bearer {shown}")]))


events = ask(key, request(keep_ms=60000))
secrets["abort token"] = events[0].accepted.abort_token.split("/")[1].encode()
secrets["answer"] = "".join(e.tokens.text for e in events).encode()
handle = events[-1].finished.conversation
assert len(handle) > 16
secrets["handle"] = handle[:16]
ask(key, request(conversation=handle))
for shown, m, code in [(key, request(conversation=handle), grpc.StatusCode.NOT_FOUND),
                       ("wrongwisteria", request(), grpc.StatusCode.UNAUTHENTICATED),
                       ("eyJh.eyJi.wistaria", request(), grpc.StatusCode.UNAUTHENTICATED),
                       (key, request(model="other"), grpc.StatusCode.NOT_FOUND),
                       (key, request(request_id="a b"), grpc.StatusCode.INVALID_ARGUMENT)]:
    e = failure(lambda: ask(shown, m))
    assert e.code() == code, (e.code(), e.details())
    assert not any(s in e.details().encode() for s in (b"wisteria", b"wistaria")), e.details()

with open(log_path, "rb") as f:
    log = f.read()
assert log.count(b"event=refused") >= 2, "each refused identity has its line"
for name, s in secrets.items():
    for form in (s, s.hex().encode(), base64.b64encode(s).rstrip(b"=")):
        assert len(form) < 6 or form.lower() not in log.lower(), f"the log has the {name}"
long = re.findall(rb"[0-9a-f]{32,}", log)
assert not long, f"a ticket or proof is logged: {long[0]}"
