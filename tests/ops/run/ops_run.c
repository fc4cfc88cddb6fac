/* Tests and times operations of a backend.
 *
 *     ops_run                          lists operations, with their tolerance
 *     ops_run [-o OP] -b BACKEND test|perf
 *
 * BACKEND: an instruction set (kernels/cpu/isa.def), amx-emulated (on a CPU without AMX), auto (the best one
 * here), cuda (tensor cores and cuBLAS) or cuda-exact. `test` compares with the plain path on one thread, on the CPU with 3 threads and with 1;
 * `perf` uses all cores. The CUDA plugin is the one in FOVEA_PLUGIN_DIR, or the emulated one. Exits with
 * 77 where the machine lacks the backend. A test ends with the largest error of the norm among the results
 * that need not have the CPU's bits. */
#include "kernels/cpu/isa.h"
#include "tests/ops/run/amx_emulated.h"
#include "tests/ops/run/run.h"

static const char *current;

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

/* Ends the program where AMX is real or cannot be emulated. */
static void emulate(void) {
    static bool done;
    fv_isa_choice here;
    if (done) return;
    if (fv_isa_choose("amx", &here) == FV_OK || !amx_emulate()) exit(77);
    fv_isa_assume("amx");
    done = true;
}

static device_test open_backend(const char *name, int n_threads) {
    if (strcmp(name, "cuda") == 0) return device_open("auto");
    if (strcmp(name, "cuda-exact") == 0) return device_open("exact");
    if (strcmp(name, "amx-emulated") == 0) {
        emulate();
        name = "amx";
    }
    return device_open_as("cpu", (fv_backend_options){.isa = name, .n_threads = n_threads}, true);
}

static int usage(void) {
    printf("ops_run [-o OP] -b BACKEND test|perf\n"
           "BACKEND: auto, amx-emulated, cuda, cuda-exact");
#define FV_ISA(name, flags) printf(", " #name);
#include "kernels/cpu/isa.def"
    printf("\n\n");
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
        if (tests && n) printf("largest error of the norm: %.2e\n", largest_error);
        if (n == 0) return usage();
        if (!tests) return 0;
        if (!cpu || strcmp(backend, "plain") == 0) break; /* it would compare with itself */
    }
    return summary();
}
