# Debian packages: finds what is missing and installs it with apt; llhttp with pip. A thing counts as there when
# it works, wherever it came from.
# shellcheck shell=bash disable=SC2034,SC2154

missing=()

# want PACKAGE PROBE...: PACKAGE is missing when the command PROBE fails.
want() {
    local package=$1
    shift
    "$@" >/dev/null 2>&1 || missing+=("$package")
}

want_programs() {
    want gcc command -v gcc
    want libc6-dev test -e /usr/include/stdio.h
    want cmake command -v cmake
    want ninja-build command -v ninja
    want pkg-config command -v pkg-config
    want libjansson-dev pkg-config --exists jansson
    want libjpeg-dev pkg-config --exists libjpeg
    want libpng-dev pkg-config --exists libpng
    want libwebp-dev pkg-config --exists libwebp
    want libutf8proc-dev pkg-config --exists libutf8proc
    want libonig-dev pkg-config --exists oniguruma
    want libxxhash-dev pkg-config --exists libxxhash
    want libisal-dev pkg-config --exists libisal
    want libssl-dev pkg-config --exists libcrypto
    want libjose-dev pkg-config --exists jose
    want libavformat-dev pkg-config --exists libavformat
    want libavcodec-dev pkg-config --exists libavcodec
    want libavutil-dev pkg-config --exists libavutil
    want libswscale-dev pkg-config --exists libswscale
    want libtiff-dev pkg-config --exists libtiff-4
    want libseccomp-dev pkg-config --exists libseccomp
    want libuv1-dev pkg-config --exists libuv
    want libmicrohttpd-dev pkg-config --exists libmicrohttpd
    want libcurl4-openssl-dev pkg-config --exists libcurl
    want libgrpc-dev pkg-config --exists grpc
    want libprotobuf-c-dev pkg-config --exists libprotobuf-c
    want protobuf-compiler command -v protoc
    want protobuf-c-compiler command -v protoc-gen-c
    want_llhttp
}

# llhttp, which Debian 12 does not have: with pip, its sources come from the distribution that cmake/llhttp.txt pins.
lacks_llhttp=false
llhttp=build/deps/llhttp
want_llhttp() {
    if pkg-config --exists 'libllhttp >= 9.3' 2>/dev/null || cmp -s cmake/llhttp.txt $llhttp/pins.txt; then return; fi
    lacks_llhttp=true
    want python3 command -v python3
    want python3-venv python3 -c 'import ensurepip, venv'
}

get_llhttp() {
    local work=build/deps/work log=build/llhttp.log
    say "getting the sources of llhttp"
    rm -rf $work $llhttp
    mkdir -p $work $llhttp
    if ! { python3 -m venv $work/venv &&
        $work/venv/bin/python -m pip download --no-deps --no-binary :all: --require-hashes -r cmake/llhttp.txt -d $work &&
        tar -xzf $work/httptools-*.tar.gz -C $llhttp --strip-components 3 --wildcards '*/vendor/llhttp/*'; } >$log 2>&1; then
        tail -n 5 $log >&2
        die "cannot get the sources of llhttp with pip: is there a network, or an index of packages (PIP_INDEX_URL)? $log has the rest"
    fi
    rm -rf $work
    cp cmake/llhttp.txt $llhttp/pins.txt
    lacks_llhttp=false
}

want_build() {
    want_programs
    want libcriterion-dev pkg-config --exists criterion
}

# Packages that tests use beside the build: clients and checks in Python, for the system's own interpreter.
want_tests() {
    want_build
    want g++ command -v g++
    want python3 test -x /usr/bin/python3
    want python3-venv /usr/bin/python3 -c 'import ensurepip, venv'
    want python3-grpcio /usr/bin/python3 -c 'import grpc, google.protobuf'
    want python3-yaml /usr/bin/python3 -c 'import yaml'
    want openssl command -v openssl # certificates of tests/chaos
    want curl command -v curl       # downloads a checkpoint, as tests/deploy has it
    want chromium-driver command -v chromedriver # with chromium: the gateway's page
    want python3-prometheus-client /usr/bin/python3 -c 'import prometheus_client'
    want nodejs command -v node # draws the pages of results
    want redis-server command -v redis-server
    want_proxy
}

# The proxy for a router that untrusted clients can reach (SECURITY.md).
want_proxy() {
    want nghttp2-proxy test -x /usr/sbin/nghttpx
    want haproxy test -x /usr/sbin/haproxy # counts connections by address before it
}

# Versions of clang-format differ in what they write, so one of them decides.
want_format() { want clang-format-14 command -v clang-format-14; }

can_link_fuzzer() {
    mkdir -p build
    printf 'int LLVMFuzzerTestOneInput(const char *d, unsigned long n) { return d && n ? 0 : 0; }' |
        clang -fsanitize=fuzzer,address -x c -o build/fuzzer-probe - 2>/dev/null
}

want_fuzz() {
    want clang command -v clang
    install_missing # the runtime's package is named after clang's version
    want "libclang-rt-$(clang -dumpversion | cut -d. -f1)-dev" can_link_fuzzer
}

# Installs what is missing, and nothing when all is there.
install_missing() {
    [ ${#missing[@]} -eq 0 ] || install_packages
    if $lacks_llhttp; then get_llhttp; fi
}

install_packages() {
    local root=()
    command -v apt-get >/dev/null || die "missing: ${missing[*]} (Debian's names), and there is no apt-get here to install them"
    if [ "$(id -u)" -ne 0 ]; then
        command -v sudo >/dev/null || die "missing: ${missing[*]}; as root, run: apt-get install ${missing[*]}"
        root=(sudo)
        if [ "${CI:-}" = true ] || [ ! -t 0 ]; then root+=(-n); fi # no terminal for a password
    fi
    say "installing ${missing[*]}"
    mkdir -p build
    local log=build/apt.log apt=("${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0)
    if ! { "${apt[@]}" update && "${apt[@]}" install -y --no-install-recommends "${missing[@]}"; } >$log 2>&1; then
        tail -n 5 $log >&2
        die "cannot install ${missing[*]}; $log has the rest"
    fi
    missing=()
}

# The CUDA plugin loads its libraries when a worker starts: a base without them makes an image whose workers do not.
say_gpu_libraries() {
    local library
    [ -e "$1/bin/libfovea_cuda.so" ] || return 0
    for library in 'libcublas.so: workers on a GPU do not start without it, unless --isa exact is given' \
        'libnccl.so: keys and values go from GPU to GPU over gRPC without it'; do
        grep -q "${library%%:*}" <<<"$(ldconfig -p 2>/dev/null || true)" || say "packages run: there is no $library"
    done
}

packages_command() {
    local list package
    case ${1:-} in
    build) want_programs ;;
    run)
        list=${2:-}/share/fovea/packages.txt
        [ -e "$list" ] || die "packages run: $list is not there: ./dev install PREFIX makes it"
        while IFS= read -r package; do want "$package" dpkg-query --status "$package"; done <"$list"
        want ca-certificates test -e /etc/ssl/certs/ca-certificates.crt # for images at https URLs
        say_gpu_libraries "$2"
        case ${3:-} in
        '') ;;
        proxy) want_proxy ;;
        *) die "packages run PREFIX takes 'proxy' or nothing, not '$3'" ;;
        esac
        ;;
    *) die "packages: build, or run PREFIX [proxy]" ;;
    esac
    install_missing
}
