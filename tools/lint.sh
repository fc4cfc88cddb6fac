# ./dev lint: format, rules, clang-tidy; cppcheck and shellcheck where installed.
# shellcheck shell=bash disable=SC2034,SC2154

# clang-tidy over what build/cpu compiles, without the tests: Criterion's macros are not ours.
tidy() {
    local sources
    mapfile -t sources < <(sed -n 's/^ *"file": "\(.*\)",*$/\1/p' build/cpu/compile_commands.json |
        grep -v -e "/tests/" -e "/build/" -e "\.cu$" | sort -u)
    printf '%s\n' "${sources[@]}" |
        xargs -P "$jobs" -n 4 clang-tidy-14 --quiet -p build/cpu >build/clang-tidy.log 2>&1 || {
        grep -E '(error|warning): ' build/clang-tidy.log | sed "s#^$PWD/\(build/[^:]*/layers/[^/]*/\)\?##" | sort -u
        say "how each comes about: build/clang-tidy.log"
        return 1
    }
}

check_with_cppcheck() {
    cppcheck --quiet --std=c11 --error-exitcode=1 --inline-suppr -j "$jobs" --enable=warning,portability \
        --suppress=missingIncludeSystem --suppress=unknownMacro --suppress=uninitvar --suppress=legacyUninitvar \
        --suppress=invalidPointerCast --suppress=invalidFunctionArg -I . "$@"
}

lint_command() {
    want_build
    want_format
    want clang-tidy-14 command -v clang-tidy-14
    install_missing
    configure cpu || die "preset cpu cannot be configured"
    compile cpu fovea_proto || die "the contracts do not compile" # their headers are included
    part "format" check_format || true
    part "rules" tests/lint/check.sh || true
    part "clang-tidy" tidy || true
    if command -v cppcheck >/dev/null; then
        local folders
        mapfile -t folders < <(tests/lint/files.sh | sed -n 's#^\([^/]*\)/.*\.c$#\1#p' | grep -vx tests | sort -u)
        part "cppcheck" check_with_cppcheck "${folders[@]}" || true
    else
        summary+=("cppcheck       skip: not installed")
    fi
    if command -v shellcheck >/dev/null; then
        local scripts
        mapfile -t scripts < <(tests/lint/files.sh | xargs -d '\n' grep -lE -m1 '^#!.*(bash|/sh)$')
        part "shellcheck" shellcheck "${scripts[@]}" tools/*.sh || true
    else
        summary+=("shellcheck     skip: not installed")
    fi
    say ""
    printf '%s\n' "${summary[@]}"
    [ "$tests_failed" -eq 0 ]
}
