/* Who is next, and how far it is. */
#include "cli/eval_run.h"

#include <stdio.h>

fv_status fv_eval_run_next(fv_eval_run *s, fv_eval_session *seat, bool *got) {
    const fv_results_log_head *head = s->sheet->head;
    int64_t n = (int64_t)head->n_policy * head->exam.n_item;
    if (s->next == 0) fv_progress_begin(&s->progress);
    for (*got = false; s->next < n && !*got; s->next++) {
        int32_t item = (int32_t)(s->next / head->n_policy);
        int32_t policy = (int32_t)(s->next % head->n_policy);
        if (s->sheet->done[fv_results_log_at(s->sheet, policy, item)]) continue;
        FV_TRY(fv_eval_session_take(&head->exam, s->side, policy, item, seat));
        *got = true;
    }
    return FV_OK;
}

fv_status fv_eval_run_add(fv_eval_run *s, fv_eval_session *seat) {
    const fv_results_log_head *head = s->sheet->head;
    char note[96];
    fv_item_score mark = seat->mark;
    seat->mark = (fv_item_score){0};
    fv_eval_session_leave(seat);
    snprintf(note, sizeof note, "answers; item %d (%s)", mark.item,
             fv_task_describe((int32_t)fv_suite_task_of(&head->exam, mark.item))->name);
    FV_TRY(fv_results_log_add(s->sheet, &mark));
    fv_progress_show(&s->progress, s->sheet->n_done, (int64_t)head->n_policy * head->exam.n_item,
                     note);
    return FV_OK;
}
