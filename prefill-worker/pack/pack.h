#ifndef FOVEA_PREFILL_WORKER_PACK_PACK_H
#define FOVEA_PREFILL_WORKER_PACK_PACK_H

/* PACK: KV compression. Visual tokens of prefilled layers, and text tokens or their keys, become
 * compressed blocks (model/net/kv_packed.h), where the plan says so. It runs after each group of
 * layers, so that a group is compressed and sent before later ones are computed. One file per
 * method in pack/, one row each in policy/methods.def; pack.c makes the table from those rows.
 *
 *   entries of a group's layers --begin--> jobs --part, keys and values of all in parallel-->
 *                                            --end, layer by layer--> compressed blocks
 *
 * Layers that are compressed together are in the same group; one layer's job works for all.
 *
 * Functions are for the thread that owns the backend, except for `part`. */
#include "kernels/matrices.h"
#include "model/net/kv_packed.h"
#include "policy/plan/packed_shape.h"

/* What became of a layer. */
typedef struct fv_packed_layer {
    int32_t rank[2];   /* of keys and values, of other forms than factors their width; 0: the layer
                        * is raw */
    float error[2];    /* what is lost, of ||M||: of factors before they are rounded */
    int32_t code;      /* bits of a code; 0: factors, or merged */
    bool merged;       /* it shares directions with another layer */
    int32_t row_bits;  /* of latents: bits of a token's coefficients; 0: it has none */
    int32_t n_own;     /* and directions that the request has of its own; */
    int32_t code_keys; /* bits of the codes that its keys become where they are read; 0: none */
    int32_t rank_text; /* of its text keys; 0: they are no factors */
    int32_t code_text; /* bits of a code of its text; 0: it has none */
    float error_text;  /* of its text keys, or the larger of keys and values in codes */
} fv_packed_layer;

typedef struct fv_pack_report {
    fv_status status; /* not FV_OK: this request cannot be packed, and `text` says why */
    char text[256];
    int32_t n_layer;  /* packed or passed over so far */
    size_t bytes_raw; /* of the layers that were packed, as rows, */
    size_t bytes;     /* and packed; */
    size_t unsent;    /* of these, what is made where it is read */
    double seconds;   /* spent on them */
    const char *said; /* why the rows are such that no layer was packed; NULL: one was */
    fv_packed_layer layer[FV_PLAN_MAX_LAYERS];
} fv_pack_report; /* {0} to begin with */

/* A layer's visual tokens, or its text tokens, on their way. */
typedef struct fv_pack_job {
    int32_t layer;
    fv_kv_segment seg;
    int32_t n;       /* the first so many rows of the segment, the same in all KV heads */
    bool part[2];    /* whether keys and values are to be packed */
    void *state;     /* of the method; NULL: the layer stays raw */
    int32_t rank[2]; /* what became of it; `part` writes its own half */
    float error[2];
    /* Of a layer that is compressed together with others before it: the first one's, in an array in
     * which the others follow; or NULL */
    struct fv_pack_job *first;
} fv_pack_job;

typedef struct fv_pack_context {
    const fv_plan *plan;
    fv_backend *be;
    const fv_rope *rope;
    fv_kv *kv;
    fv_arena *scratch; /* of `begin`: until `end`; of `part` and `end`: for the time of the call */
    fv_matrices *matrices; /* scratch of `part` and `parts`, for the time of the call */
    fv_arena *slots;       /* of `parts`: [FV_EACH_SLOTS], for items of fv_backend_each */
} fv_pack_context;

/* Keys or values of a job. */
typedef struct fv_pack_part {
    fv_pack_job *job;
    fv_packed_kind kind;
} fv_pack_part;

/* FV_EINVAL when rows are such that they cannot be packed. */
typedef struct fv_pack_method {
    /* Looks at a layer's n rows of a segment, perhaps none, and says what is to be done: job->part and
     * job->state; or those of the jobs from job->first on.
     */
    fv_status (*begin)(const fv_pack_context *ctx, fv_pack_job *job);
    /* Compresses its keys or values into memory of the job. Any thread, with the given backend and
     * scratch; the store is only read. NULL: `parts` does it on every backend. */
    fv_status (*part)(const fv_pack_context *ctx, fv_pack_job *job, fv_packed_kind kind);
    /* The same of n at once, on the thread that owns the backend, where that does many matrices
     * together (fv_backend_ops.factorise), or where items of a part are shared out. NULL: the
     * method gains nothing by it. */
    fv_status (*parts)(const fv_pack_context *ctx, const fv_pack_part *part, int32_t n);
    /* Both are there: the rows become packed; or stay as they are, if they would not be smaller. */
    fv_status (*end)(const fv_pack_context *ctx, fv_pack_job *job);
    const char *none; /* what a report says when no layer was packed; NULL: nothing */
} fv_pack_method;

/* Compresses the layers below n_layer that are not compressed yet. attention[l]: attention of the last
 * prompt token to layer l's visual tokens, by prompt position; NULL: not captured. Problems with
 * this request's numbers are noted in the report and are no error; errors are those of the backend
 * and of memory. */
fv_status fv_pack_run(const fv_plan *plan, fv_backend *be, const fv_rope *rope, fv_kv *kv,
                      int32_t n_layer, const float *const *attention, fv_pack_report *report);

#endif
