"""deploy/Dockerfile against the tree: its steps are `./dev` commands, what it copies is there, what it
leaves out is not needed, and the image runs as nobody.

usage: dockerfile.py ROOT
"""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

root = os.path.abspath(sys.argv[1])
failures = []


def expect(holds, what):
    if not holds:
        failures.append(what)


def read(path):
    with open(os.path.join(root, path), encoding="utf-8") as f:
        return f.read()


def instructions(text):
    """(name, rest) of each instruction, with continued lines joined and comments left out."""
    lines = "\n".join(l for l in text.splitlines() if not l.lstrip().startswith("#")).replace("\\\n", " ")
    return [tuple(l.split(None, 1)) for l in lines.splitlines() if l.strip()]


steps = instructions(read("deploy/Dockerfile"))
of = lambda name: [rest for n, rest in steps if n == name]
dev = read("dev")
dev_commands = {c for names in re.findall(r"^([a-z |]+)\) (?:use|;;)", dev, re.M) for c in names.split(" | ")}

# Each step is something that people run as well.
for run in of("RUN"):
    command = re.sub(r"--mount=\S+\s+", "", run).split()
    expect(command[0] in ("./dev", "/src/dev"), f"RUN {run}: a step is a ./dev command")
    expect(len(command) > 1 and command[1] in dev_commands, f"RUN {run}: ./dev has no such command")

# The build may see what it reads: the folders of CMakeLists.txt, and no others.
allowed = {l[1:] for l in read("deploy/Dockerfile.dockerignore").splitlines() if l.startswith("!")}
expect("*" in read("deploy/Dockerfile.dockerignore").splitlines(), "the ignore file must begin with nothing")
cmake = read("CMakeLists.txt")
needed = {layer.split("/")[0] for layers in re.findall(r"foreach\(layer ([^)]*)\)", cmake) for layer in layers.split()}
needed |= {"cmake", "dev", "tools", "CMakeLists.txt", "CMakePresets.json"}
expect(allowed == needed, f"Dockerfile.dockerignore: {sorted(allowed ^ needed)} is too much or missing")
for path in allowed:
    expect(os.path.exists(os.path.join(root, path)), f"Dockerfile.dockerignore: there is no {path}")
stages = {f.split()[-1] for f in of("FROM") if " AS " in f}
prefixes = {run.split()[-1] for run in of("RUN") if "dev install" in run}
for copy in of("COPY"):
    sources = copy.split()[:-1]
    if sources[0].startswith("--from="):
        expect(sources[0][7:] in stages, f"COPY {copy}: there is no such stage")
        expect(set(sources[1:]) <= prefixes, f"COPY {copy}: nothing is installed there")
        continue
    for source in sources:
        expect(source == "." or source in allowed, f"COPY {copy}: {source} is not let in")

# The image runs as a user without rights, by number, so that runAsNonRoot can be checked before it starts.
expect(of("USER") and all(re.fullmatch(r"[1-9]\d*:[1-9]\d*", u) for u in of("USER")), "USER must be numbers, not root")
expect(not of("HEALTHCHECK"), "Kubernetes probes; HEALTHCHECK would be a second truth")
labels = " ".join(of("LABEL"))
for key in ("title", "description", "licenses", "version", "revision", "base.name", "base.digest"):
    expect(f"org.opencontainers.image.{key}=" in labels, f"label {key} is missing")

# The base can be pinned, also for the last stage, and what is in the image is listed.
expect(of("FROM")[-1] == "${BASE}${BASE_DIGEST:+@}${BASE_DIGEST}", "the last stage is not on the pinned base")
expect("BUILD_BASE=${BASE}${BASE_DIGEST:+@}${BASE_DIGEST}" in of("ARG"), "the first stage is not on the pinned base")
expect(any("dev sbom" in run for run in of("RUN")), "the image has no list of its packages")
with tempfile.TemporaryDirectory() as tmp:
    path = os.path.join(tmp, "sbom.spdx.json")
    subprocess.run([os.path.join(root, "dev"), "sbom", path], check=True, capture_output=True, timeout=100)
    with open(path, encoding="utf-8") as f:
        sbom = json.load(f)
expect(sbom["spdxVersion"] == "SPDX-2.3" and sbom["dataLicense"] == "CC0-1.0", "the list is not SPDX 2.3")
expect(set(sbom) >= {"SPDXID", "name", "documentNamespace", "creationInfo", "packages", "relationships"}, "fields of SPDX")
ids = {p["SPDXID"] for p in sbom["packages"]}
expect(len(ids) == len(sbom["packages"]) and all(p["downloadLocation"] for p in sbom["packages"]), "packages of SPDX")
expect({r["relatedSpdxElement"] for r in sbom["relationships"]} == ids, "relationships of SPDX")
installed = subprocess.run(["dpkg-query", "--show", "--showformat=${Package} ${Version}\n"], capture_output=True, text=True,
                           check=True, timeout=100).stdout.split("\n")[:-1]
contained = [p for p in sbom["packages"] if p["SPDXID"] == "SPDXRef-llhttp"]
expect(bool(contained) == os.path.exists(os.path.join(root, "build/deps/llhttp")), "llhttp, which is compiled in, is listed")
for p in contained:
    expect(re.fullmatch(r"9\.\d+\.\d+", p["versionInfo"]) and p["licenseDeclared"] == "MIT", f"llhttp: {p}")
    expect(p["externalRefs"][0]["referenceLocator"].startswith("pkg:pypi/httptools@"), f"llhttp: {p}")
debian = [p for p in sbom["packages"][1:] if p not in contained]
expect(sorted(f"{p['name']} {p['versionInfo']}" for p in debian) == sorted(installed), "packages are missing")
for p in debian:
    purl = p["externalRefs"][0]["referenceLocator"]
    expect(re.fullmatch(r"pkg:deb/debian/[a-z0-9.+-]+@[\w.%-]+\?arch=\w+", purl), f"purl {purl}")

hadolint = shutil.which("hadolint", path=os.path.dirname(sys.executable) + ":" + os.environ["PATH"])
if hadolint:
    r = subprocess.run([hadolint, os.path.join(root, "deploy/Dockerfile")], capture_output=True, text=True, timeout=100)
    expect(r.returncode == 0, "hadolint: " + r.stdout + r.stderr)
else:
    print("skip: no hadolint for deploy/Dockerfile")

print("\n".join(failures) or f"ok: {len(steps)} instructions")
sys.exit(1 if failures else 0)
