# Configures and builds a preset.
# shellcheck shell=bash disable=SC2034,SC2154

jobs=$(nproc 2>/dev/null || echo 2)

# configure PRESET [CMAKE ARGUMENT...]
configure() {
    local log=build/configure-$1.log
    mkdir -p build
    cmake --preset "$@" >"$log" 2>&1 || {
        cat "$log" >&2
        return 1
    }
}

# compile PRESET [TARGET...]: on a terminal with progress, elsewhere warnings and errors only.
compile() {
    local preset=$1 quiet=()
    shift
    if [ ! -t 1 ] || [ "${CI:-}" = true ]; then quiet=(-- --quiet); fi
    cmake --build --preset "$preset" -j "$jobs" ${1:+--target "$@"} "${quiet[@]}"
}

# build PRESET [TARGET...]: for commands that need the programs, and perhaps no more.
build() {
    configure "$1" || die "preset $1 cannot be configured"
    compile "$@" || die "preset $1 does not build"
}

build_command() {
    local preset=${1:-cpu}
    grep -q "\"name\": \"$preset\", \"configurePreset\"" CMakePresets.json || {
        say "dev: there is no preset $preset" >&2
        help >&2
        exit 2
    }
    want_build
    [ "$preset" = fuzz ] && want_fuzz
    install_missing
    build "$preset"
    say "programs are in build/$preset/bin"
}
