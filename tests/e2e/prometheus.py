"""Debian's Prometheus scrapes a fleet: PromQL has the numbers of its answers, each query of the dashboard has series,
and of the alerts those are firing or pending that should.

usage: prometheus.py HOST:PORT DESCRIPTOR_SET PICTURE FOLDER GATEWAY METRICS...
       exits 77 where there is no Prometheus, or Python lacks grpc
"""
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.parse
import urllib.request

here = os.path.dirname(os.path.abspath(__file__))
root = os.path.join(here, "..", "..")
sys.path.insert(0, os.path.join(here, "..", "support"))
from contracts import Contracts, connect  # exits with 77 without grpc

target, set_path, picture_path, folder, gateway, *metrics = sys.argv[1:]
unpacked = os.path.join(root, "build", "prometheus", "usr", "bin")
program = shutil.which("prometheus", path=os.environ["PATH"] + os.pathsep + unpacked)
if not program:
    print("skip: no Prometheus (package prometheus)")
    sys.exit(77)

WAIT_S = 120
EXACT, QUALITY, TOKENS = 2, 3, 8
contracts = Contracts(set_path)
inference = contracts.messages("fovea.inference.v1")
client = contracts.stub(connect(target), "fovea.inference.v1.Inference")
with open(picture_path, "rb") as f:
    picture = f.read()


def generate(policy):
    turn = inference.Turn(role="user", text="what is it?", n_images=1)
    request = inference.GenerateRequest(
        prompt=inference.Prompt(chat=inference.Chat(turns=[turn])), images=[inference.Image(data=picture)],
        max_tokens=TOKENS, ignore_eos=True, policy=inference.Policy(preset=policy))
    return list(client.Generate(request, timeout=WAIT_S))[-1].finished.report


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def start():
    """Prometheus on a port that was free a moment ago."""
    config = os.path.join(folder, "prometheus.json")
    with open(config, "w") as f:  # JSON is YAML
        json.dump({"global": {"scrape_interval": "200ms", "scrape_timeout": "200ms", "evaluation_interval": "200ms"},
                   "rule_files": [os.path.abspath(os.path.join(root, "deploy/monitoring/alerts.yaml"))],
                   "scrape_configs": [{"job_name": "fovea", "static_configs": [{"targets": metrics}]}]}, f)
    port = free_port()
    with open(os.path.join(folder, "prometheus.log"), "w") as log:
        process = subprocess.Popen(
            [program, f"--config.file={config}", f"--storage.tsdb.path={folder}/tsdb", "--log.level=warn",
             f"--web.listen-address=127.0.0.1:{port}"], stdout=log, stderr=log)
    return process, f"http://127.0.0.1:{port}/api/v1/"


def ask(path, **fields):
    with urllib.request.urlopen(api + path + "?" + urllib.parse.urlencode(fields), timeout=WAIT_S) as reply:
        answer = json.load(reply)
    assert answer["status"] == "success", answer
    return answer["data"]


def query(text):
    return ask("query", query=text)["result"]


def number(text):
    result = query(text)
    return float(result[0]["value"][1]) if len(result) == 1 else None


def wait_for(what, true):
    end = time.monotonic() + WAIT_S
    while True:
        try:
            if true():
                return
        except OSError:  # it does not listen yet
            assert process.poll() is None, f"Prometheus has ended; {folder}/prometheus.log"
        assert time.monotonic() < end, what
        time.sleep(0.1)


process, api = start()
try:
    wait_for("targets that are up", lambda: number("sum(up)") == len(metrics))
    reports = {p: [generate(p) for _ in range(n)] for p, n in (("exact", EXACT), ("quality", QUALITY))}
    every = reports["exact"] + reports["quality"]
    urllib.request.urlopen(f"http://{gateway}/health", timeout=WAIT_S).read()
    wait_for("the last request", lambda: number('fovea_requests_total{status="OK"}') == len(every)
             and number("sum(fovea_worker_generated_tokens_total)") == len(every) * TOKENS
             and number("sum(fovea_http_requests_total)") == 1)

    # What PromQL says is what the answers said. A series is missing while a scrape takes too long.
    for text, expected in {
            "fovea_generation_tokens_total": len(every) * TOKENS,
            "fovea_prompt_tokens_total": sum(r.n_prompt for r in every),
            "fovea_images_total": len(every),
            "fovea_image_cache_hits_total": len(every) - 1,
            "sum(fovea_requests_total)": len(every),
            "fovea_time_to_first_token_seconds_count": len(every),
            'fovea_time_to_first_token_seconds_bucket{le="+Inf"}': len(every),
            'fovea_request_policy_total{preset="quality"}': QUALITY,
            'fovea_request_kv_sent_bytes_total{preset="quality"} / fovea_request_kv_raw_bytes_total{preset="quality"}':
                sum(r.transfer.bytes_sent for r in reports["quality"]) / sum(r.bytes_raw for r in reports["quality"]),
            'sum(fovea_workers{state="ready"})': 2,
            "count(fovea_build_info)": len(metrics),
            "count(count by (version) (fovea_build_info))": 1}.items():
        wait_for(text, lambda: number(text) is not None)
        found = number(text)
        assert abs(found - expected) <= 1e-9 * abs(expected), (text, found, expected)
    # An increase is what was counted, but for what Prometheus adds at the ends of its window.
    assert len(every) / 2 < number("sum(increase(fovea_requests_total[1h]))") < 2 * len(every)

    # Grafana puts values for its variables, and so does this.
    with open(os.path.join(root, "deploy/monitoring/dashboard.json")) as f:
        panels = json.load(f)["panels"]
    for panel in panels:
        for t in panel.get("targets", []):
            text = t["expr"].replace("$job", "fovea").replace("$__rate_interval", "1m")
            wait_for((panel["title"], text), lambda: query(text))

    names = {r["name"] for g in ask("rules")["groups"] for r in g["rules"]}
    assert len(names) > 5 and all(r["health"] == "ok" for g in ask("rules")["groups"] for r in g["rules"])
    pending = {a["labels"]["alertname"] for a in ask("alerts")["alerts"]}
    assert pending <= {"FoveaFirstTokenSlow"}, pending  # which a busy machine can bring about
finally:
    process.send_signal(signal.SIGTERM)
    process.wait(WAIT_S)
