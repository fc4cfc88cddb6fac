/* Keeps the list of requests that this worker answers: their phases and their cleanup. The batch and the
 * generation do the work, and shares.h decides whose answers are in the batch. For the computing thread. */
#include "decode-worker/schedule/scheduler.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/log.h"
#include "decode-worker/keep/answer.h"
#include "decode-worker/schedule/begin.h"
#include "decode-worker/schedule/drafts.h"
#include "decode-worker/schedule/memory.h"
#include "decode-worker/schedule/shares.h"
#include "kv/packed.h"
#include "kv/share.h"

struct fv_scheduler {
    const fv_engine *engine;
    fv_receiver *receiver;
    fv_conversations *conversations;
    fv_answer_sources from;
    fv_batch *batch;
    fv_shares shares;
    fv_scheduler_hooks hooks;
    fv_answer *first; /* all answers, in the order in which they came */
    int32_t count[FV_ANSWER_FINALIZING + 1];
    fv_pulse *pulse;       /* borrowed; NULL: none */
    fv_lengths *lengths;   /* borrowed; NULL: not measured */
    fv_prefixes *prefixes; /* borrowed; NULL: answers are not kept for later prompts */
    int32_t batch_max;
    int32_t n_unread;  /* PAUSED answers that are held */
    int32_t n_starved; /* other answers that wait for memory */
    uint64_t n_preempted, n_preempted_for_memory;
    bool is_short; /* the pool has too little for an answer */
    bool changed;
};

fv_status fv_scheduler_open(const fv_engine *engine, fv_receiver *receiver,
                            fv_conversations *conversations, int32_t batch_max,
                            int32_t prompt_tokens, const fv_scheduler_hooks *hooks,
                            fv_scheduler **out) {
    fv_scheduler *a = calloc(1, sizeof *a);
    if (!a) return FV_FAIL(FV_ENOMEM, "out of memory for answers");
    *a = (fv_scheduler){.engine = engine,
                        .receiver = receiver,
                        .conversations = conversations,
                        .from = {.engine = engine, .conversations = conversations},
                        .batch_max = batch_max,
                        .hooks = *hooks};
    fv_status st = fv_batch_open(engine->dec, batch_max, prompt_tokens, &a->batch);
    if (st != FV_OK) {
        free(a);
        return st;
    }
    *out = a;
    return FV_OK;
}

void fv_scheduler_close(fv_scheduler *a) {
    if (!a) return;
    fv_batch_close(a->batch);
    free(a);
}

int32_t fv_scheduler_count(const fv_scheduler *a, fv_answer_phase phase) { return a->count[phase]; }

int32_t fv_scheduler_unread(const fv_scheduler *a) { return a->n_unread; }

uint64_t fv_scheduler_preempted(const fv_scheduler *a) { return a->n_preempted; }

bool fv_scheduler_is_short(const fv_scheduler *a) { return a->is_short; }

uint64_t fv_scheduler_preempted_for_memory(const fv_scheduler *a) {
    return a->n_preempted_for_memory;
}

void fv_scheduler_measure(fv_scheduler *a, fv_lengths *lengths) { a->lengths = lengths; }

void fv_scheduler_keep(fv_scheduler *a, fv_prefixes *prefixes) { a->prefixes = prefixes; }

void fv_scheduler_draft_with(fv_scheduler *a, fv_draft_model *m) { a->from.draft_model = m; }

fv_batch *fv_scheduler_batch(fv_scheduler *a) { return a->batch; }

/* ---- phases ---------------------------------------------------------------------------- */

/* Counts layers of the whole step: each one is progress of every answer in it. */
static uint64_t layers_run(const void *engine) { return fv_engine_layers_run(engine); }

static void note_work(fv_scheduler *a, fv_answer *x, fv_answer_phase phase) {
    bool works = phase == FV_ANSWER_RUNNING || phase == FV_ANSWER_FINALIZING;
    if (!a->pulse || !x->request_id) return;
    if (works && x->at_work == 0)
        x->at_work = fv_pulse_begin(a->pulse, x->request_id, layers_run, a->engine);
    if (works) return;
    fv_pulse_end(a->pulse, x->at_work);
    x->at_work = 0;
}

void fv_scheduler_follow(fv_scheduler *a, fv_pulse *pulse) { a->pulse = pulse; }

/* Whether the answer could use a slot. */
static bool waits_for_slot(const fv_answer *x) {
    return (x->phase == FV_ANSWER_READY || x->phase == FV_ANSWER_PAUSED) && !x->held && !x->starved;
}

/* Adds the answer to the counts of its phase (by = 1), or removes it (-1). */
static void count(fv_scheduler *a, const fv_answer *x, int32_t by) {
    a->count[x->phase] += by;
    if (x->phase == FV_ANSWER_PAUSED && x->held) a->n_unread += by;
    if (x->phase == FV_ANSWER_PAUSED && !x->held && x->starved) a->n_starved += by;
    if (!x->share) return;
    if (x->phase == FV_ANSWER_RUNNING) x->share->n_running += by;
    if (waits_for_slot(x)) x->share->n_waiting += by;
}

static void set_phase(fv_scheduler *a, fv_answer *x, fv_answer_phase phase) {
    note_work(a, x, phase);
    count(a, x, -1);
    x->phase = phase;
    count(a, x, 1);
}

/* Ends the answer's conversation; returns a follow-up's to the kept ones if nothing was added to it. */
static void part(fv_scheduler *a, fv_answer *x) {
    if (!x->session) return;
    if (x->follows && x->t_joined == 0)
        fv_conversations_pause(a->conversations, x->session);
    else
        fv_conversations_end(a->conversations, x->session);
    x->session = NULL;
}

/* Counts the answer's tokens here. Those that a benchmark asks for say nothing about lengths. */
static void measure(const fv_scheduler *a, const fv_answer *x) {
    int32_t n, n_prompt;
    if (!a->lengths || !x->seq || x->ignore_eos) return;
    fv_generation_ids(x->seq, &n, &n_prompt);
    fv_finish finish = fv_generation_finish(x->seq);
    fv_lengths_add(a->lengths, x->tenant ? x->tenant : "", x->n_replay, n - n_prompt,
                   finish == FV_FINISH_EOS || finish == FV_FINISH_STOP);
}

/* Keeps the prompt and what has run of the answer, for later prompts that go on from there. */
static void keep_rows(const fv_scheduler *a, fv_answer *x) {
    int32_t n, n_prompt;
    if (!a->prefixes || !x->link || !x->session || !x->seq) return;
    const int32_t *ids = fv_generation_ids(x->seq, &n, &n_prompt);
    fv_prefixes_keep_answer(a->prefixes, x->link, x->n_link, ids, n, x->session->kv);
}

/* Takes it off the list and frees what it holds. */
static void leave(fv_scheduler *a, fv_answer *x) {
    if (x->phase == FV_ANSWER_RUNNING) fv_batch_leave(a->batch, x->seq);
    measure(a, x);
    part(a, x);
    set_phase(a, x, FV_ANSWER_NONE);
    x->starved = false;
    for (fv_answer **at = &a->first; *at; at = &(*at)->next)
        if (*at == x) {
            *at = x->next;
            break;
        }
    if (x->share) fv_shares_leave(&a->shares, x->share);
    x->share = NULL;
    fv_generation_close(x->seq);
    fv_rerun_free(&x->rerun);
    free(x->link);
    x->link = NULL;
    fv_answer_end_drafts(x);
    x->seq = NULL;
}

/* ---- the end of an answer --------------------------------------------------------------- */

/* Reports the rows of a prompt that have run here. */
static void report_prompt(const fv_answer *x, int32_t n_prompt, fv_answer_report *r) {
    r->n_prompt = n_prompt - x->n_held;
    r->bytes_visual = x->bytes_visual;
    r->bytes_text = x->bytes_text;
    r->s_prefill = x->t_token - x->t_joined;
}

static void report_follow_up(const fv_answer *x, int32_t n_prompt, fv_answer_report *r) {
    fv_kv_shape s = *fv_kv_get_shape(x->session->kv);
    report_prompt(x, n_prompt, r);
    r->bytes_raw = 2 * (size_t)s.d_head * fv_dtype_bytes(s.dtype) * (size_t)s.n_layer *
                   (size_t)s.n_kv * (size_t)n_prompt;
}

static void report_answer(const fv_answer *x, fv_answer_report *r) {
    int32_t n, n_prompt;
    fv_generation_ids(x->seq, &n, &n_prompt);
    r->finish = fv_generation_finish(x->seq);
    r->n_generated = n - n_prompt;
    r->bytes_visual_end = fv_kv_bytes(x->session->kv, FV_SEG_VISUAL);
    r->bytes_text_end = fv_kv_bytes(x->session->kv, FV_SEG_TEXT);
    r->bytes_tables_end = fv_kv_packed_tables(x->session->kv);
    r->entries_evicted = fv_evict_count(x->session->kv) - x->rows_gone;
    r->attached_s = x->t_attached;
    r->ended_s = x->t_last;
    r->s_attach = x->t_joined - x->t_attached;
    r->s_decode =
        x->t_last - (x->follows || x->first_held || x->begins ? x->t_token : x->t_attached);
    r->recompressed = x->session->text.rule.bits ? x->session->text.report : x->again.report;
    r->n_drafted = x->spec.n_drafted;
    r->n_drafts_kept = x->spec.n_kept;
    r->s_drafts_saved = x->spec.s_saved;
    strcpy(r->policy, x->session->policy);
    if (x->follows) report_follow_up(x, n_prompt, r);
    if (x->begins) report_prompt(x, n_prompt, r);
}

static void keep(fv_scheduler *a, fv_answer *x, fv_answer_report *r) {
    int32_t n, n_prompt;
    const int32_t *ids = fv_generation_ids(x->seq, &n, &n_prompt);
    fv_conversation *session = x->session;
    x->session = NULL;
    session->evict.before += n - n_prompt;
    r->keep_s = fv_conversations_keep(a->conversations, session, ids, n, x->keep_s,
                                      (size_t)x->tenant_bytes / 2);
    if (r->keep_s > 0) memcpy(r->conversation, session->id, sizeof r->conversation);
}

static void end(fv_scheduler *a, fv_answer *x, fv_status st) {
    fv_answer_report r = {.refusal = x->refusal};
    if (st == FV_OK) {
        report_answer(x, &r);
        keep_rows(a, x);
        if (x->keep_s > 0) keep(a, x, &r);
    }
    leave(a, x);
    a->hooks.over(x, st, &r); /* x may be gone after this */
}

/* Ends an answer that has its last token, or recompresses its conversation first. */
static void complete(fv_scheduler *a, fv_answer *x) {
    x->t_last = fv_clock_s();
    if (x->keep_s > 0 && fv_recompress_begin(&x->again, &x->session->text_keys, x->session->kv))
        set_phase(a, x, FV_ANSWER_FINALIZING);
    else
        end(a, x, FV_OK);
}

/* Recompresses one layer. If that fails, the conversation is not kept, but the answer is complete. */
static void finalize(fv_scheduler *a, fv_answer *x) {
    bool more = false;
    if (a->pulse) fv_pulse_step(a->pulse, x->at_work);
    fv_status st = fv_recompress_next(&x->again, a->engine->dec, x->session->kv, &more);
    if (st != FV_OK) {
        FV_LOG(WARN, DECODE, "event=not-kept status=%s reason=\"%s\"", fv_status_grpc_name(st),
               fv_last_error());
        x->keep_s = 0;
    }
    if (st != FV_OK || !more) end(a, x, FV_OK);
}

/* Advances the first FINALIZING answer by one layer. */
static void finalize_one(fv_scheduler *a) {
    fv_answer *x = a->first;
    while (x && x->phase != FV_ANSWER_FINALIZING) x = x->next;
    if (x) finalize(a, x);
}

/* ---- from the ticket, or a kept conversation, to the batch -------------------------------- */

static void ready(fv_scheduler *a, fv_answer *x, fv_status st) {
    if (st != FV_OK)
        end(a, x, st);
    else
        set_phase(a, x, FV_ANSWER_READY);
}

/* Tries the ticket; the answer waits while its hand-off is under way. */
static void attach(fv_scheduler *a, fv_answer *x) {
    bool waited = x->phase == FV_ANSWER_WAITING;
    fv_received got = {0};
    fv_status st = fv_receiver_attach(a->receiver, &x->ticket, &got);
    x->refusal = fv_refusal_of(st);
    if (x->refusal == FV_REFUSED_PENDING) {
        if (!waited) set_phase(a, x, FV_ANSWER_WAITING);
        return;
    }
    if (st != FV_OK) {
        end(a, x,
            waited ? FV_FAIL(FV_EIO, "the hand-off was lost before it was complete: %s",
                             fv_refusal_text(x->refusal))
                   : FV_FAIL(FV_ENOTFOUND, "no hand-off for this ticket: %s",
                             fv_refusal_text(x->refusal)));
        return;
    }
    x->t_attached = fv_clock_s();
    st = fv_answer_begin(&a->from, x, &got);
    fv_received_free(&got);
    ready(a, x, st);
}

static void follow(fv_scheduler *a, fv_answer *x) {
    x->t_attached = fv_clock_s();
    fv_status st = a->is_short ? FV_FAIL(FV_EBUSY, "answers that have begun wait for memory")
                               : fv_answer_resume(&a->from, x);
    if (fv_refusal_of(st) == FV_REFUSED_TENANT_FULL) x->refusal = FV_REFUSED_TENANT_FULL;
    ready(a, x, st);
}

static void abort_handoff(fv_scheduler *a, const fv_answer *x) {
    fv_sink *sink = fv_receiver_sink(a->receiver);
    sink->ops->abort(sink, &x->ticket);
}

void fv_scheduler_add(fv_scheduler *a, fv_answer *x) {
    fv_answer **at = &a->first;
    while (*at) at = &(*at)->next;
    *at = x;
    x->next = NULL;
    x->phase = FV_ANSWER_NONE;
    x->refusal = FV_REFUSED_NONE;
    a->count[FV_ANSWER_NONE]++;
    const char *whose = x->share_name && *x->share_name ? x->share_name : x->tenant;
    fv_status st = fv_shares_enter(&a->shares, whose ? whose : "", x->weight, &x->share);
    if (st != FV_OK && !x->follows) abort_handoff(a, x);
    if (st != FV_OK)
        end(a, x, st);
    else if (x->follows)
        follow(a, x);
    else
        attach(a, x);
}

void fv_scheduler_drop(fv_scheduler *a, fv_answer *x) {
    if (x->phase == FV_ANSWER_NONE) return;
    if (x->phase == FV_ANSWER_WAITING) abort_handoff(a, x);
    keep_rows(a, x);
    leave(a, x);
}

void fv_scheduler_changed(fv_scheduler *a) { a->changed = true; }

/* ---- slots ------------------------------------------------------------------------------ */

/* Takes a running answer out of the batch; it can join again later. */
static void pause(fv_scheduler *a, fv_answer *x) {
    int32_t n = fv_batch_leave(a->batch, x->seq);
    fv_share_charge(x->share, n - x->n_run);
    x->n_run = n;
    set_phase(a, x, FV_ANSWER_PAUSED);
}

void fv_scheduler_hold(fv_scheduler *a, fv_answer *x, bool held) {
    if (x->phase == FV_ANSWER_NONE || x->held == held) return;
    count(a, x, -1);
    x->held = held;
    count(a, x, 1);
    if (held && x->phase == FV_ANSWER_RUNNING) pause(a, x);
}

static void join(fv_scheduler *a, fv_answer *x) {
    bool first = x->phase == FV_ANSWER_READY;
    if (first) x->n_run = x->n_held;
    fv_status st = fv_batch_join(a->batch, x->seq, x->session->kv, &x->session->evict,
                                 &x->session->text, x->n_run, x);
    if (st != FV_OK) {
        end(a, x, st);
        return;
    }
    if (x->lookup) fv_batch_speculate(a->batch, x->seq, &x->spec);
    if (first) x->t_joined = fv_clock_s();
    set_phase(a, x, FV_ANSWER_RUNNING);
}

/* Returns the tenant's oldest answer that waits for a slot. */
static fv_answer *oldest(const fv_scheduler *a, const fv_share *s) {
    fv_answer *x = a->first;
    while (x->share != s || !waits_for_slot(x)) x = x->next;
    return x;
}

/* Returns the tenant's youngest running answer. */
static fv_answer *youngest(const fv_scheduler *a, const fv_share *s) {
    fv_answer *last = NULL;
    for (fv_answer *x = a->first; x; x = x->next)
        if (x->share == s && x->phase == FV_ANSWER_RUNNING) last = x;
    return last;
}

/* Fills free slots, and moves slots that other tenants are due. */
static void share_slots(fv_scheduler *a) {
    fv_share *from, *to;
    fv_shares_settle(&a->shares);
    while (fv_batch_count(a->batch) < a->batch_max && (to = fv_shares_next(&a->shares)))
        join(a, oldest(a, to));
    while (fv_shares_swap(&a->shares, &from, &to)) {
        pause(a, youngest(a, from));
        join(a, oldest(a, to));
        a->n_preempted++;
    }
}

/* ---- memory ----------------------------------------------------------------------------- */

static void set_starved(fv_scheduler *a, fv_answer *x, bool starved) {
    if (starved && x->phase == FV_ANSWER_RUNNING) pause(a, x);
    count(a, x, -1);
    x->starved = starved;
    count(a, x, 1);
}

static void preempt(fv_scheduler *a, fv_answer *x, const char *why) {
    a->n_preempted_for_memory++;
    x->refusal = FV_REFUSED_PREEMPTED;
    end(a, x, FV_REFUSE(PREEMPTED, "the worker's KV is full, and %s", why));
}

/* Gives up what has to give way for x; false: nothing has. */
static bool make_room(fv_scheduler *a, const fv_answer *x, bool own) {
    const char *owner = own ? fv_kv_owner(x->session->kv) : NULL;
    if (fv_conversations_give_up(a->conversations, owner)) return true;
    fv_answer *victim = fv_answer_victim(a->first, x, own);
    if (victim) preempt(a, victim, "an older answer needs it");
    return victim != NULL;
}

/* Gives memory to an answer, or lets it wait, or ends it. */
static void feed(fv_scheduler *a, fv_answer *x) {
    fv_status st;
    bool own, room = true;
    do {
        st = fv_answer_grow(x);
        own = fv_refusal_of(st) == FV_REFUSED_TENANT_FULL;
        if (st == FV_EBUSY) room = make_room(a, x, own);
    } while (st == FV_EBUSY && room);
    bool alone = st == FV_EBUSY && fv_receiver_live(a->receiver) == 0 &&
                 fv_answer_is_alone(a->first, x, own);
    if (alone && fv_kv_get_share(x->session->kv)) {
        preempt(a, x, "the answer shares a prompt that holds some of it");
        return;
    }
    if (alone) st = fv_answer_too_large(x, own);
    if (st == FV_EBUSY) {
        set_starved(a, x, true);
        a->is_short = a->is_short || !own;
    } else if (st == FV_OK) {
        set_starved(a, x, false);
    } else {
        bool too_large = fv_refusal_of(st) == FV_REFUSED_TOO_LARGE;
        if (too_large) x->refusal = FV_REFUSED_TOO_LARGE;
        end(a, x, too_large ? st : fv_fail_origin(st, FV_ORIGIN_WORKER));
    }
}

/* Gives memory to the answers that need it, the eldest first. If there is too little for one, the younger ones
 * wait behind it. */
static void feed_all(fv_scheduler *a) {
    fv_answer *x;
    a->is_short = false;
    for (x = a->first; x; x = x->next) x->asked = false;
    while ((x = fv_answer_needy(a->first)) != NULL) {
        x->asked = true;
        if (a->is_short)
            set_starved(a, x, true);
        else
            feed(a, x);
    }
}

/* ---- steps ----------------------------------------------------------------------------- */

static fv_status take_token(fv_scheduler *a, fv_answer *x, const fv_batch_event *e) {
    int32_t n, n_prompt;
    FV_TRY(e->status);
    uint64_t digest =
        x->digests ? fv_logits_digest(e->logits, fv_decoder_config(a->engine->dec)->vocab) : 0;
    fv_generation_ids(x->seq, &n, &n_prompt);
    if (x->t_token == 0) {
        x->t_token = fv_clock_s();
        x->bytes_visual = fv_kv_bytes(x->session->kv, FV_SEG_VISUAL);
        x->bytes_text = fv_kv_bytes(x->session->kv, FV_SEG_TEXT);
        if (x->first_held) FV_TRY(fv_rerun_put_back(&x->rerun, x->session->kv));
    }
    return a->hooks.token(x, (uint32_t)(n - n_prompt - 1), e, digest);
}

static void on_event(void *ctx, const fv_batch_event *e) {
    fv_answer *x = e->user;
    fv_share_charge(x->share, e->n_rows + e->n_wasted);
    x->n_run += e->n_rows;
    if (x->failed.status != FV_OK) { /* an earlier token of the step */
        if (e->status != FV_OK || e->finish != FV_FINISH_NOT)
            end(ctx, x, fv_error_raise(&x->failed));
        return;
    }
    fv_status st = take_token(ctx, x, e);
    if (st == FV_OK && e->finish != FV_FINISH_NOT)
        complete(ctx, x);
    else if (e->status != FV_OK || e->finish != FV_FINISH_NOT)
        end(ctx, x, st);
    else
        fv_error_take(&x->failed, st); /* ended after the step: the batch must not change now */
}

/* Ends running answers that have failed, or all of them if the step failed. */
static void end_failed(fv_scheduler *a, fv_status step) {
    for (fv_answer *x = a->first, *next; x; x = next) {
        next = x->next;
        if (x->phase != FV_ANSWER_RUNNING) continue;
        if (step != FV_OK)
            end(a, x, step);
        else if (x->failed.status != FV_OK)
            end(a, x, fv_error_raise(&x->failed));
    }
}

static void advance(fv_scheduler *a) {
    bool changed = a->changed;
    a->changed = false;
    for (fv_answer *x = a->first, *next; x; x = next) {
        next = x->next;
        if (changed && x->phase == FV_ANSWER_WAITING) attach(a, x);
    }
    share_slots(a);
}

/* Asserts that answers have what their phase requires, and that counts agree with the phases. */
static void check(const fv_scheduler *a) {
#ifndef FV_NO_CHECKS
    int32_t n[FV_ANSWER_FINALIZING + 1] = {0};
    for (const fv_answer *x = a->first; x; x = x->next) {
        bool runs = x->phase > FV_ANSWER_WAITING;
        assert(x->phase != FV_ANSWER_NONE && runs == !!x->session && runs == !!x->seq);
        n[x->phase]++;
    }
    for (int p = FV_ANSWER_WAITING; p <= FV_ANSWER_FINALIZING; p++) assert(n[p] == a->count[p]);
    assert(n[FV_ANSWER_RUNNING] == fv_batch_count(a->batch));
    assert(fv_shares_waiting(&a->shares) ==
           n[FV_ANSWER_READY] + n[FV_ANSWER_PAUSED] - a->n_unread - a->n_starved);
#else
    (void)a;
#endif
}

bool fv_scheduler_step(fv_scheduler *a) {
    finalize_one(a);
    advance(a);
    feed_all(a);
    for (fv_answer *x = a->first; x; x = x->next) x->spec.rows_end = x->rows_end;
    if (fv_batch_count(a->batch) > 0) end_failed(a, fv_batch_step(a->batch, on_event, a));
    check(a);
    return a->count[FV_ANSWER_RUNNING] + fv_shares_waiting(&a->shares) +
               a->count[FV_ANSWER_FINALIZING] >
           0;
}
