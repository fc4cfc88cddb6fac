# ./dev sbom: SPDX 2.3 of what programs are made of and run on.
# shellcheck shell=bash disable=SC2034,SC2154

# add_package ID RELATION JSON: a package, and how fovea relates to it.
add_package() {
    described+=("{\"SPDXID\": \"$1\", \"downloadLocation\": \"NOASSERTION\", \"filesAnalyzed\": false, $3}")
    related+=("{\"spdxElementId\": \"SPDXRef-fovea\", \"relationshipType\": \"$2\", \"relatedSpdxElement\": \"$1\"}")
}

# debian_packages [BIN]: NAME, VERSION and ARCH of all installed packages, or of those that the programs in BIN load.
debian_packages() {
    local form='${Package}\t${Version}\t${Architecture}\n' names=()
    if [ -z "${1:-}" ]; then
        dpkg-query --show --showformat="$form"
    else
        mapfile -t names < <(runtime_packages "$1")
        [ ${#names[@]} -gt 0 ] || die "sbom: $1 has no programs that load a library of a Debian package"
        dpkg-query --show --showformat="$form" "${names[@]}" | sort -u
    fi
}

# The time and the name of a document follow from SOURCE_DATE_EPOCH and the commit where the former is set, so that it can be made again.
sbom_command() {
    local file=${1:-} package version arch n=0 related=() described=() id created
    [ -n "$file" ] || die "sbom: where to? ./dev sbom FILE [BIN]"
    related+=('{"spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES", "relatedSpdxElement": "SPDXRef-fovea"}')
    described+=("{\"SPDXID\": \"SPDXRef-fovea\", \"name\": \"fovea\", \"versionInfo\": \"$(version)\", \"sourceInfo\": \"commit $(revision)\", \"downloadLocation\": \"NOASSERTION\", \"filesAnalyzed\": false, \"licenseDeclared\": \"Apache-2.0\"}")
    while IFS=$'\t' read -r package version arch; do
        n=$((n + 1))
        add_package "SPDXRef-deb-$n" DEPENDS_ON "\"name\": \"$package\", \"versionInfo\": \"$version\", \"supplier\": \"Organization: Debian\", \"externalRefs\": [{\"referenceCategory\": \"PACKAGE-MANAGER\", \"referenceType\": \"purl\", \"referenceLocator\": \"pkg:deb/debian/$package@$(sed 's/+/%2B/g; s/:/%3A/g; s/~/%7E/g' <<<"$version")?arch=$arch\"}]"
    done < <(debian_packages "${2:-}")
    if [ -e "$llhttp/pins.txt" ]; then
        package=$(sed -n 's/^\(httptools\)==\([^ ]*\) .*/\1@\2/p' "$llhttp/pins.txt")
        version=$(sed -n 's/^#define LLHTTP_VERSION_M[A-Z]* //p; s/^#define LLHTTP_VERSION_PATCH //p' "$llhttp/include/llhttp.h" | paste -sd.)
        add_package SPDXRef-llhttp CONTAINS "\"name\": \"llhttp\", \"versionInfo\": \"$version\", \"licenseDeclared\": \"MIT\", \"externalRefs\": [{\"referenceCategory\": \"PACKAGE-MANAGER\", \"referenceType\": \"purl\", \"referenceLocator\": \"pkg:pypi/$package\"}]"
    fi
    id=$(cat /proc/sys/kernel/random/uuid)
    [ -z "${SOURCE_DATE_EPOCH:-}" ] || id=$(revision)
    created=$(date --utc ${SOURCE_DATE_EPOCH:+--date="@$SOURCE_DATE_EPOCH"} +%FT%TZ)
    {
        printf '{"spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT", "name": "fovea-%s",\n' "$(version)"
        printf ' "documentNamespace": "https://spdx.org/spdxdocs/fovea-%s-%s",\n' "$(version)" "$id"
        printf ' "creationInfo": {"created": "%s", "creators": ["Tool: fovea-dev-sbom"]},\n' "$created"
        printf ' "packages": [\n  %s' "${described[0]}"
        printf ',\n  %s' "${described[@]:1}"
        printf '],\n "relationships": [\n  %s' "${related[0]}"
        printf ',\n  %s' "${related[@]:1}"
        printf ']}\n'
    } >"$file"
    say "$file lists $n packages"
}
