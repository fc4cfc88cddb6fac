"""The header Authorization reaches a router that knows its callers. usage: gateway_key.py HOST:PORT KEY"""
import json
import sys
from urllib.error import HTTPError
from urllib.request import Request, urlopen

address, key = sys.argv[1:]


def status(path, body=None, shown=None):
    headers = {"Authorization": f"Bearer {shown}"} if shown else {}
    try:
        return urlopen(Request(f"http://{address}{path}", body and json.dumps(body).encode(), headers)).status
    except HTTPError as e:
        error = json.load(e)["error"]
        kind = {401: "authentication_error", 403: "permission_error"}[e.code]
        assert error["type"] == kind and e.headers["WWW-Authenticate"] == ("Bearer" if e.code == 401 else None), error
        return e.code


chat = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 2}
for path, body in (("/v1/chat/completions", chat), ("/v1/chat/completions", dict(chat, stream=True)),
                   ("/v1/models", None), ("/tokenize", {"prompt": "x"})):
    assert status(path, body, key) == 200, path
    assert status(path, body) == 401 and status(path, body, "another") == 401, path
assert status("/v1/chat/completions", dict(chat, policy="quality"), key) == 403
assert status("/health") == 200

made = Request(f"http://{address}/v1/responses", json.dumps({"input": "hello", "max_output_tokens": 2}).encode(), {"Authorization": f"Bearer {key}"})
kept = "/v1/responses/" + json.load(urlopen(made))["id"]
for path in kept, kept + "/input_items":
    assert status(path, shown=key) == 200 and status(path) == 401 and status(path, shown="another") == 401, path
