"""TTFT of a caller with small schemas, alone and beside 20 callers of another tenant whose schemas explode. Each schema is new.

usage: hostile_schemas.py HOST:PORT KEY_OF_ONE KEY_OF_THE_OTHERS, of a gateway on this machine with --tenants
"""
import http.client
import json
import random
import statistics
import sys
import threading
import time

N_CALLERS, N = 20, 20
address, mine, theirs = sys.argv[1:]
assert address.startswith("127.0.0.1:"), "it is for a fleet on this machine"
stop = False
statuses = {}


def post(key, body):
    """The status, and the seconds until the first text of a stream."""
    connection, begin, first = http.client.HTTPConnection(address, timeout=60), time.monotonic(), None
    connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Authorization": "Bearer " + key})
    reply = connection.getresponse()
    for line in reply:
        if first is None and reply.status == 200 and b'"content":"' in line and b'"content":""' not in line:
            first = time.monotonic() - begin
    connection.close()
    return reply.status, first


def explode(seed):
    draw, k = random.Random(seed), 0
    while not stop:
        n, k = draw.randrange(10**9), k + 1
        branch = lambda a, b: {"type": "object", "properties": {f"p{a}_{b}": {"const": n + b}}, "required": [f"p{a}_{b}"]}
        pattern = {"type": "string", "pattern": f"^(a|b)*a(a|b){{{25 + k % 5}}}c{n}$"}
        schema = pattern if k % 2 else {"title": str(n), "allOf": [{"anyOf": [branch(a, b) for b in range(6)]} for a in range(12)]}
        try:
            status, _ = post(theirs, {"messages": [{"role": "user", "content": "x"}], "max_tokens": 2, "guided_json": schema})
        except OSError:
            status = "lost"
        statuses[status] = statuses.get(status, 0) + 1


def measure(what):
    ms = []
    for _ in range(N):
        status, first = post(mine, {"messages": [{"role": "user", "content": "What is it?"}], "max_tokens": 8, "stream": True, "temperature": 0,
                                    "cache": "off", "guided_json": {"enum": [f"a{random.randrange(10**9)}", "b"]}})
        assert status == 200 and first is not None, status
        ms.append(1e3 * first)
    with open("/proc/loadavg", encoding="utf-8") as f:
        load = f.read().split()[0]
    print(f"{what:18} TTFT p50 {statistics.median(ms):6.0f}  p90 {sorted(ms)[int(0.9 * N)]:6.0f}  most {max(ms):6.0f} ms; load {load}", flush=True)


post(mine, {"messages": [{"role": "user", "content": "x"}], "max_tokens": 1})
measure("alone")
for i in range(N_CALLERS):
    threading.Thread(target=explode, args=(i,), daemon=True).start()
time.sleep(2)
measure(f"beside {N_CALLERS}")
stop = True
print("statuses of the others:", statuses)
