#ifndef FOVEA_CLI_LOCAL_INTERNAL_H
#define FOVEA_CLI_LOCAL_INTERNAL_H

/* What cli/local*.c share. */
#include "cli/local.h"

enum {
    FV_LOCAL_TOGETHER = 4,     /* prompts in one pass, as in a prefill worker */
    FV_LOCAL_PROMPT_ROWS = 64, /* of later questions, in a step */
    FV_LOCAL_KEEP_S = 1000000, /* whoever keeps a conversation here is this process itself */
};

typedef struct fv_local_run fv_local_run; /* a request on its way */

struct fv_local {
    fv_local_options opt;
    fv_checkpoint *ck;
    fv_tokenizer *tok;
    fv_backend be;
    bool be_open;
    fv_decoder *dec;
    fv_vision *vision;      /* NULL for a text-only checkpoint */
    fv_image_cache *images; /* encoded */
    fv_kv_pool *prefill_pool, *decode_pool;
    fv_receiver *receiver; /* of the decode side */
    fv_transport *transport;
    fv_batch *batch;
    fv_conversations *conversations;
    fv_local_run **runs; /* [n_run_max], n_run used: in the order in which they began */
    int32_t n_run, n_run_max;
    float *logits;   /* [FV_LOCAL_TOGETHER, vocab] behind prompts */
    int32_t n_vocab; /* ids that may be sampled: behind them are padding rows */
    char fingerprint[17];
};

/* The rows of n images, condensed unless that is NULL; those that came before are not encoded
 * again, and their seconds are 0. */
fv_status fv_local_encode(fv_local *l, const fv_image *images, int32_t n, const fv_choice *condense,
                          fv_encoded *out);

/* Ends all requests without a word. */
void fv_local_drop(fv_local *l);

#endif
