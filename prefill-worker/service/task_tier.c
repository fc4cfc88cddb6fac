/* Writes what tasks have computed to the tiers beyond the cache of prefixes (kv/tier/tier.h).
 *
 *   the cache has kept segments of a task -> they are pinned
 *       [writing thread] writes those that a tier lacks
 *   -> they are unpinned
 *
 * The bytes that wait to be written are bounded: beyond that nothing more is pinned, and a later prompt that uses the
 * segments offers them again. On the computing thread, unless a function says otherwise. */
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/log.h"
#include "prefill-worker/service/internal.h"

bool fv_tier_on_host(const fv_buf *b) { return b->device == fv_device_host() || !b->device; }

fv_seal_head fv_tier_head_of(const fv_prefix_part *p) {
    return (fv_seal_head){
        .n = p->n, .visual = p->visual, .seconds = *p->seconds, .bytes = p->rows->bytes};
}

/* ---- writing ---------------------------------------------------------------------------------- */

/* Segments on their way to tiers. */
typedef struct storing {
    fv_job job, back;
    fv_prefill_worker *worker;
    fv_prefix pinned;
    uint8_t *lack; /* [pinned.n_link] bit i: tier i lacks it; cleared when it is written */
    size_t bytes;  /* counted in line.bytes_storing */
    void **staged; /* [pinned.n_link] of another device */
    char tenant[]; /* a text */
} storing;

/* Logs why a segment was not written, at most every ten seconds. */
static void tell(fv_prefill_worker *w, const fv_kv_tier *tier) {
    double now = fv_clock_s();
    if (w->tier_told_s > 0 && now - w->tier_told_s < 10) return;
    w->tier_told_s = now;
    FV_LOG(WARN, PREFILL, "event=kept-segment-not-written tier=%s reason=\"%s\"", tier->ops->name,
           fv_last_error());
}

/* Writes what tier k lacks, until that fails. */
static void store_in(storing *s, int32_t k) {
    fv_kv_tier *tier = s->worker->opt.tier[k];
    const uint8_t bit = (uint8_t)(1 << k);
    for (int32_t i = 0; i < s->pinned.n_link; i++) {
        fv_prefix_part p = fv_prefix_part_of(&s->pinned, i);
        fv_seal_head head = fv_tier_head_of(&p);
        const void *rows = s->staged ? s->staged[i] : p.rows->data;
        if (atomic_load(&s->worker->tier_closing)) return;
        if (!(s->lack[i] & bit)) continue;
        if (tier->ops->write(tier, s->tenant, p.key, &head, rows) != FV_OK) {
            tell(s->worker, tier);
            return;
        }
        s->lack[i] &= (uint8_t)~bit;
    }
}

/* On the writing thread. */
static void store(fv_job *job) {
    storing *s = job->owner;
    for (int32_t k = 0; k < s->worker->opt.n_tier; k++) store_in(s, k);
    fv_jobs_post_followup(s->worker->jobs, &s->back);
}

static void free_storing(storing *s) {
    for (int32_t i = 0; s->staged && i < s->pinned.n_link; i++) free(s->staged[i]);
    free(s->staged);
    free(s->lack);
    s->worker->line.bytes_storing -= s->bytes;
    fv_prefix_give(s->worker->line.prefixes, &s->pinned);
    free(s);
}

static uint8_t all_tiers(const fv_prefill_worker *w) { return (uint8_t)((1 << w->opt.n_tier) - 1); }

static void on_stored(fv_job *job) {
    storing *s = job->owner;
    for (int32_t i = 0; i < s->pinned.n_link; i++)
        *fv_prefix_part_of(&s->pinned, i).tiers = all_tiers(s->worker) & (uint8_t)~s->lack[i];
    free_storing(s);
}

/* Counts the bytes to be written, and copies them to the host if they lie elsewhere. */
static fv_status stage_rows(storing *s) {
    s->lack = calloc((size_t)s->pinned.n_link + 1, 1);
    if (!s->lack) return FV_FAIL(FV_ENOMEM, "out of memory for kept segments");
    for (int32_t i = 0; i < s->pinned.n_link; i++) {
        fv_prefix_part p = fv_prefix_part_of(&s->pinned, i);
        s->lack[i] = all_tiers(s->worker) & (uint8_t) ~*p.tiers;
        if (s->lack[i]) s->bytes += p.rows->bytes;
        if (fv_tier_on_host(p.rows) || !s->lack[i]) continue;
        if (!s->staged) s->staged = calloc((size_t)s->pinned.n_link, sizeof *s->staged);
        if (s->staged) s->staged[i] = malloc(p.rows->bytes);
        if (!s->staged || !s->staged[i])
            return FV_FAIL(FV_ENOMEM, "out of memory for kept segments");
        FV_TRY(fv_device_copy(p.rows->device, s->staged[i], p.rows->data, p.rows->bytes));
    }
    return FV_OK;
}

/* Number of leading links that are worth writing: all but an end of text that is no whole page, which hardly a prompt
 * has in common with another one. */
static int32_t links_to_store(const fv_prefill_job *j) {
    int32_t n = j->n_link;
    for (; n > 0; n--) {
        bool visual = j->link[n - 1].n_visual > (n > 1 ? j->link[n - 2].n_visual : 0);
        if (visual || j->link[n - 1].n_text % FV_KV_BLOCK == 0) break;
    }
    return n;
}

void fv_task_store_prefix(fv_task *t) {
    fv_prefill_worker *w = t->worker;
    fv_prefix_cache *c = t->prefill.prefixes;
    const char *tenant = t->prefill.owner ? t->prefill.owner : "";
    int32_t n = links_to_store(&t->prefill);
    if (w->opt.n_tier == 0 || n == 0) return;
    storing *s = calloc(1, sizeof *s + strlen(tenant) + 1);
    if (!s) return;
    *s = (storing){.worker = w};
    strcpy(s->tenant, tenant);
    s->job = (fv_job){.run = store, .owner = s};
    s->back = (fv_job){.run = on_stored, .owner = s};
    fv_status st = fv_prefix_pin(c, t->prefill.link, n, &s->pinned);
    if (st == FV_OK) st = stage_rows(s);
    w->line.bytes_storing += s->bytes;
    if (st == FV_OK && s->bytes > 0 && w->line.bytes_storing <= w->opt.prefix_bytes / 4)
        fv_jobs_post_followup(w->tier_writes, &s->job);
    else
        free_storing(s);
}

/* ---- the threads ------------------------------------------------------------------------------ */

fv_status fv_tier_threads_open(fv_prefill_worker *w) {
    if (w->opt.n_tier == 0) return FV_OK;
    for (int32_t k = 0; k < w->opt.n_tier; k++)
        FV_TRY(fv_jobs_start(&(fv_jobs_options){.name = "fovea-kv-read"}, &w->tier_line[k].reads));
    return fv_jobs_start(&(fv_jobs_options){.name = "fovea-kv-write"}, &w->tier_writes);
}

void fv_tier_threads_close(fv_prefill_worker *w) {
    atomic_store(&w->tier_closing, true);
    for (int32_t k = 0; k < w->opt.n_tier; k++) fv_jobs_stop(w->tier_line[k].reads);
    fv_jobs_stop(w->tier_writes);
}
