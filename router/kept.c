/* Names of requests, and hints about them. Loop thread, except the hashing of a large request. */
#include "router/kept.h"

#include <math.h>
#include <string.h>

#include "router/record.h"
#include "telemetry/metrics.h"

enum {
    INLINE_BYTES =
        16 << 10, /* so few are hashed on the loop, in less time than a thread takes to wake */
    REPORT_MAX = 1024,
};

/* ---- names --------------------------------------------------------------------------------- */

static bool has_choice(const fv_fleet *f) {
    return fv_fleet_ready(f, FV_WORKER_PREFILL) > 1 || fv_fleet_ready(f, FV_WORKER_DECODE) > 1;
}

static bool uses_kept(const fv_request *r) {
    const fv_request_message *m = r->msg;
    return r->relay->opt.hints && !m->cache_off && !m->conversation.len &&
           !m->prompt_alternatives_case && has_choice(r->fleet);
}

static void hash(fv_request *r) {
    const fv_parts_of of = {.msg = r->msg,
                            .secret = r->relay->opt.secret,
                            .tenant = r->tenant->name,
                            .adapter = r->asks_adapter ? r->msg->model : "",
                            .word = {r->mark.word[0], r->mark.word[1]},
                            .image_token = r->mark.image_token,
                            .video_token = r->mark.video_token};
    if (fv_parts_name(&of, &r->parts) != FV_OK) r->parts.n = 0; /* routed as without hints */
}

/* On a thread of libuv's. */
static void on_thread(uv_work_t *work) { hash(work->data); }

static void on_named(fv_rpc_op *op, bool ok) {
    fv_request *r = op->owner;
    (void)ok;
    r->naming = false;
    r->relay->dispatch_due = true;
    if (!r->client) r->relay->n_ended++; /* its client has gone meanwhile */
}

/* The bridge's event lets the request start. */
static void on_hashed(uv_work_t *work, int status) {
    fv_request *r = work->data;
    (void)status; /* work is never cancelled */
    r->named = (fv_rpc_op){.done = on_named, .owner = r};
    fv_bridge_post(r->relay->opt.bridge, &r->named, true);
}

void fv_kept_name(fv_request *r) {
    r->parts.n = 0;
    if (!uses_kept(r)) return;
    fv_admit_marks(fv_fleet_model(r->fleet), &r->mark);
    if (fv_parts_bytes(r->msg) <= INLINE_BYTES) {
        hash(r);
        return;
    }
    r->work_of_naming.data = r;
    r->naming = true;
    uv_queue_work(fv_bridge_loop(r->relay->opt.bridge), &r->work_of_naming, on_thread, on_hashed);
}

/* ---- finding --------------------------------------------------------------------------------- */

/* The work that is left for a worker that has the prompt's first `tokens`, up to this end. Images are read as a whole. */
static fv_work work_left(const fv_request *r, const fv_part_end *end, uint32_t tokens) {
    const fv_part_end *all = &r->parts.end[r->parts.n - 1];
    fv_work left = r->work;
    left.prompt = tokens < left.prompt ? left.prompt - tokens : 1;
    if (all->items) left.pixels -= left.pixels * end->items / all->items;
    return left;
}

static fv_kept kept_of(const fv_request *r, int32_t end, const fv_hint *hint,
                       fv_registered_worker *w) {
    return (fv_kept){.worker = w,
                     .tokens = hint->tokens,
                     .seconds = hint->seconds,
                     .left = work_left(r, &r->parts.end[end], hint->tokens)};
}

static bool is_among(const fv_kept *out, int32_t n, const fv_registered_worker *w) {
    for (int32_t i = 0; i < n; i++)
        if (out[i].worker == w) return true;
    return false;
}

int32_t fv_kept_find(const fv_request *r, Fovea__Inference__V1__Role role,
                     fv_kept out[FV_KEPT_MAX]) {
    void *holder[FV_HINT_HOLDERS];
    fv_hint hint;
    int32_t n = 0;
    for (int32_t i = r->parts.n - 1; i >= 0; i--) {
        int32_t n_holder = fv_hints_find(r->relay->opt.hints, r->parts.end[i].name, &hint, holder);
        for (int32_t k = 0; k < n_holder && n < FV_KEPT_MAX; k++) {
            fv_registered_worker *w = holder[k];
            if (w->role == role && w->fleet == r->fleet && !is_among(out, n, w))
                out[n++] = kept_of(r, i, &hint, w);
        }
    }
    return n;
}

fv_kept fv_kept_at(const fv_request *r, fv_registered_worker *w) {
    void *holder[FV_HINT_HOLDERS];
    fv_hint hint;
    for (int32_t i = r->parts.n - 1; i >= 0; i--) {
        int32_t n = fv_hints_find(r->relay->opt.hints, r->parts.end[i].name, &hint, holder);
        for (int32_t k = 0; k < n; k++)
            if (holder[k] == w) return kept_of(r, i, &hint, w);
    }
    return (fv_kept){.left = r->work};
}

/* ---- learning -------------------------------------------------------------------------------- */

static uint16_t place_of(fv_hints *hints, fv_registered_worker *w) {
    if (!w->place) w->place = fv_hints_enter(hints, w);
    return w->place;
}

void fv_kept_expect(const fv_request *r, fv_registered_worker *w) {
    fv_hints *hints = r->relay->opt.hints;
    if (r->parts.n == 0) return;
    const fv_part_end *all = &r->parts.end[r->parts.n - 1];
    const double visual = (double)r->need.tokens_known,
                 text = fmax((double)r->work.prompt - visual, 0);
    for (int32_t i = 0; i < r->parts.n; i++) {
        const fv_part_end *e = &r->parts.end[i];
        double tokens = all->items ? visual * e->items / all->items : 0;
        if (all->text) tokens += (all->items ? text : (double)r->work.prompt) * e->text / all->text;
        const fv_hint guess = {.tokens = tokens < 1 ? 1 : (uint32_t)tokens};
        fv_hints_add(hints, e->name, place_of(hints, w), &guess, true);
    }
}

void fv_kept_count(const fv_request *r, const fv_kept *kept) {
    fv_kept any[FV_KEPT_MAX];
    fv_record_routed(r->parts.n == 0                               ? FV_HINTED_OFF
                     : kept->worker                                ? FV_HINTED_KEPT
                     : fv_kept_find(r, FV_WORKER_PREFILL, any) > 0 ? FV_HINTED_PASSED
                                                                   : FV_HINTED_NONE);
}

void fv_kept_correct(const fv_request *r, fv_registered_worker *w, bool caches, uint32_t n_cached,
                     uint32_t hoped) {
    if (r->parts.n == 0) return;
    const bool wrong = caches && hoped && n_cached == 0;
    if (hoped) fv_record_hint(wrong);
    if (caches && !wrong) return;
    /* The beginnings that this request leaves are expected anew if the worker will keep them. */
    for (int32_t i = 0; i < r->parts.n; i++)
        fv_hints_remove(r->relay->opt.hints, r->parts.end[i].name, w->place);
    if (caches) fv_kept_expect(r, w);
}

void fv_kept_report(fv_relay *relay, fv_registered_worker *w,
                    const Fovea__Fleet__V1__WorkerReport *report) {
    fv_hints *hints = relay->opt.hints;
    const size_t n = report->n_kept < REPORT_MAX ? report->n_kept : REPORT_MAX;
    if (!hints || n == 0) return;
    const uint16_t place = place_of(hints, w);
    for (size_t i = 0; i < n; i++) {
        const Fovea__Fleet__V1__KeptPrompt *k = report->kept[i];
        const fv_hint hint = {k->tokens, k->seconds > 0 && isfinite(k->seconds) ? k->seconds : 0};
        if (k->tokens)
            fv_hints_add(hints, k->digest, place, &hint, false);
        else
            fv_hints_remove(hints, k->digest, place);
    }
}

void fv_kept_gone(fv_relay *relay, fv_registered_worker *w) {
    if (relay->opt.hints) fv_hints_leave(relay->opt.hints, w->place);
    w->place = 0;
}
