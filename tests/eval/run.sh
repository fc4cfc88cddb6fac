#!/bin/sh
# usage: run.sh INTERPRETER SCRIPT [ARGUMENT...]     skips where there is no such interpreter
command -v "$1" >/dev/null || {
    echo "skip: there is no $1"
    exit 77
}
exec "$@"
