#ifndef FOVEA_EVAL_SUITE_ITEM_SCORE_H
#define FOVEA_EVAL_SUITE_ITEM_SCORE_H

/* A SCORE: the result of one item under one policy, a line of items.jsonl. */
#include <jansson.h>

#include "eval/suite/suite.h"

/* Sizes and times are those of the first turn; bytes are of keys and values together. */
typedef struct fv_item_score {
    int32_t policy, item; /* indices of the policy and the item */
    int32_t n_turn;
    char *said[FV_ITEM_TURNS]; /* [n_turn] owned */
    double score[FV_ITEM_TURNS];
    int32_t n_prompt, n_visual, n_token; /* tokens of the prompt, of its images, and of the
                                          * answer */
    double bytes_exact;                  /* visual KV that `exact` holds after prefill */
    double bytes_visual;                 /* visual KV held after prefill */
    double bytes_visual_end;             /* visual KV held after the last token */
    double bytes_sent; /* bytes of the hand-off, with text and headers; 0: no hand-off */
    double ttft_s;     /* from the question to the first token */
    double tpot_s;     /* mean of the other tokens; negative: there were none */
    char *note;        /* stages that did nothing, with reasons; owned, NULL: none */
} fv_item_score;       /* {0} is empty and may be freed */

void fv_item_score_free(fv_item_score *m);

/* Mean over the turns. */
double fv_item_score_mean(const fv_item_score *m);

/* A new JSON object; NULL: out of memory. */
json_t *fv_item_score_json(const fv_item_score *m, const fv_suite *suite);

/* Parses a score. FV_EDATA, with the place, if `json` is no score of this evaluation with n_policy
 * policies. */
fv_status fv_item_score_read(const json_t *json, const fv_suite *suite, int32_t n_policy,
                             const char *where, fv_item_score *out);

#endif
