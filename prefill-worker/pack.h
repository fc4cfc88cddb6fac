#ifndef FOVEA_PREFILL_WORKER_PACK_H
#define FOVEA_PREFILL_WORKER_PACK_H

/* PACK: visual rows of prefilled layers become packed blocks (model/net/kv_packed.h), where the
 * plan says so. It runs behind each group of layers, so that a group is packed and sent while later
 * ones compute. One file per method in pack/, one row each in policy/methods.def; pack.c makes the
 * table from those rows.
 *
 * The thread that owns the backend. */
#include "common/arena.h"
#include "model/net/kv_packed.h"
#include "policy/packed_shape.h"

/* What became of a layer. */
typedef struct fv_packed_layer {
    int32_t rank[2]; /* of keys and values; 0: the layer is raw */
    float error[2];  /* ||M - U B|| / ||M|| before the factors are rounded */
} fv_packed_layer;

typedef struct fv_pack_report {
    fv_status status; /* not FV_OK: this request cannot be packed, and `text` says why */
    char text[256];
    int32_t n_layer;  /* packed or passed over so far */
    size_t bytes_raw; /* of the layers that were packed, as rows, */
    size_t bytes;     /* and as factors */
    double seconds;   /* spent on them */
    fv_packed_layer layer[FV_PLAN_MAX_LAYERS];
} fv_pack_report; /* {0} to begin with */

typedef struct fv_pack_context {
    const fv_plan *plan;
    fv_backend *be;
    const fv_rope *rope;
    fv_kv *kv;
    int32_t layer;
    fv_arena *room; /* for the time of the call */
} fv_pack_context;

typedef struct fv_pack_method {
    const char *name;
    /* Packs a layer that has visual rows, the same in all KV heads. FV_EINVAL when the rows are
     * such that they cannot be packed. */
    fv_status (*layer)(const fv_pack_context *ctx, fv_packed_layer *out);
} fv_pack_method;

/* Packs the layers below n_layer that are not packed yet. paid[l]: what the prompt's last row paid
 * to layer l's visual rows, by prompt position; NULL: it was not asked. What is wrong with this
 * request's rows is noted in the report, and ends nothing; errors are those of the backend and of
 * memory. */
fv_status fv_pack_run(const fv_plan *plan, fv_backend *be, const fv_rope *rope, fv_kv *kv,
                      int32_t n_layer, const float *const *paid, fv_pack_report *report);

#endif
