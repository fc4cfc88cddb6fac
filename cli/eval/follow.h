#ifndef FOVEA_CLI_EVAL_FOLLOW_H
#define FOVEA_CLI_EVAL_FOLLOW_H

/* FOLLOW: how far a long answer under a policy stays with that of another. The first policy answers
 * greedily with n_token tokens; every other one is led along them, which is to say that it gets the
 * same tokens and is asked at each what it would have chosen. Up to the first other choice that is
 * its own greedy answer. */
#include <jansson.h>

#include "cli/client/local.h"
#include "eval/suite/suite.h"

enum { FV_FOLLOW_TOKENS_MAX = 32768 };

typedef struct fv_eval_follow {
    const fv_suite *suite; /* every item's first turn is asked */
    int32_t side;          /* of images, pixels */
    int32_t n_token;       /* of an answer, 1..FV_FOLLOW_TOKENS_MAX */
    int32_t at_once;       /* requests at a time, as `local` was opened */
    bool first_held;       /* fv_ask's */
    int32_t n_policy;
    const fv_policy *policy; /* [n_policy] */
    const char *const *text; /* [n_policy] */
} fv_eval_follow;

/* Gives *out (eval/README.md: "follow.json"). The first policy's logits of one answer are kept, [n_token, vocab] of f32.
 * FV_EINVAL: prompt and answer are more than the checkpoint's positions. `local` must be idle. */
fv_status fv_eval_follow_run(const fv_eval_follow *f, fv_local *local, json_t **out);

/* A table of it. */
fv_status fv_eval_follow_print(FILE *to, const json_t *json);

#endif
