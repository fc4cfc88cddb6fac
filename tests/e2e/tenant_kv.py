"""A tenant's KV memory, from outside: when it has all that it may have, the next request is told when to come
again, and another tenant's is answered.

usage: tenant_kv.py HOST:PORT DESCRIPTOR_SET KEY OTHER_KEY BYTES
       BYTES is what the file gives the tenant of KEY. Exits 77 without grpc
"""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from contracts import Contracts, connect, failure  # exits with 77 without grpc
import grpc

target, set_path, key, other_key, limit = sys.argv[1:]
contracts = Contracts(set_path)
inference = contracts.messages("fovea.inference.v1")
router = contracts.stub(connect(target), "fovea.inference.v1.Inference")


def ask(k, max_tokens, **more):
    m = inference.GenerateRequest(prompt=inference.Prompt(text="hello"), max_tokens=max_tokens, ignore_eos=True, **more)
    return router.Generate(m, timeout=120, metadata=[("authorization", f"Bearer {k}")])


def refused(max_tokens):
    e = failure(lambda: list(ask(key, max_tokens)))
    assert e.code() == grpc.StatusCode.RESOURCE_EXHAUSTED and "this tenant" in e.details(), (e.code(), e.details())
    return dict(e.trailing_metadata()).get("grpc-retry-pushback-ms")


def bound(max_tokens):
    call = ask(other_key, max_tokens)
    accepted = next(call).accepted
    call.cancel()
    return accepted.bytes_bound


most = next(n for n in range(400, 0, -50) if bound(n) <= int(limit))
assert refused(10 * most) is None, "it never may"
kept = list(ask(key, most // 3, keep_ms=60000))[-1].finished
assert kept.keep_ms == 60000, "a third is less than half"
assert refused(most) == "1000", "it has a third"
assert list(ask(key, most // 3))[-1].HasField("finished"), "there is room for that"
assert list(ask(other_key, most))[-1].HasField("finished"), "another tenant is not affected"
