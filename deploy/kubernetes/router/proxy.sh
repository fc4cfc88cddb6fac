#!/bin/bash
# Runs what stands before a router: haproxy, which clients reach, and nghttpx behind it. It ends both together with the router,
# and has nghttpx read its certificates again when they change.
# usage: proxy.sh HAPROXY_CONFIGURATION NGHTTPX OPTION...     FOVEA_LINGER_MS is the router's
#
# nghttpx alone keeps its clients' connections when the router behind it goes, ignores SIGTERM where it is process 1 of its
# container, and reads certificates only at its start and on SIGHUP; haproxy ends at once on SIGTERM, and its connections with it. So this
# script is process 1: a kubelet's SIGTERM comes here, and each of the two gets its own signal at the right moment.
set -u

# On SIGQUIT nghttpx tells clients to go elsewhere, takes their calls for 2 s more, then refuses them. The rest is for a router that
# got its SIGTERM sooner.
notice_s=5
flush_s=10 # for clients that are slow to read the end of an answer
look_s=5

configuration=$1
shift
key='' certificates=() port=''
for option; do
    case $option in
    --backend=127.0.0.1,*)
        port=${option#*,}
        port=${port%%;*}
        ;;
    --cacert=*) certificates+=("${option#*=}") ;;
    /*.crt) certificates=("$option" "${certificates[@]}") ;; # its own comes first
    /*.key) key=$option ;;
    esac
done
if [ -z "$port" ] || [ "${FOVEA_LINGER_MS:-0}" -lt $((notice_s * 1000)) ]; then
    echo "proxy.sh: --backend=127.0.0.1,PORT is needed, and FOVEA_LINGER_MS of at least ${notice_s}000" >&2
    exit 2
fi
# In /proc/net/tcp, or in tcp6 as ::ffff:127.0.0.1: it has a connection (01), or listens (0A).
router="0100007F:$(printf %04X "$port") (01|0+:0000 0A) "

# The router takes calls for FOVEA_LINGER_MS after its own SIGTERM, which comes at the same time. Shortly before that is over,
# no new client is sent here any more, and those that are here are told to go. Both end when all of them are gone. A
# client that stays without a call is not waited for longer than the router needs for its answers.
drain() {
    sleep $((FOVEA_LINGER_MS / 1000 - notice_s))
    kill -USR1 "$haproxy" # listens no more
    kill -QUIT "$nghttpx"
    while grep -Eqs "$router" /proc/net/tcp /proc/net/tcp6; do sleep 1; done
    sleep "$flush_s"
    kill "$nghttpx" "$haproxy"
}

content() { cat "$key" "${certificates[@]}" 2>&1 | cksum; }

# nghttpx ends when it is told to read what it cannot use.
fits() {
    local path public
    for path in "${certificates[@]}"; do openssl crl2pkcs7 -nocrl -certfile "$path" -out /dev/null || return 1; done
    public=$(openssl pkey -in "$key" -passin pass: -pubout) && [ "$public" = "$(openssl x509 -in "${certificates[0]}" -noout -pubkey)" ]
}

# A change counts when two looks see the same, because certificate and key may be replaced one after the other.
watch() {
    local before=$served now
    while sleep "$look_s"; do
        now=$(content)
        if [ "$now" != "$served" ] && [ "$now" = "$before" ]; then
            served=$now
            if fits; then
                kill -HUP "$nghttpx"
            else
                echo "proxy.sh: ${certificates[*]} do not fit $key: the certificate that was read before stays in use" >&2
            fi
        fi
        before=$now
    done
}

drainer='' watcher='' served=''
[ -z "$key" ] || served=$(content) # before nghttpx reads them, so that no change is missed
"$@" &
nghttpx=$!
/usr/sbin/haproxy -db -f "$configuration" &
haproxy=$!
trap 'if [ -z "$drainer" ]; then drain & drainer=$!; fi' TERM INT
if [ -n "$key" ]; then
    watch &
    watcher=$!
fi

running() { kill -0 "$1" 2>/dev/null; }

# Without either nothing is served, so the container is to be started again. When they are to end, each has its own time.
serving() {
    if [ -n "$drainer" ]; then
        running "$nghttpx" || running "$haproxy"
    else
        running "$nghttpx" && running "$haproxy"
    fi
}

while serving; do
    left=()
    for pid in $nghttpx $haproxy; do ! running "$pid" || left+=("$pid"); done
    wait -n "${left[@]}" # a trap interrupts it
done
for pid in $watcher $drainer $haproxy $nghttpx; do kill "$pid" 2>/dev/null; done
[ -n "$drainer" ] # to end was right
