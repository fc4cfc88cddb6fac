# ./dev gpu: a first run on a GPU, the run after it, and both in miniature on the emulated plugin (tools/light.sh has
# what makes a cell of them).
# shellcheck shell=bash disable=SC2034,SC2154

gpu_folder=build/gpu # build, results and questions

# Prints the architecture to compile the plugin for.
gpu_architecture() {
    local capability
    capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -n 1 | tr -d .) || true
    case $capability in
    '' | 90) say 90a-real ;;
    *) say "$capability-real" ;;
    esac
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

# ---- what travels -------------------------------------------------------------------------

# gpu_pack [QUESTIONS [FOLDER]]: copies them to FOLDER, with questions and their answers.
gpu_pack() {
    local to=${2:-build/travel} bytes
    build cpu
    rm -rf "$to"
    mkdir -p "$to/carry"
    travel_files | tar -cf - -T - | tar -xf - -C "$to"
    build/cpu/tests/nano_items checkpoints/nano "${1:-100}" "$to/carry/nano.items"
    git describe --always --dirty >"$to/carry/commit" 2>/dev/null || rm -f "$to/carry/commit"
    bytes=$(du -sb --apparent-size "$to" | cut -f1)
    say "$to: $((bytes >> 20)) MiB of at most 60; behind stay: $(grep -v '^#' tools/gpu_behind.txt | paste -sd' ')"
    [ "$bytes" -le "$travel_most" ] || die "gpu pack: that is more than 60 MiB: ask fewer questions, or name more in tools/gpu_behind.txt"
}

# ---- builds -------------------------------------------------------------------------------

# Builds for a machine without a GPU: the plugin is emulated, sizes are small.
gpu_build_dry() {
    gpu_folder=build/dry gpu_plugin=build/dry/emulated gpu_tested='' gpu_small=(--small)
    mkdir -p build
    cmake --preset gpu -B build/dry -DFOVEA_CUDA=OFF >build/configure-dry.log || die "build/dry cannot be configured"
    cmake --build build/dry -j "$jobs" || die "build/dry does not build"
}

gpu_build() {
    gpu_plugin=$gpu_folder/bin gpu_tested=$gpu_folder/bin gpu_small=()
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
    export LD_LIBRARY_PATH
    configure gpu "-DFOVEA_CUDA_ARCHS=${FOVEA_CUDA_ARCHS:-$(gpu_architecture)}" ||
        die "preset gpu cannot be configured"
    compile gpu || die "preset gpu does not build"
}

# ---- steps --------------------------------------------------------------------------------

gpu_card() {
    nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.sm,clocks.mem,clocks.max.sm,temperature.gpu,power.draw \
        --format=csv,noheader 2>/dev/null || say "a card that nvidia-smi does not name"
}

# Says what ran where.
gpu_head() {
    say "commit $(git describe --always --dirty 2>/dev/null || cat carry/commit 2>/dev/null || say unknown), $(date -u '+%Y-%m-%d %H:%M') UTC"
    say "$(gpu_card); nvcc $("${nvcc:-false}" --version 2>/dev/null | sed -n 's/.*, V//p')"
}

# gpu_probe: ends the run where the plugin does not even compute a norm.
gpu_probe() {
    local rc=0
    light_run 60 "$light_work/probe.log" env "${light_env[@]}" "$gpu_folder/tests/ops_device_probe" || rc=$?
    light_note summary.txt <"$light_work/probe.log"
    [ $rc -ne 77 ] || die "gpu: the plugin is built and loads; $(sed -n 's/^skip: //p' "$light_work/probe.log")"
    [ $rc -eq 0 ] || die "gpu: $(light_word $rc "$light_work/probe.log") $(head -n 3 "$light_work/probe.log")"
}

gpu_questions() {
    local items=carry/nano.items
    if [ ! -f $items ]; then
        say "no questions: ./dev gpu pack makes them where fovea is built" | light_note summary.txt
        return
    fi
    light_env+=(FOVEA_ITEMS="$items" FOVEA_ITEMS_CHECKPOINT=checkpoints/nano "FOVEA_ITEMS_COUNT=$gpu_count")
}

# The programs that test more than one operation: factors, graphs, numbers, steps, a pair over NCCL, checkpoints/nano.
gpu_programs() {
    local test
    for test in "$gpu_folder"/tests/ops_device_*; do
        case $test in
        *_probe | *_loader | *_graph | *_tiers) ;; # the last three are for the emulated device
        *) light_step "$(basename "$test")" "$1" programs.txt "$test" ;;
        esac
    done
}

# Looks for illegal accesses and races: in the cells that were lost first.
gpu_sanitize() {
    local checker tool operation tier backend
    checker=$(command -v compute-sanitizer || say "$(dirname "${nvcc:-/}")/compute-sanitizer")
    if [ ! -x "$checker" ]; then
        say "compute-sanitizer is not installed" | light_note summary.txt
        return
    fi
    {
        light_lost | head -n 4 | sed 's/^/memcheck /'
        printf '%s\n' 'memcheck attention auto' 'racecheck attention auto' 'racecheck attn_lowrank auto' 'memcheck attn_lowrank auto'
    } | awk '!seen[$0]++' >"$light_work/checks"
    while read -r tool operation tier; do
        backend=cuda-$tier
        [ "$tier" != auto ] || backend=cuda
        light_step "$tool, $operation $tier" "$1" sanitizer.txt "$checker" --tool "$tool" --error-exitcode 9 \
            "$gpu_folder/tests/ops_run" -o "$operation" -b "$backend" test
    done <"$light_work/checks"
}

# Measures by groups, each in a process, then PyTorch on the same card.
gpu_measure() {
    local group numbers=$light_out/numbers.txt
    : >"$numbers"
    for group in "${@:2}"; do
        light_step "bench_gpu $group" "$1" bench.txt "$gpu_folder/bin/bench_gpu" -o "$group" "$gpu_plugin" "$gpu_rounds" "$numbers"
    done
    gpu_card | light_note bench.txt
}

gpu_torch() {
    light_step "PyTorch, $2" "$1" torch.txt "$(gpu_python)" bench/gpu/compare_torch.py "$light_out/numbers.txt" --parts "$2" "${gpu_small[@]}"
}

# Profiles six kernels with Nsight Compute.
gpu_profile() {
    local ncu kernel operation
    ncu=$(command -v ncu || say "$(dirname "${nvcc:-/}")/ncu")
    if [ ! -x "$ncu" ]; then
        say "ncu is not installed" | light_note summary.txt
        return
    fi
    while read -r kernel operation; do
        light_step "ncu, $kernel" "$1" ncu.txt "$ncu" --clock-control none --launch-skip 1 --launch-count 2 \
            --kernel-name "regex:$kernel" --section SpeedOfLight --section Occupancy --section LaunchStats \
            --section MemoryWorkloadAnalysis --section WarpStateStats "$gpu_folder/tests/ops_run" -o "$operation" -b cuda perf
    done <<'KERNELS'
attention_rows attention
attention_parts attention
packed_attend attn_lowrank
latent_score attn_latent
gemm|cutlass|nvjet linear
norm_kernel norm
KERNELS
}

# Runs lost cells once more: a second loss is no accident.
gpu_repeat() {
    local operation tier backend
    light_lost >"$light_work/lost"
    while read -r operation tier; do
        backend=cuda-$tier
        [ "$tier" != auto ] || backend=cuda
        light_step "once more: $operation $tier" "$1" programs.txt "$gpu_folder/tests/ops_run" -o "$operation" -b "$backend" test
    done <"$light_work/lost"
}

# ---- runs ---------------------------------------------------------------------------------

# gpu_begin SECONDS NAME: results go to $OUT, or to build/gpu/NAME.
gpu_begin() {
    light_open "$1" "${OUT:-$gpu_folder/$2}" "$gpu_folder/$2.work"
    rm -f "$light_out"/{summary,matrix,programs,sanitizer,bench,numbers,torch,ncu}.txt
    light_env=(FOVEA_PLUGIN_DIR="$gpu_tested" CUDA_LAUNCH_BLOCKING=0)
    mapfile -t light_operations < <("$gpu_folder/tests/ops_run" | awk 'listed && NF { print $1 } /^BACKEND/ { listed = 1 }' |
        grep -vE '_(bf16|int8|int4)$') # those are the CPU's
    gpu_head | light_note summary.txt
    gpu_probe
}

gpu_end() {
    light_lost | sed 's/^/lost: /' | light_note summary.txt
    cat "$light_out/matrix.txt" "$light_out/summary.txt"
    say "$SECONDS s; results: $light_out"
    [ -z "$(light_lost)" ] && [ "$light_failed" -eq 0 ]
}

# The first run: does it compute, and what is the speed of its parts?
gpu_first() {
    gpu_count=50 gpu_rounds=${gpu_rounds:-5}
    gpu_begin "$1" first
    gpu_questions
    light_env+=(CUDA_LAUNCH_BLOCKING=1)
    light_matrix "$2" "$gpu_folder/tests/ops_run"
    light_env+=(CUDA_LAUNCH_BLOCKING=0)
    gpu_programs $(($2 + 10))
    gpu_measure $(($2 + 10)) ceilings attention products packed
    gpu_torch $(($2 + 10)) product,sdpa,packed
    gpu_sanitize "$2"
    gpu_profile "$2"
    gpu_repeat "$2"
    gpu_end
}

# The run after it: the same matrix, all questions, and the whole network beside PyTorch's.
gpu_second() {
    gpu_count=200 gpu_rounds=${gpu_rounds:-5}
    gpu_begin "$1" second
    gpu_questions
    light_matrix "$2" "$gpu_folder/tests/ops_run"
    light_step ops_device_nano $(($2 + 10)) programs.txt "$gpu_folder/tests/ops_device_nano"
    gpu_measure $(($2 + 20)) ceilings network
    light_step "time by kernel" $(($2 + 10)) bench.txt "$gpu_folder/bin/bench_gpu" -o network "$gpu_plugin" 1 /dev/null "$light_work/trace.txt"
    { say "# time by kernel of one round, without graphs" && cat "$light_work/trace.txt"; } 2>/dev/null | light_note bench.txt
    gpu_torch $(($2 + 20)) network
    gpu_sanitize "$2"
    gpu_end
}

# gpu_one_fault FAULT OPERATION: the matrix with a kernel that fails loses the operation's cells and no other.
gpu_one_fault() {
    local lost
    light_open 600 build/dry/fault build/dry/fault.work
    light_env=(FOVEA_EMULATED_FAULT="$1")
    light_matrix "$gpu_fault_seconds" build/dry/tests/ops_run
    lost=$(light_lost | cut -d' ' -f1 | sort -u | paste -sd' ')
    say "$1: lost $lost"
    [ "$lost" = "$2" ] || { say "  FAILED: not $2 alone" && return 1; }
}

# A fault in each operation in turn.
gpu_faults() {
    local fault operation failed=0
    while read -r fault operation; do
        gpu_one_fault "$fault" "$operation" || failed=$((failed + 1))
    done < <(grep -v '^#' tools/gpu_faults.txt)
    [ $failed -eq 0 ] || die "gpu dry: $failed faults took other cells than their own"
}

gpu_command() {
    local nvcc='' rc=0
    case ${1:-first} in
    pack) gpu_pack "${2:-}" "${3:-}" ;;
    first)
        gpu_build
        gpu_first $((300 - SECONDS)) 20
        ;;
    again)
        gpu_build
        gpu_second $((200 - SECONDS)) 20
        ;;
    dry)
        gpu_build_dry
        light_width=$jobs gpu_rounds=1 gpu_fault_seconds=60
        gpu_first 3600 600 || rc=$?
        gpu_second 3600 600 || rc=$?
        gpu_faults
        return $rc
        ;;
    *) die "gpu: first, again, pack [QUESTIONS [FOLDER]] or dry; not ${1:-}" ;;
    esac
}
