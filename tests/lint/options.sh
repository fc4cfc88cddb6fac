#!/usr/bin/env bash
# Checks what is generated from the option rows: docs/OPTIONS.md is up to date, man pages are well formed, bash completes, and
# every --help fits a screen.
#
# usage: options.sh ROOT BIN
set -euo pipefail
root=$1 bin=$2
daemons=(fovea-router fovea-prefill fovea-decode fovea-gateway)
mapfile -t commands < <("$bin/fovea" help | sed -n 's/^  \([a-z]*\) .*/\1/p' | grep -vxE 'help|version')
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0
say() {
    echo "$1"
    failed=1
}

# help_of PROGRAM OPTION: PROGRAM is a daemon or a command.
help_of() {
    case $1 in
    fovea-*) "$bin/$1" "$2" ;;
    *) "$bin/fovea" "$1" "$2" ;;
    esac
}

"$bin/fovea" options --markdown | diff -u "$root/docs/OPTIONS.md" - ||
    say "docs/OPTIONS.md is not what the rows give: fovea options --markdown > docs/OPTIONS.md"

[ ${#commands[@]} -ge 11 ] || say "fovea help lists only ${#commands[@]} commands"
for program in "${daemons[@]}" "${commands[@]}"; do
    lines=$(help_of "$program" --help | wc -l)
    [ "$lines" -le 40 ] || say "$program --help has $lines lines, and a screen has 40"
    widest=$(help_of "$program" --help-all | awk 'length > n { n = length } END { print n }')
    [ "$widest" -le 80 ] || say "$program --help-all has a line of $widest columns, and a screen has 80"
    # Beside the rows, --help has two options of its own.
    first=$(help_of "$program" --help | grep -oE '^  --[a-z-]+' | grep -vE -- '--help(-all)?$' || true)
    all=$(help_of "$program" --help-all | grep -oE '^  --[a-z-]+')
    for name in $first; do grep -qxF -- "  $name" <<<"$all" || say "$program --help-all lacks $name"; done
done

pages=(fovea "${daemons[@]}" "${commands[@]/#/fovea-}")
for page in "${pages[@]}"; do
    "$bin/fovea" options --man "$page" >"$work/$page.1"
    if command -v man >/dev/null && command -v groff >/dev/null; then
        said=$(LC_ALL=C.UTF-8 man --warnings --local-file "$work/$page.1" 2>&1 >/dev/null)
        [ -z "$said" ] || say "man: $page: $said"
    fi
    if command -v mandoc >/dev/null; then
        said=$(mandoc -T lint "$work/$page.1" | grep -v 'missing date' || true)
        [ -z "$said" ] || say "mandoc: $page: $said"
    fi
done
"$bin/fovea" options --man fovea-nothing >/dev/null 2>&1 && say "there is a man page of nothing"

# completes WORD... : RESULT: what bash offers for the last word.
completes() {
    local -a COMP_WORDS=() COMPREPLY=()
    while [ "$1" != : ]; do
        COMP_WORDS+=("$1")
        shift
    done
    local COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
    _fovea || true # as compgen ends that finds nothing
    local got="${COMPREPLY[*]}"
    [ "$got" = "$2" ] || say "bash completes '${COMP_WORDS[*]}' to '$got', not to '$2'"
}
"$bin/fovea" options --bash >"$work/bash"
# shellcheck source=/dev/null
. "$work/bash"
touch "$work/picture.png"
completes fovea ev : eval
completes fovea ask --over : --overlay
completes fovea-router --fleet-l : --fleet-listen
completes fovea up --stall : --stall-ms
completes fovea ask --device c : 'cpu cuda'
completes fovea ask --image "$work/pic" : "$work/picture.png"
completes fovea up --checkpoint "$work/pic" : "$work/picture.png"
completes fovea-decode --lea : --lease-ms
completes fovea-router --lea : ''
completes fovea ask --max-tokens '' : ''
complete -p fovea-gateway >/dev/null || say "bash does not complete fovea-gateway"

"$bin/fovea" options --zsh >"$work/zsh"
if command -v zsh >/dev/null; then zsh -n "$work/zsh" || say "zsh cannot read its completions"; fi

[ $failed -eq 0 ] && echo "pages, completions and --help of ${#pages[@]} programs are as the rows say"
exit $failed
