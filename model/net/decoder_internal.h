#ifndef FOVEA_MODEL_NET_DECODER_INTERNAL_H
#define FOVEA_MODEL_NET_DECODER_INTERNAL_H

/* Declarations shared by the files of the decoder only. */
#include <stdatomic.h>

#include "common/arena.h"
#include "model/net/adapter.h"
#include "model/net/decoder.h"
#include "model/net/rope.h"
#include "model/net/workspace.h"

struct fv_decoder {
    fv_backend *be;
    const fv_text_config *cfg;
    fv_text_weights w;
    fv_workspace ws;         /* activations of a pass */
    fv_workspace head_ws;    /* activations of the head; its inputs are in ws */
    fv_workspace experts_ws; /* those of a mixture of experts, for the tokens of one call */
    fv_workspace adapter_ws; /* those of an adapter, likewise */
    fv_rope rope[2];         /* [fv_text_rope, fv_text_query_rope] */
    float *made;             /* weights that differ from the file: norms of 1 + w, scales */
    fv_tensor factor;        /* [1, d] embed_scale; absent without it */
    fv_tensor residual;      /* [1, d] residual_scale; absent without it */
    /* [1, p] each, with per-layer embeddings: d^-1/2, p^1/2 and 2^-1/2 (layer_inputs_internal.h) */
    fv_tensor input_by[3];
    fv_tensor ones, zeros;       /* [1, D] and [1, H D], where layers have heads of their own */
    fv_arena host;               /* the pass's tables */
    fv_decoder_watcher *watcher; /* or NULL */
    void *watcher_user;
    int32_t *adjacent, n_adjacent; /* [heads, D] order of numbers in heads of adjacent pairs */
    fv_tensor lse;                 /* [rows, H] log-sum-exp of a watched pass */
    atomic_ullong n_layer_run;
};

/* The id whose embedding a token of text has. */
int32_t fv_decoder_embedded_as(const fv_text_config *c, int32_t id);

/* Makes queries or keys x [n, heads * D] from the projection's output: RMSNorm of each head by
 * `weight`, unless that is absent, then rotation. */
fv_status fv_decoder_rope(fv_decoder *dec, fv_tensor weight, fv_tensor x, fv_tensor c, fv_tensor s);

#endif
