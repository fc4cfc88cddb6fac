"""Asks a router, through a gateway of its own, for an answer whose tokens are chosen under rules, and prints it.

usage: rules_answer.py ROUTER GATEWAY_PROGRAM
"""
import http.client
import json
import subprocess
import sys

router, program = sys.argv[1:]
gateway = subprocess.Popen([program, "--router", router, "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE,
                           stderr=subprocess.STDOUT, text=True)
try:
    address = ""
    for line in gateway.stdout:
        words = [w for w in line.replace("=", " ").replace("/", " ").split() if w.startswith("127.0.0.1:")]
        if words and not words[0].endswith(":0") and words[0] != router:
            address = words[0].rstrip(",;")
            break
    connection = http.client.HTTPConnection(address, timeout=240)
    connection.request("POST", "/v1/completions", json.dumps({
        "prompt": "what is it?", "temperature": 1.5, "seed": 11, "max_tokens": 14, "min_tokens": 14, "top_p": 0.95,
        "stop": ["e", "a"], "stop_token_ids": [40, 41, 42], "bad_words": ["b", "th"],
        "allowed_token_ids": list(range(2, 200)), "echo": True, "logprobs": 2, "prompt_logprobs": 1,
        "return_token_ids": True, "skip_special_tokens": False}))
    reply = connection.getresponse()
    text = reply.read().decode()
    assert reply.status == 200, text
    print(json.dumps(json.loads(text)["choices"], sort_keys=True))
finally:
    gateway.kill()
