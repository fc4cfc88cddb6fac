#ifndef FOVEA_TESTS_OPS_RUN_RUN_H
#define FOVEA_TESTS_OPS_RUN_RUN_H

/* ops_run: the operations of a backend against the plain CPU path, and their speed. */
#include <time.h>

#include "tests/ops/device_test.h"

typedef struct op {
    const char *name, *bound; /* its tolerance against the plain path */
    void (*test)(device_test *d);
    void (*perf)(device_test *d); /* prints lines with report() */
} op;

/* An operation of kernels/ops.def without a test does not link. */
#define FV_OP(name, args) extern const op op_##name;
#include "kernels/ops.def"
extern const op op_linear_bf16, op_attention_bf16;

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

/* A line of `perf`; flops 0: only bytes are reported. */
__attribute__((format(printf, 4, 5))) void report(double seconds, double flops, double bytes,
                                                  const char *fmt, ...);

#endif
