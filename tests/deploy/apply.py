"""`kubectl apply` again leaves alone how many workers there are where something else decides it (deploy/kubernetes/components/scaled):
the real kubectl, its client-side apply, and a small API server (api_server.py).

Before that component was there, the manifests said replicas, and a cluster remembers it as last applied: the step of README.md comes
before the next apply, which would else set the number to 1.

usage: apply.py ROOT     exits with 77 where it cannot run
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile

from api_server import ApiServer
from rendered import find_tool, render, skip, yaml

root = os.path.abspath(sys.argv[1])
kubectl = find_tool(root, "kubectl") or skip("no kubectl")
tmp = tempfile.mkdtemp(prefix="fovea-apply-")
shutil.copytree(os.path.join(root, "deploy/kubernetes"), os.path.join(tmp, "deploy/kubernetes"))
with open(os.path.join(root, "deploy/README.md"), encoding="utf-8") as f:
    (step,) = [b for b in re.findall(r"\n\n```\n(.*?)\n```\n", f.read(), re.S) if "set-last-applied" in b]
WORKERS = ("fovea-prefill", "fovea-decode")
SCALED = ("fovea-gateway", *WORKERS)


def example(*components):
    """The overlay example, with other components."""
    path = os.path.join(tmp, "deploy/kubernetes/overlays/example/kustomization.yaml")
    with open(path, encoding="utf-8") as f:
        overlay = yaml.safe_load(f)
    overlay["components"] = list(components)
    with open(path, "w", encoding="utf-8") as f:
        yaml.safe_dump(overlay, f)
    return render(tmp, "deploy/kubernetes/overlays/example")


def run(server, *command, **more):
    config = os.path.join(tmp, "config")
    with open(config, "w", encoding="utf-8") as f:
        yaml.safe_dump({"apiVersion": "v1", "kind": "Config", "current-context": "test",
                        "clusters": [{"name": "test", "cluster": {"server": server.url}}],
                        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "", "namespace": "fovea"}}]}, f)
    env = {**os.environ, "KUBECONFIG": config, "HOME": tmp, "no_proxy": "127.0.0.1",
           "PATH": f"{os.path.dirname(kubectl)}:{os.environ['PATH']}"}
    r = subprocess.run(command, env=env, capture_output=True, text=True, timeout=100, **more)
    assert r.returncode == 0, f"{command}: {r.stdout} {r.stderr}"
    return r.stdout


def apply(server, objects):
    run(server, kubectl, "apply", "--validate=false", "-f", "-", input=yaml.safe_dump_all(objects))


def deployments(server):
    return {o["metadata"]["name"]: o for o in server.objects.values() if o["kind"] == "Deployment"}


def scale(server, n):
    """As an autoscaler does."""
    for name in SCALED:
        deployments(server)[name]["spec"]["replicas"] = n


def counts(server):
    return [deployments(server)[name]["spec"]["replicas"] for name in SCALED]


try:
    autoscale = "../../components/autoscale"
    numbered, scaled = example("workers"), example(autoscale)
    assert scaled == example("workers", autoscale), "an overlay that keeps the numbers before an autoscaler carries none either"
    assert not any("replicas" in o["spec"] for o in scaled if o["kind"] == "Deployment" and o["metadata"]["name"] in SCALED)
    assert len([o for o in scaled if o["kind"] == "HorizontalPodAutoscaler"]) == 3

    server = ApiServer()
    apply(server, scaled)
    scale(server, 8)
    apply(server, scaled)
    assert counts(server) == [8, 8, 8], counts(server)

    server = ApiServer()
    apply(server, numbered)
    assert counts(server) == [2, 2, 3], counts(server)
    scale(server, 8)
    apply(server, numbered)
    assert counts(server) == [2, 2, 3], "this is how an autoscaler was undone"
    scale(server, 8)
    apply(server, scaled)
    assert counts(server) == [1, 1, 1], "this is what the step of README.md is for"

    server = ApiServer()
    apply(server, numbered)
    scale(server, 8)
    run(server, "bash", "-euo", "pipefail", "-c", step)
    assert counts(server) == [8, 8, 8], counts(server)
    for _ in range(2):
        apply(server, scaled)
        assert counts(server) == [8, 8, 8], counts(server)
    assert deployments(server)["fovea-router"]["spec"]["replicas"] == 2
finally:
    shutil.rmtree(tmp)
print("ok")
