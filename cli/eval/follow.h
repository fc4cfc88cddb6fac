#ifndef FOVEA_CLI_EVAL_FOLLOW_H
#define FOVEA_CLI_EVAL_FOLLOW_H

/* FOLLOW: how long an answer under a policy agrees with that of another. The first policy answers
 * greedily with n_token tokens, or reads on in a document that has no question. The other policies get the same tokens, and at each their own
 * choice is compared. Up to its first different choice a policy's greedy answer would be the
 * same. */
#include <jansson.h>

#include "cli/client/local.h"
#include "eval/suite/suite.h"

enum { FV_FOLLOW_TOKENS_MAX = 32768 };

typedef struct fv_eval_follow {
    const fv_suite *suite; /* the first turn of every item is asked */
    int32_t side;          /* of images, pixels */
    int32_t span;          /* as in fv_eval_run */
    int32_t n_token;       /* tokens per answer, 1..FV_FOLLOW_TOKENS_MAX */
    int32_t at_once;       /* concurrent requests, as `local` was opened for */
    bool first_held;       /* fv_ask.first_held */
    int32_t n_policy;
    const fv_policy *policy; /* [n_policy] */
    const char *const *text; /* [n_policy] */
} fv_eval_follow;

/* Gives *out (eval/README.md: "follow.json"). Stores the first policy's logits of one answer,
 * [n_token, vocab] of f32. FV_EINVAL: prompt and answer exceed the checkpoint's positions. `local`
 * must be idle. */
fv_status fv_eval_follow_run(const fv_eval_follow *f, fv_local *local, json_t **out);

/* Prints the results as a table. */
fv_status fv_eval_follow_print(FILE *to, const json_t *json);

#endif
