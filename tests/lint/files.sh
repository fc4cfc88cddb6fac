#!/usr/bin/env bash
# Lists the files of the project, one a line: what git has or would take; without git,
# everything but build products.
#
# usage: files.sh [ROOT]     ROOT is the root of the sources; default: of this repository
set -euo pipefail
cd "${1:-$(dirname "$0")/../..}"

if [ "$(git rev-parse --show-toplevel 2>/dev/null)" = "$(pwd -P)" ]; then
    git ls-files --cached --others --exclude-standard
else
    find . -type f -not -path './build/*' -not -path './.*/*' -printf '%P\n'
fi | sort -u | while IFS= read -r f; do
    if [ -f "$f" ]; then echo "$f"; fi # not one that is deleted and not yet committed
done
