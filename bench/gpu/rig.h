#ifndef FOVEA_BENCH_GPU_RIG_H
#define FOVEA_BENCH_GPU_RIG_H

/* What all measurements of bench_gpu share: the backend, random numbers in its memory, medians of
 * the device's own clock, and rows of the table. A failure ends the program. */
#include <stdio.h>

#include "kernels/ops.h"

typedef struct bench_rig {
    fv_backend be;
    int32_t n_round;
    bool small;                     /* emulated: only that every line runs */
    double copy_rate, product_rate; /* bytes/s, flop/s: the ceilings; 0 until they are measured */
    FILE *numbers;                  /* where "key seconds" goes, for compare_torch.py; or NULL */
    int32_t n_aim, n_reached;       /* rows that have an aim, and those that reach it */
} bench_rig;

extern bench_rig rig;

void must(fv_status s);
void *zeroed(size_t n, size_t size);

/* [rows, cols] of random numbers on the device, of at most 0.05. They repeat after some dozens of
 * MiB: zeros would be faster, a repetition is not. */
fv_tensor bench_tensor(fv_dtype dtype, int32_t rows, int32_t cols, fv_buf *buf);

/* The same on the host, for weights. */
fv_tensor bench_host_tensor(fv_dtype dtype, int32_t rows, int32_t cols);

typedef fv_status bench_work(void *arg, int32_t call);

/* Seconds of a call, between events of the device: median over rounds of the mean over `calls`,
 * which are issued one after the other. */
double bench_seconds(bench_work *work, void *arg, int32_t calls);
double bench_median(double *t, int32_t n); /* sorts t */

/* What a row should reach, in percent of its floor: the larger of bytes over the copy's rate and
 * flop over the product's. */
enum { NO_AIM = 0, AIM_STEP = 87, AIM_PACKED = 80, AIM_PREFILL = 70 };

/* Prints a row. `key` names it for compare_torch.py. */
void bench_row(const char *key, const char *name, double s, double bytes, double flop, int32_t aim);

/* Prints what something took with an addition and without it; `aim`: percent more, at most. */
void bench_more(const char *name, double s, double without, int32_t aim);
enum { AIM_COMPACTION = 2 };

/* ---- the groups ------------------------------------------------------------------------- */

void bench_ceilings(void);  /* products.c; first */
void bench_products(void);  /* products.c: linear, norm, activation */
void bench_attention(void); /* attention.c: on raw rows */
void bench_packed(void);    /* packed.c: on packed rows */
void bench_network(void);   /* network.c: prefill, packing in it, decode steps, first tokens */

#endif
