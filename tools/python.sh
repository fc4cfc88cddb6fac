# Commands in Python: comparing with transformers, training, evaluating, chaos.
# shellcheck shell=bash disable=SC2034,SC2154

# Python with what $1 names, in .venv.
venv() {
    want python3 command -v python3
    want python3-venv python3 -c 'import ensurepip, venv'
    install_missing
    local pins=$1 stamp=.venv/installed.txt
    cmp -s "$pins" "$stamp" && return
    say "installing what $pins names into .venv (PyTorch is large)"
    [ -x .venv/bin/python ] || python3 -m venv .venv
    .venv/bin/python -m pip install --quiet -r "$pins"
    cp "$pins" "$stamp"
}

parity_command() {
    want_build
    venv tests/parity/requirements.txt
    build cpu
    .venv/bin/python tests/parity/run.py "$@"
}

# Training has state in build/train; what it has come to, once it is through, is written as a checkpoint.
train_command() {
    local recipe=checkpoints/nano/recipe argument rc=0
    want_build
    venv tests/parity/requirements.txt
    build cpu
    .venv/bin/python $recipe/train.py "$@" || rc=$?
    [ $rc -eq 4 ] && say "to be continued: the same command goes on" && return
    [ $rc -eq 0 ] || return $rc
    for argument; do
        case $argument in --smoke | --help | -h) return ;; esac
    done
    .venv/bin/python $recipe/export.py --to build/train/checkpoint
    say "build/train/checkpoint is the checkpoint; build/train/curves.jsonl has its training curves"
}

# All three resume when interrupted: build/eval, build/search and build/compare keep the answers.
eval_command() { with_fovea eval/presets.py "$@"; }
search_command() { with_fovea eval/search.py "$@"; }
compare_command() { with_fovea eval/compare.py "$@"; }

with_fovea() {
    want_build
    want python3 test -x /usr/bin/python3
    install_missing
    build cpu
    /usr/bin/python3 "$@"
}

chaos_command() {
    want_tests
    install_missing
    build cpu fovea fovea-router fovea-prefill fovea-decode
    /usr/bin/python3 -B tests/chaos/chaos.py build/cpu/bin build/cpu/gen/fovea_proto.bin tests/golden/demo.png "${1:-1}"
}
