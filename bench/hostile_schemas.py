"""TTFT of a caller with small schemas: alone, beside 20 callers of another tenant without schemas, and beside 20 whose schemas
explode. Closed loops: each caller sends its next request when the last one has ended. Each schema is new. The callers run in
processes of their own, on this machine, so their own CPU time is part of what is measured: the second row says how much
of the third is load alone. The rows take turns, because other load on the machine changes.

usage: hostile_schemas.py HOST:PORT KEY_OF_ONE KEY_OF_THE_OTHERS [ROUNDS], of a gateway on this machine with --tenants
"""
import http.client
import json
import multiprocessing
import random
import statistics
import sys
import time

N_CALLERS, N = 20, 20
QUESTION = [{"role": "user", "content": "What is it?"}]


def post(address, key, body):
    """The status, and the seconds until the first text of a stream."""
    connection, begin, first = http.client.HTTPConnection(address, timeout=60), time.monotonic(), None
    connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Authorization": "Bearer " + key})
    reply = connection.getresponse()
    for line in reply:
        if first is None and reply.status == 200 and b'"content":"' in line and b'"content":""' not in line:
            first = time.monotonic() - begin
    connection.close()
    return reply.status, first


def exploding(draw, k):
    """A schema of one of two kinds, of which the first is refused or slow and the second has a large automaton."""
    n = draw.randrange(10**9)
    branch = lambda a, b: {"type": "object", "properties": {f"p{a}_{b}": {"const": n + b}}, "required": [f"p{a}_{b}"]}
    if k % 2:
        return {"title": str(n), "allOf": [{"anyOf": [branch(a, b) for b in range(6)]} for a in range(12)]}
    return {"type": "string", "pattern": f"^(a|b)*a(a|b){{{25 + k % 5}}}c{n}$"}


def keep_asking(address, key, hostile, seed, stop, statuses):
    draw, k = random.Random(seed), 0
    while not stop.is_set():
        k += 1
        form = {"guided_json": exploding(draw, k)} if hostile else {}
        try:
            status, _ = post(address, key, {"messages": QUESTION, "max_tokens": 2, "cache": "off", **form})
        except OSError:
            status = "lost"
        statuses.put(status)


def measure(address, key):
    ms = []
    for _ in range(N):
        status, first = post(address, key, {"messages": QUESTION, "max_tokens": 8, "stream": True, "temperature": 0, "cache": "off",
                                            "guided_json": {"enum": [f"a{random.randrange(10**9)}", "b"]}})
        assert status == 200 and first is not None, status
        ms.append(1e3 * first)
    return ms


def beside(address, mine, theirs, hostile, seed):
    stop, statuses = multiprocessing.Event(), multiprocessing.Queue()
    others = [multiprocessing.Process(target=keep_asking, args=(address, theirs, hostile, seed * N_CALLERS + i, stop, statuses), daemon=True)
              for i in range(N_CALLERS)]
    for p in others:
        p.start()
    time.sleep(2)
    ms = measure(address, mine)
    stop.set()
    counts, left = {}, time.monotonic() + 120
    while any(p.is_alive() for p in others) and time.monotonic() < left or not statuses.empty():
        try:
            status = statuses.get(timeout=0.5)
        except Exception:  # pylint: disable=broad-except
            continue
        counts[status] = counts.get(status, 0) + 1
    return ms, counts


def main():
    address, mine, theirs = sys.argv[1:4]
    rounds = int(sys.argv[4]) if len(sys.argv) > 4 else 3
    assert address.startswith("127.0.0.1:"), "it is for a fleet on this machine"
    post(address, mine, {"messages": QUESTION, "max_tokens": 1})
    rows = {"alone": [], "beside 20, no schemas": [], "beside 20, hostile": []}
    answers = {}
    for r in range(rounds):
        rows["alone"] += measure(address, mine)
        rows["beside 20, no schemas"] += beside(address, mine, theirs, False, r)[0]
        ms, counts = beside(address, mine, theirs, True, r)
        rows["beside 20, hostile"] += ms
        for status, n in counts.items():
            answers[status] = answers.get(status, 0) + n
    for what, ms in rows.items():
        at = sorted(ms)
        print(f"{what:22} TTFT p10 {at[len(at) // 10]:6.1f}  p50 {statistics.median(ms):6.1f}  p90 {at[int(0.9 * len(at))]:6.1f}  most {at[-1]:6.1f} ms")
    with open("/proc/loadavg", encoding="utf-8") as f:
        print(f"load {f.read().split()[0]} on {multiprocessing.cpu_count()} CPUs; hostile answers by status: {answers}")


if __name__ == "__main__":
    main()
