"""The engines fovea and llama.cpp. Each run is a process and returns {"prefill": s, 1: s, 16: s} or the reason why not."""
import json
import shutil
import subprocess
import sys

from classes import BATCHES, BIN, CLASSES, SCRATCH

LLAMA = "llama-cpp-python==0.3.36"


def run_for(seconds, *command):
    """Returns a program's output and None, or None and the reason."""
    try:
        return subprocess.run(command, capture_output=True, check=True, text=True, timeout=seconds).stdout, None
    except subprocess.TimeoutExpired:
        return None, f"took longer than {seconds} s"
    except subprocess.CalledProcessError as e:
        return None, f"ended with {e.returncode}: {(e.stderr.strip().splitlines() or [''])[-1][:80]}"


def fovea(where, precision, o):
    """Runs fovea; the result also has "bytes": {1: n, 16: n}, which a step reads (weights with scales, KV)."""
    out = SCRATCH / "fovea.json"
    _, why = run_for(o.limit, BIN / "bench_engine", "--checkpoint", where / ("f32" if precision == "f32" else "bf16"),
                     "--prompt", str(o.prompt), "--tokens", str(o.tokens), "--batch", ",".join(map(str, BATCHES)),
                     "--threads", str(o.threads), "--json", out, *CLASSES[precision][0])
    if why:
        return why
    found = json.loads(out.read_text())
    return {"prefill": found["prefill"], **{b: found["decode"][str(b)] for b in BATCHES},
            "bytes": {b: found["weight_bytes"] + found["kv_bytes"][str(b)] for b in BATCHES}}


def build_llama(o):
    """Builds llama-batched-bench once; returns it and None, or None and the reason."""
    program, fetched = SCRATCH / "llama/bin/llama-batched-bench", SCRATCH / "fetched"
    if program.exists():
        return program, None
    _, why = run_for(600, sys.executable, "-m", "pip", "download", "--quiet", "--no-deps",
                     "--no-binary", "llama-cpp-python", "--dest", fetched, LLAMA)
    if not why:
        shutil.unpack_archive(next(fetched.glob("llama_cpp_python-*.tar.gz")), fetched)
        source = next(fetched.glob("llama_cpp_python-*/vendor/llama.cpp"))
        _, why = run_for(600, "cmake", "-S", source, "-B", SCRATCH / "llama", "-DCMAKE_BUILD_TYPE=Release",
                         "-DGGML_NATIVE=ON", "-DBUILD_SHARED_LIBS=OFF", "-DLLAMA_CURL=OFF", "-DLLAMA_OPENSSL=OFF",
                         "-DLLAMA_BUILD_TESTS=OFF", "-DLLAMA_BUILD_EXAMPLES=OFF", "-DLLAMA_BUILD_SERVER=OFF")
    if not why:
        _, why = run_for(o.build_limit, "nice", "cmake", "--build", SCRATCH / "llama", "-j2", "--target",
                         "llama-batched-bench")
    return (None, f"was not built: {why}") if why else (program, None)


def llama(program, where, precision, o, *more):
    """Runs llama.cpp; -pps reads the prompt once and copies it to all sequences, each with its own memory."""
    context, most = max(BATCHES) * (o.prompt + o.tokens) + 64, str(max(o.prompt, 512))
    printed, why = run_for(o.limit, program, "-m", where / f"{CLASSES[precision][2]}.gguf", "-c", str(context), "-b", most,
                           "-ub", most, "-npp", str(o.prompt), "-ntg", str(o.tokens), "-npl", ",".join(map(str, BATCHES)),
                           "-pps", "--no-kv-unified", "-t", str(o.threads), "-tb", str(o.threads), "-ctk", "f16", "-ctv", "f16",
                           "--output-format", "jsonl", *more)
    if why:
        return why
    found = {row["pl"]: row for row in map(json.loads, filter(lambda line: line.startswith("{"), printed.splitlines()))}
    if set(found) != set(BATCHES):
        return "printed no rows"
    return {"prefill": found[1]["t_pp"], **{b: found[b]["t_tg"] for b in BATCHES}}
