"""Asks a fleet, and compares the spans that its collector gets with what was asked and answered.

usage: traces.py PART HOST:PORT DESCRIPTOR_SET SPANS PICTURE ROUTER_METRICS [METRICS.md | GATEWAY]
       PART is spans, gateway, away (the collector is), back or stopped (the fleet is)
       exits 77 when Python lacks grpc
"""
import base64
import json
import os
import sys
import time
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from contracts import Contracts, connect, failure  # exits with 77 without grpc
import grpc

part, target, set_path, spans_path, picture_path, metrics, *more = sys.argv[1:]
contracts = Contracts(set_path)
inference = contracts.messages("fovea.inference.v1")
client = contracts.stub(connect(target), "fovea.inference.v1.Inference")
with open(picture_path, "rb") as f:
    picture = f.read()

WAIT_S = 60
TOKENS = 6
SECRET = "what is it, Rumpelstiltskin?"
INTERNAL, SERVER, CLIENT = 1, 2, 3
CALLER = "b7ad6b7169203331"


def generate(trace=None, sampled=True, **more):
    turn = inference.Turn(role="user", text=SECRET, n_images=1)
    fields = {"prompt": inference.Prompt(chat=inference.Chat(turns=[turn])), "images": [inference.Image(data=picture)],
              "max_tokens": TOKENS, "ignore_eos": True, "policy": inference.Policy(preset="quality"), **more}
    metadata = [("traceparent", f"00-{trace}-{CALLER}-0{int(sampled)}")] if trace else []
    return list(client.Generate(inference.GenerateRequest(**fields), timeout=WAIT_S, metadata=metadata))[-1].finished


def spans():
    with open(spans_path) as f:
        return [json.loads(line) for line in f if line.endswith("\n")]


def wait_for(what, true):
    end = time.monotonic() + WAIT_S
    while not true():
        assert time.monotonic() < end, (what, [(s["trace"], s["name"]) for s in spans()])
        time.sleep(0.02)


def of_trace(trace, n):
    """The spans of a trace, when there are n."""
    wait_for(f"{n} spans of {trace}", lambda: sum(s["trace"] == trace for s in spans()) >= n)
    found = [s for s in spans() if s["trace"] == trace]
    assert len(found) == n and len({s["id"] for s in found}) == n, [s["name"] for s in found]
    return found


def exported(outcome):
    with urllib.request.urlopen(f"http://{metrics}/metrics", timeout=WAIT_S) as reply:
        for line in reply.read().decode().splitlines():
            if line.startswith(f'fovea_spans_total{{outcome="{outcome}"}} '):
                return float(line.split()[1])
    raise AssertionError(outcome)


def tree(found, top):
    """Nested names: service without "fovea-", name, and what is below, in the order of the names."""
    def below(span):
        children = sorted((s for s in found if s["parent"] == span), key=lambda s: (s["name"], s["kind"]))
        return [(s["resource"]["service.name"].removeprefix("fovea-"), s["name"], s["kind"], below(s["id"]))
                for s in children]
    return below(top)


def check_traced():
    trace = "0af7651916cd43dd8448eb211c80319c"
    report = generate(trace, request_id="traced").report
    found = of_trace(trace, 17)
    stage = lambda service, name: (service, name, INTERNAL, [])
    assert tree(found, CALLER) == [("router", "Generate", SERVER, [
        ("router", "Decode", CLIENT, [
            ("decode", "Decode", SERVER, [stage("decode", "attach"), stage("decode", "decode")])]),
        ("router", "Prefill", CLIENT, [
            ("prefill", "Prefill", SERVER, [
                ("decode", "Open", SERVER, []), ("decode", "Push", SERVER, []),
                *(stage("prefill", s) for s in ("commit", "open", "prefill", "preprocess", "queue", "send", "vision")),
            ])]),
        stage("router", "queue")])], json.dumps(tree(found, CALLER), indent=1)

    # Times: what is below is within what is above. A span that a message ends is longer than its caller's part
    # at most by the message's way.
    by_id = {s["id"]: s for s in found}
    for s in found:
        assert s["end"] >= s["begin"] and s["scope"] == "fovea" and s["status"] == 0, s
        above = by_id.get(s["parent"])
        assert above is None or (s["begin"] >= above["begin"] - 1e6 and s["end"] <= above["end"] + 1e9), (s, above)
    named = {(s["resource"]["service.name"], s["name"], s["kind"]): s for s in found}

    # Attributes are those of the report.
    router = named["fovea-router", "Generate", SERVER]["attributes"]
    assert router == {
        "fovea.request_id": "traced", "fovea.policy": "quality", "gen_ai.usage.input_tokens": report.n_prompt,
        "gen_ai.usage.output_tokens": TOKENS, "fovea.visual_tokens": report.n_visual,
        "fovea.kv_raw_bytes": report.bytes_raw, "fovea.kv_held_bytes": report.bytes_visual + report.bytes_text,
        "fovea.kv_sent_bytes": report.transfer.bytes_sent, "fovea.replays": 0, "rpc.grpc.status_code": 0}, router
    prefill = named["fovea-prefill", "Prefill", SERVER]["attributes"]
    assert prefill["fovea.policy"] == "quality" and prefill["fovea.request_id"].endswith("/traced")
    assert prefill["gen_ai.usage.input_tokens"] == report.n_prompt
    assert prefill["fovea.kv_sent_bytes"] == report.transfer.bytes_sent
    decode = named["fovea-decode", "Decode", SERVER]["attributes"]
    assert decode["fovea.policy"] == "quality" and decode["gen_ai.usage.output_tokens"] == TOKENS
    assert named["fovea-decode", "Push", SERVER]["attributes"]["fovea.kv_received_bytes"] == report.transfer.bytes_sent
    computed = named["fovea-prefill", "prefill", INTERNAL]["attributes"]
    assert computed["fovea.stages"] == ", ".join(
        f"{s.stage} {s.method} {s.entries_in}>{s.entries_out}" for s in report.stages), computed
    assert named["fovea-router", "Prefill", CLIENT]["attributes"]["fovea.worker"] == "prefill-0"
    assert named["fovea-decode", "Decode", SERVER]["resource"] == {
        "service.name": "fovea-decode", "service.instance.id": "decode-0",
        "service.version": named["fovea-router", "Generate", SERVER]["resource"]["service.version"]}
    assert abs(named["fovea-router", "Generate", SERVER]["begin"] / 1e9 - time.time()) < WAIT_S
    seconds = lambda s: (s["end"] - s["begin"]) / 1e9
    vision = seconds(named["fovea-prefill", "vision", INTERNAL])
    assert abs(vision - report.seconds_vision) < 1e-5, (vision, report.seconds_vision)


def check_others():
    """A request without a trace gets one, and one that is not sampled has no spans."""
    before = {s["trace"] for s in spans()}
    generate("1" * 32, sampled=False)
    generate()
    wait_for("another trace", lambda: {s["trace"] for s in spans()} - before)
    (own,) = {s["trace"] for s in spans()} - before
    found = of_trace(own, 15)  # the image is in the cache: no preprocess, no vision
    (top,) = [s for s in found if not s["parent"]]
    assert top["name"] == "Generate" and len({s["resource"]["service.name"] for s in found}) == 3

    trace = "2" * 32
    wrong = failure(lambda: generate(trace, policy=inference.Policy(preset="no-such-preset"), request_id="wrong"))
    (refused,) = of_trace(trace, 1)
    assert wrong.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert refused["attributes"]["rpc.grpc.status_code"] == 3 and refused["status"] == 0, refused  # the client's error


def check_follow_up():
    trace, turn = "3" * 32, inference.Turn(role="user", text="and now?")
    kept = generate(keep_ms=60000)
    report = generate(trace, conversation=kept.conversation, images=[], policy=None,
                      prompt=inference.Prompt(chat=inference.Chat(turns=[turn]))).report
    stage = lambda name: ("decode", name, INTERNAL, [])
    found = of_trace(trace, 7)
    assert tree(found, CALLER) == [("router", "Generate", SERVER, [
        ("router", "Decode", CLIENT, [
            ("decode", "Decode", SERVER, [stage("decode"), stage("prefill"), stage("queue")])]),
        ("router", "queue", INTERNAL, [])])], json.dumps(tree(found, CALLER), indent=1)
    (decode,) = [s for s in found if s["name"] == "Decode" and s["kind"] == SERVER]
    assert decode["attributes"]["fovea.policy"] == "quality"
    with open(spans_path) as f:
        text = f.read()
    for handle in (kept.conversation[:16].hex(), base64.b64encode(kept.conversation[:15]).decode()):
        assert handle not in text, "the handle of a conversation is in a span"


def check_documented():
    """All names are in the table, and nothing of prompts and answers is in any span."""
    with open(more[0]) as f:
        table = f.read().split("## Traces", 1)[1].split("\n## ", 1)[0]
    for s in spans():
        for name in (s["name"], *s["attributes"]):
            assert f"`{name}`" in table, name
    with open(spans_path) as f:
        assert "Rumpelstiltskin" not in f.read()


def check_spans():
    check_traced()
    check_others()
    check_follow_up()
    check_documented()
    assert exported("sent") >= 4 and exported("dropped") == 0


def check_gateway():
    """Its span is between the client's and the router's."""
    def post(stream, traceparent):
        body = {"messages": [{"role": "user", "content": SECRET}], "max_tokens": 3, "ignore_eos": True, "stream": stream}
        request = urllib.request.Request(f"http://{more[0]}/v1/chat/completions", json.dumps(body).encode(),
                                         {"traceparent": traceparent} if traceparent else {})
        with urllib.request.urlopen(request, timeout=WAIT_S) as reply:
            reply.read()

    for i, stream in enumerate((False, True)):
        trace = f"{i + 7}" * 32
        post(stream, f"00-{trace}-{CALLER}-01")
        found = of_trace(trace, 16)  # no image
        ((service, name, kind, below),) = tree(found, CALLER)
        assert (service, name, kind) == ("gateway", "chat", SERVER)
        assert [(b[0], b[1], b[2]) for b in below] == [("router", "Generate", SERVER)], below
        (chat,) = [s for s in found if s["name"] == "chat"]
        prompt = chat["attributes"].pop("gen_ai.usage.input_tokens")
        assert prompt > 3 and chat["attributes"] == {
            "http.request.method": "POST", "http.route": "/v1/chat/completions", "http.response.status_code": 200,
            "fovea.choices": 1, "gen_ai.usage.output_tokens": 3}, chat
    before = {s["trace"] for s in spans()}
    post(False, None)
    wait_for("a trace of the gateway", lambda: {s["trace"] for s in spans()} - before)
    (own,) = {s["trace"] for s in spans()} - before
    (top,) = [s for s in of_trace(own, 16) if not s["parent"]]
    assert top["name"] == "chat"


def check_away():
    generate("4" * 32)
    wait_for("dropped spans", lambda: exported("dropped") >= 4)


def check_back():
    """What was dropped does not come, what is new does, when the daemons have found the collector again."""
    sent = exported("sent")
    end = time.monotonic() + WAIT_S
    n = 0
    while n < 15:
        assert time.monotonic() < end, "spans do not come again"
        trace = f"{time.monotonic_ns():032x}"
        generate(trace)
        for _ in range(25):
            time.sleep(0.02)
            n = sum(s["trace"] == trace for s in spans())
    assert n == 15 and exported("sent") > sent
    assert not [s for s in spans() if s["trace"] == "4" * 32 and s["resource"]["service.name"] == "fovea-router"]
    generate("6" * 32)


def check_stopped():
    assert len([s for s in spans() if s["trace"] == "6" * 32]) == 15


{"spans": check_spans, "gateway": check_gateway, "away": check_away, "back": check_back, "stopped": check_stopped}[part]()
