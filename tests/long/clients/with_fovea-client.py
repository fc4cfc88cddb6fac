"""The package fovea-client as it is published: a wheel made of the source distribution, which PyPI would take, installed alone
and tested against the fleet.

usage: with_fovea-client.py HOST:PORT PICTURE ROUTER; exits with 77 without build and twine
"""
import glob
import os
import subprocess
import sys
import tempfile
import venv

from client import WAIT_S, picture_path, skip_without

try:
    import build  # noqa: F401
    import twine  # noqa: F401
except ImportError as e:
    skip_without(e, "fovea-client")
root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..")


def run(*command, **more):
    said = subprocess.run(command, capture_output=True, text=True, timeout=2 * WAIT_S, **more)
    assert said.returncode == 0, said.stdout[-2000:] + said.stderr[-2000:]
    return said.stdout


with tempfile.TemporaryDirectory() as work:
    run(sys.executable, "-m", "build", "--outdir", f"{work}/dist", os.path.join(root, "clients/python"))
    files = sorted(os.path.basename(f) for f in glob.glob(f"{work}/dist/*"))
    assert len(files) == 2 and files[0].startswith("fovea_client-") and files[0].endswith("-py3-none-any.whl"), files
    run(sys.executable, "-m", "twine", "check", "--strict", *glob.glob(f"{work}/dist/*"))
    venv.create(f"{work}/venv", with_pip=True)
    python = f"{work}/venv/bin/python"
    run(python, "-m", "pip", "install", "--quiet", *glob.glob(f"{work}/dist/*.whl"))
    said = run(python, "-B", os.path.join(root, "tests/e2e/python_package.py"), sys.argv[3], picture_path, cwd=work)
    assert said.endswith("ok\n"), said
    print(*files, sep="\n")
