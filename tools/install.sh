# ./dev install, image and sbom: what is given to others.
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

# SPDX 2.3: what the programs of an image are made of and run on.
sbom_command() {
    local file=${1:-} package version arch id n=0 related=() described=()
    [ -n "$file" ] || die "sbom: where to? ./dev sbom FILE"
    described+=("{\"SPDXID\": \"SPDXRef-fovea\", \"name\": \"fovea\", \"versionInfo\": \"$(version)\", \"downloadLocation\": \"NOASSERTION\", \"filesAnalyzed\": false, \"licenseDeclared\": \"Apache-2.0\"}")
    related+=('{"spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES", "relatedSpdxElement": "SPDXRef-fovea"}')
    while IFS=$'\t' read -r package version arch; do
        n=$((n + 1)) id=SPDXRef-deb-$n
        described+=("{\"SPDXID\": \"$id\", \"name\": \"$package\", \"versionInfo\": \"$version\", \"supplier\": \"Organization: Debian\", \"downloadLocation\": \"NOASSERTION\", \"filesAnalyzed\": false, \"externalRefs\": [{\"referenceCategory\": \"PACKAGE-MANAGER\", \"referenceType\": \"purl\", \"referenceLocator\": \"pkg:deb/debian/$package@$(sed 's/+/%2B/g; s/:/%3A/g; s/~/%7E/g' <<<"$version")?arch=$arch\"}]}")
        related+=("{\"spdxElementId\": \"SPDXRef-fovea\", \"relationshipType\": \"DEPENDS_ON\", \"relatedSpdxElement\": \"$id\"}")
    done < <(dpkg-query --show --showformat='${Package}\t${Version}\t${Architecture}\n')
    if [ -e "$llhttp/pins.txt" ]; then
        package=$(sed -n 's/^\(httptools\)==\([^ ]*\) .*/\1@\2/p' "$llhttp/pins.txt")
        version=$(sed -n 's/^#define LLHTTP_VERSION_M[A-Z]* //p; s/^#define LLHTTP_VERSION_PATCH //p' "$llhttp/include/llhttp.h" | paste -sd.)
        described+=("{\"SPDXID\": \"SPDXRef-llhttp\", \"name\": \"llhttp\", \"versionInfo\": \"$version\", \"downloadLocation\": \"NOASSERTION\", \"filesAnalyzed\": false, \"licenseDeclared\": \"MIT\", \"externalRefs\": [{\"referenceCategory\": \"PACKAGE-MANAGER\", \"referenceType\": \"purl\", \"referenceLocator\": \"pkg:pypi/$package\"}]}")
        related+=('{"spdxElementId": "SPDXRef-fovea", "relationshipType": "CONTAINS", "relatedSpdxElement": "SPDXRef-llhttp"}')
    fi
    {
        printf '{"spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT", "name": "fovea-%s",\n' "$(version)"
        printf ' "documentNamespace": "https://spdx.org/spdxdocs/fovea-%s-%s",\n' "$(version)" "$(cat /proc/sys/kernel/random/uuid)"
        printf ' "creationInfo": {"created": "%s", "creators": ["Tool: fovea-dev-sbom"]},\n' "$(date --utc +%FT%TZ)"
        printf ' "packages": [\n  %s' "${described[0]}"
        printf ',\n  %s' "${described[@]:1}"
        printf '],\n "relationships": [\n  %s' "${related[0]}"
        printf ',\n  %s' "${related[@]:1}"
        printf ']}\n'
    } >"$file"
    say "$file lists $n packages"
}

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
