#ifndef FOVEA_EVAL_SUITE_RESULTS_LOG_H
#define FOVEA_EVAL_SUITE_RESULTS_LOG_H

/* THE RESULTS LOG of an evaluation: a file that grows by a line with each answered item, so that an
 * interrupted evaluation can continue.
 *
 *   items.jsonl   line 1   the evaluation (fv_results_log_head)
 *                 others   one score each (eval/suite/item_score.h), in the order of completion
 *
 * An incomplete last line is dropped. One thread. */
#include <stdio.h>

#include "eval/suite/item_score.h"

/* Settings that must be the same for an evaluation to continue. */
typedef struct fv_results_log_head {
    fv_suite suite;
    const char *checkpoint; /* fingerprint */
    const char *measured;   /* fv_calibration_digest(); NULL: a fleet's own; absent in a log:
                             * "none" */
    const char *by;         /* "process" or "fleet" */
    const char *dialog;     /* "whole" or "kept": how later turns are asked */
    const char *first;      /* "held" or "prefill": KV that the first token is computed from; absent
                             * in a log: "prefill" */
    const char *kv_dtype;   /* of the KV store; NULL: a fleet's own; absent in a log: f32 */
    int32_t span;           /* tokens of a document that are taken for an image's; 0: none */
    const char *compute;    /* of products; NULL: a fleet's own; absent in a log: f32 */
    int32_t n_policy;
    const char *const *policy; /* [n_policy] text forms with every parameter; "exact" */
    const char *const *name;   /* [n_policy] names in results, or NULL: their texts */
} fv_results_log_head;

typedef struct fv_results_log {
    const fv_results_log_head *head; /* borrowed */
    fv_item_score *item_score;       /* [n_policy * n_item] by policy, then by item; owned */
    bool *done;                      /* [n_policy * n_item] scores that exist; owned */
    int32_t n_done;
    FILE *file; /* private */
} fv_results_log;

/* Opens or creates `path`. FV_EINVAL, naming the difference, if it belongs to another evaluation;
 * FV_EDATA if a line is broken. `head` must stay valid. */
fv_status fv_results_log_open(const char *path, const fv_results_log_head *head,
                              fv_results_log *out);

/* Adds scores from another evaluation's results log that also belong to this one: answered by the
 * same process or fleet, with the same seed and tasks; policies are matched by their text, and
 * others skipped. From a log with another `measured` only answers of `exact` are used, since others
 * may depend on it. FV_EINVAL, naming the difference, if the evaluations do not match. */
fv_status fv_results_log_reuse(fv_results_log *s, const char *path);

/* Makes a log without a file. */
fv_status fv_results_log_init(const fv_results_log_head *head, fv_results_log *out);

/* Adds a score and writes its line; takes what the score owns, also on failure. */
fv_status fv_results_log_add(fv_results_log *s, fv_item_score *item_score);

/* Index in `item_score` and `done`. */
int32_t fv_results_log_at(const fv_results_log *s, int32_t policy, int32_t item);

void fv_results_log_close(fv_results_log *s); /* {0} is fine */

/* The head as JSON, also for the results; NULL: out of memory. */
json_t *fv_results_log_head_json(const fv_results_log_head *head);

#endif
