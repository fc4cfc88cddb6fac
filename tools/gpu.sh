# ./dev gpu: tests and measures the CUDA plugin. summary and tests_failed are those of tools/parts.sh.
# shellcheck shell=bash disable=SC2034,SC2154

# Prints the architecture to compile the plugin for.
gpu_architecture() {
    local capability
    capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -n 1 | tr -d .) || true
    case $capability in
    '' | 90) say 90a-real ;;
    *) say "$capability-real" ;;
    esac
}

# Makes the files that a machine without libraries needs; they are copied there in build/carry.
gpu_items() {
    build cpu
    mkdir -p build/carry
    build/cpu/tests/nano_items checkpoints/nano "${1:-200}" build/carry/nano.items
    git describe --always --dirty >build/carry/commit 2>/dev/null || rm -f build/carry/commit
    say "build/carry/nano.items: ${1:-200} questions for the GPU"
}

# gpu_part NAME SECONDS COMMAND...: like part(), but stops after SECONDS or when the script's time
# is over; skipped and late parts are reported and do not fail.
gpu_part() {
    local name=$1 limit=$2 begin=$SECONDS word=ok rc=0
    shift 2
    [ "$limit" -le $((gpu_seconds - SECONDS)) ] || limit=$((gpu_seconds - SECONDS))
    if [ "$limit" -lt 5 ]; then
        summary+=("$(printf '%-22s         late: no time was left' "$name")")
        return
    fi
    say "== $name"
    timeout --foreground -k 5 "$limit" "$@" 2>&1 | tee "$gpu_dir/part.txt" || rc=$?
    case $rc in
    0) ;;
    77) word="skip: $(sed -n 's/^skip: //p' "$gpu_dir/part.txt" | head -n 1)" ;;
    124 | 137) word="late: stopped after $limit s" ;;
    *)
        word=FAILED
        tests_failed=$((tests_failed + 1))
        ;;
    esac
    summary+=("$(printf '%-22s %4d s  %s' "$name" $((SECONDS - begin)) "$word")")
}

# Runs a test that must find the device; its questions are in build/carry.
gpu_test() {
    gpu_part "$1" "$2" env FOVEA_PLUGIN_DIR="$gpu_tested" FOVEA_ITEMS=build/carry/nano.items \
        FOVEA_ITEMS_CHECKPOINT=checkpoints/nano FOVEA_ITEMS_COUNT="$gpu_questions" "${@:3}"
}

gpu_tests() {
    local test
    for test in "$gpu_dir"/tests/ops_device*; do
        case $test in
        *_probe) ;;
        *_graph) ;; # for the emulated device
        *) gpu_test "$(basename "$test")" "$gpu_patience" "$test" ;;
        esac
    done
    for test in cuda cuda-exact; do
        gpu_test "ops_run $test" "$gpu_patience" "$gpu_dir/tests/ops_run" -b "$test" test
    done
}

# Checks the quick tests for out-of-bounds accesses and races.
gpu_sanitize() {
    local tool checker
    checker=$(command -v compute-sanitizer || say "$(dirname "${nvcc:-/}")/compute-sanitizer")
    if [ ! -x "$checker" ]; then
        summary+=("compute-sanitizer             skip: not installed")
        return
    fi
    for tool in memcheck racecheck; do
        gpu_test "$tool" 45 "$checker" --tool "$tool" --error-exitcode 9 \
            "$gpu_dir/tests/ops_run" -b cuda-exact -o norm test
    done
    gpu_test "memcheck, attention" 45 "$checker" --tool memcheck --error-exitcode 9 \
        "$gpu_dir/tests/ops_run" -b cuda -o attention test
}

# Prints folders of cuBLAS and NCCL outside the loader's path: the toolkit's beside nvcc, and those
# of NVIDIA's wheels, which come with PyTorch.
gpu_library_folders() {
    local toolkit
    toolkit=$(cd "$(dirname "$1")/.." && pwd)
    {
        ls -d "$toolkit"/lib64 "$toolkit"/targets/*/lib 2>/dev/null || true
        "$(gpu_python)" - <<'PYTHON' 2>/dev/null || true
import glob, os, site, sysconfig
places = set(site.getsitepackages() + [site.getusersitepackages(), sysconfig.get_paths()["purelib"]])
for place in sorted(places):
    for pattern in ("libcublas.so*", "libnccl.so*"):
        for found in glob.glob(os.path.join(place, "nvidia", "*", "lib", pattern)):
            print(os.path.dirname(found))
PYTHON
    } | sort -u | paste -sd:
}
gpu_python() {
    if [ -x .venv/bin/python ]; then say .venv/bin/python; else say python3; fi
}

# Prints our table, then PyTorch's on the same GPU.
gpu_measure() {
    local card commit
    card=$(nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.mem,clocks.max.sm --format=csv,noheader 2>/dev/null) || true
    commit=$(git describe --always --dirty 2>/dev/null || cat build/carry/commit 2>/dev/null || say unknown)
    say "# gpu, commit $commit, $(date -u +%Y-%m-%d)"
    say "# ${card:-a card that nvidia-smi does not name}; nvcc $("${nvcc:-false}" --version 2>/dev/null | sed -n 's/.*, V//p')"
    gpu_part "bench_gpu" $((3 * gpu_patience)) "$gpu_dir/bin/bench_gpu" "$gpu_plugin" "$gpu_rounds" "$gpu_dir/numbers.txt"
    card=$(nvidia-smi --query-gpu=clocks.sm,clocks.mem,temperature.gpu,power.draw --format=csv,noheader 2>/dev/null) || true
    say "# after it: ${card:-nothing is known of the card}"
    gpu_part "time by kernel" $((2 * gpu_patience)) "$gpu_dir/bin/bench_gpu" "$gpu_plugin" 1 "$gpu_dir/traced.txt" "$gpu_dir/trace.txt" >/dev/null
    if [ -s "$gpu_dir/trace.txt" ]; then
        say "# time by kernel of one round, without graphs"
        cat "$gpu_dir/trace.txt"
    fi
    gpu_part "compare_torch" $((5 * gpu_patience / 2)) "$(gpu_python)" bench/gpu/compare_torch.py "$gpu_dir/numbers.txt" "${gpu_small[@]}"
}

# Runs every line of this script on a machine without a GPU, at small sizes, on the plugin emulated
# on the CPU.
gpu_dry() {
    gpu_dir=build/dry gpu_plugin=build/dry/emulated gpu_rounds=1 gpu_questions=1 gpu_small=(--small)
    gpu_tested='' # tests find the emulated plugin themselves
    gpu_seconds=7200 gpu_patience=1200
    mkdir -p build
    cmake --preset gpu -B build/dry -DFOVEA_CUDA=OFF >build/configure-dry.log || die "build/dry cannot be configured"
    cmake --build build/dry -j "$jobs" || die "build/dry does not build"
}

gpu_real() {
    nvcc=$(command -v nvcc || true)
    nvcc=${nvcc:-/usr/local/cuda/bin/nvcc}
    [ -x "$nvcc" ] || die "gpu: there is no nvcc on the PATH or in /usr/local/cuda/bin"
    want gcc command -v gcc
    want g++ command -v g++
    want cmake command -v cmake
    want ninja-build command -v ninja
    install_missing
    export CUDACXX=$nvcc
    LD_LIBRARY_PATH=$(gpu_library_folders "$nvcc")${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    export LD_LIBRARY_PATH FOVEA_TEST_LONG=1 # all random cases
    configure gpu "-DFOVEA_CUDA_ARCHS=${FOVEA_CUDA_ARCHS:-$(gpu_architecture)}" ||
        die "preset gpu cannot be configured"
    compile gpu || die "preset gpu does not build"
}

gpu_command() {
    local nvcc='' found='' rc=0 table gpu_seconds=570 gpu_patience=60
    gpu_dir=build/gpu gpu_plugin=build/gpu/bin gpu_tested=build/gpu/bin gpu_rounds=${1:-9} gpu_questions=200 gpu_small=()
    table=bench/results/gpu.txt
    case ${1:-} in
    items)
        gpu_items "${2:-}"
        return
        ;;
    dry)
        gpu_dry
        table=build/dry/table.txt
        ;;
    *) gpu_real ;;
    esac
    found=$(FOVEA_PLUGIN_DIR=$gpu_plugin "$gpu_dir/tests/ops_device_probe") || rc=$?
    [ $rc -ne 77 ] || die "gpu: the plugin is built and loads; ${found#skip: }"
    [ $rc -eq 0 ] || die "gpu: $found"
    say "$found"
    gpu_tests
    say "== measuring: $table"
    gpu_measure >"$table"
    gpu_sanitize
    cat "$table"
    {
        say ""
        printf '%s\n' "${summary[@]}"
    } | tee -a "$table"
    [ "$tests_failed" -eq 0 ]
}
