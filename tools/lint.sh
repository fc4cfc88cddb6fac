# ./dev lint [--all]: format, rules and shellcheck; clang-tidy and cppcheck on what has changed, or on all.
# shellcheck shell=bash disable=SC2034,SC2154

# sources [--all]: the product's sources that clang-tidy and cppcheck read: those that differ from the main branch, or
# include a header that does, in whole; or all. The tests are left out: Criterion's macros are not ours.
sources() {
    local base=main name changed
    if [ "${1:-}" = --all ] || ! git rev-parse -q --verify HEAD >/dev/null 2>&1; then
        tests/lint/files.sh | grep '\.c$' | grep -v '^tests/'
        return
    fi
    for name in '@{upstream}' origin/main main; do
        if git rev-parse -q --verify "$name" >/dev/null 2>&1; then base=$name && break; fi
    done
    base=$(git merge-base HEAD "$base" 2>/dev/null || echo HEAD)
    mapfile -t changed < <({
        git diff --name-only --diff-filter=d "$base"
        git ls-files --others --exclude-standard
    } | grep '\.[ch]$' | grep -v '^tests/' | sort -u)
    for name in "${changed[@]}"; do
        case $name in
        *.c) printf '%s\n' "$name" ;;
        *.h) git grep -lF --untracked "#include \"$name\"" -- '*.c' ':!tests' || true ;;
        esac
    done | sort -u
}

# tidy SOURCE...: clang-tidy over those that build/cpu compiles.
tidy() {
    local known
    mapfile -t known < <(comm -12 <(printf '%s\n' "$@" | sort -u) \
        <(sed -n "s#^ *\"file\": \"$PWD/\(.*\)\",*\$#\1#p" build/cpu/compile_commands.json | sort -u))
    [ ${#known[@]} -gt 0 ] || return 0
    printf '%s\n' "${known[@]}" |
        xargs -P "$jobs" -n 4 clang-tidy-14 --quiet -p build/cpu >build/clang-tidy.log 2>&1 || {
        grep -E '(error|warning): ' build/clang-tidy.log | sed "s#^$PWD/\(build/[^:]*/layers/[^/]*/\)\?##" | sort -u
        say "how each comes about: build/clang-tidy.log"
        return 1
    }
}

check_with_cppcheck() {
    cppcheck --quiet --std=c11 --error-exitcode=1 --inline-suppr -j "$jobs" --enable=warning,portability \
        --suppressions-list=tools/cppcheck.txt -I . "$@"
}

lint_command() {
    local files scripts
    case ${1:-} in '' | --all) ;; *) die "lint takes --all or nothing, not '$1'" ;; esac
    want_build
    want_format
    want clang-tidy-14 command -v clang-tidy-14
    want cppcheck command -v cppcheck
    want shellcheck command -v shellcheck
    install_missing
    mapfile -t files < <(sources "$@")
    mapfile -t scripts < <(tests/lint/files.sh | xargs -d '\n' grep -lE -m1 '^#!.*(bash|/sh)$')
    part "format" check_format || true
    part "rules" tests/lint/check.sh || true
    part "shellcheck" shellcheck "${scripts[@]}" tools/*.sh || true
    if [ ${#files[@]} -gt 0 ]; then
        configure cpu || die "preset cpu cannot be configured"
        compile cpu fovea_proto || die "the contracts do not compile" # their headers are included
        part "clang-tidy" tidy "${files[@]}" || true
        part "cppcheck" check_with_cppcheck "${files[@]}" || true
    fi
    say ""
    printf '%s\n' "${summary[@]}"
    say "clang-tidy and cppcheck read ${#files[@]} sources${1:+, which are all}"
    [ "$tests_failed" -eq 0 ]
}
