"""What a tenant can learn or do through what is kept of another tenant's prompts.

  time    a victim asks about an image; then an attacker asks about the same image, or about one that nobody has asked about, in
          random order. Caches are small, so that keeping one prompt gives up another. The attacker's times to the first token must
          not tell the two apart (Mann-Whitney, two-sided, p > 0.01)
  shares  an attacker asks about many images; what the victim asks about now and then is still there

usage: kept_timing.py BIN [TRIES]
       exits 77 without grpc
"""
import hashlib
import json
import math
import pathlib
import random
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from kept_fleet import Fleet, png  # exits with 77 without grpc

bin = pathlib.Path(sys.argv[1])
tries = int(sys.argv[2]) if len(sys.argv) > 2 else 1000
draw = random.Random(1)
KEYS = {"victim": "key-of-the-victim", "attacker": "key-of-the-attacker"}


def mann_whitney(a, b):
    """The two-sided p of the rank sum, by its normal approximation with a correction for ties."""
    both = sorted([(x, 0) for x in a] + [(x, 1) for x in b])
    n, rank_sum, ties, i = len(both), 0.0, 0.0, 0
    while i < n:
        j = i
        while j < n and both[j][0] == both[i][0]:
            j += 1
        rank_sum += sum((i + j + 1) / 2 for k in range(i, j) if both[k][1] == 0)
        ties += (j - i) ** 3 - (j - i)
        i = j
    u = rank_sum - len(a) * (len(a) + 1) / 2
    variance = len(a) * len(b) / 12 * (n + 1 - ties / (n * (n - 1)))
    return math.erfc(abs(u - len(a) * len(b) / 2) / math.sqrt(2 * variance))


def check_mann_whitney():
    """It sees a shift, and none where there is none."""
    x = [draw.gauss(0, 1) for _ in range(500)]
    assert mann_whitney(x, [v + 0.5 for v in x]) < 1e-6 < 0.5 < mann_whitney(x, [v + 1e-9 for v in x])


with tempfile.TemporaryDirectory() as folder:
    folder = pathlib.Path(folder)
    check_mann_whitney()
    subprocess.run([bin / "fovea", "synth", "--shape", "tiny", "--seed", "3", "--out", folder / "ck"], check=True, capture_output=True)
    digest = lambda key: hashlib.sha256(key.encode()).hexdigest()
    (folder / "tenants.json").write_text(json.dumps({"tenants": {t: {"keys": [digest(k)]} for t, k in KEYS.items()}}))
    (folder / "key").write_text(KEYS["victim"])
    fleet = Fleet(bin, folder / "ck", folder, "--tenants", folder / "tenants.json", "--api-key-file", folder / "key", "--prefix-bytes",
                  3 << 20, "--kv-prefix-bytes", 3 << 20, "--cache-bytes", 1 << 20, key=KEYS["victim"])
    plain = [i for i in range(3, 90) if i != fleet.image_token]
    ids = plain[:40] + [fleet.image_token] + plain[:7]

    def ask(who, seed, question=0):
        """Returns the seconds to the first token as the tenant sees them, and its report."""
        began = time.monotonic()
        report, _, _ = fleet.ask(ids + plain[question:question + 5], png(64, seed), n=2, key=KEYS[who])
        return time.monotonic() - began, report

    try:
        seconds = {"same": [], "other": []}
        for i in range(tries):
            ask("victim", 3 * i)
            for which in draw.sample(["same", "other"], 2):
                s, report = ask("attacker", 3 * i + (which == "other"))
                assert report.n_prompt_cached <= 40, ("the attacker found the victim's image", report)
                if i >= 5:  # the first ones page the weights in
                    seconds[which].append(s)
        p = mann_whitney(seconds["same"], seconds["other"])
        median = {k: sorted(v)[len(v) // 2] for k, v in seconds.items()}
        print(f"{tries} tries: median {1e3 * median['same']:.2f} ms for the victim's images, {1e3 * median['other']:.2f} ms for others, p = {p:.3f}")
        assert p > 0.01, "times tell them apart"

        ask("victim", 10 ** 6)
        for i in range(60):
            ask("attacker", 2 * 10 ** 6 + i)
            if i % 6 == 5:
                kept = ask("victim", 10 ** 6, 1 + i % 9)[1]
                assert kept.n_prompt_cached > 40 and kept.n_images_cached == 1, (i, kept)
        print("60 images of the attacker: the victim's was kept")
        assert fleet.stop() == 0, "the fleet did not end well"
        fleet = None
    finally:
        if fleet:
            fleet.kill()
