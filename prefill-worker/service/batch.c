/* Runs tasks that are ready: encodes their images one by one, prefills them in batches, and exports their
 * KV. A step is a unit of work for the tenant whose turn it is (fair.h). A unit's cost is about the
 * multiply-adds of its layers.
 *
 * Between the passes of a batch, and between the tower's layers, a unit of another tenant may run if it
 * costs no more than half as much, and if that tenant has been served less. A short prompt therefore does
 * not wait for long ones: it waits for units of less than twice its cost, or for one pass.
 *
 * While a batch is computed, final layers are sent to the decode workers group by group, so that after
 * the first token only the last group is left to send.
 *
 * For the computing thread. */
#include <stdio.h>
#include <string.h>

#include "common/clock.h"
#include "common/failpoint.h"
#include "prefill-worker/service/internal.h"

enum {
    GROUPS = 8,      /* groups of layers, by default */
    NESTED_MAX = 4,  /* maximum depth of units that run within one another */
    PASS_ROWS = 512, /* rows that about fill a pass */
};

/* ---- costs ------------------------------------------------------------------------------ */

/* Returns the cost of transformer layers: for each row 12 d^2 for the matrices, and d per attended row. */
static double layers_cost(int32_t n_layer, int32_t d, double rows, double attended) {
    return n_layer * rows * d * (12.0 * d + attended);
}

/* Returns how many rows of the prompt are computed. */
static int32_t rows_of(const fv_task *t) { return t->prefill.prompt.n - t->prefill.prefix.rows; }

static double prefill_cost(const fv_task *t) {
    const fv_text_config *c = &fv_checkpoint_config(t->prefill.engine->ck)->text;
    const double scores = t->prefill.want_scores ? (double)rows_of(t) * c->d_model * c->vocab : 0;
    return layers_cost(c->n_layer, c->d_model, rows_of(t), t->prefill.prompt.n) + scores;
}

/* Returns the cost of the task's next image. */
static double encode_cost(const fv_task *t) {
    const fv_vision_config *c = &fv_checkpoint_config(t->prefill.engine->ck)->vision;
    const fv_layout *l = &t->prefill.layout[t->prefill.n_skip + t->prefill.encoded.n_added];
    double patches = (double)l->tile.w / c->patch * ((double)l->tile.h / c->patch);
    return l->n_tile * layers_cost(c->n_layer, c->d_model, patches, patches);
}

static bool is_encoded(const fv_task *t) { return fv_prefill_job_encoded(&t->prefill); }

static double next_cost(const fv_task *t) {
    return is_encoded(t) ? prefill_cost(t) : encode_cost(t);
}

/* ---- whose turn it is ------------------------------------------------------------------- */

/* Whether the task's next unit may run within the unit that runs. The tower encodes one image at a time. */
static bool may_interrupt(const fv_prefill_line *l, const fv_task *t) {
    if (l->n_running == 0) return true;
    return t->flow->n_running == 0 && fv_fair_start(&l->fair, t->flow) < l->turn.finish &&
           next_cost(t) <= l->turn.cost / 2 && (is_encoded(t) || !l->encoding);
}

static fv_task *next_ready(const fv_prefill_line *l) {
    fv_task *best = NULL;
    for (fv_task *t = l->first; t; t = t->next)
        if (t->state == FV_TASK_READY && !t->picked && may_interrupt(l, t) &&
            (!best || t->flow->plan < best->flow->plan))
            best = t;
    return best;
}

static size_t room_of(const fv_prefill_worker *w) {
    const fv_prefill_line *l = &w->line;
    if (!w->opt.kv_bytes) return SIZE_MAX;
    size_t room = w->opt.kv_bytes - fv_kv_pool_used(l->pool);
    return l->n_running && l->turn.room < room ? l->turn.room : room;
}

/* Picks ready tasks in the order of their turns, as far as the pool has room for them now. */
static int32_t pick(fv_prefill_worker *w, fv_task **list, size_t *room) {
    fv_prefill_line *l = &w->line;
    int32_t n = 0;
    *room = room_of(w);
    for (fv_task *t = l->first; t; t = t->next) t->picked = false;
    fv_fair_plan(&l->fair);
    for (fv_task *t; n < w->opt.batch && (t = next_ready(l)); n++) {
        if (!t->probe && t->bytes_peak > *room) break; /* no later task overtakes it */
        if (!t->probe) *room -= t->bytes_peak;
        fv_fair_plan_add(t->flow, next_cost(t));
        t->picked = true;
        list[n] = t;
    }
    return n;
}

/* Returns the first task with an image to encode, unless another tenant's turn comes before it. */
static fv_task *to_encode(fv_task *const *list, int32_t n) {
    int32_t first = 0;
    while (first < n && is_encoded(list[first])) first++;
    for (int32_t i = 0; i < first && first < n; i++)
        if (list[i]->flow != list[first]->flow) return NULL;
    return first < n ? list[first] : NULL;
}

/* Moves the tasks that run together to the front of the list and returns their number. Tasks of several
 * tenants run together only if they fit one pass: more would gain nothing, and keep a short prompt waiting
 * for long ones. */
static int32_t gather(const fv_prefill_worker *w, fv_task **list, int32_t n) {
    int32_t rows = 0, most = w->opt.chunk > 0 ? w->opt.chunk : PASS_ROWS, kept = 0;
    bool mixed = false;
    for (int32_t i = 0; i < n; i++) {
        fv_task *t = list[i];
        bool other = kept > 0 && t->flow != list[0]->flow;
        if (!is_encoded(t)) continue;
        if ((mixed || other) && rows + rows_of(t) > most) continue;
        mixed |= other;
        rows += rows_of(t);
        list[kept++] = t;
    }
    return kept;
}

/* ---- a unit ----------------------------------------------------------------------------- */

static void join_turn(fv_prefill_line *l, fv_task *t, double cost) {
    t->state = FV_TASK_RUNNING;
    if (t->began_s == 0) t->began_s = fv_clock_s();
    fv_task_works(t, fv_task_layers_run);
    fv_fair_charge(&l->fair, t->flow, cost);
    t->flow->n_running++;
    l->turn.cost += cost;
    if (t->flow->finish > l->turn.finish) l->turn.finish = t->flow->finish;
}

/* Runs units of other tenants that are due, unless units are nested too deep. */
static void let_others(fv_prefill_worker *w) {
    if (w->line.n_running < NESTED_MAX) fv_prefill_line_between(w);
}

/* ---- an image --------------------------------------------------------------------------- */

void fv_prefill_while_encoding(void *worker) {
    fv_prefill_worker *w = worker;
    if (w->line.encoding) let_others(w);
}

static fv_status encode_in_turn(fv_task *t) {
    fv_prefill_line *l = &t->worker->line;
    fv_turn outer = l->turn;
    fv_fair_flow *flow = t->flow;
    l->turn = (fv_turn){.room = room_of(t->worker)};
    join_turn(l, t, encode_cost(t));
    l->n_running++;
    l->encoding = true;
    fv_status st = fv_task_encode_next(t);
    l->encoding = false;
    l->n_running--;
    flow->n_running--;
    l->turn = outer;
    return st;
}

static void encode(fv_task *t) {
    fv_status st = encode_in_turn(t);
    if (st != FV_OK) {
        fv_task_end(t, st);
        return;
    }
    if (t->state == FV_TASK_READING) return;
    t->state = FV_TASK_READY;
    fv_task_waits(t);
    if (t->prefill.kv || !is_encoded(t)) return;
    t->state = FV_TASK_OPENING; /* the number of condensed tokens is known now */
    fv_task_prepared(t, fv_task_prepare_rest(t));
}

/* ---- a batch ---------------------------------------------------------------------------- */

typedef struct batch_tasks {
    fv_prefill_worker *worker;
    fv_task **task; /* [n] */
    int32_t n;
} batch_tasks;

static fv_status send_layers(fv_task *t, int32_t n_layer) {
    if (t->sending_s == 0) t->sending_s = fv_clock_s();
    return fv_fail_origin(fv_export_layers(t->ship, n_layer), FV_ORIGIN_HANDOFF);
}

/* Sends the layers below n_layer, which are final. A task whose hand-off is lost ends after its batch; a
 * batch of which no task is wanted any more ends at once. */
static fv_status send_final(void *user, int32_t n_layer) {
    const batch_tasks *b = user;
    int32_t n_wanted = 0;
    for (int32_t i = 0; i < b->n; i++) {
        fv_task *t = b->task[i];
        if (!fv_task_wanted(t) || t->lost.status != FV_OK) continue;
        if (t->ship) fv_failpoint_reached(FV_FAILPOINT_PREFILL_COMPUTING);
        fv_status st = fv_prefill_job_packed(&t->prefill);
        if (st == FV_OK && t->ship) st = send_layers(t, n_layer);
        fv_error_take(&t->lost, st);
        n_wanted += st == FV_OK;
    }
    return n_wanted ? FV_OK : FV_FAIL(FV_ECANCELLED, "all requests of the batch were cancelled");
}

/* Lets other tenants run between passes, except in a probe's own batch, which is short and may run before
 * the worker is complete. */
static void between_passes(void *user) {
    const batch_tasks *b = user;
    if (b->n > 1 || !b->task[0]->probe) let_others(b->worker);
}

/* Returns the number of layers that are sent together. */
static int32_t group_of(const fv_prefill_worker *w) {
    int32_t n_layer = fv_checkpoint_config(w->line.engine->ck)->text.n_layer;
    return w->opt.export_layers ? w->opt.export_layers : (n_layer + GROUPS - 1) / GROUPS;
}

static fv_status prefill(fv_prefill_worker *w, fv_task **batch, int32_t n) {
    fv_prefill_job *job[FV_PREFILL_BATCH_MAX];
    uint64_t rows = 0;
    for (int32_t i = 0; i < n; i++) {
        job[i] = &batch[i]->prefill;
        if (!batch[i]->probe) rows += (uint64_t)rows_of(batch[i]);
    }
    batch_tasks tasks = {w, batch, n};
    fv_prefill_options opt = {.chunk = w->opt.chunk,
                              .group = group_of(w),
                              .final = send_final,
                              .between = between_passes,
                              .user = &tasks};
    fv_status st = fv_prefill_jobs_run(job, n, &opt, w->line.logits);
    for (int32_t i = 0; i < n; i++) {
        batch[i]->prefilled_s = fv_clock_s();
        if (rows) batch[i]->prefix.seconds_row = job[i]->s_prefill / (double)rows;
    }
    if (st == FV_OK) atomic_fetch_add(&w->entries_in, rows);
    atomic_store(&w->bytes_held, fv_kv_pool_used(w->line.pool));
    return st;
}

static fv_status run_in_turn(fv_prefill_worker *w, fv_task **batch, int32_t n, size_t room) {
    fv_prefill_line *l = &w->line;
    fv_turn outer = l->turn;
    l->turn = (fv_turn){.room = room};
    for (int32_t i = 0; i < n; i++) join_turn(l, batch[i], prefill_cost(batch[i]));
    l->n_running++;
    fv_status st = prefill(w, batch, n);
    l->n_running--;
    for (int32_t i = 0; i < n; i++) batch[i]->flow->n_running--;
    l->turn = outer;
    return st;
}

static fv_status take_token(fv_task *t, const float *logits) {
    FV_TRY(fv_prefill_job_end(&t->prefill));
    FV_TRY(fv_prefill_job_first(&t->prefill, logits));
    FV_TRY(fv_fail_caller(fv_task_tell_prompt(t)));
    fv_task_post(t, &t->first);
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
    fv_task_waits(t); /* for the decode worker's answer to the commit */
    return FV_OK;
}

/* Continues a task after its first token: exports its KV, unless the answer is complete. The prompt is kept after that,
 * so that nothing waits for the copy. */
static void go_on(fv_task *t) {
    bool wanted = fv_task_wanted(t), ships = t->ship && t->prefill.finish == FV_FINISH_NOT;
    fv_status st = wanted && ships ? ship(t) : FV_OK;
    fv_error fault;
    fv_error_take(&fault, st);
    fv_task_keep_prefix(t);
    if (!wanted)
        fv_task_end_unwanted(t);
    else if (!ships || st != FV_OK)
        fv_task_end(t, fv_error_raise(&fault));
}

static void run_batch(fv_prefill_worker *w, fv_task **batch, int32_t n, size_t room) {
    size_t vocab = (size_t)fv_checkpoint_config(w->line.engine->ck)->text.vocab;
    int32_t n_token = 0;
    fv_status st = fv_fail_origin(run_in_turn(w, batch, n, room), FV_ORIGIN_WORKER);
    fv_error shared;
    fv_error_take(&shared, st);
    /* Post all first tokens before any task exports its last layers. */
    for (int32_t i = 0; i < n; i++) {
        fv_task *t = batch[i];
        fv_status mine = fv_error_raise(t->lost.status != FV_OK ? &t->lost : &shared);
        if (mine == FV_OK) mine = take_token(t, w->line.logits + (size_t)i * vocab);
        if (mine != FV_OK)
            fv_task_end(t, mine);
        else
            batch[n_token++] = t;
    }
    if (n_token > 0)
        fv_prefill_count_good(w);
    else if (st != FV_ECANCELLED)
        atomic_fetch_add(&w->n_bad, 1);
    for (int32_t i = 0; i < n_token; i++) {
        if (batch[i]->ship) fv_failpoint_reached(FV_FAILPOINT_PREFILL_TOKEN);
        go_on(batch[i]);
    }
}

bool fv_prefill_step(fv_prefill_worker *w) {
    fv_task *list[FV_PREFILL_BATCH_MAX];
    size_t room;
    int32_t n = pick(w, list, &room);
    if (n == 0) return false;
    fv_task *image = to_encode(list, n);
    if (image) {
        encode(image);
        return true;
    }
    n = gather(w, list, n);
    run_batch(w, list, n, room);
    return true;
}
