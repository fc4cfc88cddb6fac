"""Streams over HTTP that nobody reads: others are answered, the streams end after a while, and the decode worker's memory
goes back to the system.

usage: unread_streams.py HTTP_HOST:PORT ROUTER_HOST:PORT DESCRIPTOR_SET DECODE_PID
       the router trusts 127.0.0.1 to say for whom it calls. Exits 77 when Python lacks grpc or protobuf.
"""
import json
import os
import socket
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from contracts import Contracts, connect  # exits with 77 without grpc

WAIT_S = 120  # for anything that must come: machines may be busy
STREAMS, CHOICES, TOKENS = 6, 16, 900
MIB = 1 << 20

http, target, set_path, decode_pid = sys.argv[1:]
contracts = Contracts(set_path)
inference = contracts.messages("fovea.inference.v1")
router = contracts.stub(connect(target), "fovea.inference.v1.Inference")


def memory():
    """Bytes of the decode worker that no file backs."""
    with open(f"/proc/{decode_pid}/status") as f:
        (line,) = [line for line in f if line.startswith("RssAnon")]
    return int(line.split()[1]) << 10


def load():
    workers = router.GetFleet(inference.GetFleetRequest(), timeout=WAIT_S).workers
    (decode,) = [w.load for w in workers if w.role == 2]
    return decode


def wait_until(what, holds):
    end = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < end, f"not within {WAIT_S} s: {what}"
        time.sleep(0.05)


def ask_from_elsewhere():
    turn = inference.Turn(role="user", text="what is it?")
    m = inference.GenerateRequest(
        prompt=inference.Prompt(chat=inference.Chat(turns=[turn])), max_tokens=8, ignore_eos=True)
    events = router.Generate(m, timeout=WAIT_S, metadata=(("x-forwarded-for", "192.0.2.2"),))
    assert sum(len(e.tokens.tokens) for e in events) == 8


def open_stream():
    body = json.dumps({"messages": [{"role": "user", "content": "tell me"}], "stream": True, "n": CHOICES,
                       "max_tokens": TOKENS, "ignore_eos": True, "logprobs": True, "top_logprobs": 20})
    host, port = http.rsplit(":", 1)
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    s.connect((host, int(port)))
    s.sendall(f"POST /v1/chat/completions HTTP/1.1\r\nHost: {http}\r\nContent-Type: application/json\r\n"
              f"Content-Length: {len(body)}\r\n\r\n{body}".encode())
    return s


ask_from_elsewhere()
before = memory()
streams = [open_stream() for _ in range(STREAMS)]
wait_until("answers that nobody reads pause", lambda: load().n_unread > 0)
for _ in range(3):
    ask_from_elsewhere()
peak = memory()
wait_until("streams that nobody reads end", lambda: load().n_running + load().n_queued + load().bytes_held == 0)
ask_from_elsewhere()
for s in streams:
    s.close()
wait_until(f"memory goes back: {before // MIB} MiB before, {peak // MIB} then",
           lambda: memory() < before + max(peak - before, 32 * MIB) / 2)
