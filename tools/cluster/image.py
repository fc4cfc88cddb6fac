#!/usr/bin/env python3
"""Makes a container image of one layer, as a file that `ctr images import` and `docker load` take.

usage: image.py ROOTFS NAME FILE COMMAND...
"""
import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile

rootfs, name, out, *command = sys.argv[1:]
layer = out + ".layer"
subprocess.run(["tar", "-C", rootfs, "--one-file-system", "--numeric-owner", "-cf", layer, "."], check=True)
digest = hashlib.sha256()
with open(layer, "rb") as f:
    while part := f.read(1 << 20):
        digest.update(part)
config = json.dumps({"architecture": "amd64", "os": "linux", "config": {"Cmd": command, "Env": ["PATH=/usr/sbin:/usr/bin:/sbin:/bin"]},
                     "rootfs": {"type": "layers", "diff_ids": ["sha256:" + digest.hexdigest()]}}).encode()
config_name = hashlib.sha256(config).hexdigest() + ".json"
with tarfile.open(out, "w") as t:
    def add(path, data):
        info = tarfile.TarInfo(path)
        info.size = len(data)
        t.addfile(info, io.BytesIO(data))

    add(config_name, config)
    t.add(layer, "layer.tar")
    add("manifest.json", json.dumps([{"Config": config_name, "RepoTags": [name], "Layers": ["layer.tar"]}]).encode())
os.unlink(layer)
