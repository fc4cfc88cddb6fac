"""debian/apparmor: the parser of AppArmor takes the profiles, and what the programs open and start while a fleet answers about an image
that only the decoder reads is what their profiles allow.

A kernel with AppArmor is not needed: strace says what is opened, and the rules of files are matched here. Rules of networks, signals and
capabilities are compiled only.

usage: apparmor.py ROOT BIN      exits with 77 without strace or apparmor_parser
"""
import base64
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request

root, bin_dir = map(os.path.abspath, sys.argv[1:3])
profiles = os.path.join(root, "debian/apparmor")
WAIT_S = 300
parser = shutil.which("apparmor_parser") or "/sbin/apparmor_parser"
if not (shutil.which("strace") and os.path.exists(parser)):
    print("skip: no strace and apparmor_parser (packages strace, apparmor)")
    sys.exit(77)
failures = []


def expect(holds, what):
    if not holds:
        failures.append(what)


def preprocessed(name):
    """The text of a profile with all that it includes."""
    said = subprocess.run([parser, "-p", f"{profiles}/{name}"], capture_output=True, text=True)
    assert said.returncode == 0, said.stderr
    return said.stdout


def alternatives(pattern):
    """A pattern of paths with {a,b} written out, innermost first."""
    braces = re.search(r"\{([^{}]*)\}", pattern)
    if not braces:
        return [pattern]
    return list(itertools.chain.from_iterable(
        alternatives(pattern[:braces.start()] + choice + pattern[braces.end():]) for choice in braces[1].split(",")))


def regex(pattern):
    tokens = re.findall(r"\*\*|\*|\?|\[[^\]]*\]|.", pattern)
    known = {"**": ".*", "*": "[^/]*", "?": "[^/]"}
    return re.compile("".join(known.get(t) or (t if t.startswith("[") else re.escape(t)) for t in tokens))


class Rules:
    def __init__(self, name):
        text = preprocessed(name)
        self.variables, self.allowed, self.denied = {}, [], []
        for variable, values in re.findall(r"^\s*@\{(\w+)\}\s*\+?=\s*(.*?)\s*$", text, re.M):
            self.variables.setdefault(variable, []).extend(values.strip('"').split())
        for line in text.splitlines():
            rule = re.match(r"\s*(deny )?(?:owner )?(\"[^\"]+\"|[/@]\S*)\s+([a-zA-Z]+)(?:\s*->.*)?,\s*(#.*)?$", line)
            if rule:
                to = self.denied if rule[1] else self.allowed
                to += [(regex(p), rule[3]) for p in self.written_out(rule[2].strip('"'))]
        expect(len(self.allowed) > 20, f"{name}: {len(self.allowed)} rules of files were read")

    def written_out(self, pattern):
        variable = re.search(r"@\{(\w+)\}", pattern)
        if not variable:
            return [re.sub("/+", "/", p) for p in alternatives(pattern)]
        # A process's number, which profiles write as digits of every length.
        values = ["*"] if variable[1] in ("pid", "pids", "tid") else self.variables.get(variable[1], ["*"])
        return list(itertools.chain.from_iterable(
            self.written_out(pattern[:variable.start()] + v + pattern[variable.end():]) for v in values))

    def allow(self, path, kind):
        def has(rules):
            return any(kind in modes and p.fullmatch(path) for p, modes in rules)
        return has(self.allowed) and not has(self.denied)


OPENED = re.compile(r'^(\d+) +openat\((?:AT_FDCWD|\d+)<?([^>,]*)>?, "([^"]*)", ([A-Z_|]+).* = (\d+)')


def opened(trace):
    """(program, path, r or w or x) of all that succeeded, with the program that did it."""
    program, seen = {}, set()
    with open(trace, encoding="utf-8", errors="replace") as f:
        lines = [line for line in f if "= -1" not in line]
    whole, open_calls = [], {}
    for line in lines:  # a call that others interrupt stands in two lines
        pid = line.split()[0]
        if "<unfinished ...>" in line:
            open_calls[pid] = line[:line.index("<unfinished")].rstrip()
            if "execve(" not in line:
                continue
            line = open_calls[pid] + " = 0"
        elif "resumed>" in line:
            line = open_calls.pop(pid, pid + " ") + line[line.index("resumed>") + 8:]
        whole.append(line)
    for line in whole:
        pid = line.split()[0]
        child = re.search(r"\b(?:clone3?|vfork|fork)\(.* = (\d+)", line)
        start = re.search(r'execve\("([^"]+)"', line)
        one = OPENED.match(line)
        if child:
            program.setdefault(child[1], program.get(pid))
        elif start:
            name = os.path.basename(start[1])
            if program.get(pid) not in (None, name):
                seen.add((program[pid], start[1], "x"))
            program[pid] = name
        elif one and program.get(pid):
            path = os.path.normpath(os.path.join(one[2] or "/", one[3]))
            path += "/" if os.path.isdir(path) else ""
            seen.add((program[pid], path, "w" if re.search("O_WRONLY|O_RDWR|O_CREAT", one[4]) else "r"))
    return seen


def ask(at, image):
    content = [{"type": "image_url", "image_url": {"url": "data:image/gif;base64," + base64.b64encode(image).decode()}},
               {"type": "text", "text": "and now?"}]
    body = json.dumps({"messages": [{"role": "user", "content": content}], "max_tokens": 2}).encode()
    request = urllib.request.Request(f"{at}/v1/chat/completions", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=WAIT_S) as r:
        assert json.load(r)["usage"]["completion_tokens"] > 0


# A GIF of 28 by 28 pixels, all of one colour: codes of two pixel values, with the table cleared before it grows.
def gif():
    def packed(codes):
        bits = sum(c << (3 * i) for i, c in enumerate(codes))
        data = bits.to_bytes((3 * len(codes) + 7) // 8, "little")
        return b"".join(bytes([len(data[i:i + 255])]) + data[i:i + 255] for i in range(0, len(data), 255)) + b"\0"
    codes = list(itertools.chain.from_iterable([4, 1, 1] for _ in range(28 * 28 // 2))) + [5]
    return (b"GIF89a\x1c\0\x1c\0\xf1\0\0" + bytes([0, 0, 0, 200, 30, 30, 0, 0, 0, 0, 0, 0]) + b",\0\0\0\0\x1c\0\x1c\0\0\x02" +
            packed(codes) + b";")


names = {p: f"usr.bin.{p}" for p in ("fovea-video", "fovea-router", "fovea-prefill", "fovea-decode", "fovea-gateway")}
expect(sorted(names.values()) == sorted(os.listdir(profiles)), f"profiles: {os.listdir(profiles)}")
for name in names.values():
    said = subprocess.run([parser, "-Q", "-T", "-K", f"{profiles}/{name}"], capture_output=True, text=True)
    expect(said.returncode == 0, f"{name}: {said.stderr}")
rules = {program: Rules(name) for program, name in names.items()}
# The matching can refuse.
expect(not rules["fovea-video"].allow("/etc/passwd", "r"), "the decoder may read /etc/passwd")
expect(not rules["fovea-prefill"].allow("/srv/model/config.json", "w"), "a worker may write a checkpoint")
expect(not rules["fovea-gateway"].allow("/bin/sh", "x"), "the gateway may start a shell")

with tempfile.TemporaryDirectory() as work:
    fleet = subprocess.Popen(["strace", "-f", "-y", "-s", "4096", "-e", "trace=process,openat", "-o", f"{work}/trace", f"{bin_dir}/fovea", "up",
                              f"{root}/checkpoints/nano", "--http", "127.0.0.1:0", "--listen", "127.0.0.1:0", "--threads", "1"],
                             stdout=subprocess.PIPE, text=True, env={**os.environ, "LC_ALL": "C.UTF-8"})
    try:
        at, end = None, time.monotonic() + WAIT_S
        while not at and time.monotonic() < end:
            line = fleet.stdout.readline()
            found = re.search(r"http://[\d.]+:\d+", line)
            at = found and found[0]
            assert line, "fovea up ended"
        ask(at, gif())
    finally:
        with open(f"/proc/{fleet.pid}/task/{fleet.pid}/children", encoding="ascii") as f:
            for pid in f.read().split():
                os.kill(int(pid), 15)
        expect(fleet.wait(WAIT_S) == 0, "the fleet does not end as it should")
    seen = opened(f"{work}/trace")

for program in names:
    expect(any(p == program for p, _, _ in seen), f"{program} opened nothing: was it started?")
place = {bin_dir: "/usr/bin", os.path.dirname(os.path.dirname(bin_dir)): "/usr"}
for program, path, kind in sorted(seen):
    if program not in rules or path.startswith("/dev/fd/"):  # files without a name, which AppArmor does not look at
        continue
    where = path.replace(bin_dir, "/usr/bin").replace(root, "/srv/fovea")
    where = re.sub(r"^(?:/usr)?/lib/", "/usr/lib/", where) if kind == "r" else where
    expect(rules[program].allow(where, kind), f"{program}: its profile does not allow {kind} of {where}")

for failure in failures:
    print(failure)
sys.exit(1 if failures else 0)
