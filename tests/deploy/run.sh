#!/usr/bin/env bash
# Runs a check with the Python that has the tools for it: that of build/deploy-venv, which `./dev
# test` makes, or the system's.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
python=$here/../../build/deploy-venv/bin/python
[ -x "$python" ] || python=/usr/bin/python3
if [ ! -x "$python" ]; then
    echo "skip: there is no /usr/bin/python3"
    exit 77
fi
exec "$python" -B "$here/$1" "${@:2}"
