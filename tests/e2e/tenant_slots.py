"""One tenant's load against another's request, at a fleet with tenants: how much of the one is answered while the
other waits, counted in answers and tokens, which do not depend on how fast the machine is.

usage: tenant_slots.py HOST:PORT DESCRIPTOR_SET REQUESTS TOKENS [report]
       tenant a sends REQUESTS of TOKENS tokens; b sends three of 8, one after another, alone and in between.
       report: prints times; else asserts. Exits 77 when Python lacks grpc or protobuf.
"""
import os
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from contracts import Contracts, connect  # exits with 77 without grpc
import grpc

WAIT_S = 280  # for anything that must come: machines may be busy
SHORT = 8

target, set_path, n_request, n_token = sys.argv[1:5]
n_request, n_token, report = int(n_request), int(n_token), sys.argv[5:] == ["report"]
contracts = Contracts(set_path)
inference = contracts.messages("fovea.inference.v1")
keys = {"a": "fovea-key-a", "b": "fovea-key-b"}


def stub():
    """With a connection of its own: a connection has so many streams and no more."""
    return contracts.stub(connect(target, use_local_subchannel_pool=1), "fovea.inference.v1.Inference")


def question(max_tokens):
    turn = inference.Turn(role="user", text="what is it?")
    return inference.GenerateRequest(
        prompt=inference.Prompt(chat=inference.Chat(turns=[turn])), max_tokens=max_tokens, ignore_eos=True)


def ask(router, tenant, max_tokens):
    return router.Generate(question(max_tokens), timeout=WAIT_S,
                           metadata=(("authorization", "Bearer " + keys[tenant]),))


class Load:
    """Requests of tenant a, each read by a thread of its own."""

    def __init__(self):
        self.lock = threading.Lock()
        self.tokens = self.begun = self.done = self.failed = 0
        self.why = ""
        stubs = [stub() for _ in range(4)]
        self.threads = [threading.Thread(target=self.read, args=(stubs[i % 4],)) for i in range(n_request)]
        for t in self.threads:
            t.start()

    def read(self, router):
        first = True
        try:
            for e in ask(router, "a", n_token):
                n = len(e.tokens.tokens)
                with self.lock:
                    self.tokens += n
                    self.begun += first and n > 0
                first = first and n == 0
            with self.lock:
                self.done += 1
        except grpc.RpcError as e:
            with self.lock:
                self.failed += 1
                self.why = e.details()

    def wait(self, holds):
        end = time.monotonic() + WAIT_S
        while not holds() and time.monotonic() < end:
            time.sleep(0.01)
        assert holds(), (self.begun, self.done, self.failed, self.why)


def time_of_b(router):
    begin = time.monotonic()
    n = sum(len(e.tokens.tokens) for e in ask(router, "b", SHORT))
    assert n == SHORT, n
    return time.monotonic() - begin


b = stub()
time_of_b(b)
alone = sorted(time_of_b(b) for _ in range(3))[1]
load = Load()
load.wait(lambda: load.begun >= min(n_request, 4))
time.sleep(0.3)  # the others arrive
for _ in range(3):
    done, tokens = load.done, load.tokens
    s = time_of_b(b)
    done, tokens = load.done - done, load.tokens - tokens
    if report:
        print(f"b: {s:.2f} s, alone {alone:.3f} s; meanwhile a: {done} answers, {tokens} tokens; left {n_request - load.done}")
        continue
    if load.done == n_request:
        break  # a is faster than this program
    assert tokens <= n_request * n_token // 4, f"b waited for {tokens} tokens of a, of {n_request * n_token}"
load.wait(lambda: load.done + load.failed == n_request)
assert load.failed == 0 or report, load.why
if report:
    print(f"a: {load.done} done, {load.failed} failed {load.why}")
