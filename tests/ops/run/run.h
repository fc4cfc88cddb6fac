#ifndef FOVEA_TESTS_OPS_RUN_RUN_H
#define FOVEA_TESTS_OPS_RUN_RUN_H

/* ops_run: the operations of a backend against the plain CPU path, and their speed. */
#include <sys/mman.h>
#include <time.h>

#include "tests/ops/device_test.h"

typedef struct op {
    const char *name, *bound; /* tolerance against the plain path */
    void (*test)(device_test *d);
    void (*perf)(device_test *d); /* prints lines with report() */
} op;

/* An operation of kernels/ops.def without a test does not link. */
#define FV_OP(name, args) extern const op op_##name;
#include "kernels/ops.def"
extern const op op_linear_bf16, op_linear_int8, op_linear_int4, op_attention_bf16;

static inline bool on_cpu(const device_test *d) { return strcmp(d->be.ops->name, "cpu") == 0; }

static inline void compute_in(device_test *d, fv_compute compute) {
    d->plain.compute = d->be.compute = compute;
}

static inline double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Seconds of one call of an operation: the minimum of 5 runs of 0.05 s, after a warm-up. */
#define seconds_of(d, fn, args)                                                                    \
    __extension__({                                                                                \
        double least_ = (double)INFINITY;                                                          \
        for (int round_ = -1; round_ < 5; round_++) {                                              \
            double begin_ = now_s(), took_ = 0;                                                    \
            int calls_ = 0;                                                                        \
            for (; calls_ == 0 || (round_ >= 0 && took_ < 0.05); calls_++) {                       \
                must((fn)(&(d)->be, &(args)));                                                     \
                must((d)->be.ops->sync(&(d)->be));                                                 \
                took_ = now_s() - begin_;                                                          \
            }                                                                                      \
            if (round_ >= 0 && took_ / calls_ < least_) least_ = took_ / calls_;                   \
        }                                                                                          \
        least_;                                                                                    \
    })

/* An accessible page before an inaccessible one. */
typedef struct guarded {
    char *base;
    size_t bytes;
} guarded;

/* `t` without gaps, its last byte `behind` bytes, which are 0xff, before the inaccessible page. */
static inline fv_tensor tensor_guarded_by(guarded *g, fv_dtype dtype, int rows, int cols,
                                          size_t behind) {
    fv_tensor t = fv_tensor_of(NULL, dtype, rows, cols);
    size_t n = tensor_bytes(&t) + behind, page = 4096;
    g->bytes = (n + page - 1) / page * page + page;
    g->base = mmap(NULL, g->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (g->base == MAP_FAILED || mprotect(g->base + g->bytes - page, page, PROT_NONE) != 0) exit(1);
    t.data = g->base + g->bytes - page - n;
    memset(g->base + g->bytes - page - behind, 0xff, behind);
    return t;
}

static inline fv_tensor tensor_guarded(guarded *g, fv_dtype dtype, int rows, int cols) {
    return tensor_guarded_by(g, dtype, rows, cols, 0);
}

static inline void tensor_unguard(guarded *g) { munmap(g->base, g->bytes); }

/* A size of at most `most`, often at the edge of a block. */
static inline int size_about(int most) {
    static const int edges[] = {1, 2, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129};
    int n = random_int(0, 1) ? edges[random_int(0, 13)] : random_int(1, most);
    return n > most ? most : n;
}

/* A line of `perf`; flops 0: only bytes are reported. */
__attribute__((format(printf, 4, 5))) void report(double seconds, double flops, double bytes,
                                                  const char *fmt, ...);

#endif
