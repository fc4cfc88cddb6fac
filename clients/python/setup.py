"""Adds the messages of inference.proto, which protoc (Debian: protobuf-compiler) generates, to the package."""
import pathlib
import subprocess

from setuptools import setup
from setuptools.command.build_py import build_py

PROTO = pathlib.Path(__file__).resolve().parents[2] / "proto"


class Build(build_py):
    def run(self):
        super().run()
        subprocess.run(["protoc", f"-I{PROTO}", f"--python_out={self.build_lib}", f"--pyi_out={self.build_lib}",
                        "fovea/inference/v1/inference.proto"], check=True)


setup(cmdclass={"build_py": Build})
