#!/usr/bin/env bash
# ./dev test on tests that fail for a while: one that fails once is unsteady, one that fails twice is a failure, and so
# are more than two unsteady ones. The builds are made up of shell commands.
# shellcheck disable=SC2034,SC2154,SC2317
set -euo pipefail

root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

# add PRESET NAME SHELL: a test.
add() {
    mkdir -p "build/$1"
    printf 'add_test([=[%s]=] "sh" "-c" [=[%s]=])\n' "$2" "$3" >>"build/$1/CTestTestfile.cmake"
}

# fails_once WORD: the shell command of a test that fails the first time that it runs.
fails_once() { printf 'echo says %s; test -e %s && exit; touch %s; exit 1' "$1" "$work/$1" "$work/$1"; }

# run: what ./dev test does after building. *said: what it prints; *code: how it ends.
run() {
    local preset
    code=0
    said=$(
        jobs=1 SECONDS=0
        say() { printf '%s\n' "$*"; }
        for script in parts unsteady test; do
            # shellcheck source=/dev/null
            . "$root/tools/$script.sh"
        done
        rm -rf "$unsteady_logs"
        for preset in build/*; do run_tests "test ${preset#*/}" "${preset#*/}"; done
        retry_failures
        sum_up
    ) || code=$?
}

# expect WHAT CODE WORDS...: how the run ended, and what it said.
expect() {
    local what=$1 words
    [ "$code" -eq "$2" ] || { echo "$what: ends with $code" && echo "$said" && exit 1; }
    shift 2
    for words; do
        [[ $said == *"$words"* ]] || { echo "$what: does not say '$words'" && echo "$said" && exit 1; }
    done
}

add cpu steady/one true
add cpu steady/two true
run
expect "tests that pass" 0 "2 passed, 0 failed"
[[ $said != *again* ]] || { echo "tests that passed ran again" && exit 1; }

add cpu e2e/once "$(fails_once once)"
add asan e2e/once "$(fails_once in_asan)"
run
expect "two unsteady tests" 0 "unsteady: e2e/once (cpu; build/unsteady/cpu-e2e-once.*.log)" \
    "unsteady: e2e/once (asan; build/unsteady/asan-e2e-once.*.log)" "4 passed, 0 failed"
for n in 1 2; do
    grep -q "says once" "build/unsteady/cpu-e2e-once.$n.log" || { echo "log $n of e2e/once lacks what it printed" && exit 1; }
    if grep -q "steady/two" "build/unsteady/cpu-e2e-once.$n.log"; then echo "log $n has another test's" && exit 1; fi
done

run
expect "tests that have become steady" 0 "4 passed, 0 failed"
[ ! -e build/unsteady ] || { echo "logs of an earlier run are still there" && exit 1; }

add cpu always 'echo no; exit 1'
rm -f once in_asan
run
expect "a test that fails twice" 1 "FAILED: always (cpu; build/unsteady/cpu-always.*.log)" "unsteady: e2e/once (cpu" \
    "4 passed, 1 failed"

rm -rf build once in_asan
for n in 1 2 3; do add cpu "many/$n" "$(fails_once "many$n")"; done
run
expect "three unsteady tests" 1 "3 tests are unsteady, and at most 2 may be" "unsteady: many/3 (cpu" "0 passed, 3 failed"

rm -rf build many*
for n in 1 2 3 4 5 6 7; do add cpu "broken/$n" "$(fails_once "many$n")"; done
run
expect "a change that breaks much" 1 "no test: 7 failed" "FAILED: broken/7 (cpu" "0 passed, 7 failed"
[ ! -e build/unsteady/cpu-broken-1.2.log ] || { echo "a test of many that failed ran again" && exit 1; }
echo "unsteady tests are found"
