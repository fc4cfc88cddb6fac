#!/usr/bin/env bash
# The matrix of a first run (tools/light.sh) on the emulated plugin: whatever an operation does, it loses its own cells and
# no others, and what was found is written.
#
# usage: first_light.sh ROOT OPS_RUN FOLDER
set -euo pipefail
root=$1 ops_run=$2 folder=$3
say() { printf '%s\n' "$*"; }
. "$root/tools/light.sh"

failed=0
expect() { # WHAT WANT GOT
    [ "$2" = "$3" ] || { say "FAILED: $1: '$3', not '$2'" && failed=1; }
}

# FAULT LOST SECONDS
with_fault() {
    light_open 600 "$folder/out" "$folder/work"
    light_operations=(norm activate merge score_sums attention) light_width=2
    light_env=(FOVEA_EMULATED_FAULT="$1")
    light_matrix "$3" "$ops_run"
    light_table
    expect "lost by fault '$1'" "$2" "$(light_lost | paste -sd,)"
}

with_fault '' '' 300
expect 'a cell of the CPU'"'"'s bits' bits "$(cut -f4 "$folder/work/cells/norm.exact")"
expect 'a cell that rounds' error "$(cut -f4 "$folder/work/cells/attention.auto" | cut -d' ' -f1)"
with_fault crash:norm_kernel 'norm auto,norm exact' 300
expect 'an illegal access' 'crash 1' "$(cut -f4 "$folder/work/cells/norm.auto" | cut -c1-7)"
with_fault skip:attention_parts 'attention auto' 300
expect 'numbers that are not there' wrong "$(cut -f4 "$folder/work/cells/attention.auto" | cut -d' ' -f1)"
with_fault crash:score_sums 'score_sums auto,score_sums exact' 300

# A kernel that never ends takes its time and no more; a program that a signal ends; one for which there is no time.
light_open 600 "$folder/out" "$folder/work"
light_operations=(merge)
light_env=(FOVEA_EMULATED_FAULT=hang:merge)
light_matrix 3 "$ops_run"
expect 'a hang' 'merge auto,merge exact' "$(light_lost | paste -sd,)"
expect 'its word' hang "$(cut -f4 "$folder/work/cells/merge.auto")"
rc=0
light_run 60 "$folder/log" bash -c 'kill -SEGV $$' || rc=$?
expect 'a signal' 'crash 139' "$(light_word $rc "$folder/log" | cut -c1-9)"
light_ends=$SECONDS rc=0
light_run 60 "$folder/log" true || rc=$?
expect 'no time' late "$(light_word $rc "$folder/log")"

# Results stay below 16 MiB.
for _ in 1 2 3; do head -c $((7 << 20)) /dev/zero | light_note full.txt; done
expect 'a full file' $(((16 << 20) - 1024)) "$(stat -c %s "$folder/out/full.txt")"
exit $failed
