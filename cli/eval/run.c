/* Chooses the next item and shows progress. */
#include "cli/eval/run.h"

#include <stdio.h>

fv_status fv_eval_run_next(fv_eval_run *s, fv_eval_session *session, bool *got) {
    const fv_results_log_head *head = s->results_log->head;
    int64_t n = (int64_t)head->n_policy * head->suite.n_item;
    if (s->next == 0) fv_progress_begin(&s->progress);
    for (*got = false; s->next < n && !*got; s->next++) {
        int32_t item = (int32_t)(s->next / head->n_policy);
        int32_t policy = (int32_t)(s->next % head->n_policy);
        if (s->results_log->done[fv_results_log_at(s->results_log, policy, item)]) continue;
        FV_TRY(fv_eval_session_take(&head->suite, s->side, policy, item, session));
        *got = true;
    }
    return FV_OK;
}

fv_status fv_eval_run_add(fv_eval_run *s, fv_eval_session *session) {
    const fv_results_log_head *head = s->results_log->head;
    char note[96];
    fv_item_score item_score = session->item_score;
    session->item_score = (fv_item_score){0};
    fv_eval_session_leave(session);
    snprintf(note, sizeof note, "answers; item %d (%s)", item_score.item,
             fv_suite_task_name(&head->suite, fv_suite_task_of(&head->suite, item_score.item)));
    FV_TRY(fv_results_log_add(s->results_log, &item_score));
    fv_progress_show(&s->progress, s->results_log->n_done,
                     (int64_t)head->n_policy * head->suite.n_item, note);
    return FV_OK;
}
