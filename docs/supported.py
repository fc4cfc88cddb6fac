#!/usr/bin/env python3
"""The page SUPPORTED.md, from tests/golden/published.json, which tests/unit/cli/test_published.c reads too.

    docs/supported.py            writes the page
    docs/supported.py --check    ends with 1 when the page says anything else
"""
import json
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
PAGE = HERE / "SUPPORTED.md"
ROWS = HERE.parent / "tests" / "golden" / "published.json"

HEAD = """\
# Published checkpoints

<!-- Written by docs/supported.py. -->

These checkpoints of the Hugging Face Hub are of families that fovea serves. **No real weights were run for this
page**, only networks of the same keys with random weights. `fovea inspect ORG/NAME` says of a checkpoint on your disk
whether it can be served, what memory it takes, and what is wrong with its files.

For each row a test (`tests/unit/cli/test_published.c`) checks that

1. `config.json` with the published keys that describe the network is read, as the family in the table,
2. the network has the published number of parameters, within half a percent, where that number is given,
3. a network with the same keys but tiny sizes and random weights is written, opened, and answers a question, about an
   image where the model has a tower.

The families themselves are compared with transformers on random networks ([tests/parity](../tests/parity)).

The column *config* says where the keys come from. **copy**: a copy of the published file was read, in the repository
below the table. **recalled**: the published file could not be seen when the table was written; its keys are
recalled from the model's documentation, and the number of parameters is what confirms them. Compare with the file if
it matters; `fovea inspect` reads it.

"""


def cell(row):
    config = row["config"]
    text = config.get("text_config", config)
    family = config["model_type"]
    if family == "llava" and config.get("vision_config", {}).get("model_type") == "pixtral":
        family = "pixtral (`llava`)"
    inner = text.get("model_type", family)
    kind = f"{family}" if inner == config["model_type"] else f"{family}, {inner}"
    millions = row["millions"]
    size = "–" if millions is None else f"{millions / 1000:.2f}"
    source = "copy" if row["source"] == "file" else "recalled"
    return (f"| [{row['name']}](https://huggingface.co/{row['name']}) | {kind} | {size} | {source} | "
            f"{row.get('note', '')} |")


def page():
    rows = json.loads(ROWS.read_text(encoding="utf-8"))
    vision = [r for r in rows if "vision_config" in r["config"]]
    alone = [r for r in rows if "vision_config" not in r["config"]]
    copies = sorted({r["copy"] for r in rows if "copy" in r})
    head = "| checkpoint | family, text model | parameters, 10⁹ | config | |\n|---|---|---|---|---|\n"
    seen = sum(r["source"] == "file" for r in rows)
    return (HEAD + f"## {len(vision)} vision-language models\n\n" + head + "\n".join(map(cell, vision)) +
            f"\n\n## {len(alone)} text models\n\n" + head + "\n".join(map(cell, alone)) +
            f"\n\nOf {len(rows)} configs {seen} were read as copies, in {'; '.join(copies)}.\n" +
            "Derivatives with the same `model_type` or class in `architectures` are served as these are. "
            "[FAMILIES.md](FAMILIES.md) says which methods run on which family.\n")


def main():
    text = page()
    if sys.argv[1:] == ["--check"]:
        sys.exit(0 if PAGE.read_text(encoding="utf-8") == text else
                 "docs/SUPPORTED.md is not what docs/supported.py writes: run it")
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
