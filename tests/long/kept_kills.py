"""Random histories of chats and questions about images, while workers and the Redis server are killed: every digest is that
of the same request without a cache.

usage: kept_kills.py BIN [HISTORIES]
       exits 77 without grpc
"""
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from kept_fleet import Fleet, free_port, png, redis  # exits with 77 without grpc

bin = pathlib.Path(sys.argv[1])
histories = int(sys.argv[2]) if len(sys.argv) > 2 else 200
TURNS, ANEW = 4, 5
found = {"killed": 0, "cached": 0, "fetched": 0, "decode": 0}
truths = {}


def truth(fleet, ids, picture):
    """The ids and digests without a cache. They are asked for once."""
    key = tuple(ids), picture is not None
    if key not in truths:
        truths[key] = fleet.ask(ids, picture, cache_off=True)[1:]
    return truths[key]


def kill(fleet, draw, server, port):
    """Kills one of the fleet's workers, which `fovea up` replaces, or the server, which this does. Returns the server."""
    victims = fleet.children("fovea-prefill") + fleet.children("fovea-decode") + ([server] if server else [])
    victim = draw.choice(victims)
    found["killed"] += 1
    if victim is not server:
        os.kill(victim, signal.SIGKILL)
        return server
    server.kill()
    server.wait()
    return redis(port)


with tempfile.TemporaryDirectory() as folder:
    folder = pathlib.Path(folder)
    subprocess.run([bin / "fovea", "synth", "--shape", "tiny", "--seed", "3", "--out", folder / "ck"], check=True, capture_output=True)
    (folder / "secret").write_bytes(b"kept" * 16)
    port = free_port()
    server = redis(port)
    store = ["--kv-store", f"redis://127.0.0.1:{port}", "--kv-key-file", folder / "secret"] if server else []
    options = ["--prefill", 2, "--decode", 2, "--prefix-bytes", 3 << 20, "--kv-prefix-bytes", 4 << 20, "--kv-disk", folder / "disk",
               "--kv-disk-bytes", 8 << 20, *store]
    pictures, fleet = [png(96, seed) for seed in range(4)], None
    try:
        for number in range(histories):
            if number % ANEW == 0:  # a child that dies often is started again later and later
                assert not fleet or fleet.stop() == 0, "the fleet did not end well"
                fleet = Fleet(bin, folder / "ck", folder, *options)
                plain = [i for i in range(3, 90) if i != fleet.image_token]
            draw = random.Random(number)
            which = draw.randrange(5)
            picture = pictures[which] if which < 4 else None
            ids = [plain[(which * 7 + i) % len(plain)] for i in range(70)] + ([fleet.image_token] if picture else [])
            for turn in range(TURNS):
                ids = ids + [plain[(number % 9 * 5 + turn + i * i) % len(plain)] for i in range(5 + 6 * (number % 5))]
                if draw.randrange(TURNS) == 0:
                    server = kill(fleet, draw, server, port)
                report, answer, digests = fleet.ask(ids, picture)
                expected = truth(fleet, ids, picture)
                if (answer, digests) != expected:
                    sys.exit(f"history {number}, turn {turn}: other digests; {report}")
                found["cached"] += report.n_prompt_cached > 0
                found["fetched"] += report.n_prompt_fetched > 0
                found["decode"] += report.cache_tier == "decode"
                ids += answer
        assert fleet.stop() == 0, "the fleet did not end well"
        fleet = None
    finally:
        if fleet:
            fleet.kill()
        if server:
            server.kill()
print(f"{histories} histories of {TURNS} turns, {len(truths)} different prompts:", found)
assert found["killed"] >= histories // 2 and found["cached"] and found["decode"], found
