"""Scrapes a fleet and compares with what was sent.

usage: metrics.py HOST:PORT DESCRIPTOR_SET PICTURE ROUTER_LOG GATEWAY ROUTER_METRICS PREFILL_METRICS DECODE_METRICS
                  GATEWAY_METRICS
       ROUTER_LOG is in JSON
       exits 77 when Python lacks grpc or prometheus_client
"""
import json
import math
import os
import subprocess
import shutil
import sys
import time
import urllib.error
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from contracts import Contracts, connect, failure  # exits with 77 without grpc
import grpc

try:
    from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
    from prometheus_client.parser import text_string_to_metric_families as parse_text
except ImportError as e:
    print(f"skip: {sys.executable}: {e} (package python3-prometheus-client)")
    sys.exit(77)

target, set_path, picture_path, log_path, gateway_address, *metrics, gateway_metrics = sys.argv[1:]
contracts = Contracts(set_path)
inference = contracts.messages("fovea.inference.v1")
client = contracts.stub(connect(target), "fovea.inference.v1.Inference")
with open(picture_path, "rb") as f:
    picture = f.read()

WAIT_S = 120
EXACT, QUALITY, TOKENS, WRONG = 3, 2, 12, 2
TRACE = "0af7651916cd43dd8448eb211c80319c"


def get(address, openmetrics):
    accept = "application/openmetrics-text;version=1.0.0" if openmetrics else "*/*"
    request = urllib.request.Request(f"http://{address}/metrics", headers={"Accept": accept})
    with urllib.request.urlopen(request, timeout=WAIT_S) as reply:
        assert reply.headers["Content-Type"].startswith(
            "application/openmetrics-text" if openmetrics else "text/plain; version=0.0.4"), reply.headers
        return reply.read().decode()


def samples(text, parse):
    found = {}
    for family in parse(text):
        for s in family.samples:
            key = s.name, tuple(sorted(s.labels.items()))
            assert key not in found, key
            found[key] = s
    return found


class Page:
    def __init__(self, address):
        self.samples = samples(get(address, True), parse_openmetrics)
        # Both formats have the same samples.
        assert self.samples.keys() == samples(get(address, False), parse_text).keys()

    def __call__(self, name, **labels):
        return self.samples[name, tuple(sorted(labels.items()))].value

    def total(self, name):
        return sum(s.value for (n, _), s in self.samples.items() if n == name)


def generate(policy, **more):
    turn = inference.Turn(role="user", text="what is it?", n_images=1)
    request = inference.GenerateRequest(
        prompt=inference.Prompt(chat=inference.Chat(turns=[turn])), images=[inference.Image(data=picture)],
        max_tokens=TOKENS, ignore_eos=True, policy=inference.Policy(preset=policy), **more)
    return list(client.Generate(request, timeout=WAIT_S, metadata=[("traceparent", f"00-{TRACE}-b7ad6b7169203331-01")]))


reports = {p: [generate(p)[-1].finished.report for _ in range(n)] for p, n in (("exact", EXACT), ("quality", QUALITY))}
every = reports["exact"] + reports["quality"]
for _ in range(WRONG):
    assert failure(lambda: generate("no-such-preset")).code() == grpc.StatusCode.INVALID_ARGUMENT

# Gauges follow within a moment.
end = time.monotonic() + WAIT_S
while True:
    router, prefill, decode = (Page(address) for address in metrics)
    if (decode("fovea_kv_held_bytes") + decode("fovea_kv_granted_bytes") + router("vllm:num_requests_running") == 0
            and prefill("fovea_worker_requests_total") == decode("fovea_worker_requests_total") == len(every)):
        break
    assert time.monotonic() < end, "the fleet does not become idle"
    time.sleep(0.05)

# Metrics of what clients saw.
assert router("fovea_requests_total", status="OK") == len(every)
assert router("fovea_requests_total", status="INVALID_ARGUMENT") == WRONG
assert router.total("fovea_requests_total") == len(every) + WRONG
assert router("fovea_refusals_total", reason="invalid") == router.total("fovea_refusals_total") == WRONG
for name in ("time_to_first_token", "time_per_output_token", "e2e_request_latency", "request_queue_time"):
    assert router(f"fovea_{name}_seconds_count") == len(every), name
assert router("fovea_inter_token_latency_seconds_count") == len(every) * (TOKENS - 1)
assert router("fovea_generation_tokens_total") == len(every) * TOKENS
assert router("fovea_prompt_tokens_total") == sum(r.n_prompt for r in every)
assert router("fovea_visual_tokens_total") == sum(r.n_visual for r in every)
ttft = router("fovea_time_to_first_token_seconds_sum")
assert math.isclose(ttft, sum(r.seconds_first_token for r in every), rel_tol=1e-9), ttft
assert router("fovea_e2e_request_latency_seconds_sum") > ttft > 0
assert router("vllm:num_requests_waiting") == 0
assert router("fovea_replays_total") == 0

# Metrics of what policies kept and sent.
for preset, of in reports.items():
    assert router("fovea_request_policy_total", preset=preset) == len(of), preset
    for name, field in (("raw", "bytes_raw"), ("granted", "bytes_bound")):
        total = router(f"fovea_request_kv_{name}_bytes_total", preset=preset)
        assert total == sum(getattr(r, field) for r in of), (preset, name)
    assert router("fovea_request_kv_held_bytes_total", preset=preset) == sum(r.bytes_visual + r.bytes_text for r in of)
    assert router("fovea_request_kv_sent_bytes_total", preset=preset) == sum(r.transfer.bytes_sent for r in of)
    assert router("fovea_request_kv_end_bytes_total", preset=preset) == sum(
        r.bytes_visual_end + r.bytes_text_end for r in of)
assert router.total("fovea_request_policy_total") == len(every)
assert router("fovea_request_kv_sent_bytes_total", preset="quality") * EXACT < router(
    "fovea_request_kv_sent_bytes_total", preset="exact") * QUALITY

# The fleet.
for role in ("prefill", "decode"):
    assert router("fovea_workers", role=role, state="ready") == 1
    assert router("fovea_breakers", role=role, state="closed") == 1
assert router.total("fovea_workers") == router.total("fovea_breakers") == 2

# The workers.
assert prefill("fovea_images_total") == len(every)
assert prefill("fovea_image_cache_hits_total") == sum(r.n_images_cached for r in every) == len(every) - 1
for step in ("queue", "preprocess", "vision", "prefill"):
    assert prefill("fovea_step_seconds_count", step=step) == len(every), step
assert prefill("fovea_step_seconds_count", step="pack") == QUALITY
assert decode("fovea_step_seconds_count", step="decode") == len(every)
for phase in ("open", "send", "exposed", "commit"):
    assert prefill("fovea_handoff_seconds_count", phase=phase) == len(every), phase
assert decode("fovea_handoff_seconds_count", phase="attach") == len(every)
assert prefill("fovea_handoff_bytes_total", transport="grpc") == sum(r.transfer.bytes_sent for r in every)
assert prefill("fovea_handoff_frames_total") == sum(r.transfer.n_frames for r in every)
assert decode("fovea_handoffs_total", outcome="committed") == len(every)
assert decode.total("fovea_handoff_refusals_total") == 0
ranks = [rank for r in every for layer in r.packed for rank in (layer.rank_k, layer.rank_v, layer.rank_text) if rank]
assert prefill.total("fovea_kv_rank_sum") == sum(ranks) and prefill.total("fovea_kv_rank_count") == len(ranks) > 0
assert prefill.total("fovea_kv_relative_error_ratio_count") == len(ranks)
for s in {s.stage for r in every for s in r.stages}:
    of = [x for r in every for x in r.stages if x.stage == s]
    assert prefill("fovea_stage_entries_in_total", stage=s) == sum(x.entries_in for x in of), s
    assert prefill("fovea_stage_entries_kept_total", stage=s) == sum(x.entries_out for x in of), s
first_there = sum(r.cache_tier == "decode" for r in every)
assert decode("fovea_worker_generated_tokens_total") == len(every) * (TOKENS - 1) + first_there
assert prefill("fovea_worker_busy_seconds_total") > 0

# The exemplar is the trace that the client sent.
exemplars = {s.exemplar.labels["trace_id"] for s in router.samples.values() if s.exemplar}
assert exemplars == {TRACE}, exemplars

# The gateway's.
def fetch(path, body=None, status=200):
    try:
        with urllib.request.urlopen(f"http://{gateway_address}{path}", body, timeout=WAIT_S) as reply:
            found = reply.status
            reply.read()
    except urllib.error.HTTPError as e:
        found = e.code
    assert found == status, (path, found)


fetch("/health")
fetch("/v1/chat/completions", b'{"messages": [{"role": "user", "content": "hello"}], "max_tokens": 3}')
fetch("/v1/chat/completions", b"{", 400)
fetch("/no-such-path", status=404)
expected = {("health", "200"): 1, ("chat", "200"): 1, ("chat", "400"): 1, ("other", "404"): 1}
end = time.monotonic() + WAIT_S
while True:  # a request ends when its answer has been written
    gateway = Page(gateway_metrics)
    if gateway.total("fovea_http_requests_total") == len(expected) and gateway("fovea_http_running_requests") == 0:
        break
    assert time.monotonic() < end, "the gateway does not become idle"
    time.sleep(0.05)
for (route, code), n in expected.items():
    assert gateway("fovea_http_requests_total", route=route, code=code) == n, (route, code)
assert gateway("fovea_http_request_seconds_count", route="chat") == 2
assert gateway("fovea_http_request_seconds_sum", route="chat") > 0
assert gateway.total("fovea_build_info") == 1 and not gateway.total("fovea_requests_total")

# Each line of the log is an object; those of requests name the request and its trace.
with open(log_path) as f:
    log = [json.loads(line) for line in f]
assert all({"time", "level", "subsystem", "event"} <= line.keys() for line in log), log
done = [line for line in log if line["event"] == "done"]
assert len({line["req"] for line in done}) == len(done) == len(every) + 1  # and the gateway's
assert all(line["trace"] == TRACE and line["tokens"] == TOKENS for line in done[:-1]), done

# What Prometheus has to say of names and help; it does not like a ':', which vLLM's have.
unpacked = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "build", "prometheus", "usr", "bin")
promtool = shutil.which("promtool", path=os.environ["PATH"] + os.pathsep + unpacked)
if promtool:
    for address in (*metrics, gateway_metrics):
        said = subprocess.run([promtool, "check", "metrics"], input=get(address, False), text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT).stdout
        wrong = [line for line in said.splitlines() if not line.startswith("vllm:")]
        assert not wrong, wrong
else:
    print("skip: no promtool (package prometheus): names and help are not linted")
