#!/usr/bin/env bash
# Rules about the sources that no compiler checks. Prints one line per offence, as
# "file:line: what is wrong"; exits 1 when there is one. selftest.sh proves that each can fail.
#
# usage: check.sh [ROOT]     ROOT is the root of the sources; default: of this repository
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
cd "${1:-$here/../..}"

mapfile -t files < <("$here/files.sh" .)
code=()      # C sources and headers
libraries=() # C sources of the library folders: all but programs, tests and benchmarks
headers=()
commented=() # files with comments in C's style
scripts=()   # files with comments that begin with #
for f in "${files[@]}"; do
    case $f in *.c | *.h | *.inc | *.def | *.cu | *.cuh | *.proto) commented+=("$f") ;; esac
    case $f in *.py | *.sh | *.cmake | *CMakeLists.txt | *.yaml) scripts+=("$f") ;; esac
    case $f in *.c | *.h | *.inc) code+=("$f") ;; esac
    case $f in *.h) headers+=("$f") ;; esac
    case $f in
    cli/* | tests/* | bench/*) ;;
    *.c | *.inc) libraries+=("$f") ;;
    esac
done

failed=0
say() {
    echo "$1"
    failed=1
}

# offend WHAT PATTERN FILE...: every line that matches PATTERN is an offence. Comments do not
# count: what follows //, or stands on a line that starts with * or /*, is left out.
offend() {
    local what=$1 pattern=$2 line
    shift 2
    [ $# -gt 0 ] || return 0
    while IFS= read -r line; do
        say "$(cut -d: -f1,2 <<<"$line"): $what"
    done < <(grep -nHE -- "$pattern" "$@" | grep -vE '^[^:]+:[0-9]+:[[:space:]]*(//|/\*|\*)' || true)
}

offend 'include from the root of the repository, as in "common/status.h": no "../"' \
    '^[[:space:]]*#[[:space:]]*include[[:space:]]*["<][^">]*\.\./' "${code[@]}"

product=()
for f in "${code[@]}"; do
    case $f in common/options.c | tests/*) ;; *) product+=("$f") ;; esac
done
offend 'only common/options.c reads the environment: add a row to an options table' \
    '(^|[^A-Za-z0-9_])(secure_)?getenv[[:space:]]*\(' "${product[@]}"

timed=()
for f in "${libraries[@]}"; do
    case $f in common/log.c | common/clock.h) ;; *) timed+=("$f") ;; esac
done
offend 'only common/clock.h and common/log.c read the clock on the wall, which people set: fv_clock_s, uv_now' \
    '(CLOCK_REALTIME|(^|[^A-Za-z0-9_])(gettimeofday|time)[[:space:]]*\()' "${timed[@]}"

offend 'a library does not end the process: return an fv_status (FV_FAIL)' \
    '(^|[^A-Za-z0-9_>.])(_?exit|_Exit|quick_exit|abort)[[:space:]]*\(' "${libraries[@]}"

named=()
for f in "${code[@]}"; do
    case $f in common/status.[ch] | tests/*) ;; *) named+=("$f") ;; esac
done
offend 'outside of tests a status is called as gRPC calls it: fv_status_grpc_name' \
    '(^|[^A-Za-z0-9_])fv_status_name[[:space:]]*\(' "${named[@]}"

pairs=()
for f in "${code[@]}"; do
    case $f in common/log.h | tests/*) ;; *) pairs+=("$f") ;; esac
done
offend 'a log line is key=value pairs from its beginning on' \
    'FV_LOG\([A-Z]+, [A-Z]+, "([^=]*[^=a-z0-9_][^=]*=|[^=]*"|=)' "${pairs[@]}"

while IFS= read -r line; do
    say "$(cut -d: -f1,2 <<<"$line"): finish it, or say it in a sentence: no TODO, FIXME, XXX"
done < <(grep -nHE '(^|[^A-Za-z0-9_])(TODO|FIXME|XXX)([^A-Za-z0-9_]|$)' -- "${code[@]}" /dev/null || true)

# A comment's first words name what it is about.
while IFS= read -r line; do
    say "$(cut -d: -f1,2 <<<"$line"): begin the comment with what it is about, not with 'Of', 'It', 'Those', 'That', 'What', 'Where', 'So' or 'One that'"
done < <(
    openings='(Of|It|Those|That|What|Where|Whose|Nobody|So|Some|Others|For those|One (that|which|who)) [a-z]'
    grep -nHE "(/\*|//) +$openings" -- "${commented[@]}" /dev/null || true
    grep -nHE '^ *# +(Of|It|Those|What|Whose|Nobody) [a-z]' -- "${scripts[@]}" /dev/null || true
)

# A header opens with the guard FOVEA_<PATH>_H.
for f in "${headers[@]}"; do
    guard=FOVEA_$(tr 'a-z/.-' 'A-Z___' <<<"$f")
    if [ "$(grep -m1 '^#' "$f")" != "#ifndef $guard" ] || ! grep -qx "#define $guard" "$f"; then
        say "$f:1: the header guard must be $guard"
    fi
done

# A file that a comment or a page names exists, by its path or the end of it. Not checked: names in the code
# blocks of pages, names with a placeholder (<name>.c, test_SUITE.c), and these of other projects:
foreign='jpeglib.h descriptor.proto'
texts=()
for f in "${files[@]}"; do
    case $f in *.c | *.h | *.cu | *.cuh | *.inc | *.def | *.proto | *.md) texts+=("$f") ;; esac
done
while IFS= read -r line; do say "$line"; done < <(
    printf '%s\n' "${files[@]}" | awk -v foreign="$foreign" '
        FILENAME == "-" {
            for (path = $0; ; path = substr(path, index(path, "/") + 1)) {
                known[path]
                if (!index(path, "/")) next
            }
        }
        FNR == 1 {
            page = FILENAME ~ /\.md$/
            block = fenced = 0
            split(foreign, list, " ")
            for (i in list) known[list[i]]
        }
        page && /^```/ { fenced = !fenced }
        {
            text = page ? (fenced || /<!-- example/ ? "" : $0) : comment($0)
            while (match(text, /[A-Za-z0-9_.\/<>*-]*[A-Za-z0-9_>*-]\.(c|h|cuh|cu|inc|def|proto|md)([^A-Za-z0-9_(.*-]|\.?$|[.*][^A-Za-z0-9])/)) {
                name = substr(text, RSTART, RLENGTH)
                text = substr(text, RSTART + RLENGTH)
                sub(/[^A-Za-z0-9_]+$/, "", name)
                while (sub(/^\.\.?\//, "", name)) {}
                if (name ~ /[<>*]|^[-.\/]|^_|--/ || (name !~ /md$/ && name ~ /[A-Z][A-Z][A-Z]/)) continue
                if (!(name in known)) print FILENAME ":" FNR ": there is no file " name
            }
        }
        function comment(s,    at, out) {
            for (out = ""; s != ""; ) {
                if (!block) {
                    if (!(at = match(s, /\/[\/*]/))) break
                    if (substr(s, at + 1, 1) == "/") return out " " substr(s, at + 2)
                    block = 1
                    s = substr(s, at + 2)
                }
                if (!(at = index(s, "*/"))) return out " " s
                out = out " " substr(s, 1, at - 1)
                block = 0
                s = substr(s, at + 2)
            }
            return out
        }' - "${texts[@]}" /dev/null
)

# ctest runs a suite by the name of its file.
suites=()
for f in "${code[@]}"; do
    case $f in tests/*/test_*.c) suites+=("$f") ;; esac
done
while IFS= read -r line; do say "$line"; done < <(
    awk -F '[(,)]' '{ name = FILENAME; sub(/.*\/test_/, "", name); sub(/\.c$/, "", name) }
        /^(Test|TestSuite|ParameterizedTestParameters)\(/ && $2 != name {
            print FILENAME ":" FNR ": the suite must be called as its file, " name }' "${suites[@]}" /dev/null
)

# A clone stays small: models live under checkpoints/, everything else is text and small pictures.
while read -r bytes f; do
    case $f in checkpoints/*) continue ;; esac
    [ "$bytes" -le $((2 << 20)) ] || say "$f:1: $bytes bytes; only checkpoints/ holds files over 2 MiB"
done < <(printf '%s\0' "${files[@]}" | xargs -0 stat -c '%s %n')

[ $failed -eq 0 ] && echo "${#code[@]} sources and headers keep the rules"
exit $failed
