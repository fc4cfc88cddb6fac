"""Certificates for tests in Python, made with the program openssl."""
import os
import subprocess

NAMES = {"router": "DNS:fovea-router", "prefill": "DNS:fovea-prefill", "decode": "DNS:fovea-decode"}


def issue(folder, name, *more):
    """FOLDER/NAME.crt and FOLDER/NAME.key, signed by itself unless more options of `openssl req` say otherwise."""
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                    "-days", "2", "-subj", f"/CN={name}", "-keyout", f"{folder}/{name}.key.new",
                    "-out", f"{folder}/{name}.crt.new", *more], check=True, capture_output=True)
    for kind in ("crt", "key"):  # in between, the two do not fit
        os.rename(f"{folder}/{name}.{kind}.new", f"{folder}/{name}.{kind}")


def issue_named(folder, name, alternatives):
    """Likewise, issued by the authority FOLDER/ca.crt for the names of a subjectAltName."""
    issue(folder, name, "-CA", f"{folder}/ca.crt", "-CAkey", f"{folder}/ca.key", "-addext", f"subjectAltName={alternatives}")


def issue_role(folder, role):
    issue_named(folder, role, NAMES[role])
