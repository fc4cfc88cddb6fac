"""A fleet for tests of what is kept of prompts: starts `fovea up`, asks over gRPC with ids or text, kills its processes."""
import os
import pathlib
import random
import re
import signal
import socket
import struct
import subprocess
import sys
import time
import zlib

from contracts import Contracts, connect  # exits with 77 without grpc
import grpc

ROOT = pathlib.Path(__file__).resolve().parents[2]
START_S, ANSWER_S = 300, 300  # machines may be busy


def png(side, seed):
    """An image of random blocks; each seed gives another one."""
    rows = random.Random(seed).randbytes(3 * side // 8 * (side // 8 + 1))
    lines = b"".join(b"\0" + b"".join(rows[3 * ((y // 8) * (side // 8) + x // 8):][:3] for x in range(side)) for y in range(side))

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(lines, 1)) + chunk(b"IEND", b"")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def redis(port):
    """Starts a redis-server that is answering when this returns; None: there is none on this machine."""
    try:
        server = subprocess.Popen(["redis-server", "--bind", "127.0.0.1", "--port", str(port), "--save", ""],
                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    except FileNotFoundError:
        return None
    end = time.monotonic() + 60
    while True:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=1):
                return server
        except OSError:
            if time.monotonic() > end or server.poll() is not None:
                raise
            time.sleep(0.05)


class Fleet:
    def __init__(self, bin, checkpoint, folder, *more, key=None):
        self.up = subprocess.Popen([pathlib.Path(bin) / "fovea", "up", "--checkpoint", checkpoint, "--listen", "127.0.0.1:0",
                                    "--log", "error", *map(str, more)], stdout=subprocess.PIPE, text=True)
        deadline = time.monotonic() + START_S
        for line in self.up.stdout:
            ready = re.search(r"ready on ([0-9.]+:[0-9]+)", line)
            if ready:
                break
            assert time.monotonic() < deadline, "the fleet did not start in time"
        else:
            raise SystemExit("the fleet did not start")
        descriptors = pathlib.Path(folder) / "contracts.bin"
        subprocess.run(["protoc", "-I", ROOT / "proto", "--include_imports", f"--descriptor_set_out={descriptors}",
                        "fovea/inference/v1/inference.proto"], check=True)
        contracts = Contracts(str(descriptors))
        self.inference = contracts.messages("fovea.inference.v1")
        self.router = contracts.stub(connect(ready.group(1)), "fovea.inference.v1.Inference")
        model = self.router.GetModel(self.inference.GetModelRequest(), timeout=ANSWER_S, metadata=self.credentials(key))
        self.image_token = model.image_token

    @staticmethod
    def credentials(key):
        return [("authorization", f"Bearer {key}")] if key else []

    def ask(self, ids, image=None, n=4, key=None, **more):
        """The report, the ids and the digests of an answer of n tokens. Waits where the fleet has no worker for a moment."""
        m = self.inference
        never = [m.LogitBias(id=self.image_token, bias=-100)] if self.image_token else []
        request = m.GenerateRequest(prompt=m.Prompt(ids=m.TokenIds(id=ids)), max_tokens=n, ignore_eos=True, digests=True,
                                    sampling=m.Sampling(logit_bias=never), **more)
        if image:
            request.images.add(data=image)
        end = time.monotonic() + ANSWER_S
        while True:
            try:
                events = list(self.router.Generate(request, timeout=ANSWER_S, metadata=self.credentials(key)))
                break
            except grpc.RpcError as e:
                passing = grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED
                if e.code() not in passing or time.monotonic() > end:
                    raise
                time.sleep(0.1)
        tokens = [t for e in events for t in e.tokens.tokens]
        return events[-1].finished.report, [t.id for t in tokens], [t.digest for t in tokens]

    def children(self, program):
        out = subprocess.run(["pgrep", "-P", str(self.up.pid), "-f", program], capture_output=True, text=True).stdout
        return [int(pid) for pid in out.split()]

    def stop(self):
        self.up.send_signal(signal.SIGINT)
        return self.up.wait()

    def kill(self):
        """Ends all of it as a power failure does."""
        pids = [pid for p in ("fovea-router", "fovea-prefill", "fovea-decode") for pid in self.children(p)]
        for pid in [self.up.pid, *pids]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.up.wait()
