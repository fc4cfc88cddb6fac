#ifndef FOVEA_BENCH_MACHINE_H
#define FOVEA_BENCH_MACHINE_H

/* Shared by kernel benchmarks: the machine's limits, and the table of results.
 *
 * Two limits are measured with the kernels' threads: fused multiply-adds per second in a
 * register-only loop, and bytes per second of a read-only loop. Weights and caches lie in one
 * buffer far larger than any cache; every call takes the next piece. Rounds repeat everything in
 * turn, so that a slow moment of the machine affects all rows. The output is the median over the
 * rounds; fractions are the median of the pairs' fractions. */
#include <stdint.h>

#include "bench/program.h"
#include "kernels/cpu/threads.h"
#include "kernels/ops.h"

enum { BENCH_MAX_ROW = 96, BENCH_MAX_ROUND = 101, BENCH_READ_BYTES = 256 << 20 };

typedef enum bench_limit { BENCH_NO_LIMIT, BENCH_FMA, BENCH_READ } bench_limit;

/* A row of the table. */
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
    const char *only;                      /* rows to measure; NULL: all */
    double fma_rate, bf16_rate, read_rate; /* latest: flop/s, bytes/s */
    fv_options *options;                   /* owned */
} bench;

double bench_now_s(void); /* by --clock: wall-clock time, or CPU time of this process */

/* Reads the command line and opens everything. */
void bench_open(bench *b, int argc, char **argv, const char *usage, const char *about);
void bench_close(bench *b);

/* Records `value` in units of `scale`; the first round defines the rows. */
void bench_note(bench *b, const char *name, const char *unit, double value, double scale,
                bench_limit of);

bool bench_wants(const bench *b, const char *what);

/* Measure the limits again: each kernel is measured right after its limit. */
void bench_measure_fma(bench *b);
void bench_measure_read(bench *b);

/* Measures the limit of canonical bf16 products (kernels/ops.h) with the instruction that the
 * kernels use; false: they use no bf16 instruction. */
bool bench_measure_bf16(bench *b);

/* Prints the table and writes it as JSON to the file of --json. */
void bench_report(const bench *b);

/* Returns the next `bytes` bytes of the buffer, aligned to 64. Read as f32, bf16 or f16 they are
 * normal numbers, since subnormal ones would change times. */
void *bench_memory(bench *b, size_t bytes);

/* Returns the next piece of the buffer as [N, K]. */
fv_tensor bench_weight(bench *b, fv_dtype t, int N, int K);

/* Returns F32 [rows, cols] of small numbers; the caller frees its data. */
fv_tensor bench_activations(int rows, int cols);

#endif
