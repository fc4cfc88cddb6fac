"""deploy/kubernetes against the programs: what kustomize makes of base and overlay fits the schemas of
Kubernetes, names only options that the programs have, probes ports and services that they serve, and
leaves them time to end.

usage: manifests.py ROOT BIN     exits with 77 where manifests cannot be read or rendered
"""
import os
import re
import shutil
import subprocess
import sys

root, bin_dir = [os.path.abspath(p) for p in sys.argv[1:]]
failures = []


def skip(why):
    print(f"skip: {why}")
    sys.exit(77)


try:
    import yaml
except ImportError:
    skip("no PyYAML for deploy/kubernetes (package python3-yaml)")
try:
    import kubernetes_validate
except ImportError:
    kubernetes_validate = None
    print("skip: no kubernetes-validate: deploy/kubernetes is not held against the schemas")

SCHEMAS = "1.27"  # the first in which gRPC probes are stable


def expect(holds, what):
    if not holds:
        failures.append(what)


def render(folder):
    for tool in (["kubectl", "kustomize"], ["kustomize", "build"]):
        if shutil.which(tool[0]):
            r = subprocess.run([*tool, os.path.join(root, folder)], capture_output=True, text=True, timeout=100)
            if r.returncode != 0:
                print(f"{folder}: {r.stderr}")
                sys.exit(1)
            return list(yaml.safe_load_all(r.stdout))
    skip("neither kubectl nor kustomize is here to render deploy/kubernetes")


def options_of(program):
    """The environment variables of its --help."""
    text = subprocess.run([os.path.join(bin_dir, program), "--help"], capture_output=True, text=True,
                          check=True, timeout=100).stdout
    return set(re.findall(r"\((FOVEA_[A-Z_]+)\)$", text, re.M))


def services_of(program):
    """What it says SERVING of to grpc.health, as tests/e2e/fleet_client.py finds it; "" is the whole program."""
    return {
        "fovea-router": {"fovea.inference.v1.Inference", "fovea.fleet.v1.Fleet"},
        "fovea-prefill": {"fovea.handoff.v1.Prefill"},
        "fovea-decode": {"fovea.handoff.v1.Handoff", "fovea.handoff.v1.Decode"},
    }[program] | {""}


def quantity(text):
    """A size as Kubernetes writes it, in bytes."""
    number, unit = re.fullmatch(r"(\d+)(\w*)", str(text)).groups()
    return int(number) * {"": 1, "Mi": 1 << 20, "Gi": 1 << 30}[unit]


class Fleet:
    def __init__(self, folder):
        self.folder = folder
        self.objects = render(folder)
        if kubernetes_validate:
            for o in self.objects:
                try:
                    kubernetes_validate.validate(o, SCHEMAS, strict=True)
                except Exception as e:  # of several kinds, all of them a sentence
                    self.expect(False, f"{o['kind']} {o['metadata']['name']}: {e}")
        self.pods = {d["spec"]["template"]["spec"]["containers"][0]["command"][0]: d for d in self.of("Deployment")}

    def expect(self, holds, what):
        expect(holds, f"{self.folder}: {what}")

    def of(self, kind):
        return [o for o in self.objects if o["kind"] == kind]

    def named(self, kind, name):
        found = [o for o in self.of(kind) if o["metadata"]["name"] == name]
        self.expect(len(found) == 1, f"there is no {kind} {name}")
        return found[0] if found else {}

    def environment(self, program):
        """What the container is started with; a value that only the cluster knows is None."""
        c = self.pods[program]["spec"]["template"]["spec"]["containers"][0]
        env = {}
        for source in c.get("envFrom", []):
            env.update(self.named("ConfigMap", source["configMapRef"]["name"]).get("data", {}))
        for e in c.get("env", []):
            env[e["name"]] = e.get("value")
        return env

    def labels_of(self, program):
        return self.pods[program]["spec"]["template"]["metadata"]["labels"]

    def selected(self, selector):
        return {p for p in self.pods if selector and selector.items() <= self.labels_of(p).items()}


def check_options(fleet, program):
    known = options_of(program)
    container = fleet.pods[program]["spec"]["template"]["spec"]["containers"][0]
    for e in container.get("env", []):
        fleet.expect(e["name"] == "POD_IP" or e["name"] in known, f"{program}: {e['name']} is not in its --help")
    for source in container.get("envFrom", []):
        for name in fleet.named("ConfigMap", source["configMapRef"]["name"]).get("data", {}):
            fleet.expect(name in known, f"{program}: {name} is not in its --help")


def check_probes(fleet, program):
    container = fleet.pods[program]["spec"]["template"]["spec"]["containers"][0]
    (port,) = container["ports"]
    env = fleet.environment(program)
    fleet.expect(env["FOVEA_LISTEN"] == f"0.0.0.0:{port['containerPort']}", f"{program} listens elsewhere")
    if program != "fovea-router":
        fleet.expect(env["FOVEA_ADVERTISE"] == f"$(POD_IP):{port['containerPort']}", f"{program} is sought elsewhere")
    for kind in ("startupProbe", "livenessProbe", "readinessProbe"):
        probe = container[kind]["grpc"]
        fleet.expect(probe["port"] == port["containerPort"], f"{program}: {kind} asks another port")
        fleet.expect(probe.get("service", "") in services_of(program), f"{program}: {kind} asks for another service")
    # A router without workers is not ready; to end it for that would not bring any.
    if program == "fovea-router":
        fleet.expect(container["livenessProbe"]["grpc"].get("service") == "fovea.fleet.v1.Fleet", "the router's life")


def check_time(fleet, program):
    spec = fleet.pods[program]["spec"]["template"]["spec"]
    env = fleet.environment(program)
    answer_s = int(fleet.environment("fovea-router")["FOVEA_DEADLINE_MS"]) / 1000
    grace_s = int(env["FOVEA_GRACE_MS"]) / 1000
    command = spec["containers"][0].get("lifecycle", {}).get("preStop", {}).get("exec", {}).get("command", ["sleep", "0"])
    fleet.expect(command[0] == "sleep", f"{program}: preStop {command}")
    fleet.expect(grace_s >= answer_s, f"{program}: FOVEA_GRACE_MS is shorter than the longest answer")
    fleet.expect(spec["terminationGracePeriodSeconds"] >= grace_s + int(command[1]) + 10,
                 f"{program}: terminationGracePeriodSeconds does not cover preStop and FOVEA_GRACE_MS")


def check_confinement(fleet, program):
    spec = fleet.pods[program]["spec"]["template"]["spec"]
    container = spec["containers"][0]
    pod, own = spec["securityContext"], container["securityContext"]
    fleet.expect(pod["runAsNonRoot"] is True and pod["runAsUser"] > 0, f"{program} may run as root")
    fleet.expect(pod["seccompProfile"]["type"] == "RuntimeDefault", f"{program}: seccomp")
    fleet.expect(own["readOnlyRootFilesystem"] is True and own["allowPrivilegeEscalation"] is False, f"{program}: rights")
    fleet.expect(own["capabilities"] == {"drop": ["ALL"]}, f"{program}: capabilities")
    fleet.expect(spec["automountServiceAccountToken"] is False, f"{program} is given a token")
    # A Service named FOVEA... would put variables beside our options.
    fleet.expect(spec["enableServiceLinks"] is False, f"{program}: enableServiceLinks")


def check_worker(fleet, program):
    d = fleet.pods[program]
    spec = d["spec"]["template"]["spec"]
    container = spec["containers"][0]
    env = fleet.environment(program)
    limits = container["resources"]["limits"]
    fleet.expect(int(env["FOVEA_KV_BYTES"]) < quantity(limits["memory"]), f"{program}: the KV has no room in its memory")
    (volume,) = spec["volumes"]
    (mount,) = container["volumeMounts"]
    fleet.expect(mount["name"] == volume["name"] and mount["readOnly"] and volume["persistentVolumeClaim"]["readOnly"],
                 f"{program}: the checkpoint must be read-only")
    fleet.expect((env["FOVEA_CHECKPOINT"] + "/").startswith(mount["mountPath"] + "/"),
                 f"{program}: FOVEA_CHECKPOINT does not lie in {mount['mountPath']}")
    (spread,) = spec["topologySpreadConstraints"]
    fleet.expect(fleet.selected(spread["labelSelector"]["matchLabels"]) == {program}, f"{program}: spread over others")
    host, port = env["FOVEA_ROUTER"].rsplit(":", 1)
    service = fleet.named("Service", host)
    fleet.expect(fleet.selected(service["spec"]["selector"]) == {"fovea-router"}, f"{program}: {host} is no router")
    fleet.expect(port in [str(p["port"]) for p in service["spec"]["ports"]], f"{program}: {host} has no port {port}")
    fleet.expect(service["spec"].get("publishNotReadyAddresses") is True,
                 f"{program}: {host} hides a router that waits for workers")


def check_selectors(fleet):
    for o in fleet.of("Service"):
        chosen = fleet.selected(o["spec"]["selector"])
        fleet.expect(len(chosen) == 1, f"Service {o['metadata']['name']} selects {chosen}")
        for program in chosen:
            ports = {p["name"] for p in fleet.pods[program]["spec"]["template"]["spec"]["containers"][0]["ports"]}
            fleet.expect({p["targetPort"] for p in o["spec"]["ports"]} <= ports, f"Service {o['metadata']['name']}: port")
    for program, d in fleet.pods.items():
        fleet.expect(fleet.selected(d["spec"]["selector"]["matchLabels"]) == {program}, f"{program}: selector")
    protected = set()
    for o in fleet.of("PodDisruptionBudget"):
        protected |= fleet.selected(o["spec"]["selector"]["matchLabels"])
    fleet.expect(protected == {"fovea-prefill", "fovea-decode"}, f"budgets are for {protected}")
    callers = {p: set() for p in ("fovea-prefill", "fovea-decode")}
    for o in fleet.of("NetworkPolicy"):
        for program in fleet.selected(o["spec"]["podSelector"]["matchLabels"]):
            for source in o["spec"]["ingress"][0]["from"]:
                callers.setdefault(program, set()).update(fleet.selected(source["podSelector"]["matchLabels"]))
    fleet.expect(callers == {"fovea-prefill": {"fovea-router"}, "fovea-decode": {"fovea-router", "fovea-prefill"}},
                 f"callers that are let in: {callers}")


def check_fleet(folder):
    fleet = Fleet(folder)
    fleet.expect(set(fleet.pods) == {"fovea-router", "fovea-prefill", "fovea-decode"}, f"programs {set(fleet.pods)}")
    fleet.expect(fleet.pods["fovea-router"]["spec"]["replicas"] == 1, "two routers would split the fleet")
    fleet.expect(fleet.pods["fovea-router"]["spec"]["strategy"]["type"] == "Recreate", "two routers for a while")
    for program in fleet.pods:
        for check in (check_options, check_probes, check_time, check_confinement, check_worker):
            if program == "fovea-router" and check == check_worker:
                continue
            try:
                check(fleet, program)
            except KeyError as e:
                fleet.expect(False, f"{program}: {e} is missing ({check.__name__})")
    check_selectors(fleet)
    return fleet


base = check_fleet("deploy/kubernetes/base")
example = check_fleet("deploy/kubernetes/overlays/example")

for o in base.objects:
    expect("namespace" not in o["metadata"], f"base: {o['kind']} {o['metadata']['name']} names a namespace")
with open(os.path.join(root, "CMakeLists.txt"), encoding="utf-8") as f:
    version = re.search(r"project\(fovea VERSION ([\d.]+)", f.read()).group(1)
images = {d["spec"]["template"]["spec"]["containers"][0]["image"] for d in base.pods.values()}
expect(images == {f"fovea:{version}"}, f"base: images {images}, and the version is {version}")
claim = lambda fleet: {d["spec"]["template"]["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"]
                       for p, d in fleet.pods.items() if p != "fovea-router"}
expect(len(claim(base)) == len(claim(example)) == 1 and claim(base) != claim(example), "the overlay changes the volume")
expect(claim(example) == {o["metadata"]["name"] for o in example.of("PersistentVolumeClaim")}, "the overlay's claim")
count = lambda fleet: {p: d["spec"]["replicas"] for p, d in fleet.pods.items()}
expect(count(base) != count(example), "the overlay changes the number of workers")

print("\n".join(failures) or f"ok: {len(base.objects)} and {len(example.objects)} objects")
sys.exit(1 if failures else 0)
