"""Adds the messages of inference.proto to the package. In a checkout protoc (Debian: protobuf-compiler) generates them;
a source distribution has them."""
import pathlib
import subprocess

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

PROTO = pathlib.Path(__file__).resolve().parents[2] / "proto"
MESSAGES = "fovea/inference/v1"


def generate(folder):
    subprocess.run(["protoc", f"-I{PROTO}", f"--python_out={folder}", f"--pyi_out={folder}", f"{MESSAGES}/inference.proto"], check=True)


def in_checkout():
    return (PROTO / MESSAGES / "inference.proto").exists()


class Build(build_py):
    def run(self):
        super().run()
        if in_checkout():
            generate(self.build_lib)


class Source(sdist):
    def make_release_tree(self, base_dir, files):
        super().make_release_tree(base_dir, files)
        if in_checkout():
            generate(base_dir)


setup(packages=["fovea"] + ([] if in_checkout() else ["fovea.inference.v1"]), cmdclass={"build_py": Build, "sdist": Source})
