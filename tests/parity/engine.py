"""fovea as a program: writes synthetic checkpoints, and answers with all it computed."""
import json
import os
import pathlib
import subprocess

import numpy as np


class EngineError(Exception):
    """fovea ended with an error; the text is what it said."""


class Engine:
    def __init__(self, program):
        self.program = pathlib.Path(program).resolve()
        # Options from outside would change what is compared.
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("FOVEA_")}

    def run(self, *arguments, timeout=300):
        done = subprocess.run([self.program, *map(str, arguments)], capture_output=True,
                              check=False, timeout=timeout, env=self.env)
        if done.returncode != 0:
            said = done.stderr.decode("utf-8", "replace").strip()
            raise EngineError(f"fovea {arguments[0]} ended with {done.returncode}: {said}")
        return done.stdout

    def synth(self, case, directory, dialect=None):
        """Writes the case's checkpoint, in its own dialect or in another."""
        directory.parent.mkdir(parents=True, exist_ok=True)
        config = directory.parent / (directory.name + ".json")
        config.write_text(json.dumps(case.config), encoding="utf-8")
        self.run("synth", "--config", config, "--seed", case.seed, "--dtype", case.dtype,
                 "--dialect", dialect or case.dialect, "--shards", case.shards,
                 "--key-form", case.key_form, "--out", directory, "--force")
        config.unlink()
        if case.processor:
            processor = directory / "preprocessor_config.json"
            processor.write_text(json.dumps(case.processor), encoding="utf-8")

    def trace(self, case, checkpoint, images, out, n_tokens, compute="f32"):
        """Everything that `fovea trace` leaves, by file name without .npy."""
        arguments = ["--checkpoint", checkpoint, "--prompt", case.prompt, "--out", out,
                     "--max-tokens", n_tokens, "--ignore-eos", "--temperature", 0, "--compute", compute, *case.options]
        for image in images:
            arguments += ["--image", image]
        if getattr(case, "video", None):
            arguments += ["--video", out.parent / case.video[0], "--frames", 256]
        if not case.chat:
            arguments += ["--raw"]
        if case.system:
            arguments += ["--system", case.system]
        self.run("trace", *arguments)
        made = {path.stem: np.load(path) for path in out.glob("*.npy")}
        made["prompt"] = (out / "prompt.txt").read_bytes().decode("utf-8")
        made["answer"] = (out / "answer.txt").read_bytes().decode("utf-8")
        made["report"] = json.loads((out / "report.json").read_text(encoding="utf-8"))
        return made
