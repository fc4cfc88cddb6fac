# Cells of a first run on a GPU: each is a process of its own, with a limit that it cannot outlast. What hangs or dies
# loses its cell, and every result is in light_out as soon as it is known.
# shellcheck shell=bash disable=SC2034,SC2154

light_env=()        # variables of every cell
light_operations=() # of the matrix
light_failed=0      # steps that were lost
light_ends=0  # the second (of SECONDS) at which everything has ended
light_out=''  # folder of the results: at most 8 files, each of at most 16 MiB
light_work='' # folder of logs and cells, which need not be kept
light_tiers=(exact auto)
light_width=4 # cells at a time

# light_open SECONDS OUT WORK
light_open() {
    light_ends=$((SECONDS + $1)) light_out=$2 light_work=$3
    mkdir -p "$light_out"
    rm -rf "$light_work"
    mkdir -p "$light_work/cells"
}

light_left() { say $((light_ends - SECONDS)); }

# light_note FILE: appends stdin to a file of the results, which stays below 16 MiB.
light_note() {
    local file=$light_out/$1 room
    room=$(((16 << 20) - 1024 - $(stat -c %s "$file" 2>/dev/null || say 0)))
    [ "$room" -le 0 ] || head -c "$room" >>"$file"
    cat >/dev/null
}

# light_run SECONDS LOG COMMAND...: runs COMMAND in a session of its own, and kills all of it after SECONDS. A process
# that even then does not end is left behind. Returns its status; 124: it hung; 125: there was no time for it.
light_run() {
    local limit=$1 log=$2 pid ends
    shift 2
    [ "$limit" -le $((light_ends - SECONDS)) ] || limit=$((light_ends - SECONDS))
    [ "$limit" -ge 2 ] || return 125
    setsid "$@" >"$log" 2>&1 </dev/null &
    pid=$! ends=$((SECONDS + limit))
    while kill -0 "$pid" 2>/dev/null; do
        if [ "$SECONDS" -ge "$ends" ]; then
            kill -KILL -- "-$pid" 2>/dev/null || true
            sleep 0.3
            kill -0 "$pid" 2>/dev/null || wait "$pid" 2>/dev/null || true
            return 124
        fi
        sleep 0.05
    done
    wait "$pid"
}

# light_word STATUS LOG: how a cell ended.
light_word() {
    local error first
    first=$(grep -a -m 1 -E 'FAILED|CUDA: |^skip: ' "$2" | cut -c1-150 || true)
    case $1 in
    0)
        error=$(sed -n 's/^largest error of the norm: //p' "$2" | tail -n 1)
        if grep -q -a '^0 passed' "$2"; then
            say none
        elif [ -n "$error" ] && [ "$error" != 0.00e+00 ]; then
            say "error $error"
        else
            say "${3:-bits}"
        fi
        ;;
    77) say "${first:-skip}" ;;
    124) say hang ;;
    125) say late ;;
    *)
        if [ "$1" -gt 128 ] || grep -q -a -E 'CUDA: |cuBLAS: ' "$2"; then
            say "crash $1 $first"
        else
            say "wrong $first"
        fi
        ;;
    esac
}

# Whether a word says that something was lost.
light_is_lost() { case $1 in hang | crash* | wrong*) ;; *) return 1 ;; esac }

# light_cell OPERATION TIER SECONDS PROGRAM: tests an operation of a tier.
light_cell() {
    local at=$light_work/cells/$1.$2 begin=$SECONDS rc=0 backend=cuda-$2
    [ "$2" != auto ] || backend=cuda
    light_run "$3" "$at.log" env "${light_env[@]}" "$4" -o "$1" -b "$backend" test || rc=$?
    printf '%s\t%s\t%d\t%s\n' "$1" "$2" $((SECONDS - begin)) "$(light_word $rc "$at.log")" >"$at.new"
    mv "$at.new" "$at"
}

# Prints the matrix of all cells that have ended.
light_table() {
    local operation tier at seconds word
    printf '%-16s' operation
    printf ' %-24s' "${light_tiers[@]}"
    printf '\n'
    for operation in "${light_operations[@]}"; do
        printf '%-16s' "$operation"
        for tier in "${light_tiers[@]}"; do
            at=$light_work/cells/$operation.$tier word='-' seconds=''
            if [ -f "$at" ]; then IFS=$'\t' read -r _ _ seconds word <"$at"; fi
            printf ' %-24s' "$(cut -c1-17 <<<"$word")${seconds:+ ($seconds s)}"
        done
        printf '\n'
    done
    for at in "$light_work"/cells/*.*; do
        case $at in *.log | *.new) continue ;; esac
        IFS=$'\t' read -r operation tier seconds word <"$at"
        if light_is_lost "$word"; then say "lost: $operation $tier: $word"; fi
    done
}

light_save_table() {
    light_table >"$light_out/matrix.new"
    mv "$light_out/matrix.new" "$light_out/matrix.txt"
}

# light_matrix SECONDS PROGRAM: tests every operation of light_operations in every tier.
light_matrix() {
    local operation tier running=0
    for tier in "${light_tiers[@]}"; do
        for operation in "${light_operations[@]}"; do
            if [ $running -ge "$light_width" ]; then
                wait -n || true
                running=$((running - 1))
                light_save_table
            fi
            light_cell "$operation" "$tier" "$1" "$2" &
            running=$((running + 1))
        done
    done
    wait
    light_save_table
}

# Prints the cells that were lost, as "OPERATION TIER".
light_lost() { sed -n 's/^lost: \([^ ]*\) \([^:]*\):.*/\1 \2/p' "$light_out/matrix.txt"; }

# light_step NAME SECONDS FILE COMMAND...: runs a step, appends what it prints to FILE of the results, and how it ended
# to summary.txt. A step that fails is counted.
light_step() {
    local name=$1 limit=$2 file=$3 begin=$SECONDS rc=0 word
    shift 3
    say "== $name"
    light_run "$limit" "$light_work/step.log" env "${light_env[@]}" "$@" || rc=$?
    [ $rc -eq 125 ] || { say "== $name" && cat "$light_work/step.log"; } | light_note "$file"
    word=$(light_word $rc "$light_work/step.log" ok)
    if light_is_lost "$word"; then light_failed=$((light_failed + 1)); fi
    printf '%-34s %4d s  %s\n' "$name" $((SECONDS - begin)) "$word" | light_note summary.txt
}
