#ifndef FOVEA_CLI_EVAL_RUN_H
#define FOVEA_CLI_EVAL_RUN_H

/* RUNNING AN EVALUATION: every item that has no score yet is asked under its policy, several at a time.
 *
 *   results log --next--> session --asked of this process, or of a fleet--> score --> results log
 *
 * Items come in order, each under all policies before the next: whenever an evaluation is broken off,
 * nearly all answers so far are in pairs. One thread. */
#include "cli/client/progress.h"
#include "cli/client/remote.h"
#include "cli/eval/session.h"
#include "eval/suite/results_log.h"

typedef struct fv_eval_run {
    fv_results_log *results_log;
    const fv_policy *policy; /* [n_policy] */
    int32_t side;            /* of images */
    int32_t at_once;
    int32_t keep_ms; /* dialogs are kept between turns, by a fleet for so long; 0: whole chats are
                      * sent */
    bool first_held; /* the first token comes from what is held (fv_ask); not with a fleet */
    /* private */
    int64_t next;
    fv_progress progress;
} fv_eval_run;

fv_status fv_eval_run_local(fv_eval_run *s, fv_local *local);
fv_status fv_eval_run_remote(fv_eval_run *s, fv_remote *remote);

/* ---- for these two ----------------------------------------------------------------------- */

/* Takes the next item that has no score; *got is false when there is none left. */
fv_status fv_eval_run_next(fv_eval_run *s, fv_eval_session *session, bool *got);

/* The session's score is complete: it goes to the results log, and the session is left. */
fv_status fv_eval_run_add(fv_eval_run *s, fv_eval_session *session);

#endif
