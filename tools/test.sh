# ./dev test and coverage: builds for tests, runs them, and adds up what they say.
# shellcheck shell=bash disable=SC2034,SC2154

# A number in ctest's report: attribute NAME of the test suite.
report_number() { grep -o -m1 "$2=\"[0-9]*\"" "$1" | head -n 1 | tr -dc 0-9; }

# run_tests NAME PRESET [CTEST ARGUMENT...]: runs tests of a build and adds up what they say.
run_tests() {
    local name=$1 preset=$2 begin=$SECONDS dir=build/$2 report=$PWD/build/$2/ctest.xml at_once=$((4 * jobs))
    shift 2
    say "== $name"
    rm -f "$report" "$dir/Testing/Temporary/LastTestsFailed.log"
    # Half of what tests do is wait for one another, so more of them run than there are cores. With sanitizers
    # they compute more than they wait.
    [ "$preset" = cpu ] || at_once=$((2 * jobs))
    # Criterion names every case and suite of a program that the filter leaves out.
    ctest --test-dir "$dir" -j "$at_once" --output-on-failure --no-tests=error --output-junit "$report" "$@" |
        sed -u -e '/: Test is disabled$/d' -e '/^\[====\] Running [0-9]* tests\? from /d' || true
    if [ ! -s "$report" ]; then
        tests_failed=$((tests_failed + 1))
        summary+=("$(printf '%-14s %-34s %4d s' "$name" "FAILED: ctest did not run" $((SECONDS - begin)))")
        return
    fi
    local n failed skipped cases line
    n=$(report_number "$report" tests)
    failed=$(report_number "$report" failures)
    skipped=$(($(report_number "$report" skipped) + $(report_number "$report" disabled)))
    tests_failed=$((tests_failed + failed))
    tests_skipped=$((tests_skipped + skipped))
    tests_passed=$((tests_passed + n - failed - skipped))
    note_failures "$preset"
    local log=$dir/Testing/Temporary/LastTest.log
    cases=$(sed -n 's/.*Synthesis: Tested: \([0-9]*\) .*/\1/p' "$log" | paste -sd+)
    summary+=("$(printf '%-14s %-34s %4d s' "$name" \
        "$((n - failed - skipped)) passed, $failed failed" $((SECONDS - begin)))${cases:+, $((cases)) unit cases}")
    while IFS= read -r line; do skips+=("$preset: $line"); done < <(
        # Cases of other suites of the program, which the filter leaves out, are "disabled".
        sed -n -e '/: Test is disabled$/d' -e 's/^skip: *//p' -e 's/^\[SKIP\] *//p' "$log" | sort | uniq -c |
            sed -e 's/^ *1 //' -e 's/^ *\([0-9]*\) \(.*\)/\2 (\1 times)/'
    )
}

ahead=0 # the process group of a build while tests run

# build_ahead: what the sanitizers' builds need is compiled with what the tests leave of the machine.
build_ahead() {
    set -m
    {
        renice -n 19 -p $BASHPID
        build_for_test asan smoke
        build_for_test tsan smoke
    } >build/ahead.log 2>&1 </dev/null &
    ahead=$!
    set +m
    trap 'kill -- -$ahead 2>/dev/null || true' EXIT
}

# Whoever builds next says what went wrong.
await_build() {
    [ "$ahead" -eq 0 ] || wait "$ahead" || true
    ahead=0
    trap - EXIT
}

test_command() {
    local long=false
    case ${1:-} in
    '') ;;
    --long) long=true ;;
    *)
        say "dev: test takes --long or nothing, not '$1'" >&2
        exit 2
        ;;
    esac
    rm -rf "$unsteady_logs"
    want_tests
    want_format
    if $long; then
        want_fuzz
        export FOVEA_TEST_LONG=1
    fi
    install_missing
    part "format" check_format || true
    get_tools deploy tests/deploy/requirements.txt
    if $long; then
        get_tools collector tests/e2e/requirements.txt
        get_tools openai tests/long/requirements.txt
        get_clients
    fi
    get_prometheus
    get_proxies
    # The plugin is compiled to see that it compiles: as far as PTX, for machine code takes nvcc ten times as long.
    local plugin=()
    $long || plugin=(-DFOVEA_CUDA_ARCHS=90a-virtual -DCMAKE_CUDA_FLAGS_RELWITHDEBINFO='-Xcicc -O0')
    if part "build cpu" build_for_test cpu all "${plugin[@]}"; then
        $long || build_ahead
        run_tests 'test cpu' cpu -LE '^long$'
        if $long; then run_tests 'test long' cpu -L '^long$'; fi
    fi
    # With --long all that runs our code under the sanitizers, otherwise the smoke tests (tests/tests.cmake).
    local asan=smoke asan_kinds='^smoke$' tsan=smoke
    if $long; then asan=all asan_kinds='^(unit|example|e2e|ops|race|fuzz)$' tsan=race; fi
    if part "build asan" build_after asan $asan; then run_tests 'test asan' asan -L "$asan_kinds"; fi
    if part "build tsan" build_for_test tsan $tsan; then run_tests 'test tsan' tsan -L "^$tsan\$"; fi
    if $long; then fuzz_for_test; fi

    retry_failures
    sum_up
}

# sum_up: prints the summary. Fails when tests failed.
sum_up() {
    say ""
    printf '%s\n' "${summary[@]}"
    printf '%-49s %4d s\n' "all of it" $SECONDS
    say ""
    if [ ${#skips[@]} -gt 0 ]; then
        say "skipped:"
        printf '  %s\n' "${skips[@]}"
    else
        say "nothing was skipped"
    fi
    [ "$tests_skipped" -eq 0 ] || say "$tests_skipped programs were skipped as a whole"
    say_failures
    say "$tests_passed passed, $tests_failed failed"
    [ "$tests_failed" -eq 0 ]
}

# The rest of what was begun while tests ran.
build_after() {
    await_build
    build_for_test "$@"
}

# build_for_test PRESET TARGET [CMAKE ARGUMENT...]
build_for_test() { configure "$1" -DFOVEA_WERROR=ON "${@:3}" && compile "$1" "$2"; }

# coverage_command [FOLDER]: which part of the lines the tests of the normal suite run.
coverage_command() {
    [ $# -le 1 ] || die "coverage takes a folder or nothing; ./dev help says what there is"
    [ -z "${1:-}" ] || [ -d "$1" ] || die "coverage: there is no folder $1"
    want_tests
    install_missing
    build cov
    find build/cov -name '*.gcda' -delete # counts of a run before add up
    run_tests 'test cov' cov -LE '^long$'
    retry_failures
    /usr/bin/python3 tests/coverage.py build/cov . "$@"
    printf '%s\n' "${summary[@]}"
    say_failures
    [ "$tests_failed" -eq 0 ]
}
