"""A pod of deploy/kubernetes as processes of this machine, ended as a kubelet ends it.

Each container's command, environment and files are those of the manifest; only addresses, ports and paths are those of
this machine. Where the machine allows it, the first process of a container is process 1 of a PID namespace, as in a
container: the kernel ignores signals that it has no handler for."""
import os
import re
import signal
import subprocess
import threading
import time

NAMESPACE = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
if os.getuid() != 0:
    NAMESPACE[1:1] = ["--user", "--map-current-user"]
if subprocess.run([*NAMESPACE, "true"], capture_output=True).returncode != 0:
    print("note: no PID namespaces here: no process is process 1")
    NAMESPACE = []


class Container:
    def __init__(self, spec, env, told, log):
        self.name, self.spec, self.told = spec["name"], spec, told
        self.log = open(log, "wb")
        self.process = subprocess.Popen([*NAMESPACE, *map(told, spec["command"])], env={**os.environ, **env}, stdin=subprocess.DEVNULL,
                                        stdout=self.log, stderr=self.log, start_new_session=True)
        self.ended_s, self.killed = None, False

    def first(self):
        """The process that a kubelet signals."""
        if not NAMESPACE:
            return self.process.pid
        with open(f"/proc/{self.process.pid}/task/{self.process.pid}/children", encoding="ascii") as f:
            return int(f.read().split()[0])

    def signal(self, n):
        try:
            os.kill(self.first(), n)
        except (ProcessLookupError, IndexError, FileNotFoundError):
            pass

    def kill(self):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def end(self, grace_s):
        """preStop, SIGTERM, and SIGKILL when the grace period of both is over."""
        until = time.monotonic() + grace_s
        hook = self.spec.get("lifecycle", {}).get("preStop", {}).get("exec")
        if hook:
            inside = ["nsenter", "--target", str(self.first()), "--pid", "--mount"] if NAMESPACE else []
            if inside and os.getuid() != 0:
                inside += ["--user", "--preserve-credentials"]
            try:
                subprocess.run([*inside, *map(self.told, hook["command"])], timeout=grace_s)
            except subprocess.TimeoutExpired:
                pass
        self.signal(signal.SIGTERM)
        try:
            self.process.wait(max(until - time.monotonic(), 2))
        except subprocess.TimeoutExpired:
            self.killed = True
            self.kill()
        self.ended_s = time.monotonic()


class Pod:
    """`deployment` with `objects`' ConfigMaps; `ports` are this machine's for the manifest's, `folders` its folders for
    mounted ones, `bin_dir` has fovea's programs, and `changed` are variables with other values."""

    def __init__(self, folder, deployment, objects, ports, folders, bin_dir, changed):
        os.makedirs(folder)
        spec = deployment["spec"]["template"]["spec"]
        self.grace_s = spec["terminationGracePeriodSeconds"]
        maps = {o["metadata"]["name"]: o["data"] for o in objects if o["kind"] == "ConfigMap"}
        folders = dict(folders)
        volumes = {v["name"]: v for v in spec.get("volumes", [])}
        port = re.compile(r"\b(" + "|".join(map(str, ports)) + r")\b")

        def told(text):
            text = port.sub(lambda m: str(ports[int(m.group())]), text).replace("0.0.0.0", "127.0.0.1")
            for mounted, here in folders.items():
                text = re.sub(rf"(^|=){re.escape(mounted)}/", lambda m: f"{m.group(1)}{here}/", text)
            return re.sub(r"^fovea-", os.path.join(bin_dir, "fovea-"), text) if text in {"fovea-router", "fovea-gateway"} else text

        for c in spec["containers"]:
            for m in c.get("volumeMounts", []):
                config = volumes[m["name"]].get("configMap")
                if config and m["mountPath"] not in folders:
                    folders[m["mountPath"]] = os.path.join(folder, m["name"])
                    os.mkdir(folders[m["mountPath"]])
                    for name, text in maps[config["name"]].items():
                        with open(os.path.join(folders[m["mountPath"]], name), "w", encoding="utf-8") as f:
                            f.write(told(text))

        self.containers = []
        for c in spec["containers"]:
            env = {}
            for source in c.get("envFrom", []):
                env.update(maps[source["configMapRef"]["name"]])
            for e in c.get("env", []):
                ref = e.get("valueFrom", {}).get("configMapKeyRef")
                env[e["name"]] = maps[ref["name"]][ref["key"]] if ref else e["value"]
            env = {k: changed.get(k, told(v)) for k, v in env.items()}
            self.containers.append(Container(c, env, told, os.path.join(folder, f"{c['name']}.log")))

    def delete(self):
        """Begins the end of all containers at once; returns threads to join."""
        threads = [threading.Thread(target=c.end, args=(self.grace_s,), daemon=True) for c in self.containers]
        for t in threads:
            t.start()
        return threads

    def kill(self):
        for c in self.containers:
            c.kill()
