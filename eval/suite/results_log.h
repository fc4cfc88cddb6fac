#ifndef FOVEA_EVAL_SUITE_RESULTS_LOG_H
#define FOVEA_EVAL_SUITE_RESULTS_LOG_H

/* THE ANSWER RESULTS LOG of an evaluation: a file that grows by a line with each item that was answered, so
 * that an evaluation that was broken off goes on where it stopped.
 *
 *   items.jsonl   line 1   what is asked of whom (fv_results_log_head)
 *                 others   one score each (eval/suite/item_score.h), in the order in which they came
 *
 * A last line that was not written to its end is dropped. One thread. */
#include <stdio.h>

#include "eval/suite/item_score.h"

/* What must be the same for an evaluation to go on. */
typedef struct fv_results_log_head {
    fv_suite suite;
    const char *checkpoint; /* fingerprint */
    const char *measured;   /* fv_calibration_digest(); NULL: a fleet's own. A results log without
                             * has "none" */
    const char *by;         /* "process" or "fleet" */
    const char *dialog;     /* "whole" or "kept": how later turns are asked */
    const char *first;      /* "held" or "prefill": what the first token comes from. A results log
                             * without has "prefill" */
    const char *kv_dtype; /* of the KV store; NULL: a fleet's own. A results log without has f32 */
    const char *compute;  /* of products; NULL: a fleet's own. A results log without has f32 */
    int32_t n_policy;
    const char *const *policy; /* [n_policy] text forms with every parameter; "exact" */
    const char *const *name;   /* [n_policy] what to call them in results, or NULL: their texts */
} fv_results_log_head;

typedef struct fv_results_log {
    const fv_results_log_head *head; /* borrowed */
    fv_item_score *item_score;       /* [n_policy * n_item] by policy, then by item; owned */
    bool *done;                      /* [n_policy * n_item] which of them are there; owned */
    int32_t n_done;
    FILE *file; /* private */
} fv_results_log;

/* Opens `path`, or makes it. FV_EINVAL when it holds another evaluation: the sentence names what differs.
 * FV_EDATA: a line is broken. `head` must stay. */
fv_status fv_results_log_open(const char *path, const fv_results_log_head *head,
                              fv_results_log *out);

/* Adds what another evaluation's results log has already answered of this one: by the same party, with the same
 * seed and tasks; policies are known by their text, and others are passed over. Of a log with another `measured`
 * only exact's answers are taken: what others read may differ. FV_EINVAL: it is of something else; the sentence
 * names what. */
fv_status fv_results_log_reuse(fv_results_log *s, const char *path);

/* One without a file. */
fv_status fv_results_log_init(const fv_results_log_head *head, fv_results_log *out);

/* Adds a score and writes its line out; takes what the score owns, also on failure. */
fv_status fv_results_log_add(fv_results_log *s, fv_item_score *item_score);

/* Its place in `score` and `done`. */
int32_t fv_results_log_at(const fv_results_log *s, int32_t policy, int32_t item);

void fv_results_log_close(fv_results_log *s); /* {0} is fine */

/* The head as JSON, for the results too; NULL when memory runs out. */
json_t *fv_results_log_head_json(const fv_results_log_head *head);

#endif
