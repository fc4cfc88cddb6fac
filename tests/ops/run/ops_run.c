/* Tests and times operations of a backend.
 *
 *     ops_run                          lists operations, with their tolerance
 *     ops_run [-o OP] -b BACKEND test|perf
 *
 * BACKEND: plain, avx2, avx512, avx512-no-vnni (as on a machine that lacks VNNI and BF16), amx,
 * amx-emulated (on a CPU without it), auto (the fastest of these here), cuda (tensor cores and cuBLAS) or
 * cuda-exact. `test` compares with the plain path on one thread, on the CPU with 3 threads and with 1;
 * `perf` uses all cores. The CUDA plugin is the one in FOVEA_PLUGIN_DIR, or the emulated one. Exits with
 * 77 where the machine lacks the backend. */
#include "kernels/cpu/path.h"
#include "tests/ops/run/amx_emulated.h"
#include "tests/ops/run/run.h"

static const char *current;

/* The linker redirects queries for VNNI or BF16 here (--wrap). */
static bool without_vnni;
bool __real_fv_vnni_runs_here(void);
bool __wrap_fv_vnni_runs_here(void);
bool __wrap_fv_vnni_runs_here(void) { return !without_vnni && __real_fv_vnni_runs_here(); }
bool __real_fv_bf16_pairs_run_here(void);
bool __wrap_fv_bf16_pairs_run_here(void);
bool __wrap_fv_bf16_pairs_run_here(void) {
    return !without_vnni && __real_fv_bf16_pairs_run_here();
}

/* The linker also redirects queries for a path. */
static bool emulated;
fv_status __real_fv_cpu_path_find(const char *isa, const fv_cpu_path **out);
fv_status __wrap_fv_cpu_path_find(const char *isa, const fv_cpu_path **out);
fv_status __wrap_fv_cpu_path_find(const char *isa, const fv_cpu_path **out) {
    fv_status st = __real_fv_cpu_path_find(isa, out);
    if (!emulated || strcmp(isa, "amx") != 0) return st;
    if (st == FV_OK) return FV_FAIL(FV_EUNSUPPORTED, "AMX need not be emulated here");
    if (!amx_emulate()) return st;
    *out = &fv_cpu_path_amx;
    return FV_OK;
}

void report(double seconds, double flops, double bytes, const char *fmt, ...) {
    char shape[96], rate[32] = "";
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(shape, sizeof shape, fmt, ap);
    va_end(ap);
    if (flops > 0) snprintf(rate, sizeof rate, "%10.2f GFLOP/s", flops / seconds * 1e-9);
    printf("%-15s %-48s %12.1f us %9.2f GB/s%s\n", current, shape, seconds * 1e6,
           bytes / seconds * 1e-9, rate);
    fflush(stdout);
}

static const op *const all[] = {
#define FV_OP(name, args) &op_##name,
#include "kernels/ops.def"
    &op_linear_bf16, &op_linear_int8, &op_linear_int4, &op_attention_bf16};

/* Calls fn(arg) for each operation named `only` (NULL: all). Returns how many. */
static int for_each(const char *only, void (*fn)(const op *o, void *arg), void *arg) {
    int n = 0;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (only && strcmp(only, all[i]->name) != 0) continue;
        n++;
        current = all[i]->name;
        fn(all[i], arg);
    }
    return n;
}

static void list(const op *o, void *arg) {
    (void)arg;
    printf("%-15s %s\n", o->name, o->bound);
}

static void test(const op *o, void *d) { o->test(d); }

static void perf(const op *o, void *d) { o->perf(d); }

static device_test open_backend(const char *name, int n_threads) {
    if (strcmp(name, "cuda") == 0) return device_open("auto");
    if (strcmp(name, "cuda-exact") == 0) return device_open("exact");
    without_vnni = strcmp(name, "avx512-no-vnni") == 0;
    emulated = strcmp(name, "amx-emulated") == 0;
    const char *isa = without_vnni ? "avx512" : emulated ? "amx" : name;
    fv_backend_options opt = {.isa = isa, .n_threads = n_threads};
    return device_open_as("cpu", opt, true);
}

static int usage(void) {
    printf(
        "ops_run [-o OP] -b plain|avx2|avx512|avx512-no-vnni|amx|amx-emulated|auto|cuda|cuda-exact "
        "test|perf\n\n");
    for_each(NULL, list, NULL);
    return 2;
}

int main(int argc, char **argv) {
    const char *only = NULL, *backend = NULL, *mode = NULL;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "-o") == 0 && i + 1 < argc)
            only = argv[++i];
        else if (strcmp(argv[i], "-b") == 0 && i + 1 < argc)
            backend = argv[++i];
        else
            mode = argv[i];
    }
    bool tests = mode && strcmp(mode, "test") == 0;
    if (argc == 1) return usage(), 0;
    if (!backend || !mode || (!tests && strcmp(mode, "perf") != 0)) return usage();
    for (int n_threads = 3; n_threads > 0; n_threads -= 2) {
        device_test d = open_backend(backend, tests ? n_threads : 0);
        bool cpu = on_cpu(&d);
        int n = for_each(only, tests ? test : perf, &d);
        group_end();
        device_close(&d);
        if (n == 0) return usage();
        if (!tests) return 0;
        if (!cpu || strcmp(backend, "plain") == 0) break; /* it would compare with itself */
    }
    return summary();
}
