# The files that travel to a machine with a GPU.
# shellcheck shell=bash disable=SC2034

travel_most=$((60 << 20)) # bytes

# Prints the files that such a machine needs: all but those of tools/gpu_behind.txt.
travel_files() {
    local behind
    behind=$(grep -v '^#' tools/gpu_behind.txt | sed 's/[.]/\\./g; s/^/^/' | paste -sd'|')
    git ls-files -co --exclude-standard | grep -vE "$behind"
}
