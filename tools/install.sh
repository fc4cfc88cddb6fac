# ./dev install and image: what is given to others.
# shellcheck shell=bash disable=SC2034,SC2154

# The packages that the programs in folder $1 need to run: whose shared libraries they load.
runtime_packages() {
    ldd "$1"/fovea* | sed -n 's/.* => \(\/[^ ]*\) .*/\1/p' | sort -u | while IFS= read -r file; do
        dpkg-query --search "$(realpath "$file")" 2>/dev/null || dpkg-query --search "$file"
    done | sed 's/:.*//' | sort -u
}

install_command() {
    local prefix=${1:-}
    [ -n "$prefix" ] || die "install: where to? ./dev install PREFIX"
    want_programs
    install_missing
    build release
    cmake --install build/release --prefix "$prefix" --strip >build/install.log || die "build/install.log says what is wrong"
    mkdir -p "$prefix/share/fovea"
    runtime_packages "$prefix/bin" >"$prefix/share/fovea/packages.txt"
    say "the programs are in $prefix/bin"
}

# The version of fovea, and the commit.
version() { sed -n 's/^project(fovea VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt; }
revision() { git describe --always --dirty 2>/dev/null || echo unknown; }

# The image by whatever builds images here: docker, podman or buildah.
image_command() {
    local name=${1:-fovea} engine variable build=()
    local arguments=(--build-arg "VERSION=$(version)" --build-arg "REVISION=$(revision)")
    for variable in BASE BASE_DIGEST BUILD_BASE; do
        if [ -n "${!variable:-}" ]; then arguments+=(--build-arg "$variable=${!variable}"); fi
    done
    for engine in docker podman buildah; do
        "$engine" info >/dev/null 2>&1 || continue
        case $engine in
        docker) build=(docker build) ;;
        podman) build=(podman build --ignorefile deploy/Dockerfile.dockerignore) ;;
        buildah) build=(buildah build --ignorefile deploy/Dockerfile.dockerignore) ;;
        esac
        "${build[@]}" --file deploy/Dockerfile "${arguments[@]}" --tag "$name" .
        return
    done
    die "image: none of docker, podman and buildah works here"
}
