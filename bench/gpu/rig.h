#ifndef FOVEA_BENCH_GPU_RIG_H
#define FOVEA_BENCH_GPU_RIG_H

/* Shared by all measurements of bench_gpu: the backend, random tensors in its memory, median times
 * from device events, and table rows. A failure ends the program. */
#include <stdio.h>

#include "kernels/ops.h"

typedef struct bench_rig {
    fv_backend be;
    int32_t n_round;
    bool small;                     /* emulated: only checks that every row runs */
    double copy_rate, product_rate; /* ceilings in bytes/s and flop/s; 0 until measured */
    FILE *numbers;                  /* file of "key seconds" for compare_torch.py, or NULL */
    int32_t n_aim, n_reached;       /* rows with an aim, and rows that reach it */
} bench_rig;

extern bench_rig rig;

void must(fv_status s);
void *zeroed(size_t n, size_t size);

/* Returns a device tensor [rows, cols] of random numbers up to 0.05. They repeat after some dozens
 * of MiB, which does not change times; zeros would be faster. */
fv_tensor bench_tensor(fv_dtype dtype, int32_t rows, int32_t cols, fv_buf *buf);

/* Returns the same on the host, for weights. */
fv_tensor bench_host_tensor(fv_dtype dtype, int32_t rows, int32_t cols);

typedef fv_status bench_work(void *arg, int32_t call);

/* Returns seconds per call, between device events: the median over rounds of the mean over `calls`
 * back-to-back calls. */
double bench_seconds(bench_work *work, void *arg, int32_t calls);
double bench_median(double *t, int32_t n); /* sorts t */

/* Aims in percent of a row's floor, the larger of bytes / copy rate and flop / product rate. */
enum { NO_AIM = 0, AIM_STEP = 87, AIM_PACKED = 80, AIM_PREFILL = 70 };

/* Prints a row. `key` names it for compare_torch.py. */
void bench_row(const char *key, const char *name, double s, double bytes, double flop, int32_t aim);

/* Prints the cost of an addition; `aim`: at most so many percent more. */
void bench_more(const char *name, double s, double without, int32_t aim);
enum { AIM_COMPACTION = 2 };

/* ---- the groups ------------------------------------------------------------------------- */

void bench_ceilings(void);  /* products.c; first */
void bench_products(void);  /* products.c: linear, norm, activation */
void bench_attention(void); /* attention.c: on raw rows */
void bench_packed(void);    /* packed.c: on packed rows */
void bench_network(void);   /* network.c: prefill, packing in it, decode steps, first tokens */

#endif
