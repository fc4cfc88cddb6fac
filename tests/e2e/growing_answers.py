"""Answers that grow in a KV pool which is too small for all of them at full length: each is the same as alone.

usage: growing_answers.py HOST:PORT
"""
import http.client
import json
import sys
import threading

address = sys.argv[1]
N, TOKENS, SHORT = 10, 300, 5


def complete(seed, **more):
    body = dict(prompt="question %d" % seed, temperature=1, seed=seed, return_token_ids=True, **more)
    connection = http.client.HTTPConnection(address, timeout=280)
    connection.request("POST", "/v1/completions", json.dumps(body))
    reply = connection.getresponse()
    text = reply.read().decode()
    connection.close()
    assert reply.status == 200, (reply.status, text)
    choice = json.loads(text)["choices"][0]
    return choice["token_ids"], choice["finish_reason"]


# The worker learns that answers are short: their fifth token is their last.
for i in range(60):
    ids, reason = complete(i, min_tokens=SHORT - 1, max_tokens=64, stop_token_ids=[50], logit_bias={"50": 100})
    assert reason == "stop" and len(ids) <= SHORT, (reason, ids)

# Alone, an answer has all of the pool.
alone = [complete(i, max_tokens=TOKENS) for i in range(N)]

together, failures = [None] * N, []


def ask(i):
    try:
        together[i] = complete(i, max_tokens=TOKENS)
    except BaseException as e:  # reported below
        failures.append((i, e))


def leave(i):
    """Asks, reads the first bytes, and goes away."""
    connection = http.client.HTTPConnection(address, timeout=280)
    connection.request("POST", "/v1/completions", json.dumps(
        dict(prompt="leaving %d" % i, temperature=1, seed=i, max_tokens=TOKENS, stream=True)))
    connection.getresponse().read(200)
    connection.close()


threads = [threading.Thread(target=ask, args=(i,)) for i in range(N)]
threads += [threading.Thread(target=leave, args=(i,)) for i in range(4)]
for t in threads:
    t.start()
for t in threads:
    t.join()
assert not failures, failures
for i in range(N):
    assert together[i] == alone[i], (i, together[i], alone[i])

# Without max_tokens an answer has what the context and the pool hold, and says so.
ids, reason = complete(1, logit_bias={"2": -100})
assert reason == "length" and len(ids) > TOKENS, (reason, len(ids))
