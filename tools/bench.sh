# ./dev bench: the benchmarks, whose numbers go to bench/results.
# shellcheck shell=bash disable=SC2034,SC2154

bench_command() {
    want_build
    install_missing
    build cpu
    bench/run "$@"
}
