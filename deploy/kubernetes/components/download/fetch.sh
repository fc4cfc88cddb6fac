#!/bin/sh
# Downloads the files that a list of SHA-256 sums names, and checks them. A file that is there and right stays.
# usage: fetch.sh SHA256SUMS DIRECTORY; FOVEA_MODEL_URL is where they are
set -eu
list=$1
cd "$2"
is() { echo "$1  $2" | sha256sum -c >/dev/null 2>&1; }
while read -r sum name; do
    case $name in
    '' | */* | .*)
        echo "$name is no name of a file" >&2
        exit 1
        ;;
    esac
    if is "$sum" "$name"; then continue; fi
    curl --fail --location --silent --show-error --retry 5 --retry-connrefused --output "$name.part" "$FOVEA_MODEL_URL/$name"
    is "$sum" "$name.part" || {
        echo "$name: its SHA-256 is not $sum" >&2
        rm -f "$name.part"
        exit 1
    }
    mv "$name.part" "$name"
done <"$list"
