/* Tasks and the tiers beyond the cache of prefixes (kv/tier/tier.h).
 *
 *   a task lacks segments -> tier by tier: what does it have? a tier that waits is asked on the [reading thread]
 *       -> drafts of them in the cache -> FETCHING
 *       [reading thread] fills one draft after the other; ends early when computing them would be as fast
 *   -> the cache keeps those that were filled, and the task takes what the cache has
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

/* A fetch takes this long at most as long as nothing was computed here. */
static const double fetch_most_s = 2;

static bool on_host(const fv_buf *b) { return b->device == fv_device_host() || !b->device; }

static fv_seal_head head_of(const fv_prefix_part *p) {
    return (fv_seal_head){
        .n = p->n, .visual = p->visual, .seconds = *p->seconds, .bytes = p->rows->bytes};
}

/* ---- fetching --------------------------------------------------------------------------------- */

/* Reads segments until one is not there. */
static void read_draft(fv_task *t, fv_kv_tier *tier) {
    fv_task_fetch *f = &t->fetch;
    for (int32_t i = f->draft.n_old; i < f->draft.n_link; i++) {
        fv_prefix_part p = fv_prefix_draft_part(&f->draft, i);
        fv_seal_head want = head_of(&p);
        void *rows = f->staged ? f->staged[i] : p.rows->data;
        if (atomic_load(&t->cancelled) || fv_clock_s() > f->until_s) return;
        if (tier->ops->read(tier, p.key, &want, rows, p.seconds) != FV_OK) return;
        f->n = i + 1;
        atomic_fetch_add_explicit(&t->worker->n_read, 1, memory_order_relaxed);
    }
}

/* On the reading thread. */
static void fetch(fv_job *job) {
    fv_task *t = job->owner;
    fv_task_fetch *f = &t->fetch;
    fv_kv_tier *tier = t->worker->opt.tier[f->tier];
    if (!f->asking)
        read_draft(t, tier);
    else if (!atomic_load(&t->cancelled))
        f->n_there = tier->ops->has(tier, f->key, f->n_key);
    fv_jobs_post_followup(t->worker->jobs, &f->back);
}

static void on_back(fv_job *job) { ((fv_task *)job->owner)->fetch.away = false; }

static uint64_t segments_read(const void *worker) {
    const fv_prefill_worker *w = worker;
    return atomic_load_explicit(&w->n_read, memory_order_relaxed);
}

static void send_away(fv_task *t, bool asking) {
    fv_task_fetch *f = &t->fetch;
    f->asking = asking;
    f->away = true;
    f->job = (fv_job){.run = fetch, .owner = t};
    f->back = (fv_job){.run = on_back, .owner = t};
    t->state = FV_TASK_FETCHING;
    fv_task_works(t, segments_read);
    fv_jobs_post_followup(t->worker->tier_reads, &f->job);
}

/* Takes host memory for segments that lie on another device. */
static fv_status stage(fv_task_fetch *f) {
    for (int32_t i = f->draft.n_old; i < f->draft.n_link; i++) {
        fv_prefix_part p = fv_prefix_draft_part(&f->draft, i);
        if (on_host(p.rows)) return FV_OK;
        if (!f->staged) f->staged = calloc((size_t)f->draft.n_link, sizeof *f->staged);
        if (f->staged) f->staged[i] = malloc(p.rows->bytes);
        if (!f->staged || !f->staged[i])
            return FV_FAIL(FV_ENOMEM, "out of memory for kept segments");
    }
    return FV_OK;
}

static void free_staged(fv_task_fetch *f) {
    for (int32_t i = 0; f->staged && i < f->draft.n_link; i++) free(f->staged[i]);
    free(f->staged);
    f->staged = NULL;
}

/* Lists the keys of segments that the task could use and the cache lacks, up to *n links; *here: links that it has. */
static fv_status list_keys(fv_task *t, int32_t *here) {
    fv_task_fetch *f = &t->fetch;
    const fv_prefill_job *j = &t->prefill;
    int32_t n = fv_prefill_job_links_wanted(j);
    *here = fv_prefix_links(j->prefixes, j->link, n, INT32_MAX);
    f->n_key = n - *here;
    free(f->key);
    f->key = NULL;
    if (f->n_key == 0) return FV_OK;
    f->key = malloc((size_t)f->n_key * sizeof *f->key);
    if (!f->key) return FV_FAIL(FV_ENOMEM, "out of memory for keys of kept segments");
    for (int32_t i = 0; i < f->n_key; i++) f->key[i] = &j->link[*here + i].key;
    return FV_OK;
}

/* Sends drafts of the segments that the tier has to the reading thread; false: there are none. */
static bool read_there(fv_task *t) {
    fv_task_fetch *f = &t->fetch;
    const fv_prefill_job *j = &t->prefill;
    const double row_s = t->worker->line.seconds_row;
    int32_t n = fv_prefix_links(j->prefixes, j->link, j->n_link, INT32_MAX), here = n;
    /* The cache may reach further by now than when the tier was asked. */
    for (int32_t i = 0; i < f->n_there; i++)
        if (&j->link[n].key == f->key[i]) n++;
    if (n == here) return false;
    fv_prefill_job_open_draft(j, n, &f->draft);
    if (f->draft.n_link <= f->draft.n_old || stage(f) != FV_OK) {
        fv_task_drop_fetch(t);
        return false;
    }
    int32_t rows = j->link[f->draft.n_link - 1].end - (here ? j->link[here - 1].end : 0);
    f->until_s = fv_clock_s() + (row_s > 0 ? rows * row_s : fetch_most_s);
    f->n = f->draft.n_old;
    send_away(t, false);
    return true;
}

bool fv_task_fetch_prefix(fv_task *t) {
    fv_task_fetch *f = &t->fetch;
    for (; f->tier < t->worker->opt.n_tier; f->tier++) {
        fv_kv_tier *tier = t->worker->opt.tier[f->tier];
        int32_t here;
        if (list_keys(t, &here) != FV_OK || f->n_key == 0) return false;
        if (tier->ops->waits) {
            f->n_there = 0;
            send_away(t, true);
            return true;
        }
        f->n_there = tier->ops->has(tier, f->key, f->n_key);
        if (read_there(t)) return true;
    }
    return false;
}

/* Keeps the segments that are filled. */
static void adopt(fv_task *t) {
    fv_task_fetch *f = &t->fetch;
    fv_prefix_cache *c = t->prefill.prefixes;
    fv_status st = FV_OK;
    for (int32_t i = f->draft.n_old; f->staged && i < f->n && st == FV_OK; i++) {
        fv_prefix_part p = fv_prefix_draft_part(&f->draft, i);
        st = fv_device_copy(p.rows->device, p.rows->data, f->staged[i], p.rows->bytes);
        if (st != FV_OK) f->n = i;
    }
    free_staged(f);
    for (int32_t i = f->draft.n_old; i < f->n; i++)
        *fv_prefix_draft_part(&f->draft, i).tiers |= (uint8_t)(1 << f->tier);
    if (f->n > f->draft.n_old) {
        f->end = t->prefill.link[f->n - 1].end;
        f->rows[f->tier] = f->end - (f->draft.n_old ? t->prefill.link[f->draft.n_old - 1].end : 0);
    }
    fv_prefix_draft_cut(c, &f->draft, f->n);
    fv_prefix_draft_adopt(c, &f->draft);
}

bool fv_task_fetched(fv_task *t) {
    fv_task_fetch *f = &t->fetch;
    fv_task_waits(t);
    if (f->asking && read_there(t)) return true;
    if (!f->asking) adopt(t);
    f->tier++;
    return false;
}

void fv_task_drop_fetch(fv_task *t) {
    free_staged(&t->fetch);
    free(t->fetch.key);
    t->fetch.key = NULL;
    if (t->fetch.draft.segment) fv_prefix_draft_drop(t->prefill.prefixes, &t->fetch.draft);
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
        fv_seal_head head = head_of(&p);
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
        if (on_host(p.rows) || !s->lack[i]) continue;
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
    FV_TRY(fv_jobs_start(&(fv_jobs_options){.name = "fovea-kv-read"}, &w->tier_reads));
    return fv_jobs_start(&(fv_jobs_options){.name = "fovea-kv-write"}, &w->tier_writes);
}

void fv_tier_threads_close(fv_prefill_worker *w) {
    atomic_store(&w->tier_closing, true);
    fv_jobs_stop(w->tier_reads);
    fv_jobs_stop(w->tier_writes);
}
