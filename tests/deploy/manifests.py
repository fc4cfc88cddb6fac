"""deploy/kubernetes against the programs: what kustomize makes of base and overlay fits the schemas of
Kubernetes, names only options that the programs have, probes ports and services that they serve, and
leaves them time to end.

usage: manifests.py ROOT BIN     exits with 77 where manifests cannot be read or rendered
"""
import functools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

from rendered import render as render_below, yaml

root, bin_dir = [os.path.abspath(p) for p in sys.argv[1:]]
failures = []

try:
    import kubernetes_validate
except ImportError:
    kubernetes_validate = None
    print("skip: no kubernetes-validate: deploy/kubernetes is not held against the schemas")

PROXY_PORT = 8200  # where clients call
METRICS_PORT = 9464
WEIGHTS = {None: 14.2e9, "int4-128": 4.5e9}  # bytes of llava-1.5-7b, for which the manifests are sized
UNHEALTHY_MS = 30000  # a worker's default
BODIES_BYTES = 256 << 20  # a gateway's default
PROGRAMS = {"fovea-gateway", "fovea-router", "fovea-prefill", "fovea-decode"}
WORKERS = {"fovea-prefill", "fovea-decode"}
MEMBERS = PROGRAMS - {"fovea-gateway"}  # have the fleet's secret and certificates

OTHERS = {"gateway.networking.k8s.io", "monitoring.coreos.com", "keda.sh"}  # CRDs, which no schema of Kubernetes has
# 1.27 is the first in which gRPC probes are stable.
SCHEMAS = ["1.27", "1.31", "1.32", "1.33", "1.34", "1.35", "1.36", "1.37"]


@functools.cache
def schema_fault(text, version):
    """What the schemas have against an object in JSON; None: nothing. Folders share most objects."""
    try:
        kubernetes_validate.validate(json.loads(text), version, strict=True)
    except Exception as e:  # of several kinds, all of them a sentence
        return str(e)
    return None


if kubernetes_validate:  # reads all definitions of a version again for each object, unless it is kept from it
    kubernetes_validate.utils.schema_contents = functools.cache(kubernetes_validate.utils.schema_contents)


def expect(holds, what):
    if not holds:
        failures.append(what)


def render(folder):
    return render_below(root, folder)


def options_of(program):
    """The environment variables of its --help-all."""
    text = subprocess.run([os.path.join(bin_dir, program), "--help-all"], capture_output=True, text=True,
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
    """What folders make together."""

    def __init__(self, *folders):
        self.folder = " + ".join(folders)
        self.objects = [o for folder in folders for o in render(folder)]
        if kubernetes_validate:
            for o in self.objects:
                if o["apiVersion"].split("/")[0] in OTHERS:
                    continue
                since = "1.31" if "trafficDistribution" in o.get("spec", {}) else ""
                for version in (v for v in SCHEMAS if v >= since):
                    fault = schema_fault(json.dumps(o, sort_keys=True), version)
                    self.expect(fault is None, f"{o['kind']} {o['metadata']['name']}, Kubernetes {version}: {fault}")
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
        fleet.expect(e["name"] == "POD_IP" or e["name"] in known, f"{program}: {e['name']} is not in its --help-all")
    for source in container.get("envFrom", []):
        for name in fleet.named("ConfigMap", source["configMapRef"]["name"]).get("data", {}):
            fleet.expect(name in known, f"{program}: {name} is not in its --help-all")


def check_gateway_probes(fleet):
    """A gateway is asked over HTTP: for its version, which needs no router, and for health, which does."""
    container = fleet.pods["fovea-gateway"]["spec"]["template"]["spec"]["containers"][0]
    port, metrics = container["ports"]
    env = fleet.environment("fovea-gateway")
    fleet.expect(env["FOVEA_LISTEN"] == f"0.0.0.0:{port['containerPort']}", "the gateway listens elsewhere")
    fleet.expect(metrics == {"name": "metrics", "containerPort": METRICS_PORT} and
                 env["FOVEA_METRICS"] == f"0.0.0.0:{METRICS_PORT}", "the gateway's metrics are elsewhere")
    scheme = {"scheme": "HTTPS"} if "FOVEA_TLS_CERT" in env else {}
    for kind, path in (("startupProbe", "/version"), ("livenessProbe", "/version"), ("readinessProbe", "/health")):
        fleet.expect(container[kind]["httpGet"] == {"path": path, "port": port["containerPort"], **scheme},
                     f"the gateway's {kind}: {container[kind]['httpGet']}")
    host, router_port = env["FOVEA_ROUTER"].rsplit(":", 1)
    service = fleet.named("Service", host)
    fleet.expect(fleet.selected(service["spec"]["selector"]) == {"fovea-router"}, f"the gateway calls {host}")
    fleet.expect({str(p["port"]): p["targetPort"] for p in service["spec"]["ports"]}.get(router_port) == "grpc",
                 f"the gateway calls port {router_port}")
    fleet.expect(env["FOVEA_DEADLINE_MS"] == fleet.environment("fovea-router")["FOVEA_DEADLINE_MS"],
                 "gateways and routers end answers at different times")


def check_gateway_tls(fleet):
    """Clients see the certificate that they see at the routers, and gateways check it when they call a router."""
    env, spec = fleet.environment("fovea-gateway"), fleet.pods["fovea-gateway"]["spec"]["template"]["spec"]
    secure = "FOVEA_TLS_CERT" in fleet.environment("fovea-router")
    fleet.expect(("FOVEA_TLS_CERT" in env) == secure, "the gateway: TLS for some only")
    fleet.expect(env["FOVEA_INSECURE"] == ("false" if secure else "true"), "the gateway: FOVEA_INSECURE")
    fleet.expect(("FOVEA_ROUTER_TLS_CA" in env) == secure, "the gateway calls routers in another way than they listen")
    if secure:
        (volume,), (mount,) = spec["volumes"], spec["containers"][0]["volumeMounts"]
        fleet.expect(volume["secret"] == {"secretName": "fovea-clients-tls", "defaultMode": 0o440}, "the gateway's certificate")
        files = {os.path.relpath(env[f"FOVEA_TLS_{n}"], mount["mountPath"]) for n in ("CERT", "KEY")}
        fleet.expect(files == {"tls.crt", "tls.key"}, f"the gateway: files {files}")


def check_gateway_memory(fleet):
    """Bodies that are being read, and as much again for what is made of them, fit into half of the limit."""
    container = fleet.pods["fovea-gateway"]["spec"]["template"]["spec"]["containers"][0]
    bodies = int(fleet.environment("fovea-gateway").get("FOVEA_BODIES_BYTES", BODIES_BYTES))
    fleet.expect(2 * bodies <= quantity(container["resources"]["limits"]["memory"]) // 2, "FOVEA_BODIES_BYTES of the gateway")


def check_probes(fleet, program):
    if program == "fovea-gateway":
        check_gateway_probes(fleet)
        return
    container = fleet.pods[program]["spec"]["template"]["spec"]["containers"][0]
    port, metrics = container["ports"]
    env = fleet.environment(program)
    fleet.expect(metrics == {"name": "metrics", "containerPort": METRICS_PORT} and
                 env["FOVEA_METRICS"] == f"0.0.0.0:{METRICS_PORT}", f"{program}: metrics are elsewhere")
    asked = {kind: container[kind]["grpc"] for kind in ("startupProbe", "livenessProbe", "readinessProbe")}
    for kind, probe in asked.items():
        fleet.expect(probe.get("service", "") in services_of(program), f"{program}: {kind} asks for another service")
    health = env.get("FOVEA_HEALTH_LISTEN")
    if health:  # plain text, which probes need where there is TLS
        fleet.expect("FOVEA_TLS_CERT" in env, f"{program}: health has a listener of its own without TLS")
        for kind, probe in asked.items():
            fleet.expect(f"0.0.0.0:{probe['port']}" == health, f"{program}: {kind} asks another port")
    elif program == "fovea-router":
        # Workers reach it by itself, clients through the proxy. A router without workers is not ready; to end
        # it for that would not bring any.
        fleet.expect(env["FOVEA_FLEET_LISTEN"] == f"0.0.0.0:{port['containerPort']}", "workers are awaited elsewhere")
        for kind in ("startupProbe", "livenessProbe"):
            fleet.expect(asked[kind] == {"port": port["containerPort"], "service": "fovea.fleet.v1.Fleet"},
                         f"the router's {kind}")
        fleet.expect(asked["readinessProbe"]["port"] == PROXY_PORT, "the router is ready when the proxy says so")
    else:
        for kind, probe in asked.items():
            fleet.expect(probe["port"] == port["containerPort"], f"{program}: {kind} asks another port")
    if program == "fovea-router":
        return
    fleet.expect(env["FOVEA_LISTEN"] == f"0.0.0.0:{port['containerPort']}", f"{program} listens elsewhere")
    fleet.expect(env["FOVEA_ADVERTISE"] == f"$(POD_IP):{port['containerPort']}", f"{program} is sought elsewhere")


def check_restart(fleet, program):
    """A container that hangs is ended and back within 90 s, whatever it hangs in; a short pause does not end it."""
    env = fleet.environment(program)
    for c in fleet.pods[program]["spec"]["template"]["spec"]["containers"]:
        probe = c["livenessProbe"]
        # The first probe after it hung comes within a period, and the last one has its time to answer.
        noticed_s = probe["periodSeconds"] * probe["failureThreshold"] + probe["timeoutSeconds"]
        unhealthy_s = int(env.get("FOVEA_UNHEALTHY_MS", UNHEALTHY_MS)) / 1000 if program in WORKERS else 0
        back_s = unhealthy_s + noticed_s + probe.get("terminationGracePeriodSeconds", 1e9)
        fleet.expect(back_s <= 90, f"{c['name']}: it is ended {back_s} s after it hung")
        fleet.expect(noticed_s >= 30, f"{c['name']}: it is ended after a pause of {noticed_s} s")


def check_tls(fleet, program):
    """Certificates are where the program looks for them, in a secret of its role, and then nothing is in plain text."""
    if program == "fovea-gateway":
        check_gateway_tls(fleet)
        return
    env, spec = fleet.environment(program), fleet.pods[program]["spec"]["template"]["spec"]
    if "FOVEA_TLS_CERT" not in env:
        fleet.expect(env["FOVEA_INSECURE"] == "true", f"{program}: neither TLS nor FOVEA_INSECURE")
        return
    fleet.expect(env["FOVEA_INSECURE"] == "false", f"{program}: TLS and FOVEA_INSECURE")
    mount = next(m for m in spec["containers"][0]["volumeMounts"] if m["name"] == "tls")
    volume = next(v for v in spec["volumes"] if v["name"] == "tls")
    fleet.expect(volume["secret"]["secretName"] == f"{program}-tls", f"{program}: another role's certificate")
    fleet.expect(volume["secret"]["defaultMode"] & 0o007 == 0, f"{program}: everybody may read the key")
    files = {os.path.relpath(env[f"FOVEA_TLS_{n}"], mount["mountPath"]) for n in ("CERT", "KEY", "CA")}
    fleet.expect(files == {"tls.crt", "tls.key", "ca.crt"}, f"{program}: files {files}")


def check_proxy(fleet):
    """The proxy before the router: the router listens where nobody else gets, and the proxy starts as set."""
    spec = fleet.pods["fovea-router"]["spec"]["template"]["spec"]
    router, proxy = spec["containers"]
    env = fleet.environment("fovea-router")
    host, port = env["FOVEA_LISTEN"].rsplit(":", 1)
    fleet.expect(host == "127.0.0.1", "clients reach the router past the proxy")
    fleet.expect(router["image"] == proxy["image"], "the proxy is another image")
    fleet.expect([p["containerPort"] for p in proxy["ports"]] == [PROXY_PORT], "the proxy's port")
    tls = "FOVEA_TLS_CERT" in env
    config = lambda path: file_of(fleet, spec, proxy, path)
    (conf,) = [a[7:] for a in proxy["command"] if a.startswith("--conf=")]
    (door,) = [a for a in proxy["command"] if a.endswith("/haproxy.cfg")]
    limits = config(door)
    fleet.expect(f"bind 0.0.0.0:{PROXY_PORT}" in limits, "the proxy listens elsewhere")
    inner = re.search(r"server nghttpx 127\.0\.0\.1:(\d+) send-proxy-v2", limits).group(1)
    fleet.expect(f"--frontend=127.0.0.1,{inner};proxyproto" + ("" if tls else ";no-tls") in proxy["command"],
                 "haproxy does not lead to nghttpx, or others reach it")
    fleet.expect(f"--backend={host},{port};;proto=h2" + (";tls;sni=fovea-router" if tls else "") in proxy["command"],
                 "the proxy does not lead to the router")
    if tls:
        fleet.expect(f"--cacert={env['FOVEA_TLS_CA']}" in proxy["command"], "the proxy trusts others than the router")
        fleet.expect(proxy["command"][-2:] == ["/clients-tls/tls.key", "/clients-tls/tls.crt"], "the proxy's certificate")
        fleet.expect("fovea-clients-tls" in [v["secret"]["secretName"] for v in spec["volumes"] if "secret" in v],
                     "clients see no certificate")
    fleet.expect(proxy["securityContext"] == router["securityContext"], "the proxy has other rights than the router")
    text = config(conf)
    settings = dict(l.split("=", 1) for l in text.splitlines() if l and not l.startswith("#"))
    answer_s = int(env["FOVEA_DEADLINE_MS"]) / 1000
    for key in ("backend-read-timeout", "stream-write-timeout"):
        minutes = re.fullmatch(r"(\d+)m", settings.get(key, "1m")).group(1)
        fleet.expect(int(minutes) * 60 > answer_s, f"{key} of the proxy cuts long answers off")
    fleet.expect("stream-read-timeout" not in settings, "the proxy's stream-read-timeout cuts off answers that wait")
    held = int(settings["workers"]) * int(settings["worker-frontend-connections"])
    window = int(re.fullmatch(r"(\d+)K", settings["frontend-http2-connection-window-size"]).group(1)) << 10
    fleet.expect(held * window <= quantity(proxy["resources"]["limits"]["memory"]) // 2,
                 "the proxy's connections may hold more than half of its memory")
    each = int(re.search(r"sc0_conn_cur gt (\d+)", limits).group(1))
    fleet.expect(each <= held // 4, f"one address may have {each} of {held} connections")
    for minutes in re.findall(r"timeout (?:client|server) (\d+)m", limits):
        fleet.expect(int(minutes) > int(settings["stream-write-timeout"][:-1]), "haproxy cuts answers off before nghttpx does")
    check_configurations(fleet, proxy, {conf: text, door: limits})


def file_of(fleet, spec, container, path):
    """The text of a file that a container has from a ConfigMap."""
    folder, name = os.path.split(path)
    (mount,) = [m for m in container["volumeMounts"] if m["mountPath"] == folder]
    volume = next(v for v in spec["volumes"] if v["name"] == mount["name"])
    return fleet.named("ConfigMap", volume["configMap"]["name"])["data"][name]


def check_configurations(fleet, proxy, files):
    """haproxy and nghttpx take theirs."""
    (conf, text), (door, limits) = files.items()
    nghttpx, haproxy = [shutil.which(p, path=os.environ["PATH"] + ":/usr/sbin") for p in ("nghttpx", "haproxy")]
    if not nghttpx or not haproxy:
        print("skip: no nghttpx or haproxy to read their configurations (packages nghttp2-proxy, haproxy)")
        return
    r = subprocess.run([haproxy, "-c", "-f", "/dev/stdin"], input=limits, capture_output=True, text=True, timeout=100)
    fleet.expect(r.returncode == 0, f"haproxy does not take its configuration: {r.stderr}")
    with tempfile.TemporaryDirectory() as tmp:
        path = os.path.join(tmp, "nghttpx.conf")
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        # nghttpx takes the file and the options, or ends at once and says why; a port that nobody may have, or a
        # certificate that is not here, ends it after that.
        told = [a.replace(conf, path).replace("--frontend=127.0.0.1", "--frontend=192.0.2.1") for a in proxy["command"][proxy["command"].index("/usr/sbin/nghttpx") + 1:]]
        r = subprocess.run([nghttpx, *told], capture_output=True, text=True, timeout=100)
        fleet.expect("nrecognized option" not in r.stderr and "Unknown option" not in r.stderr and "Failed to load configuration" not in r.stderr,
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
    if program == "fovea-gateway":  # a router that lingers is unhealthy to it, and routers linger as long
        ready = spec["containers"][0]["readinessProbe"]
        fleet.expect(ready["periodSeconds"] * ready.get("failureThreshold", 3) > linger_s, "gateways are unready while a router ends")
    fleet.expect(linger_s > 0 or program in WORKERS, f"{program}: one that ends must still answer for a while")
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


def check_spread(fleet, program):
    """A node that is lost takes one pod of a kind, where there are nodes enough."""
    spread = fleet.pods[program]["spec"]["template"]["spec"]["topologySpreadConstraints"]
    fleet.expect(spread[0]["topologyKey"] == "kubernetes.io/hostname", f"{program}: spread over {spread[0]['topologyKey']}")
    for constraint in spread:
        fleet.expect(fleet.selected(constraint["labelSelector"]["matchLabels"]) == {program}, f"{program}: spread over others")


def check_worker(fleet, program):
    d = fleet.pods[program]
    spec = d["spec"]["template"]["spec"]
    container = spec["containers"][0]
    env = fleet.environment(program)
    limits = container["resources"]["limits"]
    needed = WEIGHTS[env.get("FOVEA_WEIGHTS")] + int(env["FOVEA_KV_BYTES"]) + (1 << 30)
    fleet.expect(needed <= quantity(limits["memory"]), f"{program}: it needs {needed} bytes and may have {limits['memory']}")
    volume = next(v for v in spec["volumes"] if v["name"] == "checkpoint")
    mount = next(m for m in container["volumeMounts"] if m["name"] == volume["name"])
    fleet.expect(mount["readOnly"], f"{program}: the checkpoint must be read-only")
    if "emptyDir" in volume:
        (download,) = spec["initContainers"]
        into = {m["name"]: m["mountPath"] for m in download["volumeMounts"]}["checkpoint"]
        fleet.expect(download["command"] == ["sh", "/model/fetch.sh", "/model/SHA256SUMS", into], f"{program}: download")
        fleet.expect(download["securityContext"] == container["securityContext"], f"{program}: rights of the download")
    else:
        fleet.expect(volume["persistentVolumeClaim"]["readOnly"], f"{program}: the checkpoint must be read-only")
    fleet.expect((env["FOVEA_CHECKPOINT"] + "/").startswith(mount["mountPath"] + "/"),
                 f"{program}: FOVEA_CHECKPOINT does not lie in {mount['mountPath']}")
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


def check_selectors(fleet, mirror):
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
    callers, called = {}, {}
    for o in fleet.of("NetworkPolicy"):
        fleet.expect(o["spec"]["policyTypes"] == ["Ingress", "Egress"], f"NetworkPolicy {o['metadata']['name']}")
        for program in fleet.selected(o["spec"]["podSelector"]["matchLabels"]):
            for rule in o["spec"]["ingress"]:
                for port in rule["ports"]:
                    callers.setdefault((program, port["port"]), set()).update(ends(fleet, rule.get("from")))
            for rule in o["spec"]["egress"]:
                for port in rule["ports"]:
                    called.setdefault(program, set()).update((end, port["port"]) for end in ends(fleet, rule["to"]))
    metrics = {(program, "metrics"): {"monitoring"} for program in PROGRAMS}
    fleet.expect(callers == {("fovea-prefill", "grpc"): {"fovea-router"},
                             ("fovea-decode", "grpc"): {"fovea-router", "fovea-prefill"},
                             ("fovea-router", "fleet"): {"fovea-prefill", "fovea-decode"},
                             ("fovea-router", "grpc"): {"anybody"},
                             ("fovea-gateway", "http"): {"anybody"}, **metrics}, f"callers that are let in: {callers}")
    ports = {p: {n["name"]: n["containerPort"] for n in d["spec"]["template"]["spec"]["containers"][0]["ports"]}
             for p, d in fleet.pods.items()}
    collector = {("monitoring", 4317)} if "FOVEA_OTLP" in fleet.environment("fovea-router") else set()
    dns, decode = {("kube-system", 53)}, ("fovea-decode", ports["fovea-decode"]["grpc"])
    join = ("fovea-router", ports["fovea-router"]["fleet"])
    download = {("0.0.0.0/0", 443), *mirror} if any("initContainers" in d["spec"]["template"]["spec"] for d in fleet.pods.values()) else set()
    fleet.expect(called == {"fovea-gateway": dns | {("fovea-router", PROXY_PORT)} | collector,
                            "fovea-router": dns | {("fovea-prefill", ports["fovea-prefill"]["grpc"]), decode} | collector,
                            "fovea-prefill": dns | {join, decode} | download | collector,
                            "fovea-decode": dns | {join} | download | collector}, f"who may be called: {called}")


def ends(fleet, peers):
    """Whom a rule of a NetworkPolicy lets in, or out to: programs, namespaces, networks."""
    if peers is None:
        return {"anybody"}
    found = set()
    for peer in peers:
        if "ipBlock" in peer:
            found.add(peer["ipBlock"]["cidr"])
        elif "namespaceSelector" in peer:
            found.add(peer["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"])
        else:
            found |= fleet.selected(peer["podSelector"]["matchLabels"])
    return found


def check_scaling(fleet):
    for o in fleet.of("HorizontalPodAutoscaler"):
        target = o["spec"]["scaleTargetRef"]
        fleet.named(target["kind"], target["name"])
        fleet.expect(o["spec"]["minReplicas"] >= 2, f"{target['name']}: one pod alone cannot be replaced")
    value = {o["metadata"]["name"]: o["value"] for o in fleet.of("PriorityClass")}
    if value:
        named = {p: d["spec"]["template"]["spec"]["priorityClassName"] for p, d in fleet.pods.items()}
        fleet.expect(set(named.values()) == set(value), f"priorities {named}")
        fleet.expect(value[named["fovea-gateway"]] == value[named["fovea-router"]] > value[named["fovea-decode"]] >
                     value[named["fovea-prefill"]], "priorities")


def check_fleet(*folders, mirror=()):
    """`mirror`: whom in the cluster a download may call beside others."""
    fleet = Fleet(*folders)
    fleet.expect(set(fleet.pods) == PROGRAMS, f"programs {set(fleet.pods)}")
    scaled_by_others = {o["spec"]["scaleTargetRef"]["name"] for o in fleet.of("HorizontalPodAutoscaler") + fleet.of("ScaledObject")}
    for program, d in fleet.pods.items():
        if d["metadata"]["name"] in scaled_by_others:
            fleet.expect("replicas" not in d["spec"], f"{program}: to apply it again would undo its autoscaler")
        else:
            fleet.expect(d["spec"]["replicas"] >= 2, f"{program}: one pod alone cannot be replaced")
        rolling = d["spec"]["strategy"]["rollingUpdate"]
        fleet.expect(rolling == {"maxSurge": 1, "maxUnavailable": 0}, f"{program}: a new one before an old one ends")
        for check in (check_options, check_probes, check_restart, check_spread, check_time, check_confinement, check_token, check_tls, check_worker):
            if program not in WORKERS and check == check_worker or program not in MEMBERS and check == check_token:
                continue
            try:
                check(fleet, program)
            except KeyError as e:
                fleet.expect(False, f"{program}: {e} is missing ({check.__name__})")
    check_selectors(fleet, mirror)
    check_proxy(fleet)
    check_memory(fleet)
    check_gateway_memory(fleet)
    check_scaling(fleet)
    return fleet


base = check_fleet("deploy/kubernetes/base")
example = check_fleet("deploy/kubernetes/overlays/example")

production = check_fleet("deploy/kubernetes/overlays/production")
for program in WORKERS:
    limits = production.pods[program]["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]
    expect(limits.get("nvidia.com/gpu") == "1" and production.environment(program)["FOVEA_DEVICE"] == "cuda", "GPUs")
expect("FOVEA_TLS_CERT" in production.environment("fovea-router"), "production: TLS")

with tempfile.TemporaryDirectory() as tmp:
    # Production with a mirror, as an overlay of one's own adds it.
    shutil.copytree(os.path.join(root, "deploy/kubernetes"), os.path.join(tmp, "deploy/kubernetes"))
    os.mkdir(os.path.join(tmp, "deploy/kubernetes/overlays/mine"))
    with open(os.path.join(tmp, "deploy/kubernetes/overlays/mine/kustomization.yaml"), "w", encoding="utf-8") as f:
        yaml.safe_dump({"resources": ["../production"], "components": ["../../components/mirror"]}, f)
    check_fleet(os.path.join(tmp, "deploy/kubernetes/overlays/mine"), mirror={("models", 8080)})

def with_components(*names):
    """The base with components, as an overlay of one's own has them."""
    with tempfile.TemporaryDirectory() as tmp:
        shutil.copytree(os.path.join(root, "deploy/kubernetes"), os.path.join(tmp, "deploy/kubernetes"))
        mine = os.path.join(tmp, "deploy/kubernetes/overlays/mine")
        os.mkdir(mine)
        with open(os.path.join(mine, "kustomization.yaml"), "w", encoding="utf-8") as f:
            yaml.safe_dump({"resources": ["../../base"], "components": [f"../../components/{n}" for n in names]}, f)
        return check_fleet(mine)


tenants = with_components("tenants", "otlp", "ingress")
environment = tenants.environment("fovea-router")
mounts = tenants.pods["fovea-router"]["spec"]["template"]["spec"]["containers"][0]["volumeMounts"]
expect(os.path.dirname(environment["FOVEA_TENANTS"]) in {m["mountPath"] for m in mounts}, "tenants: the file is not mounted")
(ingress,) = tenants.of("Ingress")
(backend,) = [p["backend"]["service"] for r in ingress["spec"]["rules"] for p in r["http"]["paths"]]
service_ports = {p["name"] for p in tenants.named("Service", backend["name"])["spec"]["ports"]}
expect(backend["port"]["name"] in service_ports, f"ingress: {backend}")
expect(int(ingress["metadata"]["annotations"]["nginx.ingress.kubernetes.io/proxy-read-timeout"]) * 1000 >
       int(environment["FOVEA_DEADLINE_MS"]), "ingress: answers are cut off")
adapted = with_components("adapter")
with open(os.path.join(root, "deploy/monitoring/adapter.yaml"), encoding="utf-8") as f:
    made = {r["name"]["as"] for r in yaml.safe_load(f)["external"]}
asked = {m["external"]["metric"]["name"] for h in adapted.of("HorizontalPodAutoscaler") for m in h["spec"]["metrics"] if m["type"] == "External"}
expect(asked == made, f"adapter: autoscalers ask for {asked}, and there are {made}")
for scaler in adapted.of("HorizontalPodAutoscaler"):
    target = adapted.named("Deployment", scaler["spec"]["scaleTargetRef"]["name"])
    expect("replicas" not in target["spec"], f"adapter: {target['metadata']['name']} has a number of replicas, too")
zoned = with_components("zones")
for program in PROGRAMS:
    pod = zoned.pods[program]["spec"]["template"]["spec"]
    expect([c["topologyKey"] for c in pod["topologySpreadConstraints"]] == ["kubernetes.io/hostname", "topology.kubernetes.io/zone"],
           f"zones: {program} is not spread")
    expect(("FOVEA_ZONE" in zoned.environment(program)) == (program in MEMBERS), f"zones: FOVEA_ZONE of {program}")
expect({s["metadata"]["name"] for s in zoned.of("Service") if s["spec"].get("trafficDistribution") == "PreferSameZone"} ==
       {"fovea-router", "fovea-gateway"}, "zones: clients do not come to a near pod")
routed = with_components("route")
(route,) = routed.of("HTTPRoute")
(to,) = [b for r in route["spec"]["rules"] for b in r["backendRefs"]]
expect({p["port"]: p["targetPort"] for p in routed.named("Service", to["name"])["spec"]["ports"]}.get(to["port"]) == "http",
       f"route: {to}")

# Two versions of a model behind the same routers: they share nothing but those, the fleet's secret and the volume.
MODELS = "deploy/kubernetes/overlays/models"
blue, green = [check_fleet(f"{MODELS}/routers", f"{MODELS}/{color}") for color in ("blue", "green")]
routers = {(o["kind"], o["metadata"]["name"]) for o in render(f"{MODELS}/routers")}
names = lambda fleet: {(o["kind"], o["metadata"]["name"]) for o in fleet.objects} - routers
expect(not names(blue) & names(green), f"blue and green share {names(blue) & names(green)}")
for one, other in ((blue, green), (green, blue)):
    chosen = [o["spec"]["selector"].get("matchLabels", o["spec"]["selector"])
              for o in one.of("Service") + one.of("PodDisruptionBudget") + one.of("Deployment")]
    chosen += [o["spec"]["podSelector"]["matchLabels"] for o in one.of("NetworkPolicy")]
    for selector in chosen:
        expect(other.selected(selector) <= {"fovea-gateway", "fovea-router"}, f"{one.folder}: {selector} selects the other version's pods")
model_name = lambda fleet: fleet.environment("fovea-decode")["FOVEA_SERVED_MODEL_NAME"]
checkpoint = lambda fleet: fleet.environment("fovea-decode")["FOVEA_CHECKPOINT"]
expect(model_name(blue) == model_name(green) and checkpoint(blue) != checkpoint(green), "two versions of one model")

# The examples in README.md, and what is for other parts of a cluster: what they name is there.
with open(os.path.join(root, "deploy/README.md"), encoding="utf-8") as f:
    readme = f.read()
examples = [o for block in re.findall(r"```yaml\n(.*?)```", readme, re.S) for o in yaml.safe_load_all(block)]
with open(os.path.join(root, "docs/METRICS.md"), encoding="utf-8") as f:
    metrics = set(re.findall(r"^\| `([\w:]+)` \|", f.read(), re.M))
kinds = {}
for o in examples:
    kinds.setdefault(o["kind"], []).append(o)
expect(set(kinds) == {"Certificate", "GRPCRoute"}, f"README.md: {set(kinds)}")
secrets = {v["secret"]["secretName"] for d in production.pods.values()
           for v in d["spec"]["template"]["spec"]["volumes"] if "secret" in v} - {"fovea-fleet-token"}
expect({o["spec"]["secretName"] for o in kinds["Certificate"]} == secrets, f"README.md: certificates, and {secrets}")
for o in kinds["Certificate"]:
    role = o["spec"]["secretName"][:-len("-tls")]
    expect(role not in PROGRAMS or o["spec"]["dnsNames"] == [role], f"README.md: {role} by another name")
watched_by = with_components("monitors", "keda")
(monitor,) = watched_by.of("ServiceMonitor")
watched = [s for s in base.of("Service") if monitor["spec"]["selector"]["matchLabels"].items() <= s["metadata"]["labels"].items()]
(endpoint,) = monitor["spec"]["endpoints"]
served = set().union(*(base.selected(s["spec"]["selector"]) for s in watched
                       if endpoint["port"] in [p["name"] for p in s["spec"]["ports"]]))
expect(served == PROGRAMS and monitor["spec"]["jobLabel"] in watched[0]["metadata"]["labels"], f"monitors: metrics of {served}")
for o in watched_by.of("ScaledObject"):
    base.named("Deployment", o["spec"]["scaleTargetRef"]["name"])
    for trigger in o["spec"]["triggers"]:
        metric, service = re.search(r'\(([\w:]+)\{.*service="([\w-]+)"', trigger["metadata"]["query"]).groups()
        expect(metric in metrics, f"keda: there is no metric {metric}")
        expect("metrics" in [p["name"] for p in base.named("Service", service)["spec"]["ports"]], f"keda: {service}")
(rule_step,) = [b for b in re.findall(r"\n\n```\n(.*?)\n```\n", readme, re.S) if "PrometheusRule" in b]
made = subprocess.run(["bash", "-c", rule_step.split("|\n")[0]], cwd=root, capture_output=True, text=True, check=True).stdout
with open(os.path.join(root, "deploy/monitoring/alerts.yaml"), encoding="utf-8") as f:
    expect(yaml.safe_load(made)["spec"] == yaml.safe_load(f), "README.md: the PrometheusRule has other rules")
for o in kinds["GRPCRoute"]:
    for rule in o["spec"]["rules"]:
        expect({m["method"]["service"] for m in rule["matches"]} <= services_of("fovea-router") | {"grpc.health.v1.Health"},
               "README.md: a service that clients do not call")
        for to in rule["backendRefs"]:
            ports = {p["port"]: p["targetPort"] for p in base.named("Service", to["name"])["spec"]["ports"]}
            expect(ports.get(to["port"]) == "grpc", f"README.md: {to['name']} has no port {to['port']} for clients")

for o in base.objects:
    expect("namespace" not in o["metadata"], f"base: {o['kind']} {o['metadata']['name']} names a namespace")
with open(os.path.join(root, "CMakeLists.txt"), encoding="utf-8") as f:
    version = re.search(r"project\(fovea VERSION ([\d.]+)", f.read()).group(1)
images = {d["spec"]["template"]["spec"]["containers"][0]["image"] for d in base.pods.values()}
expect(images == {f"fovea:{version}"}, f"base: images {images}, and the version is {version}")
claim = lambda fleet: {d["spec"]["template"]["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"]
                       for p, d in fleet.pods.items() if p in WORKERS}
expect(len(claim(base)) == len(claim(example)) == 1 and claim(base) != claim(example), "the overlay changes the volume")
# An overlay that is not only a part creates the claims that its pods name.
for fleet in (example, blue, green):
    expect(claim(fleet) == {o["metadata"]["name"] for o in fleet.of("PersistentVolumeClaim")}, f"{fleet.folder}: claims {claim(fleet)}")
count = lambda fleet: {p: d["spec"]["replicas"] for p, d in fleet.pods.items()}
expect(count(base) != count(example), "the overlay changes the number of workers")

print("\n".join(failures) or f"ok: {len(base.objects)} and {len(example.objects)} objects")
sys.exit(1 if failures else 0)
