#!/usr/bin/env bash
# Looks at built programs: fortified calls, canaries, PIE, full RELRO, no code on the stack. With
# "faults" or "no-faults" also whether workers know --hang-at, which builds to be installed must not.
#
# usage: hardened.sh BIN [faults|no-faults]
set -euo pipefail

bin=$1
failed=0
say() {
    echo "$1"
    failed=1
}
command -v readelf >/dev/null || {
    echo "skip: no readelf (package binutils) to look at the programs"
    exit 77
}

for program in fovea fovea-router fovea-prefill fovea-decode fovea-gateway fovea-video; do
    file=$bin/$program
    symbols=$(readelf --dyn-syms --wide "$file")
    headers=$(readelf --file-header --program-headers --dynamic --wide "$file")
    grep -q '__stack_chk_fail' <<<"$symbols" || say "$program: no canaries (-fstack-protector-strong)"
    grep -qE '__(memcpy|snprintf|vsnprintf|fprintf|memset|strcpy)_chk' <<<"$symbols" ||
        say "$program: not fortified (_FORTIFY_SOURCE)"
    grep -qE '^ *Type: +DYN' <<<"$headers" || say "$program: not position independent (-pie)"
    grep -q 'GNU_RELRO' <<<"$headers" || say "$program: no RELRO (-z relro)"
    grep -qE '\(FLAGS_1\).*NOW|\(BIND_NOW\)|\(FLAGS\).*BIND_NOW' <<<"$headers" ||
        say "$program: symbols are bound late, so that RELRO is not full (-z now)"
    grep -qE 'GNU_STACK .* RWE' <<<"$headers" && say "$program: its stack may hold code (-z noexecstack)"
done

for program in fovea-prefill fovea-decode; do
    help=$("$bin/$program" --help-all)
    case ${2:-} in
    faults) grep -q -- '--hang-at' <<<"$help" || say "$program: no --hang-at for the tests of faults" ;;
    no-faults)
        grep -q -- '--hang-at' <<<"$help" && say "$program: knows --hang-at"
        "$bin/$program" --hang-at prefill-ready >/dev/null 2>&1 && say "$program: takes --hang-at"
        ;;
    esac
done

[ $failed -eq 0 ] && echo "the programs in $bin are hardened"
exit $failed
