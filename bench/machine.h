#ifndef FOVEA_BENCH_MACHINE_H
#define FOVEA_BENCH_MACHINE_H

/* What benchmarks of kernels share: what this machine can do, and a table of what was measured.
 *
 * Two limits are measured with the same threads as the kernels: fused multiply-adds per second in a
 * loop that touches registers only, and bytes per second of a loop that only reads. Weights and
 * caches lie in one buffer far beyond any cache, and every call takes the next piece of it. Rounds
 * repeat everything in turn, so that a slow moment of the machine meets all; what is printed is the
 * median over the rounds, of fractions the median of the pairs' fractions. */
#include <stdint.h>

#include "bench/program.h"
#include "kernels/cpu/threads.h"
#include "kernels/ops.h"

enum { BENCH_MAX_ROW = 96, BENCH_MAX_ROUND = 101, BENCH_READ_BYTES = 256 << 20 };

typedef enum bench_limit { BENCH_NO_LIMIT, BENCH_FMA, BENCH_READ } bench_limit;

/* One line of the table. */
typedef struct bench_row {
    char name[64];
    const char *unit;
    bench_limit of;
    double value[BENCH_MAX_ROUND], fraction[BENCH_MAX_ROUND];
} bench_row;

typedef struct bench {
    fv_backend be;
    fv_threads *threads;
    char *weights; /* owned */
    size_t weights_bytes, weights_at;
    bench_row rows[BENCH_MAX_ROW];
    int n_row, next_row, round, n_round;
    const char *only;                      /* what to measure; NULL: all */
    double fma_rate, bf16_rate, read_rate; /* latest: flop/s, bytes/s */
    fv_options *options;                   /* owned */
} bench;

double bench_now_s(void); /* by --clock: on the wall, or what this process has computed */

/* Reads the command line and opens everything. */
void bench_open(bench *b, int argc, char **argv, const char *usage, const char *about);
void bench_close(bench *b);

/* Notes `value`, in units of `scale`; the first round names the rows. */
void bench_note(bench *b, const char *name, const char *unit, double value, double scale,
                bench_limit of);

bool bench_wants(const bench *b, const char *what);

/* Measure the limits anew: each measurement of a kernel follows directly on one of its limit. */
void bench_measure_fma(bench *b);
void bench_measure_read(bench *b);

/* The same of canonical products in bf16 (kernels/ops.h), with the instruction that the path uses for
 * them; false where that is none of bf16. */
bool bench_measure_bf16(bench *b);

/* The table, and the same as JSON in the file of --json. */
void bench_report(const bench *b);

/* The next `bytes` bytes of the buffer, at a multiple of 64. As f32, bf16 and f16 they are normal
 * numbers: subnormal ones would take another time. */
void *bench_memory(bench *b, size_t bytes);

/* The next piece of it as [N, K]. */
fv_tensor bench_weight(bench *b, fv_dtype t, int N, int K);

/* [rows, cols] F32 of small numbers; free its data. */
fv_tensor bench_activations(int rows, int cols);

#endif
