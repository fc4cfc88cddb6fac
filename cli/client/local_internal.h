#ifndef FOVEA_CLI_CLIENT_LOCAL_INTERNAL_H
#define FOVEA_CLI_CLIENT_LOCAL_INTERNAL_H

/* Declarations shared by cli/client/local*.c. */
#include "cli/client/local.h"

enum {
    FV_LOCAL_TOGETHER = 4,       /* prompts per batch, as in a prefill worker */
    FV_LOCAL_PROMPT_TOKENS = 64, /* tokens of later questions per step */
    FV_LOCAL_KEEP_S = 1000000,   /* long enough: this process is the only client */
};

typedef struct fv_local_run fv_local_run; /* a request in progress */

struct fv_local {
    fv_local_options opt; /* its model is `model` */
    char *model;          /* owned; NULL: none */
    fv_engine engine;
    fv_image_cache *images; /* encoded */
    fv_kv_pool *prefill_pool, *decode_pool;
    fv_receiver *receiver; /* of the decode side */
    fv_transport *transport;
    fv_conversations *conversations;
    fv_scheduler *scheduler;
    fv_local_run **runs; /* [n_run_max], n_run used, in the order of beginning */
    int32_t n_run, n_run_max;
    float *logits; /* [FV_LOCAL_TOGETHER, vocab] after prompts */
};

extern const fv_scheduler_hooks fv_local_scheduler_hooks; /* its answers are fv_local_run */

/* Ends all requests without callbacks. */
void fv_local_drop(fv_local *l);

#endif
