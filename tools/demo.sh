# ./dev demo: a fleet on this machine, which answers a question over gRPC and over HTTP.
# shellcheck shell=bash disable=SC2034,SC2154

# Milliseconds of the clock, and since.
now() { say $((${EPOCHREALTIME/[.,]/} / 1000)); }
since() { printf '%d.%01d' $((($(now) - $1) / 1000)) $((($(now) - $1) % 1000 / 100)); }

fleet=0 # pid of the demo's fleet while it runs

# Ends the demo's fleet as Ctrl-C does, and waits for it.
end_fleet() {
    local pid=$fleet
    [ "$pid" -ne 0 ] || return 0
    fleet=0
    kill -INT "$pid" 2>/dev/null || true
    wait "$pid"
}

demo_command() {
    want_build
    install_missing
    local begin built started asked ended
    begin=$(now)
    build cpu fovea fovea-router fovea-prefill fovea-decode fovea-gateway fovea-video # what runs here, and not the tests
    built=$(since "$begin")
    local fovea=build/cpu/bin/fovea model=checkpoints/nano picture=checkpoints/nano/picture.png log=build/demo/fleet
    local question="Name the color of the square." address=''
    mkdir -p build/demo

    say "== fovea up --checkpoint $model"
    trap 'end_fleet || true' EXIT
    trap 'exit 130' INT TERM HUP
    begin=$(now)
    # A child of a script ignores SIGINT unless job control gives it a group of its own.
    set -m
    $fovea up --checkpoint $model --listen 127.0.0.1:0 --http 127.0.0.1:0 >$log.out 2>$log.err </dev/null &
    fleet=$!
    set +m
    while [ -z "$address" ]; do
        kill -0 $fleet 2>/dev/null || die "the fleet did not start: $(cat $log.err)"
        sleep 0.1
        address=$(sed -n 's/^ready on \([^ ]*\):.*/\1/p' $log.out)
    done
    say "$(cat $log.out)"
    started=$(since "$begin")

    say "== fovea ask --to $address --image $picture \"$question\" --max-tokens 16"
    begin=$(now)
    $fovea ask --to "$address" --image $picture "$question" --max-tokens 16 || die "no answer; the fleet said: $(cat $log.err)"
    asked=$(since "$begin")

    if command -v curl >/dev/null; then
        local http body
        http=$(sed -n 's|^\(http:[^ ]*/v1\) .*|\1|p' $log.out)
        body='{"messages": [{"role": "user", "content": "How many triangles are there?"}], "temperature": 0}'
        say "== curl $http/chat/completions -d '$body'"
        curl --silent --show-error --fail --max-time 60 "$http/chat/completions" -d "$body" || die "no answer over HTTP; the fleet said: $(cat $log.err)"
        say ""
    fi

    begin=$(now)
    end_fleet || die "the fleet did not end well: $(cat $log.err)"
    ended=$(since "$begin")
    say ""
    say "$fovea up --checkpoint $model --http 127.0.0.1:8080 goes on; the page is http://127.0.0.1:8080/"
    say "seconds  build $built, start of the fleet $started, question $asked, end of the fleet $ended"
}
