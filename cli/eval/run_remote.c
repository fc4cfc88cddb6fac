/* Runs the evaluation on a fleet: `at_once` sessions, each with one call at a time.
 *
 *   first turn    images and question under the policy, asking to keep the dialog
 *   later turns   only the question, to the worker that keeps the dialog; if none does, the
 *                 whole chat with its images
 *
 * Retries a busy fleet after the time that it requests; any other failure ends the run. Loop
 * thread. */
#include <stdlib.h>
#include <string.h>

#include "cli/eval/run.h"
#include "common/arena.h"
#include "common/log.h"
#include "serving/policy_message.h"

typedef Fovea__Inference__V1__GenerateRequest request_message;
typedef Fovea__Inference__V1__Image image_message;
typedef Fovea__Inference__V1__Turn turn_message;
typedef Fovea__Inference__V1__Finished finished_message;

enum { DEADLINE_MS = 3600000, NAME_MAX_BYTES = 512 };

typedef struct runner runner;

typedef struct slot {
    runner *runner;
    fv_eval_session session;
    bool taken;
    uv_timer_t timer;                                                       /* until the retry */
    image_message image[FV_BENCHMARK_IMAGES], *images[FV_BENCHMARK_IMAGES]; /* own their files */
    uint8_t kept[NAME_MAX_BYTES]; /* [n_kept] handle of the dialog; 0: not kept */
    size_t n_kept;
    fv_report report;
} slot;

struct runner {
    fv_eval_run *eval_run;
    fv_remote *remote;
    fv_arena arena;                          /* of the policies */
    Fovea__Inference__V1__Policy **policies; /* [n_policy] */
    slot *slots;                             /* [at_once] */
    int32_t n_handle;                        /* timers not yet closed */
    int32_t n_call;                          /* calls in progress */
    fv_status status;                        /* after a failure no more requests are sent */
};

/* ---- requests ----------------------------------------------------------------------------- */

typedef struct asking {
    Fovea__Inference__V1__Prompt prompt;
    Fovea__Inference__V1__Chat chat;
    turn_message turn[FV_EVAL_SESSION_CHAT], *turns[FV_EVAL_SESSION_CHAT];
} asking;

/* Adds the chat from turn `first` on. */
static void fill_chat(const fv_eval_session *s, int32_t first, asking *a) {
    fovea__inference__v1__prompt__init(&a->prompt);
    fovea__inference__v1__chat__init(&a->chat);
    for (int32_t i = first; i < s->n_chat; i++) {
        size_t at = a->chat.n_turns++;
        fovea__inference__v1__turn__init(&a->turn[at]);
        a->turn[at].role = (char *)(uintptr_t)s->chat[i].role;
        a->turn[at].text = (char *)(uintptr_t)s->chat[i].text;
        a->turn[at].n_images = (uint32_t)s->chat[i].n_image;
        a->turns[at] = &a->turn[at];
    }
    a->chat.turns = a->turns;
    a->prompt.form_case = FOVEA__INFERENCE__V1__PROMPT__FORM_CHAT;
    a->prompt.chat = &a->chat;
}

static fv_status on_tokens(void *user, const Fovea__Inference__V1__Tokens *t);
static fv_status on_finished(void *user, const finished_message *f);
static void on_over(void *user, fv_status st, const fv_rpc_end *end);

static fv_status ask(slot *p) {
    static const fv_remote_events events = {
        .tokens = on_tokens, .finished = on_finished, .over = on_over};
    const fv_eval_run *eval_run = p->runner->eval_run;
    const fv_eval_session *s = &p->session;
    request_message m = FOVEA__INFERENCE__V1__GENERATE_REQUEST__INIT;
    asking a = {0};
    fill_chat(s, p->n_kept ? s->n_chat - 1 : 0, &a);
    m.prompt = &a.prompt;
    m.max_tokens = (uint32_t)fv_eval_session_max_tokens(s);
    m.digests = true;
    m.speculation_case =
        FOVEA__INFERENCE__V1__GENERATE_REQUEST__SPECULATION_SPECULATE; /* off: times are of steps */
    m.cache_off = true; /* bytes sent are those of the policy, whatever was asked before */
    if (s->turn + 1 < s->n_turn) m.keep_ms = (uint32_t)eval_run->keep_ms;
    if (p->n_kept) {
        m.conversation = (ProtobufCBinaryData){p->n_kept, p->kept};
    } else {
        m.n_images = (size_t)s->n_image;
        m.images = p->images;
        m.policy = p->runner->policies[s->item_score.policy];
    }
    FV_TRY(fv_remote_begin(p->runner->remote, &m, DEADLINE_MS, &events, p));
    p->runner->n_call++;
    return FV_OK;
}

/* ---- answers ------------------------------------------------------------------------------ */

static fv_status on_tokens(void *user, const Fovea__Inference__V1__Tokens *t) {
    slot *p = user;
    return t->text[0] ? fv_eval_session_add_text(&p->session, t->text, strlen(t->text)) : FV_OK;
}

static fv_status on_finished(void *user, const finished_message *f) {
    slot *p = user;
    if (f->conversation.len > sizeof p->kept)
        return FV_FAIL(FV_EDATA, "the fleet names a conversation in %zu bytes",
                       f->conversation.len);
    p->n_kept = f->conversation.len;
    if (p->n_kept) memcpy(p->kept, f->conversation.data, p->n_kept);
    return fv_report_from_message(f->report, f->reason, &p->report);
}

static void leave(slot *p) {
    for (int32_t i = 0; i < FV_BENCHMARK_IMAGES; i++) {
        free(p->image[i].data.data);
        p->image[i].data = (ProtobufCBinaryData){0};
    }
    fv_eval_session_leave(&p->session);
    p->taken = false;
    p->n_kept = 0;
}

static fv_status take(slot *p) {
    bool got;
    FV_TRY(fv_eval_run_next(p->runner->eval_run, &p->session, &got));
    if (!got) return FV_OK;
    p->taken = true;
    for (int32_t i = 0; i < p->session.n_image; i++) {
        fovea__inference__v1__image__init(&p->image[i]);
        p->images[i] = &p->image[i];
        FV_TRY(fv_eval_session_file(&p->session, i, &p->image[i].data.data, &p->image[i].data.len));
    }
    return ask(p);
}

static fv_status go_on(slot *p) {
    bool more;
    FV_TRY(fv_eval_session_answered(&p->session, &p->report, &more));
    if (more) return ask(p);
    FV_TRY(fv_eval_run_add(p->runner->eval_run, &p->session));
    leave(p);
    return take(p);
}

static void on_due(uv_timer_t *t);

/* Retries if that helps; otherwise the failure ends the run. */
static fv_status again(slot *p, fv_status st, const fv_rpc_end *end) {
    fv_eval_session_again(&p->session);
    if (end->code == GRPC_STATUS_RESOURCE_EXHAUSTED && end->retry_ms >= 0) {
        uv_timer_start(&p->timer, on_due, (uint64_t)end->retry_ms, 0);
        return FV_OK;
    }
    if (st != FV_ENOTFOUND || p->n_kept == 0) return fv_eval_session_failed(&p->session, st);
    FV_LOG(INFO, GENERAL, "event=sent-again why=\"%s\"", fv_last_error());
    p->n_kept = 0;
    return ask(p);
}

static void on_closed(uv_handle_t *timer) { ((slot *)timer->data)->runner->n_handle--; }

/* Closes the timers when every slot is idle, or after a failure. */
static void end_when_idle(runner *r) {
    bool idle = r->n_call == 0;
    for (int32_t i = 0; i < r->eval_run->at_once && r->status == FV_OK; i++)
        idle &= !r->slots[i].taken;
    if (!idle) return;
    for (int32_t i = 0; i < r->eval_run->at_once; i++) {
        uv_handle_t *timer = (uv_handle_t *)&r->slots[i].timer;
        if (!uv_is_closing(timer)) uv_close(timer, on_closed);
    }
}

static void note(runner *r, fv_status st) {
    if (st != FV_OK && r->status == FV_OK) r->status = st;
    end_when_idle(r);
}

static void on_over(void *user, fv_status st, const fv_rpc_end *end) {
    slot *p = user;
    p->runner->n_call--;
    if (p->runner->status == FV_OK)
        note(p->runner, st == FV_OK ? go_on(p) : again(p, st, end));
    else
        end_when_idle(p->runner);
    fv_report_free(&p->report);
}

static void on_due(uv_timer_t *t) {
    slot *p = t->data;
    if (p->runner->status == FV_OK) note(p->runner, ask(p));
}

/* ---- the whole run ------------------------------------------------------------------------ */

static void on_begin(uv_timer_t *t) {
    slot *p = t->data;
    if (p->runner->status == FV_OK) note(p->runner, take(p));
}

static void start_timers(runner *r) {
    uv_loop_t *loop = fv_remote_loop(r->remote);
    for (int32_t i = 0; i < r->eval_run->at_once; i++) {
        slot *p = &r->slots[i];
        p->runner = r;
        p->timer.data = p;
        uv_timer_init(loop, &p->timer);
        uv_timer_start(&p->timer, on_begin, 0, 0);
    }
    r->n_handle = r->eval_run->at_once;
}

static fv_status run_all(runner *r) {
    int32_t n = r->eval_run->results_log->head->n_policy;
    FV_TRY(FV_ARENA_NEW(&r->arena, n, r->policies));
    for (int32_t i = 0; i < n; i++)
        FV_TRY(fv_policy_to_message(&r->eval_run->policy[i], &r->arena, &r->policies[i]));
    r->slots = calloc((size_t)r->eval_run->at_once, sizeof *r->slots);
    if (!r->slots) return FV_FAIL(FV_ENOMEM, "out of memory for %d items", r->eval_run->at_once);
    start_timers(r);
    while (r->n_handle > 0) uv_run(fv_remote_loop(r->remote), UV_RUN_ONCE);
    return r->status;
}

fv_status fv_eval_run_remote(fv_eval_run *s, fv_remote *remote) {
    runner r = {.eval_run = s, .remote = remote};
    fv_status st = run_all(&r);
    fv_progress_end(&s->progress);
    for (int32_t i = 0; r.slots && i < s->at_once; i++) leave(&r.slots[i]);
    free(r.slots);
    fv_arena_fini(&r.arena);
    return st;
}
