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
import tempfile

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

PROXY_PORT = 8200  # where clients call

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
    asked = {kind: container[kind]["grpc"] for kind in ("startupProbe", "livenessProbe", "readinessProbe")}
    for kind, probe in asked.items():
        fleet.expect(probe.get("service", "") in services_of(program), f"{program}: {kind} asks for another service")
    if program == "fovea-router":
        # Workers reach it by itself, clients through the proxy. A router without workers is not ready; to end
        # it for that would not bring any.
        fleet.expect(env["FOVEA_FLEET_LISTEN"] == f"0.0.0.0:{port['containerPort']}", "workers are awaited elsewhere")
        for kind in ("startupProbe", "livenessProbe"):
            fleet.expect(asked[kind] == {"port": port["containerPort"], "service": "fovea.fleet.v1.Fleet"},
                         f"the router's {kind}")
        fleet.expect(asked["readinessProbe"]["port"] == PROXY_PORT, "the router is ready when the proxy says so")
        return
    fleet.expect(env["FOVEA_LISTEN"] == f"0.0.0.0:{port['containerPort']}", f"{program} listens elsewhere")
    fleet.expect(env["FOVEA_ADVERTISE"] == f"$(POD_IP):{port['containerPort']}", f"{program} is sought elsewhere")
    for kind, probe in asked.items():
        fleet.expect(probe["port"] == port["containerPort"], f"{program}: {kind} asks another port")


def check_proxy(fleet):
    """The proxy before the router: the router listens where nobody else gets, and the proxy starts as set."""
    spec = fleet.pods["fovea-router"]["spec"]["template"]["spec"]
    router, proxy = spec["containers"]
    env = fleet.environment("fovea-router")
    host, port = env["FOVEA_LISTEN"].rsplit(":", 1)
    fleet.expect(host == "127.0.0.1", "clients reach the router past the proxy")
    fleet.expect(router["image"] == proxy["image"], "the proxy is another image")
    fleet.expect([p["containerPort"] for p in proxy["ports"]] == [PROXY_PORT], "the proxy's port")
    fleet.expect(f"--frontend=0.0.0.0,{PROXY_PORT};no-tls" in proxy["command"], "the proxy listens elsewhere")
    fleet.expect(f"--backend={host},{port};;proto=h2" in proxy["command"], "the proxy does not lead to the router")
    fleet.expect(proxy["securityContext"] == router["securityContext"], "the proxy has other rights than the router")
    # As /proc/net/tcp writes it; the router listens no more while it still answers.
    address = "".join(f"{int(n):02X}" for n in reversed(host.split("."))) + f":{int(port):04X}"
    fleet.expect(f" {address} (01|00000000:0000 0A) " in " ".join(proxy["lifecycle"]["preStop"]["exec"]["command"]),
                 "the proxy ends before the router's answers do")
    (mount,), (conf,) = proxy["volumeMounts"], [a[7:] for a in proxy["command"] if a.startswith("--conf=")]
    volume = next(v for v in spec["volumes"] if v["name"] == mount["name"])
    folder, name = os.path.split(conf)
    text = fleet.named("ConfigMap", volume["configMap"]["name"]).get("data", {}).get(name)
    fleet.expect(folder == mount["mountPath"] and text, f"{conf} is not in the proxy's volume")
    settings = dict(l.split("=", 1) for l in (text or "").splitlines() if l and not l.startswith("#"))
    answer_s = int(env["FOVEA_DEADLINE_MS"]) / 1000
    for key in ("backend-read-timeout", "stream-write-timeout"):
        minutes = re.fullmatch(r"(\d+)m", settings.get(key, "1m")).group(1)
        fleet.expect(int(minutes) * 60 > answer_s, f"{key} of the proxy cuts long answers off")
    fleet.expect("stream-read-timeout" not in settings, "the proxy's stream-read-timeout cuts off answers that wait")
    held = int(settings["workers"]) * int(settings["worker-frontend-connections"])
    window = int(re.fullmatch(r"(\d+)K", settings["frontend-http2-connection-window-size"]).group(1)) << 10
    fleet.expect(held * window <= quantity(proxy["resources"]["limits"]["memory"]) // 2,
                 "the proxy's connections may hold more than half of its memory")
    nghttpx = shutil.which("nghttpx", path=os.environ["PATH"] + ":/usr/sbin")
    if not nghttpx:
        print("skip: no nghttpx to read its configuration (package nghttp2-proxy)")
        return
    with tempfile.TemporaryDirectory() as tmp:
        path = os.path.join(tmp, "nghttpx.conf")
        with open(path, "w", encoding="utf-8") as f:
            f.write(text or "")
        # It takes the file, or ends at once and says why; a port that nobody may have ends it after that.
        r = subprocess.run([nghttpx, f"--conf={path}", "--frontend=192.0.2.1,1;no-tls", "--backend=127.0.0.1,1;;proto=h2"],
                           capture_output=True, text=True, timeout=100)
        fleet.expect("Unknown option" not in r.stderr and "Failed to load configuration" not in r.stderr,
                     f"nghttpx does not take its configuration: {r.stderr}")


def check_token(fleet, program):
    """The fleet's secret is there for all, and for nobody else."""
    spec = fleet.pods[program]["spec"]["template"]["spec"]
    path = fleet.environment(program)["FOVEA_FLEET_TOKEN_FILE"]
    mounts = {m["mountPath"]: m for m in spec["containers"][0]["volumeMounts"]}
    mount = mounts[os.path.dirname(path)]
    volume = next(v for v in spec["volumes"] if v["name"] == mount["name"])
    fleet.expect(volume["secret"]["secretName"] == "fovea-fleet-token", f"{program}: another secret")
    fleet.expect(volume["secret"]["defaultMode"] & 0o007 == 0, f"{program}: everybody may read the secret")
    fleet.expect(spec["securityContext"]["fsGroup"] == spec["securityContext"]["runAsGroup"],
                 f"{program}: cannot read the secret")


def check_memory(fleet):
    """What the router shares out is what its container has."""
    container = fleet.pods["fovea-router"]["spec"]["template"]["spec"]["containers"][0]
    limit = quantity(container["resources"]["limits"]["memory"])
    env = fleet.environment("fovea-router")
    memory = int(env.get("FOVEA_MEMORY_BYTES") or 0) or limit
    fleet.expect(memory <= limit, "FOVEA_MEMORY_BYTES is more than the router's limit")
    fleet.expect(int(env.get("FOVEA_QUEUE_BYTES") or 0) <= memory // 2, "FOVEA_QUEUE_BYTES leaves the router no room")


def check_time(fleet, program):
    spec = fleet.pods[program]["spec"]["template"]["spec"]
    env = fleet.environment(program)
    answer_s = int(fleet.environment("fovea-router")["FOVEA_DEADLINE_MS"]) / 1000
    grace_s = int(env["FOVEA_GRACE_MS"]) / 1000
    linger_s = int(env.get("FOVEA_LINGER_MS", 0)) / 1000
    fleet.expect(linger_s > 0 or program != "fovea-router", "a router that ends must still answer for a while")
    fleet.expect(grace_s >= answer_s, f"{program}: FOVEA_GRACE_MS is shorter than the longest answer")
    fleet.expect(spec["terminationGracePeriodSeconds"] >= linger_s + grace_s + 10,
                 f"{program}: terminationGracePeriodSeconds does not cover FOVEA_LINGER_MS and FOVEA_GRACE_MS")


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
    volume = next(v for v in spec["volumes"] if "persistentVolumeClaim" in v)
    mount = next(m for m in container["volumeMounts"] if m["name"] == volume["name"])
    fleet.expect(mount["readOnly"] and volume["persistentVolumeClaim"]["readOnly"],
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
    fleet.expect(service["spec"].get("clusterIP") == "None", f"{program}: {host} stands for one router only")
    router = fleet.pods["fovea-router"]["spec"]["template"]["spec"]["containers"][0]
    door = {p["name"]: p["containerPort"] for p in router["ports"]}["fleet"]
    fleet.expect(str(door) == port, f"{program}: joins at {port}, and routers are joined at {door}")


def check_selectors(fleet):
    for o in fleet.of("Service"):
        chosen = fleet.selected(o["spec"]["selector"])
        fleet.expect(len(chosen) == 1, f"Service {o['metadata']['name']} selects {chosen}")
        for program in chosen:
            ports = {p["name"] for c in fleet.pods[program]["spec"]["template"]["spec"]["containers"] for p in c["ports"]}
            fleet.expect({p["targetPort"] for p in o["spec"]["ports"]} <= ports, f"Service {o['metadata']['name']}: port")
    for program, d in fleet.pods.items():
        fleet.expect(fleet.selected(d["spec"]["selector"]["matchLabels"]) == {program}, f"{program}: selector")
    protected = set()
    for o in fleet.of("PodDisruptionBudget"):
        protected |= fleet.selected(o["spec"]["selector"]["matchLabels"])
    fleet.expect(protected == set(fleet.pods), f"budgets are for {protected}")
    callers = {}
    for o in fleet.of("NetworkPolicy"):
        for program in fleet.selected(o["spec"]["podSelector"]["matchLabels"]):
            for rule in o["spec"]["ingress"]:
                for port in rule["ports"]:
                    known = callers.setdefault((program, port["port"]), set())
                    for source in rule.get("from", []):
                        known |= fleet.selected(source["podSelector"]["matchLabels"])
                    if "from" not in rule:
                        known.add("anybody")
    fleet.expect(callers == {("fovea-prefill", "grpc"): {"fovea-router"},
                             ("fovea-decode", "grpc"): {"fovea-router", "fovea-prefill"},
                             ("fovea-router", "fleet"): {"fovea-prefill", "fovea-decode"},
                             ("fovea-router", "grpc"): {"anybody"}}, f"callers that are let in: {callers}")


def check_fleet(folder):
    fleet = Fleet(folder)
    fleet.expect(set(fleet.pods) == {"fovea-router", "fovea-prefill", "fovea-decode"}, f"programs {set(fleet.pods)}")
    for program, d in fleet.pods.items():
        fleet.expect(d["spec"]["replicas"] >= 2, f"{program}: one pod alone cannot be replaced")
        rolling = d["spec"]["strategy"]["rollingUpdate"]
        fleet.expect(rolling == {"maxSurge": 1, "maxUnavailable": 0}, f"{program}: a new one before an old one ends")
        for check in (check_options, check_probes, check_time, check_confinement, check_token, check_worker):
            if program == "fovea-router" and check == check_worker:
                continue
            try:
                check(fleet, program)
            except KeyError as e:
                fleet.expect(False, f"{program}: {e} is missing ({check.__name__})")
    check_selectors(fleet)
    check_proxy(fleet)
    check_memory(fleet)
    return fleet


base = check_fleet("deploy/kubernetes/base")
example = check_fleet("deploy/kubernetes/overlays/example")

# Two fleets beside each other, which share nothing but the fleet's secret and the volume, and the
# service that says which of them clients call.
BLUE_GREEN = "deploy/kubernetes/overlays/blue-green"
blue, green = [check_fleet(f"{BLUE_GREEN}/{color}") for color in ("blue", "green")]
names = lambda fleet: {(o["kind"], o["metadata"]["name"]) for o in fleet.objects}
expect(not names(blue) & names(green), f"blue and green share {names(blue) & names(green)}")
for one, other in ((blue, green), (green, blue)):
    for o in one.of("Service") + one.of("PodDisruptionBudget"):
        selector = o["spec"]["selector"].get("matchLabels", o["spec"]["selector"])
        expect(not other.selected(selector), f"{one.folder}: {o['metadata']['name']} selects the other fleet's pods")
    for o in one.of("NetworkPolicy"):
        expect(not other.selected(o["spec"]["podSelector"]["matchLabels"]), f"{one.folder}: policy for the other fleet")
        for rule in o["spec"]["ingress"]:
            for source in rule.get("from", []):
                expect(not other.selected(source["podSelector"]["matchLabels"]), f"{one.folder}: lets in the other fleet")
(live,) = render(f"{BLUE_GREEN}/live")
expect(live["kind"] == "Service" and blue.selected(live["spec"]["selector"]) == {"fovea-router"}, "live: it is not blue")
expect(not green.selected(live["spec"]["selector"]), "live: both fleets at once")
switched = dict(live["spec"]["selector"], **{"fovea/fleet": "green"})
expect(green.selected(switched) == {"fovea-router"} and not blue.selected(switched), "live: it cannot be switched")
expect({p["targetPort"] for p in live["spec"]["ports"]} == {"grpc"}, "live: another port than clients'")

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
