# Parts of a long command: each is reported in a summary.
# shellcheck shell=bash disable=SC2034,SC2154

tests_passed=0
tests_failed=0
tests_skipped=0
summary=() # one line per part
skips=()

# part NAME COMMAND...: runs one part of the tests and notes how it ended. A part that is no
# ctest run counts as one failed test when it fails, so that the last line tells the truth.
part() {
    local name=$1 begin=$SECONDS word=ok
    shift
    say "== $name"
    if ! "$@"; then
        word=FAILED
        tests_failed=$((tests_failed + 1))
    fi
    summary+=("$(printf '%-14s %-34s %4d s' "$name" "$word" $((SECONDS - begin)))")
    [ $word = ok ]
}

check_format() {
    local files
    mapfile -t files < <(tests/lint/files.sh | grep -E '\.(c|h|cu|cpp)$')
    clang-format-14 --dry-run -Werror "${files[@]}" || {
        say "clang-format-14 -i FILE puts it right"
        return 1
    }
}
