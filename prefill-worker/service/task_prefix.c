/* Tasks and the cache of prefixes. The prompt is named before memory is asked for, because the decode worker may have
 * kept some of it, too; a task looks into the cache when it has its memory, before its images are read:
 *
 *   images are hashed on a reading line -> the chain is made -> memory is granted
 *       -> does another task compute much of what is lacking?
 *       yes: WAITING until that task has kept it, then once more
 *       no:  what a tier has besides is fetched (task_fetch.c); the prefix is taken; other tasks may wait for this
 *            one from now on
 *
 * If many requests with one image arrive together, only one computes it. A task waits only for one whose memory is
 * granted, so no wait depends on a peer's answer. It waits again only if the last wait has helped, and no longer when
 * another task has ended its run and what it computed could not be kept, so prompts that are too long to be kept run
 * together as they would without a cache. On the computing thread. */
#include "prefill-worker/service/internal.h"

/* Whether others may wait for what the task computes. */
static bool leads(const fv_task *t) {
    bool computes =
        t->state == FV_TASK_READING || t->state == FV_TASK_READY || t->state == FV_TASK_RUNNING;
    return t->state == FV_TASK_FETCHING || (t->prefix.taken && t->prefill.link && computes);
}

bool fv_task_awaits(const fv_task *t) {
    const fv_prefill_job *j = &t->prefill;
    bool again = t->prefix.waited && t->state != FV_TASK_WAITING;
    if (t->prefix.in_vain) return false;
    int32_t have = fv_prefill_job_prefix_rows(j);
    if (again && have <= t->prefix.rows) return false;
    for (const fv_task *o = t->worker->line.first; o; o = o->next)
        if (o != t && leads(o) && fv_prefill_job_gains(j, have, &o->prefill)) return true;
    return false;
}

static void await(fv_task *t) {
    t->state = FV_TASK_WAITING;
    t->prefix.waited = true;
    t->prefix.rows = fv_prefill_job_prefix_rows(&t->prefill);
    fv_task_works(t, fv_task_layers_run); /* another task's progress is this one's */
}

/* Names the links of the chain as the router does (PrefillRequest.ends). */
static void name_links(fv_task *t) {
    const fv_prefill_message *m = t->msg;
    if (!m) return;
    const size_t n = m->n_ends < FV_PROMPT_ENDS_MAX ? m->n_ends : FV_PROMPT_ENDS_MAX;
    fv_prompt_end end[FV_PROMPT_ENDS_MAX];
    for (size_t i = 0; i < n; i++)
        end[i] = (fv_prompt_end){m->ends[i]->digest, m->ends[i]->items, m->ends[i]->text};
    fv_prefill_job_name_links(&t->prefill, end, (int32_t)n);
}

fv_status fv_task_name_prompt(fv_task *t) {
    fv_prefill_job *j = &t->prefill;
    uint64_t bytes;
    if (!fv_prefill_job_caches(j)) return FV_OK;
    if (!fv_prefill_job_undigested(j)) {
        FV_TRY(fv_prefill_job_chain(j));
        name_links(t);
        return FV_OK;
    }
    FV_TRY(fv_prefill_job_digest_begin(j, &bytes));
    fv_task_hash_images(t, bytes);
    return FV_OK;
}

fv_status fv_task_take_prefix(fv_task *t) {
    fv_prefill_job *j = &t->prefill;
    if (t->prefix.taken || !j->link) return FV_OK;
    if (fv_task_awaits(t)) {
        await(t);
        return FV_OK;
    }
    if (fv_task_fetch_prefix(t)) return FV_OK;
    t->prefix.taken = true;
    return fv_prefill_job_take_prefix(j);
}

/* Ends the waits for what a task has computed if it is still lacking: the cache has no room for it. */
static void end_vain_waits(const fv_task *t) {
    for (fv_task *o = t->worker->line.first; o; o = o->next) {
        const fv_prefill_job *j = &o->prefill;
        if (o->state == FV_TASK_WAITING &&
            fv_prefill_job_gains(j, fv_prefill_job_prefix_rows(j), &t->prefill))
            o->prefix.in_vain = true;
    }
}

void fv_task_keep_prefix(fv_task *t) {
    if (!t->prefix.taken || !t->prefill.link) return;
    double *row_s = &t->worker->line.seconds_row, now_s = t->prefix.seconds_row;
    if (now_s > 0) *row_s = *row_s > 0 ? 0.8 * *row_s + 0.2 * now_s : now_s;
    fv_prefill_job_keep_prefix(&t->prefill, now_s);
    fv_prefix_tell(t->prefill.prefixes, t->prefill.link, t->prefill.n_link);
    fv_task_store_prefix(t);
    end_vain_waits(t);
}
