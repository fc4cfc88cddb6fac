#!/usr/bin/env bash
# Builds the programs as they are installed (preset release) into a folder, and looks at them.
#
# usage: installed.sh ROOT FOLDER
set -euo pipefail

root=$1 folder=$2
cd "$root"
cmake --preset release -B "$folder" >"$folder.log" 2>&1 || {
    cat "$folder.log"
    exit 1
}
cmake --build "$folder" -j "$(nproc)" --target fovea fovea-router fovea-prefill fovea-decode fovea-gateway fovea-video -- --quiet
exec "$root/tests/lint/hardened.sh" "$folder/bin" no-faults
