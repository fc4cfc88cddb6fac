"""deploy/monitoring: dashboard and alerts name only metrics, labels and values of docs/METRICS.md; promtool tests when
alerts fire.

usage: monitoring.py ROOT BIN     exits with 77 where a part cannot run
"""
import json
import os
import re
import shutil
import subprocess
import sys

root = os.path.abspath(sys.argv[1])
here = os.path.dirname(os.path.abspath(__file__))
failures = []


def expect(holds, what):
    if not holds:
        failures.append(what)


# ---- the tables of docs/METRICS.md

with open(os.path.join(root, "docs/METRICS.md")) as f:
    rows = [[cell.strip() for cell in line.strip()[1:-1].split(" | ")] for line in f if line.startswith("| ")]
labels = {}  # of each series: names of labels
values = {}  # (name, label) -> values
for name, kind, _, own, *_ in (r for r in rows if len(r) == 6 and re.fullmatch(r"`(fovea_|vllm:)\w+`", r[0])):
    name, own = name.strip("`"), set(filter(None, own.split(", ")))
    if kind == "histogram":
        labels |= {name + "_sum": own, name + "_count": own, name + "_bucket": own | {"le"}}
    else:
        labels[name] = own
for label, of, listed in (r for r in rows if len(r) == 3 and r[1].startswith("`fovea_")):
    for name in re.findall(r"`(\w+)`", of):
        values[name, label] = set(listed.split(", "))
expect(len(labels) > 50 and len(values) > 10, "docs/METRICS.md could not be read")
OF_A_TARGET = {"job", "instance"}


def check_query(where, query):
    found = re.findall(r"\b((?:fovea_|vllm:)\w+)(?:\{([^}]*)\})?", query)
    expect(found, f"{where}: no metric in {query}")
    for name, selector in found:
        expect(name in labels, f"{where}: there is no metric {name}")
        for label, op, value in re.findall(r'(\w+)(=~|!=|!~|=)"([^"]*)"', selector):
            expect(label in labels.get(name, set()) | OF_A_TARGET, f"{where}: {name} has no label {label}")
            if (name, label) in values:
                for one in value.split("|"):
                    expect(one in values[name, label], f"{where}: {label} of {name} is never {one}")
    for grouped in re.findall(r"\bby \(([^)]*)\)", query):
        for label in grouped.split(", "):
            expect(any(label in labels.get(name, set()) | OF_A_TARGET for name, _ in found),
                   f"{where}: nothing in {query} has the label {label}")


def check_dashboard():
    with open(os.path.join(root, "deploy/monitoring/dashboard.json")) as f:
        dashboard = json.load(f)
    panels = dashboard["panels"]
    expect(len({p["id"] for p in panels}) == len(panels), "dashboard: two panels have the same id")
    places = set()
    for p in panels:
        at = p["gridPos"]
        for place in ((x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])):
            expect(place not in places and place[0] < 24, f"dashboard: {p['title']} lies on another panel")
            places.add(place)
        for target in p.get("targets", []):
            check_query(p["title"], target["expr"])
            for label in re.findall(r"{{(\w+)}}", target["legendFormat"]):
                expect(label in target["expr"] or label in OF_A_TARGET, f"dashboard: {p['title']} has no {label}")


def check_alerts():
    try:
        import yaml
    except ImportError:
        print("skip: no PyYAML for deploy/monitoring (package python3-yaml)")
        return
    with open(os.path.join(root, "deploy/monitoring/alerts.yaml")) as f:
        rules = [r for g in yaml.safe_load(f)["groups"] for r in g["rules"]]
    with open(os.path.join(here, "alerts.yaml")) as f:
        cases = [c for t in yaml.safe_load(f)["tests"] for c in t["alert_rule_test"]]
    for rule in rules:
        name = rule["alert"]
        check_query(name, rule["expr"])
        expect(any(c["alertname"] == name and c.get("exp_alerts") for c in cases), f"{name}: no case in which it fires")
        expect(any(c["alertname"] == name and not c.get("exp_alerts") for c in cases), f"{name}: no case in which not")


def check_adapter():
    try:
        import yaml
    except ImportError:
        return
    with open(os.path.join(root, "deploy/monitoring/adapter.yaml")) as f:
        for rule in yaml.safe_load(f)["external"]:
            check_query(rule["name"]["as"], re.sub(r'service="[^"]*"', "", rule["metricsQuery"]))  # of a target, from the operator
            check_query(rule["name"]["as"], rule["seriesQuery"])


def run_promtool():
    unpacked = os.path.join(root, "build/prometheus/usr/bin")
    promtool = shutil.which("promtool", path=os.environ["PATH"] + os.pathsep + unpacked)
    if not promtool:
        print("skip: no promtool (package prometheus): alerts are not tested")
        return
    r = subprocess.run([promtool, "test", "rules", os.path.join(here, "alerts.yaml")], capture_output=True, text=True,
                       timeout=100)
    expect(r.returncode == 0, r.stdout + r.stderr)


check_dashboard()
check_alerts()
check_adapter()
run_promtool()
for failure in failures:
    print(failure)
sys.exit(1 if failures else 0)
