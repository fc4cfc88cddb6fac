"""Creates objects at a Kubernetes API server, which validates them strictly: unknown and doubled fields are errors.

With --dry-run the server checks, defaults and admits each object and keeps none of them. Objects of kinds that the server does not know
(those of CRDs) are named and left out.

usage: create.py SERVER TOKEN NAMESPACE [--dry-run] <objects.yaml
"""
import json
import ssl
import sys
import urllib.error
import urllib.request

import yaml

server, token, namespace = sys.argv[1:4]
dry_run = "--dry-run" in sys.argv[4:]
context = ssl._create_unverified_context()  # the server of control_plane.sh has a certificate of its own making


def call(method, path, body=None):
    request = urllib.request.Request(server + path, json.dumps(body).encode() if body else None, method=method,
                                     headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"})
    with urllib.request.urlopen(request, context=context, timeout=60) as r:
        return json.load(r), r.headers.get_all("Warning") or []


def resources(group_version):
    """The resource of each kind of a group and version; none where the server has no such group."""
    base = f"/api/{group_version}" if "/" not in group_version else f"/apis/{group_version}"
    try:
        found, _ = call("GET", base)
    except urllib.error.HTTPError:
        return base, {}
    return base, {r["kind"]: r for r in found["resources"] if "/" not in r["name"]}


known, failed, made, unknown = {}, 0, 0, set()
for o in yaml.safe_load_all(sys.stdin):
    if not o:
        continue
    version = o["apiVersion"]
    if version not in known:
        known[version] = resources(version)
    base, kinds = known[version]
    if o["kind"] not in kinds:
        unknown.add(f"{version} {o['kind']}")
        continue
    r = kinds[o["kind"]]
    where = f"{base}/namespaces/{o['metadata'].get('namespace', namespace)}/{r['name']}" if r["namespaced"] else f"{base}/{r['name']}"
    try:
        _, warnings = call("POST", f"{where}?fieldValidation=Strict" + ("&dryRun=All" if dry_run else ""), o)
        made += 1
        for w in warnings:
            print(f"warning: {o['kind']} {o['metadata']['name']}: {w}")
    except urllib.error.HTTPError as e:
        failed += 1
        print(f"{o['kind']} {o['metadata']['name']}: {json.load(e)['message']}")
print(f"{made} accepted, {failed} refused" + "".join(f"; unknown to the server: {u}" for u in sorted(unknown)))
sys.exit(1 if failed else 0)
