/* Names of requests, and hints about them. Loop thread, except the hashing of a large request. */
#include "router/kept.h"

#include <math.h>
#include <string.h>

#include "common/log.h"
#include "router/record.h"
#include "telemetry/metrics.h"

enum {
    INLINE_BYTES =
        16 << 10, /* so few are hashed on the loop, in less time than a thread takes to wake */
    REPORT_MAX = 1024,
    PAGE = 64, /* tokens: workers keep text in pages */
    /* A wrong report adds so much distrust, each request without one takes 1 away; from LIARS on, nothing is thought. */
    WRONG = 4,
    LIARS = 16,
    DISTRUST_MAX = 32,
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

/* The last beginning that a worker can use: it computes the prompt's last token in any case. */
static int32_t last_usable(const fv_request *r) { return r->parts.n - 2; }

static fv_kept kept_of(const fv_request *r, int32_t end, const fv_hint *hint,
                       fv_registered_worker *w) {
    return (fv_kept){.worker = w,
                     .tokens = hint->tokens,
                     .seconds = hint->seconds,
                     .guess = hint->guess,
                     .end = end,
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
    for (int32_t i = last_usable(r); i >= 0 && n < FV_KEPT_MAX; i--) {
        int32_t n_holder = fv_hints_find(r->relay->opt.hints, r->parts.end[i].name, &hint, holder);
        for (int32_t k = 0; k < n_holder && n < FV_KEPT_MAX; k++) {
            fv_registered_worker *w = holder[k];
            if (w->role == role && w->fleet == r->fleet && w->distrust < LIARS &&
                !is_among(out, n, w))
                out[n++] = kept_of(r, i, &hint, w);
        }
    }
    return n;
}

fv_kept fv_kept_at(const fv_request *r, fv_registered_worker *w) {
    void *holder[FV_HINT_HOLDERS];
    fv_hint hint;
    for (int32_t i = w->distrust < LIARS ? last_usable(r) : -1; i >= 0; i--) {
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

/* Tokens of the prompt up to this end, about; whole pages where there is only text. */
static uint32_t guess_tokens(const fv_request *r, const fv_part_end *e) {
    const fv_part_end *all = &r->parts.end[r->parts.n - 1];
    const double prompt = (double)r->work.prompt,
                 visual = all->items ? fmin((double)r->need.tokens_known, prompt) : 0;
    double tokens = all->text ? (prompt - visual) * e->text / all->text : 0;
    if (e->items == 0) return (uint32_t)tokens / PAGE * PAGE;
    return (uint32_t)(tokens + visual * e->items / all->items);
}

void fv_kept_expect(const fv_request *r, fv_registered_worker *w) {
    fv_hints *hints = r->relay->opt.hints;
    for (int32_t i = 0; i < r->parts.n; i++) {
        const fv_hint guess = {.tokens = guess_tokens(r, &r->parts.end[i]), .guess = true};
        fv_hints_add(hints, r->parts.end[i].name, place_of(hints, w), &guess);
    }
}

void fv_kept_count(const fv_request *r, const fv_kept *kept) {
    fv_kept any[FV_KEPT_MAX];
    fv_record_routed(r->parts.n == 0                               ? FV_HINTED_OFF
                     : kept->worker                                ? FV_HINTED_KEPT
                     : fv_kept_find(r, FV_WORKER_PREFILL, any) > 0 ? FV_HINTED_PASSED
                                                                   : FV_HINTED_NONE);
}

/* Forgets that w keeps beginnings of the request, from this one on. */
static void forget_from(const fv_request *r, const fv_registered_worker *w, int32_t end) {
    for (int32_t i = end; i < r->parts.n; i++)
        fv_hints_remove(r->relay->opt.hints, r->parts.end[i].name, w->place);
}

void fv_kept_correct(const fv_request *r, fv_registered_worker *w, bool caches, uint32_t n_cached,
                     const fv_kept *hoped) {
    const bool lacks = hoped->worker && n_cached < hoped->tokens / 2;
    if (r->parts.n == 0) return;
    if (!caches) { /* its policy shares nothing: the worker keeps what others have left, and nothing of this one */
        forget_from(r, w, hoped->worker ? hoped->end + 1 : 0);
        return;
    }
    if (lacks && !hoped->guess) {
        w->distrust = w->distrust + WRONG < DISTRUST_MAX ? w->distrust + WRONG : DISTRUST_MAX;
    } else if (w->distrust > 0) {
        w->distrust--;
    }
    fv_record_hint(lacks);
    /* The beginnings that this request leaves will be reported. */
    if (lacks) forget_from(r, w, 0);
}

void fv_kept_report(fv_relay *relay, fv_registered_worker *w,
                    const Fovea__Fleet__V1__WorkerReport *report) {
    fv_hints *hints = relay->opt.hints;
    const size_t n = report->n_kept < REPORT_MAX ? report->n_kept : REPORT_MAX;
    if (!hints || n == 0) return;
    const uint16_t place = place_of(hints, w);
    FV_LOG(DEBUG, ROUTER, "worker=%s event=kept changes=%zu", w->intro->name, n);
    for (size_t i = 0; i < n; i++) {
        const Fovea__Fleet__V1__KeptPrompt *k = report->kept[i];
        const fv_hint hint = {.tokens = k->tokens,
                              .seconds = k->seconds > 0 && isfinite(k->seconds) ? k->seconds : 0};
        if (k->tokens)
            fv_hints_add(hints, k->digest, place, &hint);
        else
            fv_hints_remove(hints, k->digest, place);
    }
}

void fv_kept_gone(fv_relay *relay, fv_registered_worker *w) {
    if (relay->opt.hints) fv_hints_leave(relay->opt.hints, w->place);
    w->place = 0;
}
