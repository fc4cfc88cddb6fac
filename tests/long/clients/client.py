"""What the scripts of this folder share: the arguments, the question, and its answer on checkpoints/nano."""
import base64
import json
import os
import sys
import urllib.request

WAIT_S = 300
QUESTION, ANSWER = "Name the color of the square.", "white"
address, picture_path = sys.argv[1], os.path.abspath(sys.argv[2])
base_url = f"http://{address}/v1"
name = json.load(urllib.request.urlopen(f"{base_url}/models", timeout=WAIT_S))["data"][0]["id"]
with open(picture_path, "rb") as f:
    picture = base64.b64encode(f.read()).decode()
picture_url = "data:image/png;base64," + picture


def check(text, what):
    assert text.strip() == ANSWER, f"{what}: the answer is {text!r}, not {ANSWER!r}"
    print(f"{what}: {text.strip()}", flush=True)


def skip_without(error, name):
    """For a package that is not installed: ./dev test --long installs it where PyPI can be reached."""
    print(f"skip: {error} (tests/long/clients/{name}.txt)")
    sys.exit(77)
