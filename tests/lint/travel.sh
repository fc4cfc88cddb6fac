#!/usr/bin/env bash
# A GPU machine gets at most 60 MiB of files, 8 MiB of questions among them, and what the build there needs.
#
# usage: travel.sh ROOT
set -euo pipefail
cd "$1"
git rev-parse --is-inside-work-tree >/dev/null 2>&1 || { echo "skip: no git here, whose files travel" && exit 77; }
. tools/travel.sh
mapfile -t files < <(travel_files)
bytes=$(du -cb --apparent-size "${files[@]}" | tail -n 1 | cut -f1)
echo "$((bytes >> 20)) MiB travel, and 8 of questions"
[ $((bytes + (8 << 20))) -le "$travel_most" ]
for file in dev kernels/cuda/backend.c tests/ops/ops_device_probe.c bench/gpu/bench_gpu.c checkpoints/nano/config.json; do
    grep -qx "$file" <<<"$(printf '%s\n' "${files[@]}")" || { echo "$file stays behind" && exit 1; }
done
