#!/usr/bin/env python3
"""Do the pages name what is there? In docs/REQUEST.md every `function()` is defined in the file named before it, and where
"`a()` calls `b()`" stands, a's body calls b; in all pages every relative link and every `folder/file.ext` exists.

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


def wrong_calls(page):
    """The caller is in the file named last before it; a file may be named between the two."""
    text = page.read_text()
    for claim in re.finditer(rf"`(\w+)\(\)` calls (?:`{FILE}`: )?`(\w+)\(\)`", text):
        file = [m[1] for m in re.finditer(rf"`({FILE})`", text[:claim.start()])][-1]
        body = re.search(rf"^\w[\w *]*\b{claim[1]}\([^;]*?\)\s*{{.*?^}}", (root / file).read_text(), re.MULTILINE | re.DOTALL)
        if not body or not re.search(rf"\b{claim[2]}\(", body[0]):
            yield f"{page.name}: {claim[1]}() of {file} does not call {claim[2]}()"


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
    request = root / "docs/REQUEST.md"
    wrong = [*wrong_functions(request), *wrong_calls(request), *(w for p in pages for w in wrong_names(p))]
    if len(re.findall(r"`\w+\(\)`", request.read_text())) < 40:
        wrong.append("REQUEST.md names fewer than 40 functions")
    if len(re.findall(r"\(\)` calls ", request.read_text())) < 10:
        wrong.append("REQUEST.md says of fewer than 10 functions what they call")
    print("\n".join(wrong))
    sys.exit(bool(wrong))


main()
