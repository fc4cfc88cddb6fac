#!/usr/bin/env bash
# Proves that each rule of check.sh finds its offence: a tree with one offence each, and a tree
# with none.
set -euo pipefail

check=$(cd "$(dirname "$0")" && pwd)/check.sh
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
failed=0

# expect NAME PATH WORDS CONTENT: a tree with CONTENT in PATH; WORDS must stand in the complaint.
expect() {
    local name=$1 path=$2 words=$3 content=$4 said code=0
    rm -rf "${tree:?}"/*
    mkdir -p "$tree/$(dirname "$path")"
    printf '%s\n' "$content" >"$tree/$path"
    said=$("$check" "$tree") || code=$?
    if [ -z "$words" ]; then
        [ $code -eq 0 ] || { echo "$name: must pass, but: $said" && failed=1; }
    elif [ $code -ne 1 ] || [[ $said != *"$path:"*"$words"* ]]; then
        echo "$name: not found (exit $code): $said"
        failed=1
    fi
}

expect "upward path" kernels/a.c 'no "../"' '#include "../model/config.h"'
expect "environment" model/a.c 'environment' 'const char *s = getenv("HOME");'
expect "environment in a test" tests/unit/rpc/test_a.c '' 'const char *s = getenv("HOME");'
expect "environment in options" common/options.c '' 'const char *s = getenv("HOME");'
expect "wall clock" rpc/a.c 'clock on the wall' 'static long f(void) { return time(NULL); }'
expect "wall clock in seconds" rpc/a.c 'clock on the wall' 'clock_gettime(CLOCK_REALTIME, &ts);'
expect "wall clock in the log" common/log.c '' 'clock_gettime(CLOCK_REALTIME, &ts);'
expect "a name that ends in time" rpc/a.c '' 'static int uptime(void) { return first_time(1); }'
expect "exit" policy/a.c 'does not end the process' 'static void f(void) { exit(1); }'
expect "abort" decode-worker/a.c 'does not end the process' '    abort();'
expect "exit in a program" cli/main.c '' 'static void f(void) { exit(1); }'
expect "exit in a comment" common/a.c '' ' * the program may exit(1) then */'
expect "a name that ends in exit" common/a.c '' 'static void on_exit_wanted(void) { loop_exit(); }'
expect "unfinished" model/a.c 'finish it' "/* TO""DO: more */"
expect "a comment without a subject" model/a.c 'what it is about' '/* Of the layer that runs next. */'
expect "a comment that begins with What" model/a.c 'what it is about' '/* What the next layer reads. */'
expect "a comment of a script without a subject" model/a.py 'what it is about' '# Of the layer that runs next.'
expect "a line comment without a subject" proto/a.proto 'what it is about' '// One that was sent before.'
expect "a comment with a subject" model/a.c '' $'/* The layer that runs next. */\nint one; /* One. Of them, 2: it is. */'
expect "status" router/a.c 'fv_status_grpc_name' 'const char *s = fv_status_name(st);'
expect "status in a test" tests/unit/rpc/test_a.c '' 'const char *s = fv_status_name(st);'
expect "log sentence" rpc/a.c 'key=value' 'FV_LOG(WARN, WIRE, "it is late");'
expect "log pair after a sentence" rpc/a.c 'key=value' 'FV_LOG(WARN, WIRE, "it is late: n=%d", n);'
expect "log pairs" rpc/a.c '' 'FV_LOG(WARN, WIRE, "event=late why=\"it is late\"");'
expect "suite" tests/unit/rpc/test_a.c 'called as its file' 'Test(b, is_found) {}'
expect "suite of its file" tests/unit/rpc/test_a.c '' 'Test(a, is_found) {}'
expect "guard" model/net/a-b.h 'FOVEA_MODEL_NET_A_B_H' '#ifndef A_H'
expect "guard as it should be" model/net/a-b.h '' \
    $'#ifndef FOVEA_MODEL_NET_A_B_H\n#define FOVEA_MODEL_NET_A_B_H\n#endif'
expect "a file that is gone" rpc/a.c 'there is no file' $'int a;\n/* What it does: rpc/gone.h. */'
# shellcheck disable=SC2016 # the backquotes are Markdown
expect "a file that is gone, in a page" docs/a.md 'there is no file' 'See `rpc/gone.c` for it.'
expect "a file that is gone, at the end" proto/a.proto 'there is no file' 'int32 a = 1; // see gone.proto'
expect "files that are there" rpc/a.c '' $'/* rpc/a.c and a.c; x.len and part.w */\nchar b[] = "gone.c";'
expect "placeholders" docs/a.md '' $'`plain/<name>.c`, `test_SUITE.c`, `*.c`\n```\ngone.c\n```'
expect "large file" docs/a.bin 'only checkpoints/' "$(head -c $((3 << 20)) /dev/zero | tr '\0' x)"
expect "large checkpoint" checkpoints/a.bin '' "$(head -c $((3 << 20)) /dev/zero | tr '\0' x)"

[ $failed -eq 0 ] && echo "every rule can fail"
exit $failed
