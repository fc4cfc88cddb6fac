# ./dev debs: Debian packages of this tree.
# shellcheck shell=bash disable=SC2034,SC2154

# source_tree FOLDER COMMAND...: the files of the tar that COMMAND writes, and the sources of llhttp where the build uses those.
source_tree() {
    local to=$1
    mkdir -p "$to"
    "${@:2}" | tar -x -C "$to"
    if [ -e "$llhttp/pins.txt" ]; then
        mkdir -p "$to/build/deps"
        cp -r "$llhttp" "$to/build/deps/"
    fi
}

want_debs() {
    want dpkg-dev command -v dpkg-buildpackage
    want debhelper command -v dh
    want dh-apparmor command -v dh_apparmor
}

# build_debs TREE OUT: builds the packages in TREE, whose parent folder is for nothing else, and moves them to OUT.
build_debs() {
    local tree=$1 out=$2 log=$PWD/build/debs.log
    (cd "$tree" && dpkg-buildpackage -b --no-sign -j"$jobs") >"$log" 2>&1 || die "the .debs cannot be built; $log has the rest"
    mv "$(dirname "$tree")"/*.deb "$(dirname "$tree")"/*.buildinfo "$out"
    ! command -v lintian >/dev/null || lintian --fail-on error,warning "$out"/*.deb >>"$log" 2>&1 ||
        die "lintian refuses the .debs; $log has the rest"
}

files_of_tree() { git ls-files -z --cached --others --exclude-standard | tar --null --ignore-failed-read -T - -c 2>/dev/null; }

debs_command() {
    local work=$PWD/build/debs-work out=$PWD/build/debs
    [ $# -eq 0 ] || die "debs takes no argument; ./dev help says what there is"
    want_programs
    want_debs
    install_missing
    rm -rf "$work" "$out"
    mkdir -p "$work" "$out"
    source_tree "$work/fovea" files_of_tree
    build_debs "$work/fovea" "$out"
    rm -rf "$work"
    say "the packages are in build/debs"
}
