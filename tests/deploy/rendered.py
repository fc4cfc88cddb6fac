"""Renders deploy/kubernetes with kustomize. A program that imports this exits with 77 where that cannot be done."""
import os
import shutil
import subprocess
import sys


def skip(why):
    """Where changes are accepted, what was not rendered was not checked."""
    print(f"skip: {why}")
    sys.exit(1 if os.environ.get("CI") == "true" else 77)


try:
    import yaml
except ImportError:
    skip("no PyYAML for deploy/kubernetes (package python3-yaml)")
if yaml.__with_libyaml__:  # ten times as fast
    yaml.SafeLoader, yaml.SafeDumper = yaml.CSafeLoader, yaml.CSafeDumper


def find_tool(root, name):
    """A program from PyPI beside this Python or in build/deploy-venv, or the system's; None."""
    beside = [os.path.dirname(sys.executable), os.path.join(root, "build/deploy-venv/bin")]
    return shutil.which(name, path=":".join([*beside, os.environ["PATH"]]))


def render(root, folder):
    """The objects of a folder below `root`."""
    for tool in (["kubectl", "kustomize"], ["kustomize", "build"]):
        found = find_tool(root, tool[0])
        if found:
            r = subprocess.run([found, *tool[1:], os.path.join(root, folder)], capture_output=True, text=True, timeout=100)
            if r.returncode != 0:
                print(f"{folder}: {r.stderr}")
                sys.exit(1)
            return list(yaml.safe_load_all(r.stdout))
    skip("neither kubectl nor kustomize is here to render deploy/kubernetes")
