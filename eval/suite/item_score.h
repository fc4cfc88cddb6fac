#ifndef FOVEA_EVAL_SUITE_ITEM_SCORE_H
#define FOVEA_EVAL_SUITE_ITEM_SCORE_H

/* A MARK: how one item was answered under one policy, as a line of items.jsonl has it. */
#include <jansson.h>

#include "eval/suite/suite.h"

/* Sizes and times are those of the first turn; bytes are of keys and values together. */
typedef struct fv_item_score {
    int32_t policy, item; /* which, in the order in which they were given */
    int32_t n_turn;
    char *said[FV_ITEM_TURNS]; /* [n_turn] owned */
    double score[FV_ITEM_TURNS];
    int32_t n_prompt, n_visual, n_token; /* tokens of the prompt, of its images; tokens answered */
    double bytes_exact;                  /* visual KV that `exact` holds after prefill */
    double bytes_visual;                 /* visual KV held after prefill */
    double bytes_visual_end;             /* and after the last token */
    double bytes_sent; /* by the hand-off, text and headers too; 0: there was none */
    double ttft_s;     /* from asking to the first token */
    double tpot_s;     /* mean of the others; negative: there were none */
    char *note;        /* stages that did nothing, and why; owned, NULL: none */
} fv_item_score;       /* {0} is empty and may be freed */

void fv_item_score_free(fv_item_score *m);

/* Mean over the turns. */
double fv_item_score_score(const fv_item_score *m);

/* A new JSON object, or NULL when memory runs out. */
json_t *fv_item_score_json(const fv_item_score *m, const fv_suite *suite);

/* FV_EDATA: `json` is no score of this evaluation with n_policy policies; the sentence says what is wrong,
 * and where. */
fv_status fv_item_score_read(const json_t *json, const fv_suite *suite, int32_t n_policy,
                             const char *where, fv_item_score *out);

#endif
