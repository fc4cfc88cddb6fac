"""lmms-eval, unmodified: a task of twelve questions about pictures, of which the model answers at least ten.

usage: with_lmms-eval.py HOST:PORT PICTURE; exits with 77 without lmms-eval
"""
import glob
import importlib.util
import json
import os
import subprocess
import sys
import tempfile

from client import WAIT_S, base_url, name, skip_without

if not importlib.util.find_spec("lmms_eval"):
    skip_without("no module lmms_eval", "lmms-eval")
EXAMPLES = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../eval/examples"))
TASK = f"""
task: shapes
dataset_path: json
dataset_kwargs: {{data_files: {{test: {EXAMPLES}/shapes.jsonl}}}}
test_split: test
output_type: generate_until
doc_to_visual: !function utils.doc_to_visual
doc_to_text: "question"
doc_to_target: "answers"
generation_kwargs: {{max_new_tokens: 32, temperature: 0}}
process_results: !function utils.process_results
metric_list: [{{metric: exact_match, aggregation: mean, higher_is_better: true}}]
"""
UTILS = f"""
from PIL import Image

def doc_to_visual(doc):
    return [Image.open("{EXAMPLES}/" + doc["image"]).convert("RGB")]

def process_results(doc, results):
    return {{"exact_match": float(results[0].strip().lower() == doc["answers"].lower())}}
"""
with tempfile.TemporaryDirectory() as work:
    os.mkdir(f"{work}/task")
    for file, text in ("shapes.yaml", TASK), ("utils.py", UTILS):
        with open(f"{work}/task/{file}", "w", encoding="utf-8") as f:
            f.write(text)
    said = subprocess.run(
        [sys.executable, "-m", "lmms_eval", "--model", "openai_compatible", "--include_path", f"{work}/task", "--tasks", "shapes",
         "--batch_size", "1", "--output_path", f"{work}/out", "--model_args",
         f"model_version={name},base_url={base_url},api_key=unused,timeout={WAIT_S}"],
        env={**os.environ, "HF_HOME": work, "HF_HUB_OFFLINE": "1"}, cwd=work, capture_output=True, text=True, timeout=3 * WAIT_S)
    reports = glob.glob(f"{work}/out/**/*results.json", recursive=True)
    assert said.returncode == 0 and reports, said.stdout[-2000:] + said.stderr[-3000:]
    with open(reports[0], encoding="utf-8") as f:
        result = json.load(f)["results"]["shapes"]
print(result)
assert result["exact_match,none"] >= 10 / 12, result
