#!/usr/bin/env bash
# The .debs in a Debian of its own, made by debootstrap: an older version is installed and answers, this version is
# installed over it with changed settings kept, and purging leaves nothing. lintian finds no error and no warning.
#
# The older version is this one with a lower number, as there is no release before. No systemd runs in the folder, so units
# are looked at and not started. Exits with 77 where debootstrap cannot run.
#
# usage: packages.sh ROOT DEBS [MIRROR]     DEBS is a folder with fovea, fovea-server and fovea-dev
set -euo pipefail

root=$(cd "$1" && pwd) debs=$(readlink -m "$2") mirror=${3:-http://deb.debian.org/debian}
skip() {
    echo "skip: $1"
    exit 77
}
failed=0
say() {
    echo "$1"
    failed=1
}
[ "$(id -u)" -eq 0 ] || skip "only root can make a Debian with debootstrap"
for tool in debootstrap lintian dpkg-deb; do command -v $tool >/dev/null || skip "no $tool here"; done
version=$(dpkg-parsechangelog -l "$root/debian/changelog" -S Version)
arch=$(dpkg --print-architecture)
packages=("fovea_${version}_$arch" "fovea-server_${version}_$arch" "fovea-dev_${version}_all")
for package in "${packages[@]}"; do [ -e "$debs/$package.deb" ] || skip "$debs has no $package.deb: ./dev debs makes it"; done

found=$(cd "$debs" && lintian --fail-on none "${packages[@]/%/.deb}" 2>&1 | grep -E '^[EW]:' || true)
[ -z "$found" ] || say "lintian: $found"

work=$(mktemp -d /var/tmp/fovea-packages.XXXXXX)
debian=$work/debian
finish() {
    umount -l "$debian/proc" 2>/dev/null || true
    rm -rf --one-file-system "$work"
}
trap finish EXIT
base=$root/build/debootstrap.tar # kept, so that the next run asks no mirror for it
if [ ! -e "$base" ]; then
    mkdir -p "$root/build"
    timeout 900 debootstrap --variant=minbase --include=ca-certificates bookworm "$work/base" "$mirror" >"$work/log" 2>&1 ||
        skip "debootstrap cannot make a Debian 12: $(tail -n 1 "$work/log")"
    tar -C "$work/base" -cf "$base.new" .
    mv "$base.new" "$base"
    rm -rf "$work/base"
fi
mkdir "$debian"
tar -C "$debian" -xf "$base"
mount -t proc proc "$debian/proc" 2>/dev/null || skip "no file system can be mounted here"
printf '#!/bin/sh\nexit 101\n' >"$debian/usr/sbin/policy-rc.d" # no daemon is started
chmod 755 "$debian/usr/sbin/policy-rc.d"
# The mirror's proxy and certificates are this machine's.
cp /etc/resolv.conf "$debian/etc/resolv.conf"
if [ -e /etc/ssl/certs/ca-certificates.crt ]; then cp /etc/ssl/certs/ca-certificates.crt "$debian/etc/ssl/certs/"; fi
in_debian() { env -u TMPDIR LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive chroot "$debian" "$@"; }
apt() { timeout 900 env LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive chroot "$debian" apt-get -qq -y -o Dpkg::Use-Pty=0 "$@" >"$work/log" 2>&1; }

# older PACKAGE: the same files under version 0.0.1.
mkdir "$debian/old" "$debian/new"
packages=("${packages[@]/%/.deb}")
older() {
    dpkg-deb -R "$debs/$1" "$work/older"
    sed -i -e 's/^Version: .*/Version: 0.0.1/' -e "s/(= ${version//./\\.})/(= 0.0.1)/g" "$work/older/DEBIAN/control"
    dpkg-deb --root-owner-group -Znone -b "$work/older" "$debian/old/$1" >/dev/null
    rm -r "$work/older"
}
for package in "${packages[@]}"; do
    older "$package"
    cp "$debs/$package" "$debian/new"
done
apt update || skip "the mirror does not answer: $(tail -n 1 "$work/log")"
apt install --no-install-recommends "${packages[@]/#//old/}" || {
    cat "$work/log"
    say "the packages cannot be installed"
    exit 1
}

# As the user of the package, a fleet answers about an image.
answers() {
    cp -r "$root/checkpoints/nano" "$debian/srv/nano"
    chmod -R a+rX "$debian/srv/nano"
    in_debian timeout 120 setpriv --reuid=fovea --regid=fovea --clear-groups fovea ask --checkpoint /srv/nano --image /srv/nano/picture.png \
        --max-tokens 3 "and now?" >"$work/answer" 2>"$work/errors" || say "$1: no answer: $(tail -n 3 "$work/errors")"
    in_debian timeout 120 bash -c 'setpriv --reuid=fovea --regid=fovea --clear-groups fovea up /srv/nano --listen 127.0.0.1:0 >/tmp/up 2>&1 & pid=$!
        for i in $(seq 600); do grep -q "^ready on" /tmp/up && break; sleep 0.1; done
        grep -q "^ready on" /tmp/up; ready=$?; kill $pid; wait $pid && exit $ready' || say "$1: fovea up: $(tail -n 3 "$debian/tmp/up")"
    rm -r "$debian/srv/nano"
}
answers "installed"
[ "$(in_debian stat -c '%U:%G %a' /etc/fovea)" = "root:fovea 750" ] || say "/etc/fovea: $(in_debian stat -c '%U:%G %a' /etc/fovea)"
[ "$(in_debian stat -c '%U %a' /etc/fovea/fleet-token)" = "root 600" ] || say "the fleet's secret can be read by others"
grep -q '^fovea:x:.*:/usr/sbin/nologin$' "$debian/etc/passwd" || say "the user fovea can log in, or is not there"
for unit in fovea fovea-router fovea-prefill fovea-decode fovea-gateway; do
    grep -q '^User=fovea$' "$debian/usr/lib/systemd/system/$unit.service" || say "$unit.service runs as another user"
    grep -q '/opt/' "$debian/usr/lib/systemd/system/$unit.service" && say "$unit.service names /opt"
    [ ! -e "$debian/etc/systemd/system/multi-user.target.wants/$unit.service" ] || say "$unit.service is enabled before it can run"
done
[ -e "$debian/usr/include/fovea/inference/v1/inference.proto" ] || say "fovea-dev has no inference.proto"
printf '#include "kernels/plugin.h"\n' | gcc -fsyntax-only -x c -I "$debian/usr/include/fovea/plugin" - || say "the headers of fovea-dev do not compile"
for page in fovea fovea-up fovea-router fovea-video; do [ -e "$debian/usr/share/man/man1/$page.1.gz" ] || say "no man page $page"; done

# Over it, this version: settings and the secret stay.
secret=$(cat "$debian/etc/fovea/fleet-token")
echo 'FOVEA_LOG=warn' >>"$debian/etc/fovea/router.env"
apt install --no-install-recommends "${packages[@]/#//new/}" || say "no upgrade: $(tail -n 5 "$work/log")"
for package in fovea fovea-server fovea-dev; do
    [ "$(in_debian dpkg-query -W -f '${Version} ${db:Status-Status}' $package)" = "$version installed" ] || say "$package is not upgraded"
done
[ "$secret" = "$(cat "$debian/etc/fovea/fleet-token")" ] || say "an upgrade changes the fleet's secret"
grep -q '^FOVEA_LOG=warn$' "$debian/etc/fovea/router.env" || say "an upgrade loses settings"
answers "upgraded"

# Removed, settings stay; purged, nothing does.
apt remove fovea-server || say "cannot be removed: $(tail -n 3 "$work/log")"
[ -e "$debian/etc/fovea/router.env" ] || say "removing takes settings away"
apt purge fovea fovea-server fovea-dev || say "cannot be purged: $(tail -n 3 "$work/log")"
left=$(cd "$debian" && find . -xdev -path ./old -prune -o -path ./new -prune -o -path ./var/log -prune -o -path ./var/cache -prune -o -name '*fovea*' -print)
[ -z "$left" ] || say "purged, and these are left: $left"
grep -q '^fovea:' "$debian/etc/passwd" && say "purged, and the user fovea is left"
exit $failed
