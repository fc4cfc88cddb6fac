#!/usr/bin/env bash
# Builds the programs of an older commit into build/versions/COMMIT/bin, once, and prints that folder. Exits with 77 where
# there is no history to build from, or no sources of llhttp.
#
# usage: old_version.sh ROOT COMMIT
set -euo pipefail

root=$(cd "$1" && pwd) commit=$2
folder=$root/build/versions/$commit
if [ ! -x "$folder/bin/fovea-router" ]; then
    git -C "$root" cat-file -e "$commit^{commit}" 2>/dev/null || {
        echo "skip: the history here does not reach back to $commit"
        exit 77
    }
    rm -rf "$folder"
    mkdir -p "$folder/source"
    git -C "$root" archive "$commit" | tar -x -C "$folder/source"
    # The older build looks for llhttp in its own tree.
    if [ -d "$root/build/deps" ]; then
        mkdir -p "$folder/source/build"
        cp -r "$root/build/deps" "$folder/source/build/"
    fi
    (cd "$folder/source" && cmake --preset release -B "$folder/build" -DFOVEA_CUDA=OFF && cmake --build "$folder/build" -j "$(nproc)" \
        --target fovea fovea-router fovea-prefill fovea-decode fovea-gateway fovea-video) >"$folder/log" 2>&1 || {
        tail -n 20 "$folder/log"
        exit 1
    }
    mv "$folder/build/bin" "$folder/bin"
    rm -rf "$folder/build" "$folder/source"
fi
echo "$folder/bin"
