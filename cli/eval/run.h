#ifndef FOVEA_CLI_EVAL_RUN_H
#define FOVEA_CLI_EVAL_RUN_H

/* RUNNING AN EVALUATION: asks every item without a score under its policy, several at a time.
 *
 *   results log --next--> session --asked here or on a fleet--> score --> results log
 *
 * Items come in order, each under all policies before the next, so after an interruption nearly all
 * answers are in pairs. One thread. */
#include "cli/client/progress.h"
#include "cli/client/remote.h"
#include "cli/eval/session.h"
#include "eval/suite/results_log.h"

typedef struct fv_eval_run {
    fv_results_log *results_log;
    const fv_policy *policy; /* [n_policy] */
    int32_t side;            /* of images */
    int32_t span;            /* tokens of an item's document that are taken for an image's */
    int32_t at_once;
    int32_t keep_ms; /* how long a fleet keeps dialogs between turns; 0: whole chats are sent */
    bool first_held; /* compute the first token from the KV held (fv_ask); not with a fleet */
    /* private */
    int64_t next;
    fv_progress progress;
} fv_eval_run;

fv_status fv_eval_run_local(fv_eval_run *s, fv_local *local);
fv_status fv_eval_run_remote(fv_eval_run *s, fv_remote *remote);

/* ---- for these two functions ------------------------------------------------------------- */

/* Takes the next item without a score; *got is false if none is left. */
fv_status fv_eval_run_next(fv_eval_run *s, fv_eval_session *session, bool *got);

/* Adds the session's complete score to the results log and leaves the session. */
fv_status fv_eval_run_add(fv_eval_run *s, fv_eval_session *session);

#endif
