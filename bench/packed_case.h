#ifndef FOVEA_BENCH_PACKED_CASE_H
#define FOVEA_BENCH_PACKED_CASE_H

/* One query row of one sequence against visual tokens at the dimensions of a 7B network (H = Hkv =
 * 32, D = 128, bf16), raw or packed, in KV that comes from memory: every call takes the next piece
 * of a buffer far beyond any cache. */
#include "bench/machine.h"

enum { CASE_HEADS = 32, CASE_D = 128, CASE_WIDTH = CASE_HEADS * CASE_D, CASE_RANK = 64 };

typedef struct packed_case {
    int n;       /* rows */
    int step;    /* from anchor to anchor; 0: keys are rotated already (K1), 1: not at all (K0) */
    int rank_k;  /* values have CASE_RANK */
    int rank2_v; /* below CASE_RANK: three quarters of the rows are read at this rank */
    int bits;
} packed_case;

/* One sequence's attention on raw rows in bf16. */
fv_attn_args case_attn(fv_tensor q, fv_tensor o, const fv_attn_seq *seq);

/* Seconds of one call, averaged. */
double case_raw_s(bench *b, int n, int calls);
double case_packed_s(bench *b, packed_case c, int calls);

/* The same of rows that are codes of 8 or 4 bits, keys before rotation (turned) or as a cache holds
 * them. */
double case_codes_s(bench *b, int n, int bits, bool turned, int calls);

/* Keys [n, CASE_WIDTH] before rotation, made up: per head and dimension a mean with 60 % of the
 * energy, and 256 directions of random signs and sizes i^-0.8. Free their data. */
fv_tensor case_keys(bench *b, int n);

/* The same rotated by their distance to their anchors (0: to position 0): rows stand at positions
 * 5, 6, ..., angles of base 10 000. Free their data. */
fv_tensor case_rotated(bench *b, fv_tensor keys, int step);

/* The default of pack=svd: how many positions a block of keys has. */
int case_default_step(void);

/* Zeroed memory, or the end of the program. */
void *case_alloc(size_t bytes);

#endif
