/* The computing thread of the prefill worker: a queue of tasks, and the choice of the next work
 * item. A work item is a batch of tasks with granted memory and read images, or the preparation of
 * one that waits: preparing comes first until a batch is full, so that tasks that wait together run
 * together, and later ones hold no grant. Replies of decode workers and cancellations arrive as
 * jobs between the work items, and are handled before each.
 *
 * While a batch is computed, final layers are sent to the decode workers group by group,
 * so that after the first token only the last group is left to send.
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

enum { GROUPS = 8 }; /* groups of layers, by default */

/* ---- the end of a task ------------------------------------------------------------------ */

static void say(fv_task *t, fv_rpc_op *op) {
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

/* Of the whole batch: a layer that is computed is one of each of its requests. */
static uint64_t layers_run(const void *worker) {
    return fv_engine_layers_run(((const fv_prefill_worker *)worker)->opt.engine);
}

/* Removes it from the queue and frees all that it has; the task belongs to the loop thread
 * again. */
static void end_task(fv_task *t, fv_status st) {
    fv_prefill_line *l = &t->worker->line;
    fv_task **at = &l->first;
    while (*at != t) at = &(*at)->next;
    *at = t->next;
    if (!*at) l->tail = at;
    fv_error_take(&t->fault, st);
    if (st != FV_OK && t->ship) t->refusal = fv_export_refusal(t->ship);
    if (t->state != FV_TASK_QUEUED) count_started(t, -1);
    fv_task_waits(t);
    fv_task_give_pixels(t);
    fv_task_release(t, st == FV_OK);
    if (t->probe)
        fv_prefill_probe_over(t);
    else
        say(t, &t->over);
}

/* Does anybody wait for it? The deadline is looked at here, too: under load the word of the loop
 * thread that it has passed may come late, and what it would save is dear. */
static bool wanted(const fv_task *t) {
    bool expired = t->deadline_s > 0 && fv_clock_s() >= t->deadline_s;
    return !expired && !atomic_load(&t->cancelled);
}

static void end_unwanted(fv_task *t) {
    end_task(t, atomic_load(&t->cancelled)
                    ? FV_FAIL(FV_ECANCELLED, "the request was cancelled")
                    : FV_FAIL(FV_EDEADLINE, "the request's deadline has passed"));
}

/* ---- first steps ------------------------------------------------------------------------ */

void fv_task_enqueue(fv_job *job) {
    fv_task *t = job->owner;
    fv_prefill_line *l = &t->worker->line;
    t->next = NULL;
    *l->tail = t;
    l->tail = &t->next;
    if (!t->probe) fv_failpoint_reached(FV_FAILPOINT_PREFILL_QUEUED);
}

/* Images first, unless they are there. */
static void make_ready(fv_task *t) {
    t->state = FV_TASK_READY;
    fv_status st = fv_task_read_images(t);
    if (st != FV_OK) {
        end_task(t, st);
    } else if (t->state == FV_TASK_READY && t->ship && !t->begun_said) {
        t->begun_said = true;
        say(t, &t->begun);
        fv_failpoint_reached(FV_FAILPOINT_PREFILL_READY);
    }
}

/* After the steps that prepare it. */
static void prepared(fv_task *t, fv_status st) {
    if (st == FV_OK && t->prefill.finish != FV_FINISH_NOT) { /* what is to be replayed was all */
        t->began_s = fv_clock_s();
        say(t, &t->first);
        end_task(t, FV_OK);
    } else if (st != FV_OK) {
        end_task(t, st);
    } else if (t->state == FV_TASK_OPENING) {
        fv_failpoint_reached(FV_FAILPOINT_PREFILL_OPENING);
    } else if (t->state == FV_TASK_READY) {
        make_ready(t);
    }
}

static void prepare(fv_task *t) {
    count_started(t, 1);
    t->state = FV_TASK_OPENING;
    fv_task_works(t, layers_run);
    fv_status st = fv_task_prepare(t);
    if (st == FV_OK && t->state != FV_TASK_READING) fv_task_waits(t);
    prepared(t, st);
}

/* ---- what has happened since ------------------------------------------------------------- */

static void advance_opening(fv_task *t) {
    bool granted;
    fv_status st = fv_fail_origin(fv_export_granted(t->ship, &granted), FV_ORIGIN_HANDOFF);
    if (st != FV_OK) {
        end_task(t, st);
    } else if (granted) {
        t->ticket = *fv_export_ticket(t->ship);
        make_ready(t);
    }
}

static void advance_reading(fv_task *t) {
    fv_status st = fv_task_images_read(t);
    if (st != FV_OK) {
        end_task(t, st);
    } else if (t->prefill.kv) {
        make_ready(t);
    } else { /* the plan waited for them */
        t->state = FV_TASK_OPENING;
        prepared(t, fv_task_prepare_rest(t));
    }
}

static void advance_exporting(fv_task *t) {
    bool done;
    fv_status st = fv_fail_origin(fv_export_done(t->ship, &done), FV_ORIGIN_HANDOFF);
    if (st != FV_OK) {
        end_task(t, st);
    } else if (done) {
        fv_failpoint_reached(FV_FAILPOINT_PREFILL_COMMITTED);
        t->sent = fv_export_get_report(t->ship);
        end_task(t, FV_OK);
    }
}

static void advance(fv_prefill_line *l) {
    for (fv_task *t = l->first, *next; t; t = next) {
        next = t->next;
        if (t->state == FV_TASK_READING && t->images.away)
            continue; /* wanted or not: it is soon back */
        if (!wanted(t))
            end_unwanted(t);
        else if (t->state == FV_TASK_READING)
            advance_reading(t);
        else if (t->state == FV_TASK_OPENING)
            advance_opening(t);
        else if (t->state == FV_TASK_EXPORTING)
            advance_exporting(t);
    }
}

/* ---- a batch ---------------------------------------------------------------------------- */

/* Those that are ready, in their order, as far as the pool has room for them now. */
static int32_t pick(const fv_prefill_worker *w, fv_task **batch) {
    size_t room = w->opt.kv_bytes ? w->opt.kv_bytes - fv_kv_pool_used(w->line.pool) : SIZE_MAX;
    int32_t n = 0;
    for (fv_task *t = w->line.first; t && n < w->opt.batch; t = t->next) {
        if (t->state != FV_TASK_READY) continue;
        if (!t->probe && t->bytes_peak > room) {
            room = 0; /* none overtakes it */
            continue;
        }
        if (!t->probe) room -= t->bytes_peak;
        batch[n++] = t;
    }
    return n;
}

/* Those that could be encoded, and are still wanted when all have been; not those of which the
 * cache has let an image go: they are READING again. */
static int32_t keep_encoded(fv_task **batch, int32_t n) {
    int32_t n_encoded = 0, kept = 0;
    for (int32_t i = 0; i < n; i++) {
        fv_task *t = batch[i];
        t->began_s = fv_clock_s();
        fv_status st = wanted(t) ? fv_task_encode(t) : FV_OK;
        if (st != FV_OK)
            end_task(t, st);
        else if (t->state == FV_TASK_READY)
            batch[n_encoded++] = t;
    }
    for (int32_t i = 0; i < n_encoded; i++) {
        if (wanted(batch[i]))
            batch[kept++] = batch[i];
        else
            end_unwanted(batch[i]);
    }
    return kept;
}

typedef struct batch_tasks {
    fv_task **task; /* [n] */
    int32_t n;
} batch_tasks;

static fv_status send_layers(fv_task *t, int32_t n_layer) {
    if (t->sending_s == 0) t->sending_s = fv_clock_s();
    return fv_fail_origin(fv_export_layers(t->ship, n_layer), FV_ORIGIN_HANDOFF);
}

/* Layers below n_layer are final. A hand-off that is lost now ends with its batch, and a batch
 * whose requests are all cancelled ends at once. */
static fv_status send_final(void *user, int32_t n_layer) {
    const batch_tasks *b = user;
    int32_t n_wanted = 0;
    for (int32_t i = 0; i < b->n; i++) {
        fv_task *t = b->task[i];
        if (!wanted(t) || t->lost.status != FV_OK) continue;
        if (t->ship) fv_failpoint_reached(FV_FAILPOINT_PREFILL_COMPUTING);
        fv_status st = fv_prefill_job_packed(&t->prefill);
        if (st == FV_OK && t->ship) st = send_layers(t, n_layer);
        fv_error_take(&t->lost, st);
        n_wanted += st == FV_OK;
    }
    return n_wanted ? FV_OK : FV_FAIL(FV_ECANCELLED, "all requests of the batch were cancelled");
}

/* Layers that leave together. */
static int32_t group_of(const fv_prefill_worker *w) {
    int32_t n_layer = fv_checkpoint_config(w->line.engine->ck)->text.n_layer;
    return w->opt.export_layers ? w->opt.export_layers : (n_layer + GROUPS - 1) / GROUPS;
}

static fv_status prefill(fv_prefill_worker *w, fv_task **batch, int32_t n) {
    fv_prefill_job *job[FV_PREFILL_BATCH_MAX];
    uint64_t rows = 0;
    for (int32_t i = 0; i < n; i++) {
        job[i] = &batch[i]->prefill;
        if (!batch[i]->probe) rows += (uint64_t)job[i]->prompt.n;
    }
    batch_tasks tasks = {batch, n};
    fv_prefill_options opt = {
        .chunk = w->opt.chunk, .group = group_of(w), .final = send_final, .user = &tasks};
    fv_status st = fv_prefill_jobs_run(job, n, &opt, w->line.logits);
    for (int32_t i = 0; i < n; i++) batch[i]->prefilled_s = fv_clock_s();
    if (st == FV_OK) atomic_fetch_add(&w->entries_in, rows);
    atomic_store(&w->bytes_held, fv_kv_pool_used(w->line.pool));
    return st;
}

static fv_status take_token(fv_task *t, const float *logits) {
    FV_TRY(fv_prefill_job_end(&t->prefill));
    FV_TRY(fv_prefill_job_first(&t->prefill, logits));
    say(t, &t->first);
    return FV_OK;
}

static fv_status ship(fv_task *t) {
    const fv_prefill_job *j = &t->prefill;
    fv_first_token first = {
        .id = j->token.id, .logprob = j->token.logprob, .step = (uint64_t)j->n_replay + 1};
    t->state = FV_TASK_EXPORTING;
    FV_TRY(send_layers(t, fv_kv_get_shape(j->kv)->n_layer));
    fv_failpoint_reached(FV_FAILPOINT_PREFILL_EXPORTING);
    FV_TRY(fv_fail_origin(fv_export_end(t->ship, &first), FV_ORIGIN_HANDOFF));
    t->sent_s = fv_clock_s();
    fv_task_waits(t); /* for the decode worker's word */
    return FV_OK;
}

/* After the first token: on to the decode worker, unless the answer is complete. */
static void go_on(fv_task *t) {
    if (!wanted(t)) {
        end_unwanted(t);
    } else if (!t->ship || t->prefill.finish != FV_FINISH_NOT) {
        end_task(t, FV_OK);
    } else {
        fv_status st = ship(t);
        if (st != FV_OK) end_task(t, st);
    }
}

/* False when none can run now. */
static bool run_batch(fv_prefill_worker *w) {
    fv_task *batch[FV_PREFILL_BATCH_MAX];
    size_t vocab = (size_t)fv_checkpoint_config(w->line.engine->ck)->text.vocab;
    int32_t n = pick(w, batch), n_token = 0;
    if (n == 0) return false;
    for (int32_t i = 0; i < n; i++) fv_task_works(batch[i], layers_run);
    n = keep_encoded(batch, n);
    fv_status st = n ? fv_fail_origin(prefill(w, batch, n), FV_ORIGIN_WORKER) : FV_OK;
    fv_error shared;
    fv_error_take(&shared, st);
    /* All first tokens go before any of the last rows do. */
    for (int32_t i = 0; i < n; i++) {
        fv_task *t = batch[i];
        fv_status mine = fv_error_raise(t->lost.status != FV_OK ? &t->lost : &shared);
        if (mine == FV_OK) mine = take_token(t, w->line.logits + (size_t)i * vocab);
        if (mine != FV_OK)
            end_task(t, mine);
        else
            batch[n_token++] = t;
    }
    if (n_token > 0)
        fv_prefill_went_well(w);
    else if (n > 0 && st != FV_ECANCELLED)
        atomic_fetch_add(&w->n_bad, 1);
    for (int32_t i = 0; i < n_token; i++) {
        if (batch[i]->ship) fv_failpoint_reached(FV_FAILPOINT_PREFILL_TOKEN);
        go_on(batch[i]);
    }
    return true;
}

/* ---- the thread ------------------------------------------------------------------------- */

/* A healthy decode worker replies within this time: a batch waits for it no longer. One that does
 * not gets no slot in a batch, and delays none. */
static const double open_soon_s = 0.02;
/* And for images of the usual size, which are read in less than this. */
static const double read_soon_s = 0.05;

/* Whether the batch waits for this one. */
static bool is_soon(const fv_task *t, double now_s) {
    if (t->state == FV_TASK_READING) return now_s - t->reading_s < read_soon_s;
    return t->state == FV_TASK_OPENING && now_s - t->opened_s < open_soon_s;
}

static double work(fv_prefill_worker *w) {
    fv_task *waiting = NULL;
    int32_t n_ready = 0, n_reading = 0, n_soon = 0;
    double now = fv_clock_s();
    advance(&w->line);
    if (fv_prefill_probe_due(w)) fv_prefill_probe_begin(w);
    for (fv_task *t = w->line.first; t; t = t->next) {
        n_ready += t->state == FV_TASK_READY;
        n_reading += t->state == FV_TASK_READING && !is_soon(t, now);
        n_soon += is_soon(t, now);
        if (!waiting && t->state == FV_TASK_QUEUED) waiting = t;
    }
    /* No more than a batch at a time: a grant holds memory that others could use, and so do pixel
     * values. */
    if (waiting && n_ready + n_reading + n_soon < w->opt.batch) {
        prepare(waiting);
        return 0;
    }
    if (n_ready && (n_ready >= w->opt.batch || !n_soon) && run_batch(w)) return 0;
    return n_soon ? open_soon_s : fv_prefill_probe_pause(w);
}

double fv_prefill_line_work(void *worker) {
    fv_prefill_worker *w = worker;
    size_t freed;
    double again_s = work(w), trim_s = fv_kv_pool_trim(w->line.pool, fv_clock_s(), &freed);
    if (freed >= FV_HEAP_SPARE_BYTES) fv_heap_give_back();
    atomic_store(&w->bytes_held, fv_kv_pool_used(w->line.pool));
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
    FV_TRY(fv_prefill_probe_open(w));
    return fv_kv_pool_open(e->be.device, &shape, w->opt.kv_bytes, &l->pool);
}

void fv_prefill_line_close(fv_prefill_worker *w) {
    fv_prefill_probe_close(w);
    fv_kv_pool_close(w->line.pool);
    fv_image_cache_close(w->line.cache);
    free(w->line.logits);
}
