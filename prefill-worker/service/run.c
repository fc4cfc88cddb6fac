/* Runs the computing thread of the prefill worker: keeps the queue of tasks and chooses the next work
 * item. A work item is the preparation of a queued task, or a step (batch.c) of tasks with granted
 * memory and read images. Preparation comes first until a batch is full, so that tasks that wait together
 * run together, and later ones hold no grant. Replies of decode workers and cancellations arrive as
 * jobs between the work items, and are handled before each.
 *
 * Tenants share the thread (fair.h). A task waits in the queue for tasks of its own tenant, but not for
 * another tenant's that fill a batch: a tenant with no prepared task may always have one prepared.
 *
 * Events of a task go to the loop thread as ops embedded in the task; `over` is the last.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/failpoint.h"
#include "common/heap.h"
#include "prefill-worker/service/internal.h"

/* ---- the end of a task ------------------------------------------------------------------ */

void fv_task_post(fv_task *t, fv_rpc_op *op) {
    if (!t->probe) fv_bridge_post(t->worker->opt.bridge, op, true);
}

static void count_started(fv_task *t, int n) {
    if (!t->probe) atomic_fetch_add(&t->worker->n_started, n);
}

void fv_task_waits(fv_task *t) {
    fv_pulse_end(t->worker->pulse, t->at_work);
    t->at_work = 0;
}

void fv_task_works(fv_task *t, uint64_t (*shared)(const void *worker)) {
    fv_task_waits(t);
    if (!t->probe)
        t->at_work =
            fv_pulse_begin(t->worker->pulse, t->msg->request->request_id, shared, t->worker);
}

/* Counts layers of the whole batch: each one is progress of every request in it. */
uint64_t fv_task_layers_run(const void *worker) {
    return fv_engine_layers_run(((const fv_prefill_worker *)worker)->opt.engine);
}

void fv_task_end(fv_task *t, fv_status st) {
    fv_prefill_line *l = &t->worker->line;
    fv_task **at = &l->first;
    while (*at != t) at = &(*at)->next;
    *at = t->next;
    if (!*at) l->tail = at;
    fv_error_take(&t->fault, st);
    if (st != FV_OK && t->ship) t->refusal = fv_export_refusal(t->ship);
    if (t->state != FV_TASK_QUEUED) count_started(t, -1);
    fv_fair_leave(&l->fair, t->flow);
    fv_task_waits(t);
    fv_task_give_pixels(t);
    fv_task_release(t, st == FV_OK);
    if (t->probe)
        fv_prefill_probe_over(t);
    else
        fv_task_post(t, &t->over);
}

/* Whether anybody still waits for the task. Checks the deadline here, too: under load the loop thread may
 * report it late, after work was computed for nothing. */
bool fv_task_wanted(const fv_task *t) {
    bool expired = t->deadline_s > 0 && fv_clock_s() >= t->deadline_s;
    return !expired && !atomic_load(&t->cancelled);
}

void fv_task_end_unwanted(fv_task *t) {
    fv_task_end(t, atomic_load(&t->cancelled)
                       ? FV_FAIL(FV_ECANCELLED, "the request was cancelled")
                       : FV_FAIL(FV_EDEADLINE, "the request's deadline has passed"));
}

/* ---- first steps ------------------------------------------------------------------------ */

void fv_task_enqueue(fv_job *job) {
    fv_task *t = job->owner;
    fv_prefill_line *l = &t->worker->line;
    const fv_prefill_message *m = t->msg;
    t->flow = fv_fair_enter(&l->fair, t->probe ? "probe " : fv_task_share(t),
                            t->probe ? 1 : m->tenant_weight);
    t->next = NULL;
    *l->tail = t;
    l->tail = &t->next;
    if (!t->probe) fv_failpoint_reached(FV_FAILPOINT_PREFILL_QUEUED);
}

/* Says that the decode worker has memory for the task, and what is computed where. */
static void say_begun(fv_task *t) {
    t->begun_said = true;
    fv_task_post(t, &t->begun);
    fv_failpoint_reached(FV_FAILPOINT_PREFILL_READY);
}

/* Makes a task READY; or READING if it has images to be read first, WAITING if another task computes for it, or
 * FETCHING. */
static void make_ready(fv_task *t) {
    t->state = FV_TASK_READY;
    fv_status st = fv_task_take_prefix(t);
    if (st == FV_OK && t->state == FV_TASK_READY) st = fv_task_read_images(t);
    if (st != FV_OK) {
        fv_task_end(t, st);
    } else if (t->state == FV_TASK_READY && t->ship && !t->begun_said) {
        say_begun(t);
    }
}

/* Leaves the end of the prompt to the decode worker. */
static void leave_rest(fv_task *t) {
    say_begun(t);
    fv_status st = fv_task_leave_rest(t);
    if (st != FV_OK) fv_task_end(t, st);
}

/* Moves on a task after it was prepared with the result `st`. */
void fv_task_prepared(fv_task *t, fv_status st) {
    if (st == FV_OK && t->prefill.finish != FV_FINISH_NOT) { /* replayed tokens were all */
        t->began_s = fv_clock_s();
        fv_task_post(t, &t->first);
        fv_task_end(t, FV_OK);
    } else if (st != FV_OK) {
        fv_task_end(t, st);
    } else if (t->state == FV_TASK_OPENING) {
        fv_failpoint_reached(FV_FAILPOINT_PREFILL_OPENING);
    } else if (t->state == FV_TASK_READY) {
        make_ready(t);
    }
}

static void prepare(fv_task *t) {
    count_started(t, 1);
    t->state = FV_TASK_OPENING;
    fv_task_works(t, fv_task_layers_run);
    fv_status st = fv_task_prepare(t);
    if (st == FV_OK && t->state != FV_TASK_READING) fv_task_waits(t);
    fv_task_prepared(t, st);
}

/* ---- tasks under way ---------------------------------------------------------------------- */

static void advance_opening(fv_task *t) {
    bool granted;
    fv_status st = fv_fail_origin(fv_export_granted(t->ship, &granted), FV_ORIGIN_HANDOFF);
    if (st != FV_OK) {
        fv_task_end(t, st);
    } else if (granted) {
        t->ticket = *fv_export_ticket(t->ship);
        t->bytes_reserved = fv_export_reserved(t->ship);
        if (fv_task_may_leave_rest(t))
            leave_rest(t);
        else
            make_ready(t);
    }
}

static void advance_hashing(fv_task *t) {
    fv_status st = fv_task_images_hashed(t);
    t->state = FV_TASK_OPENING;
    if (st == FV_OK) st = fv_task_ask_for_memory(t);
    fv_task_prepared(t, st);
}

static void advance_reading(fv_task *t) {
    fv_status st = fv_task_images_read(t);
    if (st != FV_OK) {
        fv_task_end(t, st);
    } else if (t->prefill.kv) {
        make_ready(t);
    } else { /* they are encoded and condensed before the plan is made */
        t->state = FV_TASK_READY;
    }
}

static void advance_waiting(fv_task *t) {
    if (fv_task_awaits(t)) return;
    fv_task_waits(t);
    make_ready(t);
}

static void advance_fetching(fv_task *t) {
    bool goes_on = t->fetch.away ? fv_task_fetch_is_overdue(t) : !fv_task_fetched(t);
    if (goes_on) make_ready(t);
}

static void advance_exporting(fv_task *t) {
    bool done;
    fv_status st = fv_fail_origin(fv_export_done(t->ship, &done), FV_ORIGIN_HANDOFF);
    if (st != FV_OK) {
        fv_task_end(t, st);
    } else if (done) {
        fv_failpoint_reached(FV_FAILPOINT_PREFILL_COMMITTED);
        t->sent = fv_export_get_report(t->ship);
        fv_task_end(t, FV_OK);
    }
}

static void advance(fv_prefill_line *l) {
    for (fv_task *t = l->first, *next; t; t = next) {
        next = t->next;
        if (t->state == FV_TASK_RUNNING) continue; /* the unit that runs it ends it */
        if (t->state == FV_TASK_READING && t->images.away)
            continue; /* cancelled or not: the line has it, and returns it soon */
        if (!fv_task_wanted(t))
            fv_task_end_unwanted(t);
        else if (t->state == FV_TASK_READING && t->images.hashing)
            advance_hashing(t);
        else if (t->state == FV_TASK_READING)
            advance_reading(t);
        else if (t->state == FV_TASK_OPENING)
            advance_opening(t);
        else if (t->state == FV_TASK_WAITING)
            advance_waiting(t);
        else if (t->state == FV_TASK_FETCHING)
            advance_fetching(t);
        else if (t->state == FV_TASK_EXPORTING)
            advance_exporting(t);
    }
}

/* ---- the thread ------------------------------------------------------------------------- */

/* Longest time that a batch waits for a grant: a healthy decode worker replies sooner, and a slow one
 * must not delay the batch. */
static const double open_soon_s = 0.02;
/* Longest time that a batch waits for images; usual ones are read sooner. */
static const double read_soon_s = 0.05;

/* Whether a batch waits for this task. */
static bool is_soon(const fv_task *t, double now_s) {
    if (t->state == FV_TASK_READING) return now_s - t->reading_s < read_soon_s;
    return t->state == FV_TASK_OPENING && now_s - t->opened_s < open_soon_s;
}

/* Counts of prepared tasks, which have places in a batch or soon will. */
typedef struct places {
    int32_t n_ready, n_reading, n_soon;
} places;

static places count_places(fv_prefill_line *l) {
    places p = {0};
    double now = fv_clock_s();
    for (fv_task *t = l->first; t; t = t->next) t->flow->n_placed = 0;
    for (fv_task *t = l->first; t; t = t->next) {
        bool soon = is_soon(t, now);
        bool reading = (t->state == FV_TASK_READING && !soon) || t->state == FV_TASK_WAITING ||
                       t->state == FV_TASK_FETCHING;
        bool ready = t->state == FV_TASK_READY || t->state == FV_TASK_RUNNING;
        p.n_soon += soon;
        p.n_reading += reading;
        p.n_ready += ready;
        t->flow->n_placed += soon || reading || ready;
    }
    return p;
}

/* Returns the queued task to be prepared next, or NULL. No more than a batch is prepared at a time, because
 * grants and pixel values hold memory that others could use; the first task of a tenant is an exception,
 * because other tenants must not keep it out. */
static fv_task *next_waiting(const fv_prefill_line *l, bool full) {
    fv_task *best = NULL;
    for (fv_task *t = l->first; t; t = t->next) {
        if (t->state != FV_TASK_QUEUED || (full && t->flow->n_placed > 0) || t->flow->n_running)
            continue;
        if (!best || fv_fair_start(&l->fair, t->flow) < fv_fair_start(&l->fair, best->flow))
            best = t;
    }
    return best;
}

/* Prepares the next queued task; false: none may be prepared now. */
static bool prepare_next(fv_prefill_worker *w, const places *p) {
    fv_task *t = next_waiting(&w->line, p->n_ready + p->n_reading + p->n_soon >= w->opt.batch);
    if (t) prepare(t);
    return t != NULL;
}

static double work(fv_prefill_worker *w) {
    advance(&w->line);
    if (fv_prefill_probe_due(w)) fv_prefill_probe_begin(w);
    places p = count_places(&w->line);
    if (prepare_next(w, &p)) return 0;
    if (p.n_ready && (p.n_ready >= w->opt.batch || !p.n_soon) && fv_prefill_step(w)) return 0;
    return p.n_soon ? open_soon_s : fv_prefill_probe_pause(w);
}

/* Does the same for tenants with no task in the running batch, without waiting for a fuller batch. */
void fv_prefill_line_between(fv_prefill_worker *w) {
    fv_jobs_catch_up(w->jobs);
    for (bool more = true; more;) {
        advance(&w->line);
        places p = count_places(&w->line);
        more = prepare_next(w, &p) || fv_prefill_step(w);
    }
}

static void count_prefixes(fv_prefill_worker *w) {
    fv_prefix_counters now = fv_prefix_cache_count(w->line.prefixes);
    atomic_store(&w->prefix_bytes, now.bytes);
    atomic_store(&w->prefix_given_up, now.given_up);
}

double fv_prefill_line_work(void *worker) {
    fv_prefill_worker *w = worker;
    size_t freed;
    double again_s = work(w), trim_s = fv_kv_pool_trim(w->line.pool, fv_clock_s(), &freed);
    double due_s = fv_fetches_due_s(&w->line);
    if (due_s >= 0 && (again_s < 0 || due_s < again_s)) again_s = due_s;
    if (freed >= FV_HEAP_SPARE_BYTES) fv_heap_give_back();
    atomic_store(&w->bytes_held, fv_kv_pool_used(w->line.pool));
    count_prefixes(w);
    if (isinf(trim_s)) return again_s;
    return again_s < 0 ? trim_s : fmin(again_s, trim_s);
}

fv_status fv_prefill_line_open(fv_prefill_worker *w) {
    fv_prefill_line *l = &w->line;
    const fv_engine *e = w->opt.engine;
    size_t vocab = (size_t)fv_checkpoint_config(e->ck)->text.vocab;
    fv_kv_shape shape = fv_engine_kv_shape(e, w->opt.kv_dtype);
    l->engine = e;
    l->tail = &l->first;
    l->logits = malloc((size_t)w->opt.batch * vocab * sizeof *l->logits);
    if (!l->logits) return FV_FAIL(FV_ENOMEM, "out of memory for a batch of %d", w->opt.batch);
    FV_TRY(fv_image_cache_open(w->opt.cache_bytes, &l->cache));
    FV_TRY(fv_prefix_cache_open(e->be.device, &shape, w->opt.prefix_bytes, &l->prefixes));
    FV_TRY(fv_kept_log_open(FV_KEPT_LOG_MAX, &l->kept));
    fv_prefix_cache_log(l->prefixes, l->kept);
    FV_TRY(fv_prefill_probe_open(w));
    if (e->vision) fv_vision_between(e->vision, fv_prefill_while_encoding, w);
    if (e->video) fv_vision_between(e->video, fv_prefill_while_encoding, w);
    return fv_kv_pool_open(e->be.device, &shape, w->opt.kv_bytes, &l->pool);
}

void fv_prefill_line_close(fv_prefill_worker *w) {
    const fv_engine *e = w->opt.engine;
    if (e->vision) fv_vision_between(e->vision, NULL, NULL);
    if (e->video) fv_vision_between(e->video, NULL, NULL);
    fv_prefill_probe_close(w);
    fv_fair_fini(&w->line.fair);
    fv_kv_pool_close(w->line.pool);
    fv_image_cache_close(w->line.cache);
    fv_prefix_cache_close(w->line.prefixes);
    fv_kept_log_close(w->line.kept);
    free(w->line.logits);
}
