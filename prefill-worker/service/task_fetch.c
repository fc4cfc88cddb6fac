/* Segments of a task's prompt from the tiers beyond the cache of prefixes (kv/tier/tier.h).
 *
 *   a task lacks segments -> tier by tier: what does it have? a tier that waits is asked on its [reading thread]
 *       -> drafts of them in the cache -> FETCHING
 *       [reading thread] fills one draft after the other; ends early when computing them would be as fast
 *   -> the cache keeps those that were filled, and the task takes what the cache has
 *
 * What goes to a reading thread is an ERRAND, which owns all that it touches. A task whose errand is overdue, because a
 * disk hangs within one read, or that is cancelled, goes on without it; the errand ends by itself when it comes back. A
 * tier with an overdue errand is asked nothing more until that is back, and then not for a while. Each tier has a thread of
 * its own, so the others are asked as before. On the computing thread, unless a function says otherwise. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/log.h"
#include "prefill-worker/service/internal.h"

/* A fetch takes this long at most as long as nothing was computed here. */
static const double fetch_most_s = 2;
/* An errand that should have ended is waited for so much longer: for the segment that is being read. */
static const double grace_s = 0.2;
/* A tier that has hung is left alone for so long, doubling up to the second. */
static const double rest_first_s = 1, rest_most_s = 60;

struct fv_errand {
    fv_job job, back;
    fv_prefill_worker *worker;
    fv_task *task; /* NULL: it goes on without the errand */
    int32_t tier;
    bool asking;            /* the tier is asked what it has; otherwise the draft is filled */
    bool overdue;           /* counted in the tier's n_overdue */
    atomic_bool stopped;    /* nobody wants the rest */
    double until_s;         /* by then computing would have been as fast */
    fv_chain_key *key;      /* [n_key] what the tier is asked for */
    int32_t n_key, n_there; /* n_there: leading ones that it has */
    fv_prefix_draft draft;  /* of the segments that it has */
    int32_t n;              /* leading segments of the draft that are filled */
    void **staged; /* [draft.n_link] host memory for those of another device; NULL: not needed */
};

/* ---- on the reading thread -------------------------------------------------------------------- */

/* Reads segments until one is not there. */
static void read_draft(fv_errand *e, fv_kv_tier *tier) {
    for (int32_t i = e->draft.n_old; i < e->draft.n_link; i++) {
        fv_prefix_part p = fv_prefix_draft_part(&e->draft, i);
        fv_seal_head want = fv_tier_head_of(&p);
        void *rows = e->staged ? e->staged[i] : p.rows->data;
        if (atomic_load(&e->stopped) || fv_clock_s() > e->until_s) return;
        if (tier->ops->read(tier, p.key, &want, rows, p.seconds) != FV_OK) return;
        e->n = i + 1;
        atomic_fetch_add_explicit(&e->worker->n_read, 1, memory_order_relaxed);
    }
}

static void ask(fv_errand *e, fv_kv_tier *tier) {
    const fv_chain_key **key = malloc((size_t)e->n_key * sizeof *key);
    for (int32_t i = 0; key && i < e->n_key; i++) key[i] = &e->key[i];
    if (key) e->n_there = tier->ops->has(tier, key, e->n_key);
    free(key);
}

static void run(fv_job *job) {
    fv_errand *e = job->owner;
    fv_kv_tier *tier = e->worker->opt.tier[e->tier];
    if (!e->asking)
        read_draft(e, tier);
    else if (!atomic_load(&e->stopped))
        ask(e, tier);
    fv_jobs_post_followup(e->worker->jobs, &e->back);
}

/* ---- errands ------------------------------------------------------------------------------------ */

static void free_errand(fv_errand *e) {
    for (int32_t i = 0; e->staged && i < e->draft.n_link; i++) free(e->staged[i]);
    free(e->staged);
    free(e->key);
    if (e->draft.segment) fv_prefix_draft_drop(e->worker->line.prefixes, &e->draft);
    free(e);
}

/* Keeps the segments that are filled. Returns their number beyond those that were kept before. */
static int32_t adopt(fv_errand *e) {
    fv_prefix_cache *c = e->worker->line.prefixes;
    fv_status st = FV_OK;
    for (int32_t i = e->draft.n_old; e->staged && i < e->n && st == FV_OK; i++) {
        fv_prefix_part p = fv_prefix_draft_part(&e->draft, i);
        st = fv_device_copy(p.rows->device, p.rows->data, e->staged[i], p.rows->bytes);
        if (st != FV_OK) e->n = i;
    }
    for (int32_t i = 0; e->staged && i < e->draft.n_link; i++) free(e->staged[i]);
    free(e->staged);
    e->staged = NULL;
    int32_t n = e->n - e->draft.n_old;
    for (int32_t i = e->draft.n_old; i < e->n; i++)
        *fv_prefix_draft_part(&e->draft, i).tiers |= (uint8_t)(1 << e->tier);
    fv_prefix_draft_cut(c, &e->draft, e->n);
    fv_prefix_draft_adopt(c, &e->draft);
    return n;
}

/* Notes that a tier has answered, in time or not. */
static void rest_tier(fv_errand *e) {
    fv_tier_line *line = &e->worker->tier_line[e->tier];
    if (!e->overdue) {
        line->rest_s = 0;
    } else if (--line->n_overdue == 0) {
        line->rest_s = line->rest_s > 0 ? fmin(2 * line->rest_s, rest_most_s) : rest_first_s;
        line->rest_until_s = fv_clock_s() + line->rest_s;
        FV_LOG(WARN, PREFILL, "event=tier-answers tier=%s rest_s=%.0f",
               e->worker->opt.tier[e->tier]->ops->name, line->rest_s);
    }
}

static void on_back(fv_job *job) {
    fv_errand *e = job->owner;
    rest_tier(e);
    if (e->task) {
        e->task->fetch.away = false;
        return;
    }
    if (!e->asking) (void)adopt(e);
    free_errand(e);
}

static uint64_t segments_read(const void *worker) {
    const fv_prefill_worker *w = worker;
    return atomic_load_explicit(&w->n_read, memory_order_relaxed);
}

static void send_away(fv_task *t, fv_errand *e, bool asking) {
    e->asking = asking;
    e->job = (fv_job){.run = run, .owner = e};
    e->back = (fv_job){.run = on_back, .owner = e};
    t->fetch.away = true;
    t->state = FV_TASK_FETCHING;
    fv_task_works(t, segments_read);
    fv_jobs_post_followup(t->worker->tier_line[e->tier].reads, &e->job);
}

/* Goes on without the errand, which is freed when it is back. */
static void part(fv_task *t) {
    fv_errand *e = t->fetch.errand;
    t->fetch.errand = NULL;
    if (!e) return;
    if (!t->fetch.away) {
        free_errand(e);
        return;
    }
    t->fetch.away = false;
    atomic_store(&e->stopped, true);
    e->draft.link = NULL; /* the task's; nothing of the draft is copied from a store */
    e->task = NULL;
}

void fv_task_drop_fetch(fv_task *t) { part(t); }

/* ---- a task ------------------------------------------------------------------------------------- */

static bool may_ask(const fv_tier_line *line) {
    return line->n_overdue == 0 && (line->rest_s == 0 || fv_clock_s() >= line->rest_until_s);
}

/* Makes an errand for the segments that the task could use and the cache lacks; *out NULL: there are none. */
static fv_status open_errand(fv_task *t, int32_t tier, fv_errand **out) {
    const fv_prefill_job *j = &t->prefill;
    int32_t n = fv_prefill_job_links_wanted(j);
    int32_t here = fv_prefix_links(j->prefixes, j->link, n, INT32_MAX);
    *out = NULL;
    if (n == here) return FV_OK;
    fv_errand *e = calloc(1, sizeof *e);
    if (e) e->key = malloc((size_t)(n - here) * sizeof *e->key);
    if (!e || !e->key) {
        free(e);
        return FV_FAIL(FV_ENOMEM, "out of memory for keys of kept segments");
    }
    e->worker = t->worker;
    e->task = t;
    e->tier = tier;
    e->until_s = fv_clock_s() + fetch_most_s;
    e->n_key = n - here;
    for (int32_t i = 0; i < e->n_key; i++) e->key[i] = j->link[here + i].key;
    *out = e;
    return FV_OK;
}

/* Takes host memory for segments that lie on another device. */
static fv_status stage(fv_errand *e) {
    for (int32_t i = e->draft.n_old; i < e->draft.n_link; i++) {
        fv_prefix_part p = fv_prefix_draft_part(&e->draft, i);
        if (fv_tier_on_host(p.rows)) return FV_OK;
        if (!e->staged) e->staged = calloc((size_t)e->draft.n_link, sizeof *e->staged);
        if (e->staged) e->staged[i] = malloc(p.rows->bytes);
        if (!e->staged || !e->staged[i])
            return FV_FAIL(FV_ENOMEM, "out of memory for kept segments");
    }
    return FV_OK;
}

/* Sends drafts of the segments that the tier has to the reading thread; false: there are none. */
static bool read_there(fv_task *t, fv_errand *e) {
    const fv_prefill_job *j = &t->prefill;
    const double row_s = t->worker->line.seconds_row;
    int32_t n = fv_prefix_links(j->prefixes, j->link, j->n_link, INT32_MAX), here = n;
    /* The cache may reach further by now than when the tier was asked. */
    for (int32_t i = 0; i < e->n_there; i++)
        if (n < j->n_link && fv_chain_key_equal(&j->link[n].key, &e->key[i])) n++;
    if (n == here) return false;
    fv_prefill_job_open_draft(j, n, &e->draft);
    if (e->draft.n_link <= e->draft.n_old || stage(e) != FV_OK) return false;
    int32_t rows = j->link[e->draft.n_link - 1].end - (here ? j->link[here - 1].end : 0);
    e->until_s = fv_clock_s() + (row_s > 0 ? rows * row_s : fetch_most_s);
    e->n = e->draft.n_old;
    send_away(t, e, false);
    return true;
}

bool fv_task_fetch_prefix(fv_task *t) {
    fv_task_fetch *f = &t->fetch;
    for (; f->tier < t->worker->opt.n_tier; f->tier++) {
        fv_kv_tier *tier = t->worker->opt.tier[f->tier];
        if (!may_ask(&t->worker->tier_line[f->tier])) continue;
        if (open_errand(t, f->tier, &f->errand) != FV_OK || !f->errand) return false;
        if (tier->ops->waits) {
            send_away(t, f->errand, true);
            return true;
        }
        ask(f->errand, tier);
        if (read_there(t, f->errand)) return true;
        part(t);
    }
    return false;
}

/* Takes what the errand has brought. */
static void take(fv_task *t) {
    fv_task_fetch *f = &t->fetch;
    const fv_chain_link *link = t->prefill.link;
    int32_t n_old = f->errand->draft.n_old, n = adopt(f->errand);
    if (n <= 0) return;
    f->end = link[n_old + n - 1].end;
    f->rows[f->tier] = f->end - (n_old ? link[n_old - 1].end : 0);
}

bool fv_task_fetched(fv_task *t) {
    fv_task_fetch *f = &t->fetch;
    fv_task_waits(t);
    if (f->errand->asking && read_there(t, f->errand)) return true;
    if (!f->errand->asking) take(t);
    part(t);
    f->tier++;
    return false;
}

/* ---- time --------------------------------------------------------------------------------------- */

static double due_s(const fv_task *t) { return t->fetch.errand->until_s + grace_s; }

bool fv_task_fetch_is_overdue(fv_task *t) {
    fv_errand *e = t->fetch.errand;
    if (fv_clock_s() < due_s(t)) return false;
    fv_tier_line *line = &t->worker->tier_line[e->tier];
    if (line->n_overdue++ == 0)
        FV_LOG(WARN, PREFILL,
               "event=tier-hangs tier=%s action=\"it is not asked until it answers\"",
               t->worker->opt.tier[e->tier]->ops->name);
    e->overdue = true;
    fv_task_waits(t);
    part(t);
    t->fetch.tier++;
    return true;
}

double fv_fetches_due_s(const fv_prefill_line *l) {
    double first = HUGE_VAL;
    for (const fv_task *t = l->first; t; t = t->next)
        if (t->state == FV_TASK_FETCHING && t->fetch.away) first = fmin(first, due_s(t));
    return first == HUGE_VAL ? -1 : fmax(0, first - fv_clock_s());
}
