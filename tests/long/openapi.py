"""What the gateway says of itself at /openapi.json is valid, and is so: schemathesis sends requests that it makes of the
description, right and wrong ones, and compares the answers with it.

usage: openapi.py HOST:PORT; exits with 77 without the packages
"""
import json
import subprocess
import sys
from urllib.request import urlopen

try:
    from openapi_spec_validator import validate
    import schemathesis
except ImportError as e:
    print(f"skip: {e} (tests/long/requirements.txt)")
    sys.exit(77)

address = sys.argv[1]
url = f"http://{address}/openapi.json"
with urlopen(url) as reply:
    validate(json.load(reply))
CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
done = subprocess.run([sys.executable, "-m", "schemathesis.cli", "run", url, "--checks", CHECKS, "--max-examples", "40",
                       "--request-timeout", "120", "--no-color", "--seed", "1"], check=False)
assert done.returncode == 0, f"schemathesis {schemathesis.__version__} ends with {done.returncode}"
print("ok")
