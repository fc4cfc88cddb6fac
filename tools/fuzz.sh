# ./dev fuzz: libFuzzer on one target or all; a minute of each in ./dev test --long.
# shellcheck shell=bash disable=SC2034,SC2154

# The targets alone: what g++ compiles beside them has no libFuzzer.
build_fuzz() { configure fuzz -DFOVEA_WERROR=ON && compile fuzz "$@"; }

# A minute of each fuzz target. Each counts as one test.
fuzz_for_test() {
    local t fuzz_targets begin=$SECONDS passed=0 found=()
    mapfile -t fuzz_targets < <(basename -a -s .c tests/fuzz/fuzz_*.c)
    fuzz_targets=("${fuzz_targets[@]#fuzz_}")
    part "build fuzz" build_fuzz "${fuzz_targets[@]/#/fuzz_}" || return 0
    for t in "${fuzz_targets[@]}"; do
        if fuzz_target "$t" 60; then passed=$((passed + 1)); else found+=("$t"); fi
    done
    tests_passed=$((tests_passed + passed))
    tests_failed=$((tests_failed + ${#found[@]}))
    summary+=("$(printf '%-14s %-34s %4d s' "fuzz" "$passed passed, ${#found[@]} failed" $((SECONDS - begin)))${found[*]:+: ${found[*]}; inputs in build/fuzz/artifacts}")
}

fuzz_command() {
    local target='' seconds=60 targets=() t
    case ${1:-} in
    '') ;;
    [0-9]*) seconds=$1 ;;
    *)
        target=${1#fuzz_}
        seconds=${2:-60}
        ;;
    esac
    [[ $seconds =~ ^[1-9][0-9]*$ ]] || die "fuzz: '$seconds' is not a number of seconds"
    for t in tests/fuzz/fuzz_*.c; do
        [ -e "$t" ] || die "there are no fuzz targets in tests/fuzz"
        t=$(basename "$t" .c)
        t=${t#fuzz_}
        if [ -z "$target" ] || [ "$target" = "$t" ]; then targets+=("$t"); fi
    done
    [ ${#targets[@]} -gt 0 ] || die "there is no fuzz target '$target'; there are: $(cd tests/fuzz && echo fuzz_*.c | sed 's/fuzz_\([^ ]*\)\.c/\1/g')"
    want_build
    want_fuzz
    install_missing
    configure fuzz || die "preset fuzz cannot be configured"
    compile fuzz "${targets[@]/#/fuzz_}" || die "preset fuzz does not build"

    local found=()
    for t in "${targets[@]}"; do fuzz_target "$t" "$seconds" || found+=("$t"); done
    say "$((${#targets[@]} - ${#found[@]})) passed, ${#found[@]} failed"
    [ ${#found[@]} -eq 0 ] || die "found by ${found[*]}; the inputs are in build/fuzz/artifacts"
}

# fuzz_target TARGET SECONDS: fails when something is found. New inputs are kept in the build folder;
# the corpus in tests/ is only read.
fuzz_target() {
    local kept=build/fuzz/corpus/$1 seeds=tests/fuzz/corpus/$1 log=build/fuzz/$1.log
    mkdir -p "$kept" build/fuzz/artifacts
    say "== fuzz $1, $2 s"
    if "build/fuzz/tests/fuzz_$1" -max_total_time="$2" -timeout=20 -rss_limit_mb=2048 -print_final_stats=1 \
        -artifact_prefix="build/fuzz/artifacts/$1-" "$kept" "$seeds" >"$log" 2>&1; then
        grep -E 'DONE|number_of_executed_units' "$log" || true
        return 0
    fi
    tail -n 60 "$log"
    return 1
}
