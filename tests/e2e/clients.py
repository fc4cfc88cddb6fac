"""The client of docs/CLIENTS.md, as it stands there, against two routers that are killed and started again.

usage: clients.py DESCRIPTOR_SET CLIENTS.md HOST:PORT HOST:PORT FOLDER KEY OTHER_KEY

Asks through both routers with KEY, whose tenant may ask so often only, and through the second one alone, once
each time and with OTHER_KEY, until FOLDER/phase-1 is there. When it and FOLDER/phase-2 are, says after some
more answers "phase N is over"; ends when FOLDER/stop is there. Every request must be answered, and right."""
import os
import re
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from contracts import Contracts, connect  # exits with 77 without grpc
import grpc

set_path, page, first, second, folder, key, other_key = sys.argv[1:]
with open(page, encoding="utf-8") as f:
    (block,) = re.findall(r"```python\n(.*?)```", f.read(), re.S)
exec(block)  # pylint: disable=exec-used
contracts = Contracts(set_path)
inference = contracts.messages("fovea.inference.v1")
channel = grpc.insecure_channel(f"ipv4:{first},{second}", options=[*OPTIONS, ("grpc.enable_http_proxy", 0)])
both = contracts.stub(channel, "fovea.inference.v1.Inference")
alone = contracts.stub(connect(second), "fovea.inference.v1.Inference")
MORE = 6
known = lambda k: [("authorization", f"Bearer {k}")]
there = lambda name: os.path.exists(os.path.join(folder, name))
n_answer, lock, failures = 0, threading.Lock(), []


def request(n):
    return inference.GenerateRequest(prompt=inference.Prompt(text=f"number {n}"), max_tokens=n, ignore_eos=True)


wanted = {n: [t.id for e in alone.Generate(request(n), timeout=120, metadata=known(other_key)) for t in e.tokens.tokens]
          for n in (1, 5, 30)}


def ask(what):
    global n_answer
    for n, want in wanted.items():
        try:
            got = what(n)
        except grpc.RpcError as e:
            got = f"{e.code()}: {e.details()}"
        with lock:
            n_answer += 1
            if got != want:
                failures.append(f"{got} instead of {want}")


def through_both():
    while not there("stop"):
        ask(lambda n: [t.id for t in generate(both, request(n), timeout=120, metadata=known(key))])


def through_the_second():
    while not there("phase-2-begins"):
        ask(lambda n: [t.id for e in alone.Generate(request(n), timeout=120, metadata=known(other_key))
                       for t in e.tokens.tokens])
    print("the second one is left", file=sys.stderr, flush=True)


threads = [threading.Thread(target=t, daemon=True) for t in (through_both, through_both, through_the_second)]
for t in threads:
    t.start()
for phase in ("phase-0", "phase-1", "phase-2"):
    while phase != "phase-0" and not there(phase):
        time.sleep(0.01)
    until = n_answer + MORE
    while n_answer < until:
        time.sleep(0.01)
    print("listening on answers" if phase == "phase-0" else "", flush=True)
    print(f"{phase} is over", file=sys.stderr, flush=True)
for t in threads:
    t.join(120)
    assert not t.is_alive(), "a request hangs"
assert not failures, failures[:3]
