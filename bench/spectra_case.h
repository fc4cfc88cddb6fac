#ifndef FOVEA_BENCH_SPECTRA_CASE_H
#define FOVEA_BENCH_SPECTRA_CASE_H

/* Keys, values and queries for bench_spectra: of made-up layers with a given spectrum, of a text
 * model that reads a text, or from a file. Arrays are F32 and the case's; a failure ends the program. */
#include "model/net/rope.h"

enum { SPECTRA_LAYERS = 4 }; /* at most */

typedef struct spectra_case {
    int32_t n_layer, n_head, n_kv, d_head;
    int32_t n, n_seen; /* tokens that are compressed, and that directions are measured on */
    int32_t n_query;   /* per head; they stand behind the tokens */
    int32_t at;        /* position of the first of them */
    int32_t n_ahead;   /* tokens right before it, which stay as they are */
    int32_t width;     /* of rows in `seen` and `row`: W = n_kv * d_head, or less */
    float *lift;       /* [width, W] orthonormal rows: rows times it are W wide; NULL: they are */
    float *seen[SPECTRA_LAYERS][2];  /* [n_seen, width] keys before rotation, and values */
    float *row[SPECTRA_LAYERS][2];   /* [n, width] others */
    float *ahead[SPECTRA_LAYERS][2]; /* [n_ahead, W] of those */
    float *query[SPECTRA_LAYERS];    /* [n_query, n_head * d_head] before rotation */
    double *variance; /* [width] of each matrix, descending, its sum is 1; NULL: not known */
    double scale;     /* of scores */
    fv_rope rope;     /* {0}: nothing is rotated */
} spectra_case;

/* One layer of a 7B network (32 heads of 128), 576 tokens: independent normal coefficients of
 * variance i^-p in 512 directions, 64 of which hold 0.90 of it, as AttentionPack (CVPR 2026)
 * measures on LLaVA-1.5-7B. Scores have a deviation of 2. */
void spectra_made_up(spectra_case *c);

/* Four layers in the middle of a text model in F32: one window of 512 tokens of the text, the
 * first of which stays as it is, and directions from eight windows before it. */
void spectra_of_text(spectra_case *c, const char *checkpoint, const char *text);

/* Those of a safetensors file (bench/antiberty), which are not rotated. */
void spectra_of_file(spectra_case *c, const char *path);

void spectra_free(spectra_case *c);

/* Rotates heads of D numbers to the row's position, or back. */
void spectra_rotate(const spectra_case *c, int32_t position, bool back, int32_t n_head, float *row);

/* A number near normal, the sum of twelve uniform ones; the state goes on. */
double spectra_normal(uint64_t *state);

/* Zeroed, or the end of the program. */
void *spectra_alloc(size_t n, size_t size);

#endif
