/* Sends many requests at once. A slot is one client: it waits for its time, sends and receives, and
 * in the closed loop continues with the next request until enough have begun. In the open loop each
 * request has its own slot and a time that is known in advance. */
#include "cli/bench/load.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/client/progress.h"
#include "common/clock.h"

enum { REFRESH_MS = 200 };

typedef struct run run;

typedef struct slot {
    run *run;
    uv_timer_t timer; /* until the next request is due */
    double due_s, begun_s, first_s, last_s;
    uint32_t n_token;
    fv_samples gaps;
    bool slow; /* a token came later than allowed for a good request */
} slot;

struct run {
    fv_remote *remote;
    const fv_bench_load *load;
    fv_bench_row *row;
    uint64_t *number;
    slot *slots; /* [n_slot] */
    int32_t n_slot, n_begun, n_over;
    int32_t n_good_begun; /* good answers when the last one began */
    double begun_s;       /* time when the last one began */
    char *prompt;         /* for the request being sent */
    fv_progress progress;
    uv_timer_t refresh;
    int32_t n_handle; /* timers not yet closed */
    fv_status status; /* a failure of this process: no more requests begin */
};

/* ---- one request -------------------------------------------------------------------------- */

static fv_status on_tokens(void *user, const Fovea__Inference__V1__Tokens *t) {
    slot *s = user;
    const fv_bench_load *load = s->run->load;
    double now = fv_clock_s();
    for (size_t i = 0; i < t->n_tokens; i++, s->n_token++) {
        if (s->n_token == 0) {
            s->first_s = now;
            s->slow |= load->ttft_ms > 0 && 1e3 * (now - s->due_s) > load->ttft_ms;
        } else {
            FV_TRY(fv_samples_add(&s->gaps, now - s->last_s));
            s->slow |= load->itl_ms > 0 && 1e3 * (now - s->last_s) > load->itl_ms;
        }
        s->last_s = now;
    }
    return FV_OK;
}

static fv_status note_transfer(fv_bench_row *row, const Fovea__Inference__V1__Transfer *t) {
    FV_TRY(fv_samples_add(&row->bytes_sent, (double)t->bytes_sent));
    FV_TRY(fv_samples_add(&row->open_s, t->seconds_open));
    FV_TRY(fv_samples_add(&row->send_s, t->seconds_send));
    FV_TRY(fv_samples_add(&row->exposed_s, t->seconds_exposed));
    FV_TRY(fv_samples_add(&row->commit_s, t->seconds_commit));
    return fv_samples_add(&row->attach_s, t->seconds_attach);
}

static fv_status on_finished(void *user, const Fovea__Inference__V1__Finished *f) {
    slot *s = user;
    fv_bench_row *row = s->run->row;
    const Fovea__Inference__V1__Report *m = f->report;
    if (!m || m->n_generated != s->n_token || s->n_token == 0)
        return FV_FAIL(FV_EDATA, "received %u tokens, but the report says %u", s->n_token,
                       m ? m->n_generated : 0);
    row->n_prompt_row += m->n_prompt;
    FV_TRY(fv_samples_add(&row->bytes_raw, (double)m->bytes_raw));
    FV_TRY(fv_samples_add(&row->bytes_resident, (double)(m->bytes_visual + m->bytes_text)));
    FV_TRY(fv_samples_add(&row->bytes_end, (double)(m->bytes_visual_end + m->bytes_text_end)));
    return m->transfer ? note_transfer(row, m->transfer) : FV_OK;
}

static fv_status note_times(slot *s, double now) {
    fv_bench_row *row = s->run->row;
    FV_TRY(fv_samples_add(&row->ttft_s, s->first_s - s->due_s));
    FV_TRY(fv_samples_add(&row->e2e_s, now - s->due_s));
    FV_TRY(fv_samples_append(&row->itl_s, &s->gaps));
    if (s->n_token < 2) return FV_OK;
    return fv_samples_add(&row->tpot_s, (now - s->first_s) / (s->n_token - 1));
}

static void note_failure(fv_bench_row *row, const fv_rpc_end *end) {
    int code = (int)end->code;
    fv_bench_error *e =
        &row->errors[code >= 0 && code < FV_BENCH_CODES ? code : GRPC_STATUS_UNKNOWN];
    if (e->n++ == 0) snprintf(e->first, sizeof e->first, "%s", end->text);
    if (end->code == GRPC_STATUS_RESOURCE_EXHAUSTED)
        row->n_refused++;
    else if (end->code == GRPC_STATUS_DEADLINE_EXCEEDED)
        row->n_late++;
    else
        row->n_failed++;
}

static void wait_ms(slot *s, int64_t ms);
static void end_timers(run *r);

static void on_over(void *user, fv_status st, const fv_rpc_end *end) {
    slot *s = user;
    run *r = s->run;
    r->n_over++;
    if (st == FV_OK) {
        r->row->n_ok++;
        r->row->n_good += !s->slow;
        r->row->n_token += s->n_token;
        fv_status mine = note_times(s, fv_clock_s());
        if (mine != FV_OK) r->status = mine;
    } else {
        note_failure(r->row, end);
    }
    bool more = r->status == FV_OK && r->load->rate == 0 && r->n_begun < r->load->n_request;
    if (more)
        wait_ms(s, st != FV_OK && end->retry_ms > 0 ? end->retry_ms : 0);
    else if (r->n_over == r->n_begun && (r->status != FV_OK || r->n_begun == r->load->n_request))
        end_timers(r);
}

/* ---- sending ------------------------------------------------------------------------------ */

void fv_bench_prompt(const fv_bench_load *load, uint64_t number, char *out) {
    sprintf(out, "Request %llu-%08llu: %s", (unsigned long long)load->seed,
            (unsigned long long)number, load->prompt);
}

static fv_status begin(slot *s) {
    static const fv_remote_events events = {
        .tokens = on_tokens, .finished = on_finished, .over = on_over};
    run *r = s->run;
    const fv_bench_load *load = r->load;
    Fovea__Inference__V1__GenerateRequest m = FOVEA__INFERENCE__V1__GENERATE_REQUEST__INIT;
    Fovea__Inference__V1__Prompt prompt = FOVEA__INFERENCE__V1__PROMPT__INIT;
    Fovea__Inference__V1__Chat chat = FOVEA__INFERENCE__V1__CHAT__INIT;
    Fovea__Inference__V1__Turn turn = FOVEA__INFERENCE__V1__TURN__INIT, *turns = &turn;
    Fovea__Inference__V1__Image *image = NULL;
    uint64_t number = (*r->number)++;
    if (load->n_image) image = load->images[number % (uint64_t)load->n_image];
    fv_bench_prompt(load, number, r->prompt);
    turn.role = (char *)"user";
    turn.text = r->prompt;
    turn.n_images = image ? 1 : 0;
    chat.n_turns = 1;
    chat.turns = &turns;
    if (load->variables) chat.variables = load->variables;
    prompt.form_case = FOVEA__INFERENCE__V1__PROMPT__FORM_CHAT;
    prompt.chat = &chat;
    m.prompt = &prompt;
    m.n_images = turn.n_images;
    m.images = &image;
    m.max_tokens = (uint32_t)load->max_tokens;
    m.ignore_eos = load->ignore_eos;
    m.rules = load->rules;
    m.cache_off = !load->cached;
    if (!load->speculate)
        m.speculation_case = FOVEA__INFERENCE__V1__GENERATE_REQUEST__SPECULATION_SPECULATE;
    m.policy = (Fovea__Inference__V1__Policy *)load->policy;
    int64_t left_ms = load->deadline_ms - (int64_t)(1e3 * (s->begun_s - s->due_s));
    return fv_remote_begin(r->remote, &m, left_ms > 1 ? left_ms : 1, &events, s);
}

static void on_due(uv_timer_t *t) {
    slot *s = t->data;
    run *r = s->run;
    if (r->status != FV_OK || (r->load->rate == 0 && r->n_begun >= r->load->n_request)) return;
    if (r->load->rate == 0) s->due_s = fv_clock_s();
    s->n_token = 0;
    s->slow = false;
    fv_samples_clear(&s->gaps);
    s->begun_s = fv_clock_s();
    r->n_begun++;
    r->begun_s = s->begun_s;
    r->n_good_begun = r->row->n_good;
    fv_status st = fv_samples_add(&r->row->lag_s, s->begun_s - s->due_s);
    if (st == FV_OK) st = begin(s);
    if (st == FV_OK) return;
    r->status = st;
    r->n_begun--;
    if (r->n_over == r->n_begun) end_timers(r);
}

static void wait_ms(slot *s, int64_t ms) { uv_timer_start(&s->timer, on_due, (uint64_t)ms, 0); }

/* ---- a whole run -------------------------------------------------------------------------- */

static void on_closed(uv_handle_t *h) { ((run *)h->loop->data)->n_handle--; }

/* Closes the timers after the last request. */
static void end_timers(run *r) {
    uv_close((uv_handle_t *)&r->refresh, on_closed);
    for (int32_t i = 0; i < r->n_slot; i++) uv_close((uv_handle_t *)&r->slots[i].timer, on_closed);
}

static void on_refresh(uv_timer_t *t) {
    run *r = t->loop->data;
    char note[128];
    snprintf(note, sizeof note, "requests, %llu tokens, %d in flight; %.60s",
             (unsigned long long)r->row->n_token, r->n_begun - r->n_over, r->load->policy_text);
    fv_progress_show(&r->progress, r->n_over, r->load->n_request, note);
}

/* splitmix64: uniform in (0, 1]. */
static double uniform(uint64_t *state) {
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return ((double)((z ^ (z >> 31)) >> 11) + 1) * 0x1p-53;
}

static void start_timers(run *r) {
    uv_loop_t *loop = fv_remote_loop(r->remote);
    uint64_t random = r->load->seed;
    double at = 0;
    loop->data = r;
    uv_update_time(loop);
    double now = fv_clock_s();
    uv_timer_init(loop, &r->refresh);
    uv_timer_start(&r->refresh, on_refresh, REFRESH_MS, REFRESH_MS);
    for (int32_t i = 0; i < r->n_slot; i++) {
        slot *s = &r->slots[i];
        s->run = r;
        s->timer.data = s;
        uv_timer_init(loop, &s->timer);
        if (r->load->rate > 0) at -= log(uniform(&random)) / r->load->rate;
        s->due_s = now + at;
        wait_ms(s, (int64_t)ceil(1e3 * at));
    }
    r->n_handle = r->n_slot + 1;
}

static double own_cpu_s(void) {
    struct timespec ts;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
    return (double)ts.tv_sec + 1e-9 * (double)ts.tv_nsec;
}

fv_status fv_bench_run(fv_remote *remote, const fv_bench_load *load, uint64_t *number,
                       fv_bench_row *row) {
    run r = {.remote = remote, .load = load, .row = row, .number = number};
    if (load->n_request < 1) return FV_OK;
    r.n_slot = load->rate > 0 ? load->n_request : load->concurrency;
    r.prompt = malloc(strlen(load->prompt) + FV_BENCH_PROMPT_MORE);
    r.slots = calloc((size_t)r.n_slot, sizeof *r.slots);
    if (!r.prompt || !r.slots)
        r.status = FV_FAIL(FV_ENOMEM, "out of memory for %d clients", r.n_slot);
    if (r.status == FV_OK) {
        if (load->progress) fv_progress_begin(&r.progress);
        double begin_s = fv_clock_s(), cpu_s = own_cpu_s();
        int32_t n_good = row->n_good;
        start_timers(&r);
        while (r.n_handle > 0) uv_run(fv_remote_loop(remote), UV_RUN_ONCE);
        row->seconds += fv_clock_s() - begin_s;
        row->cpu_s += own_cpu_s() - cpu_s;
        if (r.n_begun > 0) {
            row->steady_s += r.begun_s - begin_s;
            row->n_steady += r.n_good_begun - n_good;
        }
        fv_progress_end(&r.progress);
        for (int32_t i = 0; i < r.n_slot; i++) fv_samples_free(&r.slots[i].gaps);
    }
    free(r.slots);
    free(r.prompt);
    return r.status;
}

void fv_bench_row_free(fv_bench_row *row) {
    fv_samples *all[] = {&row->ttft_s,    &row->tpot_s,     &row->itl_s,          &row->e2e_s,
                         &row->bytes_raw, &row->bytes_sent, &row->bytes_resident, &row->bytes_end,
                         &row->open_s,    &row->send_s,     &row->exposed_s,      &row->commit_s,
                         &row->attach_s,  &row->lag_s};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) fv_samples_free(all[i]);
}
