#ifndef FOVEA_PREFILL_WORKER_PACK_PACK_H
#define FOVEA_PREFILL_WORKER_PACK_PACK_H

/* PACK: KV compression. Visual tokens of prefilled layers, and text tokens or their keys, become
 * compressed blocks (kv/packed.h) as the plan says. Packing runs after each group of
 * layers, so that a group is compressed and sent before later ones are computed. One file per
 * method in pack/, one row each in policy/methods.def; pack.c makes the table from those rows.
 *
 *   entries of a group's layers --begin--> jobs --part, keys and values of all in parallel-->
 *                                            --end, layer by layer--> compressed blocks
 *
 * Layers that are compressed together are in the same group; one layer's job works for all.
 *
 * Functions are for the thread that owns the backend, except for `part`. */
#include "factor/matrices.h"
#include "kv/packed.h"
#include "policy/plan/packed_shape.h"

/* The results of a layer. */
typedef struct fv_packed_layer {
    int32_t rank[2];   /* of keys and values; the width, for other forms than factors; 0: the layer
                        * is raw */
    float error[2];    /* relative error, a share of ||M||; of factors, before rounding */
    int32_t code;      /* bits of a quantized number; 0: not quantized */
    bool merged;       /* shares directions with another layer (pack=minicache) */
    int32_t row_bits;  /* pack=latent: bits of a token's coefficients; 0: none */
    int32_t n_own;     /* pack=latent: the request's own directions */
    int32_t code_keys; /* bits of the codes that a reader expands the keys to; 0: none */
    int32_t rank_text; /* of text keys; 0: not factored */
    int32_t code_text; /* bits of a quantized number of text; 0: not quantized */
    float error_text;  /* of factored text keys; of quantized keys or values, the larger one */
} fv_packed_layer;

typedef struct fv_pack_report {
    fv_status status; /* not FV_OK: this request cannot be packed, and `text` says why */
    char text[256];
    int32_t n_layer;  /* packed or passed over so far */
    size_t bytes_raw; /* of the packed layers, as rows */
    size_t bytes;     /* of the packed layers, packed */
    size_t unsent;    /* those of `bytes` that each worker makes itself and does not send */
    double seconds;   /* time spent */
    const char *said; /* why no layer was packed; NULL: one was, or the method gives no reason */
    fv_packed_layer layer[FV_PLAN_MAX_LAYERS];
} fv_pack_report; /* {0} to begin with */

/* The packing of a layer's visual or text tokens. */
typedef struct fv_pack_job {
    int32_t layer;
    fv_kv_segment seg;
    int32_t n;       /* the first n rows of the segment, the same in all KV heads */
    bool part[2];    /* whether keys and values are to be packed */
    void *state;     /* of the method; NULL: the layer stays raw */
    int32_t rank[2]; /* results for keys and values; each `part` writes its own */
    float error[2];
    /* Job of the first layer that is compressed together with this one; those of the layers between
     * follow it in the same array. NULL: none. */
    struct fv_pack_job *first;
} fv_pack_job;

typedef struct fv_pack_context {
    const fv_plan *plan;
    fv_backend *be;
    const fv_rope *rope;
    fv_kv *kv;
    fv_arena *scratch;     /* of `begin`: lives until `end`; of all others: during the call */
    fv_matrices *matrices; /* scratch of `part` and `parts`, during the call */
    fv_arena *slots;       /* of `parts`: [FV_EACH_SLOTS], for items of fv_backend_each */
} fv_pack_context;

/* Keys or values of a job. */
typedef struct fv_pack_part {
    fv_pack_job *job;
    fv_packed_kind kind;
} fv_pack_part;

/* Functions return FV_EINVAL if rows cannot be packed. */
typedef struct fv_pack_method {
    /* Looks at a layer's n rows of a segment, perhaps none, and sets job->part and job->state, or those of
     * the jobs from job->first on. */
    fv_status (*begin)(const fv_pack_context *ctx, fv_pack_job *job);
    /* Compresses a job's keys or values into memory of the job. Any thread, with the given backend and
     * scratch; the store is only read. NULL: `parts` does it on every backend. */
    fv_status (*part)(const fv_pack_context *ctx, fv_pack_job *job, fv_packed_kind kind);
    /* Compresses n parts at once, on the thread that owns the backend, if the backend factors many
     * matrices together (fv_backend_ops.factorise) or there is no `part`. NULL: the method gains nothing
     * by it. */
    fv_status (*parts)(const fv_pack_context *ctx, const fv_pack_part *part, int32_t n);
    /* Replaces the job's rows by the packed ones, once all its parts are made; leaves rows that would not
     * be smaller. */
    fv_status (*end)(const fv_pack_context *ctx, fv_pack_job *job);
    const char *none; /* the report's reason if no layer was packed; NULL: none */
} fv_pack_method;

/* Compresses the layers below n_layer that are not compressed yet. attention[l]: attention of the last
 * prompt token to layer l's visual tokens, by prompt position; NULL: not captured. If this request's
 * numbers cannot be packed (FV_EINVAL), the report says so and FV_OK is returned; other failures are
 * returned. */
fv_status fv_pack_run(const fv_plan *plan, fv_backend *be, const fv_rope *rope, fv_kv *kv,
                      int32_t n_layer, const float *const *attention, fv_pack_report *report);

#endif
