"""Keys of --api-key: who shows one is answered, and no process shows them.

usage: gateway_api_key.py HOST:PORT UP_PID KEY... -- GATEWAY_PROGRAM
HOST:PORT is the gateway of a fleet that `fovea up` (UP_PID) has started with these keys.
"""
import http.client
import os
import subprocess
import sys

WAIT_S = 120  # for anything that must come: machines may be busy
address, up = sys.argv[1], int(sys.argv[2])
keys, program = sys.argv[3:-2], sys.argv[-1]


def status(where, path, key=None, body=None):
    connection = http.client.HTTPConnection(where, timeout=WAIT_S)
    connection.request("POST" if body else "GET", path, body, {"Authorization": f"Bearer {key}"} if key else {})
    reply = connection.getresponse()
    reply.read()
    connection.close()
    return reply.status


def shown(pid):
    """All that others can see of a process."""
    with open(f"/proc/{pid}/cmdline", "rb") as f, open(f"/proc/{pid}/environ", "rb") as g:
        return (f.read() + g.read()).decode(errors="replace")


def check_hidden(pids):
    for pid in pids:
        assert not any(k in shown(pid) for k in keys), f"process {pid} shows a key"


chat = '{"messages": [{"role": "user", "content": "hello"}], "max_tokens": 2}'
for key in keys:
    assert status(address, "/v1/models", key) == 200
    assert status(address, "/v1/chat/completions", key, chat) == 200
for key in None, "another", keys[0][:-1], keys[0] + "x":
    assert status(address, "/v1/models", key) == 401
    assert status(address, "/v1/chat/completions", key, chat) == 401
assert status(address, "/health") == status(address, "/version") == 200
children = subprocess.run(["pgrep", "-P", str(up)], capture_output=True, text=True, check=True).stdout.split()
assert len(children) >= 4, children
check_hidden([up] + children)

env = dict(os.environ, FOVEA_API_KEY=keys[0])
alone = subprocess.Popen([program, "--router", "127.0.0.1:9", "--listen", "127.0.0.1:0", "--log", "error"], env=env,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
try:
    where = alone.stdout.readline().split()[-1]
    assert status(where, "/v1/models", keys[0]) == 503, "it is let in, and there is no router"
    assert status(where, "/v1/models") == status(where, "/v1/models", keys[1]) == 401
    check_hidden([alone.pid])
    alone.terminate()
    said = alone.communicate(timeout=WAIT_S)[1]
    assert said.count("status=401") == 2 and not any(k in said for k in keys), said
finally:
    alone.kill()
print("ok")
