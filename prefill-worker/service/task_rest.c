/* Tasks whose decode worker has all but a short end of the prompt: it computes that end and the first token itself, as it
 * does in a kept conversation, and this worker has only rendered and tokenised the prompt.
 *
 *   OPENING --granted, and the rest is short--> EXPORTING --committed--> over
 *
 * Nothing is read, encoded, prefilled or sent, and no copy of the kept rows is made here. On the computing thread. */
#include <string.h>

#include "common/clock.h"
#include "common/failpoint.h"
#include "prefill-worker/service/internal.h"

int32_t fv_task_cached(const fv_task *t) {
    return t->prefix.left ? t->prefix.left : t->prefill.prefix.rows;
}

bool fv_task_offers_rest(const fv_task *t) {
    const fv_generate_message *r = t->msg ? t->msg->request : NULL;
    return r && t->msg->may_leave_rest && t->msg->n_replay == 0 && !r->kept_tokens &&
           !r->prompt_tokens && !r->prompt_alternatives_case;
}

bool fv_task_may_leave_rest(fv_task *t) {
    int32_t kept, rest;
    if (fv_export_rest(t->ship, &kept, &rest) != FV_OK || rest == 0) return false;
    t->prefix.left = kept;
    return true;
}

fv_status fv_task_leave_rest(fv_task *t) {
    t->began_s = t->prefilled_s = t->sending_s = fv_clock_s();
    fv_prefill_job *j = &t->prefill;
    for (int32_t l = 0; l < j->plan.shape.n_layer; l++) j->visual_tokens[l] = j->prompt.n_visual;
    memcpy(j->stats.visual_tokens_held, j->visual_tokens, sizeof j->visual_tokens);
    j->n_skip = j->n_item; /* images were kept with their rows */
    t->prefix.taken = true;
    t->prefix.seconds_left = t->prefix.left * t->worker->line.seconds_row;
    t->state = FV_TASK_EXPORTING;
    FV_TRY(fv_kv_set_rope_map(j->kv, &j->rope_map)); /* as a run would: the export sends it */
    FV_TRY(fv_fail_origin(fv_export_leave_rest(t->ship), FV_ORIGIN_HANDOFF));
    t->sent_s = fv_clock_s();
    fv_task_waits(t); /* for the decode worker's answer to the commit */
    return FV_OK;
}
