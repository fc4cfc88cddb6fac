"""guidellm, unmodified: a benchmark of four requests with an image, of which none fails and all are right.

usage: with_guidellm.py HOST:PORT PICTURE; exits with 77 without guidellm[vision]. The tokenizer is that beside PICTURE.
"""
import json
import os
import subprocess
import sys
import tempfile

from client import QUESTION, WAIT_S, address, check, picture_path, picture_url, skip_without

program = os.path.join(os.path.dirname(sys.executable), "guidellm")
if not os.path.exists(program):
    skip_without("no guidellm beside python", "guidellm")
N = 4
with tempfile.TemporaryDirectory() as work:
    with open(f"{work}/data.jsonl", "w", encoding="utf-8") as f:
        for _ in range(N):
            f.write(json.dumps({"prompt": QUESTION, "image": picture_url, "output_tokens_count": 1}) + "\n")
    said = subprocess.run(
        [program, "run", "--backend", f"kind=openai_http,target=http://{address}", "--profile", "kind=synchronous", "--constraint",
         f"kind=max_requests,count={N}", "--tokenizer", f"kind=hf_auto,model={os.path.dirname(os.path.abspath(picture_path))}",
         "--data", f"kind=json_file,path={work}/data.jsonl", "--output", f"kind=json,path={work}/report.json", "--disable-progress"],
        env={**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": work}, capture_output=True, text=True, timeout=2 * WAIT_S)
    assert said.returncode == 0, said.stdout[-2000:] + said.stderr[-2000:]
    with open(f"{work}/report.json", encoding="utf-8") as f:
        requests = json.load(f)["benchmarks"][0]["requests"]
assert len(requests["successful"]) == N and not requests["errored"] and not requests["incomplete"], requests["errored"]
for r in requests["successful"]:
    check(r["output"], "request")
