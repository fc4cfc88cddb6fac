"""A small API server of Kubernetes for kubectl: it keeps objects, applies merge patches, and defaults a Deployment's replicas
to 1, as the real one does. It runs nothing.

Strategic merge patches are applied as JSON merge patches, so lists are replaced whole: enough for changes outside of lists."""
import http.server
import json
import re
import threading

KINDS = {  # as kubectl is told: group and version -> kind -> plural
    "v1": {"ConfigMap": "configmaps", "Service": "services", "PersistentVolumeClaim": "persistentvolumeclaims"},
    "apps/v1": {"Deployment": "deployments"},
    "policy/v1": {"PodDisruptionBudget": "poddisruptionbudgets"},
    "networking.k8s.io/v1": {"NetworkPolicy": "networkpolicies"},
    "autoscaling/v2": {"HorizontalPodAutoscaler": "horizontalpodautoscalers"},
}


def merged(target, patch):
    """RFC 7386, without the directives of strategic patches."""
    if not isinstance(patch, dict):
        return patch
    out = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            out.pop(key, None)
        elif not key.startswith("$"):
            out[key] = merged(out.get(key), value)
    return out


class ApiServer:
    def __init__(self):
        self.objects = {}  # path -> object
        server = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def reply(self, status, body):
                data = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def body(self):
                return json.loads(self.rfile.read(int(self.headers["Content-Length"])))

            def do_GET(self):
                path = self.path.split("?")[0]
                found = server.objects.get(path) or server.discovery(path)
                self.reply(200 if found else 404, found or {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404})

            def do_POST(self):
                new = self.body()
                self.reply(201, server.put(f"{self.path.split('?')[0]}/{new['metadata']['name']}", new))

            def do_PATCH(self):
                path = self.path.split("?")[0]
                self.reply(200, server.put(path, merged(server.objects[path], self.body())))

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.http.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}"

    def discovery(self, path):
        if path == "/api":
            return {"kind": "APIVersions", "versions": ["v1"]}
        if path == "/apis":
            groups = [g.split("/") for g in KINDS if "/" in g]
            versions = lambda g, v: {"groupVersion": f"{g}/{v}", "version": v}
            return {"kind": "APIGroupList", "apiVersion": "v1",
                    "groups": [{"name": g, "versions": [versions(g, v)], "preferredVersion": versions(g, v)} for g, v in groups]}
        of = re.fullmatch(r"/apis?/(.+)", path)
        if of and of.group(1) in KINDS:
            return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": of.group(1), "resources": [
                {"name": plural, "singularName": kind.lower(), "namespaced": True, "kind": kind,
                 "verbs": ["create", "delete", "get", "list", "patch", "update"]} for kind, plural in KINDS[of.group(1)].items()]}
        return None

    def put(self, path, new):
        new["metadata"].setdefault("uid", path)
        new["metadata"]["resourceVersion"] = str(int(new["metadata"].get("resourceVersion", 0)) + 1)
        if new["kind"] == "Deployment":
            new["spec"].setdefault("replicas", 1)
        self.objects[path] = new
        return new
