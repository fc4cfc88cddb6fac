#!/usr/bin/env python3
"""Do the pages name what is there? In docs/REQUEST.md every `function()` is defined in the file named before it; in all pages
every relative link and every `folder/file.ext` exists.

    check_docs.py ROOT
"""
import re
import subprocess
import sys
from pathlib import Path

root = Path(sys.argv[1]).resolve()
FILE = r"[a-z][\w-]*(?:/[\w.-]+)*/[\w-]+\.(?:c|h|cu|def|py|cmake|proto|inc|md)"


def wrong_functions(page):
    """Walks the words in backticks: a file is followed by the functions that it defines."""
    file = text = None
    for word in re.findall(r"`([^`\n]+)`", page.read_text()):
        if re.fullmatch(FILE, word):
            file, text = word, (root / word).read_text() if (root / word).exists() else ""
        elif call := re.fullmatch(r"(\w+)\(\)", word):
            if file is None or not re.search(rf"^\w[\w *]*\b{call[1]}\([^;]*?\)\s*{{", text, re.MULTILINE | re.DOTALL):
                yield f"{page.name}: {call[1]}() is not defined in {file}"


def wrong_names(page):
    text = page.read_text()
    for link in re.findall(r"\]\(([^)#\s]+)", text):
        if "://" not in link and not (page.parent / link).exists():
            yield f"{page.relative_to(root)}: link to {link}, which does not exist"
    if root / "docs" in page.parents:
        for name in re.findall(rf"`({FILE})`", text):
            if not (root / name).exists():
                yield f"{page.relative_to(root)}: {name} does not exist"


def main():
    listed = subprocess.run(["git", "-C", root, "ls-files", "*.md"], capture_output=True, text=True)
    pages = [root / p for p in listed.stdout.split()] or [root / "README.md", *root.glob("docs/**/*.md")]
    wrong = [*wrong_functions(root / "docs/REQUEST.md"), *(w for p in pages for w in wrong_names(p))]
    if sum(1 for _ in re.finditer(r"`\w+\(\)`", (root / "docs/REQUEST.md").read_text())) < 40:
        wrong.append("REQUEST.md names fewer than 40 functions")
    print("\n".join(wrong))
    sys.exit(bool(wrong))


main()
