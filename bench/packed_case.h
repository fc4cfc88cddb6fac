#ifndef FOVEA_BENCH_PACKED_CASE_H
#define FOVEA_BENCH_PACKED_CASE_H

/* Attention of one query row on raw or packed visual tokens, with the dimensions of a 7B network
 * (H = Hkv = 32, D = 128, bf16). KV comes from memory: every call takes the next piece of a buffer
 * far larger than any cache. */
#include "bench/machine.h"

enum { CASE_HEADS = 32, CASE_D = 128, CASE_WIDTH = CASE_HEADS * CASE_D, CASE_RANK = 64 };

typedef struct packed_case {
    int n;       /* rows */
    int step;    /* rows per anchor; 0: keys are rotated already (K1), 1: not at all (K0) */
    int rank_k;  /* values have CASE_RANK */
    int rank2_v; /* below CASE_RANK: three quarters of the rows are read at this rank */
    int bits;
} packed_case;

/* Returns the arguments of one sequence's attention on raw bf16 rows. */
fv_attn_args case_attn(fv_tensor q, fv_tensor o, const fv_attn_seq *seq);

/* Return the mean seconds of a call. */
double case_raw_s(bench *b, int n, int calls);
double case_packed_s(bench *b, packed_case c, int calls);

/* The same for rows stored as codes of 8 or 4 bits, with keys before rotation (turned) or as
 * cached. */
double case_codes_s(bench *b, int n, int bits, bool turned, int calls);

/* Returns made-up keys [n, CASE_WIDTH] before rotation: per head and dimension a mean with 60 % of
 * the energy, plus 256 directions with random signs and sizes i^-0.8. The caller frees the data. */
fv_tensor case_keys(bench *b, int n);

/* Returns the keys rotated by the distance to their anchors (step 0: to position 0); rows stand at
 * positions 5, 6, ..., and the RoPE base is 10 000. The caller frees the data. */
fv_tensor case_rotated(bench *b, fv_tensor keys, int step);

/* Returns the default of pack=svd: positions per block of keys. */
int case_default_step(void);

/* Returns zeroed memory, or ends the program. */
void *case_alloc(size_t bytes);

#endif
