#!/usr/bin/env bash
# Starts a cluster of one node from what build.sh built, in a network namespace of its own, and ends it: etcd, containerd and runc are
# Debian's, DNS is dns.py. Nothing of it is safe for more than a test: tokens are fixed, and nothing enforces NetworkPolicies.
#
# usage: up.sh FOLDER [down]      FOLDER is that of build.sh; needs root, and the packages etcd-server, containerd, runc,
#                                 containernetworking-plugins, iptables, conntrack and iproute2
set -euo pipefail

folder=$(cd "$1" && pwd)
here=$(cd "$(dirname "$0")" && pwd)
run=$folder/run
name=fovea-cluster
address=10.99.0.1 gateway_of_pods=10.244.7.1
server=https://$address:6443
inside() { nsenter --net=/var/run/netns/$name "$@"; }
# start NAME COMMAND...: a daemon in the namespace, whose process is in NAME.pid.
start() {
    local what=$1
    shift
    setsid nohup nsenter --net=/var/run/netns/$name "$@" >"$run/$what.log" 2>&1 &
    echo $! >"$run/$what.pid"
}
if [ "${2:-}" = down ]; then
    for what in kubelet proxy dns scheduler controllers apiserver etcd; do
        [ ! -e "$run/$what.pid" ] || kill "$(cat "$run/$what.pid")" 2>/dev/null || true
    done
    tasks() { inside ctr -a "$run/containerd.sock" -n k8s.io tasks "$@"; }
    for task in $(tasks ls -q 2>/dev/null || true); do tasks kill -s KILL "$task" || true; done
    sleep 1
    for shim in $(pgrep -f "containerd-shim.*$run/containerd.sock" || true); do kill "$shim" || true; done
    [ ! -e "$run/containerd.pid" ] || kill "$(cat "$run/containerd.pid")" 2>/dev/null || true
    sleep 2
    ! pid=$(cat "$run/apiserver.pid" 2>/dev/null) || kill -9 "$pid" 2>/dev/null || true # it would wait for a minute
    find /run/netns -name 'cni-*' -newer "$run/tokens" -printf '%f\n' | xargs -r -n1 ip netns del
    mount | awk -v run="$run/" 'index($3, run) == 1 { print $3 }' | sort -r | xargs -r umount -l
    ip netns del $name 2>/dev/null || true
    rm -rf --one-file-system "$run"
    exit
fi

mkdir -p "$run/cni"
cd "$run"
ip netns add $name
inside ip link set lo up
# A bridge holds the node's address, and a pair of interfaces keeps it up.
inside ip link add node type bridge
inside ip link add node0 type veth peer name node1
inside ip addr add $address/24 dev node
inside ip link set node0 master node
for link in node node0 node1; do inside ip link set $link up; done
inside ip route add default via $address
inside sysctl -qw net.ipv4.ip_forward=1

openssl genrsa -out service-accounts.key 2048 2>/dev/null
printf 'admin,admin,admin,"system:masters"\nnode,system:node:node1,node1,"system:nodes"\n' >tokens
for user in admin node; do
    cat >$user.kubeconfig <<TEXT
apiVersion: v1
kind: Config
clusters: [{name: here, cluster: {server: "$server", insecure-skip-tls-verify: true}}]
users: [{name: $user, user: {token: $user}}]
contexts: [{name: here, context: {cluster: here, user: $user}}]
current-context: here
TEXT
done
start etcd etcd --data-dir "$run/etcd" --listen-client-urls http://127.0.0.1:2379 --advertise-client-urls http://127.0.0.1:2379
sleep 2
start apiserver "$folder/bin/kube-apiserver" --etcd-servers=http://127.0.0.1:2379 --cert-dir="$run/certificates" --bind-address=$address \
    --advertise-address=$address --service-account-issuer=https://kubernetes.default.svc --service-account-key-file=service-accounts.key \
    --service-account-signing-key-file=service-accounts.key --token-auth-file=tokens --authorization-mode=Node,RBAC \
    --service-cluster-ip-range=10.96.0.0/16 --kubelet-preferred-address-types=InternalIP
for _ in $(seq 120); do
    ! inside curl -skf -H 'Authorization: Bearer admin' $server/readyz >/dev/null || break
    sleep 1
done
start controllers "$folder/bin/kube-controller-manager" --kubeconfig=admin.kubeconfig --leader-elect=false \
    --service-account-private-key-file=service-accounts.key --use-service-account-credentials
start scheduler "$folder/bin/kube-scheduler" --kubeconfig=admin.kubeconfig --leader-elect=false

cat >containerd.toml <<TEXT
version = 2
root = "$run/containerd"
state = "$run/containerd-state"
[grpc]
  address = "$run/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "local/pause:1"
  restrict_oom_score_adj = true
  disable_apparmor = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "$run/cni"
TEXT
cat >cni/pods.conflist <<TEXT
{"cniVersion": "0.4.0", "name": "pods", "plugins": [{"type": "bridge", "bridge": "pods", "isGateway": true, "hairpinMode": true,
  "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.244.7.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}}]}
TEXT
# Where cgroups are those of version 1, a kubelet of 1.35 or later must be told to take them.
cat >kubelet.yaml <<TEXT
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
failCgroupV1: false
failSwapOn: false
cgroupDriver: cgroupfs
cgroupsPerQOS: false
enforceNodeAllocatable: []
containerRuntimeEndpoint: unix://$run/containerd.sock
clusterDNS: [$gateway_of_pods]
clusterDomain: cluster.local
oomScoreAdj: 0
evictionHard: {memory.available: 100Mi, nodefs.available: 1%, imagefs.available: 1%}
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
localStorageCapacityIsolation: false
TEXT
cat >proxy.yaml <<TEXT
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: iptables
clientConnection: {kubeconfig: $run/admin.kubeconfig}
clusterCIDR: 10.244.7.0/24
hostnameOverride: node1
conntrack: {maxPerCore: 0, min: 0}
TEXT
start containerd containerd -c containerd.toml
sleep 3
mkdir -p pause
printf '#include <unistd.h>\nint main(void) { for (;;) pause(); }\n' | gcc -static -x c -o pause/pause -
"$here/image.py" pause local/pause:1 pause.tar /pause
inside ctr -a "$run/containerd.sock" -n k8s.io images import pause.tar
start kubelet "$folder/bin/kubelet" --config=kubelet.yaml --kubeconfig=node.kubeconfig --hostname-override=node1 --root-dir="$run/kubelet" \
    --cert-dir="$run/kubelet-certificates" --node-ip=$address
start proxy "$folder/bin/kube-proxy" --config=proxy.yaml
start dns python3 "$here/dns.py" $server admin
echo "nsenter --net=/var/run/netns/$name $folder/bin/kubectl --kubeconfig=$run/admin.kubeconfig get nodes"
