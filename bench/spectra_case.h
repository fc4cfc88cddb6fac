#ifndef FOVEA_BENCH_SPECTRA_CASE_H
#define FOVEA_BENCH_SPECTRA_CASE_H

/* Keys, values and queries for bench_spectra: made-up layers with a given spectrum, a text model
 * that reads a text, or a file. Arrays are F32 and owned by the case; a failure ends the
 * program. */
#include "model/net/rope.h"

enum { SPECTRA_LAYERS = 4 }; /* at most */

typedef struct spectra_case {
    int32_t n_layer, n_head, n_kv, d_head;
    int32_t n, n_seen; /* tokens to compress; tokens to measure directions on */
    int32_t n_query;   /* per head; positions after the tokens */
    int32_t at;        /* position of the first token */
    int32_t n_ahead;   /* uncompressed tokens right before */
    int32_t width;     /* of rows in `seen` and `row`: W = n_kv * d_head, or less */
    float *lift;       /* [width, W] orthonormal, expands rows to W; NULL: width is W */
    float *seen[SPECTRA_LAYERS][2];  /* [n_seen, width] keys before rotation, values */
    float *row[SPECTRA_LAYERS][2];   /* [n, width] the same, to compress */
    float *ahead[SPECTRA_LAYERS][2]; /* [n_ahead, W] the same, uncompressed */
    float *query[SPECTRA_LAYERS];    /* [n_query, n_head * d_head] before rotation */
    double *variance;                /* [width] per matrix, descending, sums to 1; NULL: unknown */
    double scale;                    /* of scores */
    fv_rope rope;                    /* {0}: no rotation */
} spectra_case;

/* Makes one layer of a 7B network (32 heads of 128) with 576 tokens: independent normal
 * coefficients of variance i^-p in 512 directions; the first 64 hold 0.90 of it, as AttentionPack
 * (CVPR 2026) measures on LLaVA-1.5-7B. Scores have a standard deviation of 2. */
void spectra_made_up(spectra_case *c);

/* Takes four middle layers of a text model in F32: one window of 512 tokens of the text, the start
 * of which stays uncompressed, and directions from the eight windows before it. */
void spectra_of_text(spectra_case *c, const char *checkpoint, const char *text);

/* Takes the arrays of a safetensors file (bench/antiberty), without rotation. */
void spectra_of_file(spectra_case *c, const char *path);

void spectra_free(spectra_case *c);

/* Rotates heads of D numbers to the row's position, or back. */
void spectra_rotate(const spectra_case *c, int32_t position, bool back, int32_t n_head, float *row);

/* Returns a nearly normal number, the sum of twelve uniform ones; advances the state. */
double spectra_normal(uint64_t *state);

/* Returns zeroed memory, or ends the program. */
void *spectra_alloc(size_t n, size_t size);

#endif
