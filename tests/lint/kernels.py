#!/usr/bin/env python3
"""What the compiler makes of each kernel: registers, spills, shared memory, and by its PTX tensor core
instructions and loads and stores of device memory by width.

    tests/lint/kernels.py ROOT            compares with ROOT/kernels/cuda/kernels.txt; small sources, or all of them with
                                          FOVEA_TEST_LONG=1
    tests/lint/kernels.py ROOT --write    writes that table; rows of sources that are not compiled stay

Registers and spills are those of ptxas for sm_90a. The table holds for one version of nvcc: with another one, and
without nvcc, the comparison is skipped (77).
"""
import collections
import glob
import os
import re
import subprocess
import sys
import tempfile

ARCH = "sm_90a"
FLAGS = ["-std=c++17", "-O3", "-fmad=false", f"-arch={ARCH}", "-DFV_PLUGIN_CONTRACT=\"table\""]
LARGE = ("attention_tiled", "attn_latent", "packed_tiled", "factor", "packed_exact", "attn_quantized", "attn_merged")
FIELDS = ("kernel", "registers", "spill", "static", "mma", "16", "8", "4", "2", "1", "division")


def skip(why):
    print(f"skip: {why}")
    sys.exit(77)


def nvcc_path():
    for path in (os.environ.get("CUDACXX"), "/usr/local/cuda/bin/nvcc"):
        if path and os.access(path, os.X_OK):
            return path
    found = subprocess.run(["which", "nvcc"], capture_output=True, text=True, check=False).stdout.strip()
    return found or skip("there is no nvcc")


def demangle(name):
    text = subprocess.run(["c++filt", name], capture_output=True, text=True, check=True).stdout.strip()
    return re.sub(r"^void |\(anonymous namespace\)::|\(.*$", "", text).replace(" ", "")


def widths(body):
    """Loads and stores of device memory, by bytes a thread; generic ones too, parameters and shared ones not."""
    n = collections.Counter()
    for match in re.finditer(r"\b(?:ld|st)(?:\.volatile)?(\.global)?(?:\.nc)?(?:\.(v2|v4))?\.[a-z]+(\d+)\b", body):
        n[int(match[3]) // 8 * {"v2": 2, "v4": 4, None: 1}[match[2]]] += 1
    n[16] += len(re.findall(r"cp\.async\.c[ag]\.shared\.global", body))
    return n


def of_ptx(text):
    """By kernel: tensor core instructions, accesses by width, 64-bit divisions."""
    rows = {}
    for match in re.finditer(r"\.entry (\w+)\((.*?)\n\}", text, re.S):
        body = match[2]
        n = widths(body)
        rows[match[1]] = [len(re.findall(r"mma\.sync", body)), n[16], n[8], n[4], n[2], n[1],
                          len(re.findall(r"\b(?:div|rem)\.[su]64", body))]
    return rows


def of_ptxas(text):
    """By kernel: registers, spilled bytes (stores and loads), static shared memory."""
    rows, name, spill = {}, None, 0
    for line in text.splitlines():
        if match := re.search(r"Compiling entry function '(\w+)'", line):
            name = match[1]
        elif match := re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", line):
            spill = int(match[1]) + int(match[2])
        elif name and (match := re.search(r"Used (\d+) registers", line)):
            shared = re.search(r"(\d+) bytes smem", line)
            rows[name] = [int(match[1]), spill, int(shared[1]) if shared else 0]
            name, spill = None, 0
    return rows


def table_of(nvcc, root, source, folder):
    ptx = os.path.join(folder, "x.ptx")
    subprocess.run([nvcc, *FLAGS, "-I", root, "-ptx", source, "-o", ptx], check=True, capture_output=True)
    ptxas = os.path.join(os.path.dirname(nvcc), "ptxas")
    told = subprocess.run([ptxas, "-v", f"-arch={ARCH}", ptx, "-o", os.path.join(folder, "x.cubin")], check=True,
                          capture_output=True, text=True)
    with open(ptx, encoding="utf-8") as f:
        counted = of_ptx(f.read())
    used = of_ptxas(told.stderr + told.stdout)
    return {f"{os.path.basename(source)[:-3]}:{demangle(name)}": used[name] + counted[name] for name in used}


def line_of(name, row):
    return f"{name:76}" + "".join(f"{value:>10}" for value in row)


def read_table(path):
    with open(path, encoding="utf-8") as f:
        first, _, *lines = f.read().splitlines()
    return first, {line.split()[0]: [int(x) for x in line.split()[1:]] for line in lines}


def main():
    root, write = sys.argv[1], "--write" in sys.argv[2:]
    path = os.path.join(root, "kernels/cuda/kernels.txt")
    nvcc = nvcc_path()
    version = re.search(r"V[\d.]+", subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=True).stdout)[0]
    first = f"# nvcc {version}, {ARCH}; accesses of device memory by bytes, in PTX"
    want = {}
    if os.path.exists(path):
        was, want = read_table(path)
        if write and was != first:
            want = {}
        elif was != first:
            skip(f"the table is of '{was}', and here is '{first}'")
    sources = sorted(glob.glob(os.path.join(root, "kernels/cuda/*.cu")))
    if not os.environ.get("FOVEA_TEST_LONG"):
        sources = [s for s in sources if not os.path.basename(s).startswith(LARGE)]
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for source in sources:
            found |= table_of(nvcc, root, source, folder)
    names = {os.path.basename(s)[:-3] for s in sources}
    if write:
        found |= {k: v for k, v in want.items() if k.split(":")[0] not in names}
        with open(path, "w", encoding="utf-8") as f:
            print(first, line_of("# " + FIELDS[0], FIELDS[1:]), *(line_of(k, v) for k, v in sorted(found.items())),
                  sep="\n", file=f)
        return
    if not want:
        skip("there is no table: --write makes it")
    bad = 0
    for name in sorted(set(found) | {k for k in want if k.split(":")[0] in names}):
        if name.split(":")[0] not in {k.split(":")[0] for k in want}:
            continue  # a source of which the table has nothing yet
        if found.get(name) != want.get(name):
            bad += 1
            print(f"{name}: {found.get(name, 'is gone')}, and the table has {want.get(name, 'no row')}")
    print(f"{len(found)} kernels, {bad} differ from kernels/cuda/kernels.txt; --write takes what is compiled now")
    sys.exit(bad > 0)


main()
