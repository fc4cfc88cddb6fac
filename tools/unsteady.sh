# Tests that failed run once more, each by itself, when all others have run: a test that passes then is unsteady, which
# the summary says and which somebody has to mend.
# shellcheck shell=bash disable=SC2034,SC2154

failures=()    # "PRESET TEST", of all runs of ctest
unsteady=()    # the same, of those that passed when they ran by themselves
unsteady_max=2 # with more of them the run fails
retried_max=6  # when more tests failed, the change is at fault and not the machine
unsteady_logs=build/unsteady

# output_of LOG TEST: what LastTest.log of ctest has of a test.
output_of() {
    awk -v name="$2" '
        /^[0-9]+\/[0-9]+ Testing: / { on = substr($0, index($0, "Testing: ") + 9) == name }
        on' "$1"
}

# log_name "PRESET TEST" RUN
log_name() { printf '%s/%s.%s.log' "$unsteady_logs" "$(tr ' /' -- <<<"$1")" "$2"; }

# note_failures PRESET: notes the tests that failed in ctest's last run, and keeps what they printed.
note_failures() {
    local preset=$1 dir=build/$1/Testing/Temporary test
    [ -e "$dir/LastTestsFailed.log" ] || return 0
    mkdir -p "$unsteady_logs"
    while IFS= read -r test; do
        failures+=("$preset $test")
        output_of "$dir/LastTest.log" "$test" >"$(log_name "$preset $test" 1)"
    done < <(sed 's/^[0-9]*://' "$dir/LastTestsFailed.log")
}

# passes_alone PRESET TEST: runs one test, and keeps what it printed.
passes_alone() {
    ctest --test-dir "build/$1" -R "^${2//./\\.}\$" --no-tests=error --verbose >"$(log_name "$1 $2" 2)" 2>&1
}

# retry_failures: runs the tests that failed once more. Those that pass count as passed, if they are few.
retry_failures() {
    local begin=$SECONDS entry
    unsteady=()
    [ ${#failures[@]} -gt 0 ] || return 0
    if [ ${#failures[@]} -gt $retried_max ]; then
        summary+=("$(printf '%-14s %s' "again" "no test: ${#failures[@]} failed")")
        return 0
    fi
    say "== again, each by itself"
    for entry in "${failures[@]}"; do
        say "$entry"
        if passes_alone "${entry%% *}" "${entry#* }"; then unsteady+=("$entry"); fi
    done
    summary+=("$(printf '%-14s %-34s %4d s' "again" "${#unsteady[@]} of ${#failures[@]} passed" $((SECONDS - begin)))")
    if [ ${#unsteady[@]} -le $unsteady_max ]; then
        tests_failed=$((tests_failed - ${#unsteady[@]}))
        tests_passed=$((tests_passed + ${#unsteady[@]}))
    fi
}

# say_failures: lists the tests that failed twice, and the unsteady ones, with the logs of both runs.
say_failures() {
    local entry word
    for entry in "${failures[@]}"; do
        word=FAILED
        if [[ " ${unsteady[*]/%/ |}" == *" $entry |"* ]]; then word=unsteady; fi
        say "$word: ${entry#* } (${entry%% *}; $(log_name "$entry" '*'))"
    done
    if [ ${#unsteady[@]} -gt $unsteady_max ]; then
        say "${#unsteady[@]} tests are unsteady, and at most $unsteady_max may be: the run fails"
    fi
}
