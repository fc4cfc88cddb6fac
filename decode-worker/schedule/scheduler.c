/* The list of requests that this worker answers, from their tickets to their last tokens. Batch and
 * generation do the work; here are the phases of requests and their cleanup. The computing
 * thread. */
#include "decode-worker/schedule/scheduler.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/log.h"
#include "model/net/kv_packed.h"

struct fv_scheduler {
    const fv_engine *engine;
    fv_receiver *receiver;
    fv_conversations *conversations;
    fv_batch *batch;
    fv_scheduler_hooks hooks;
    fv_answer *first; /* all, in the order in which they came */
    int32_t count[FV_ANSWER_FINALIZING + 1];
    fv_pulse *pulse; /* borrowed; NULL: not wanted */
    int32_t batch_max;
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

fv_batch *fv_scheduler_batch(fv_scheduler *a) { return a->batch; }

/* ---- phases ---------------------------------------------------------------------------- */

/* Of the whole step: a layer that is computed is one of each answer in it. */
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

static void set_phase(fv_scheduler *a, fv_answer *x, fv_answer_phase phase) {
    note_work(a, x, phase);
    a->count[x->phase]--;
    a->count[phase]++;
    x->phase = phase;
}

/* Its conversation is kept, if nothing was added to it, or ends. */
static void part(fv_scheduler *a, fv_answer *x) {
    if (!x->session) return;
    if (x->follows && x->phase < FV_ANSWER_RUNNING)
        fv_conversations_pause(a->conversations, x->session);
    else
        fv_conversations_end(a->conversations, x->session);
    x->session = NULL;
}

/* Takes it off the list and frees what it holds. */
static void leave(fv_scheduler *a, fv_answer *x) {
    if (x->phase == FV_ANSWER_RUNNING) fv_batch_leave(a->batch, x->seq);
    part(a, x);
    set_phase(a, x, FV_ANSWER_NONE);
    for (fv_answer **at = &a->first; *at; at = &(*at)->next)
        if (*at == x) {
            *at = x->next;
            break;
        }
    fv_generation_close(x->seq);
    fv_rerun_free(&x->rerun);
    x->seq = NULL;
}

/* ---- the end of an answer --------------------------------------------------------------- */

static void report_follow_up(const fv_answer *x, int32_t n_prompt, fv_answer_report *r) {
    fv_kv_shape s = *fv_kv_get_shape(x->session->kv);
    r->n_prompt = n_prompt - x->n_held;
    r->bytes_raw = 2 * (size_t)s.d_head * fv_dtype_bytes(s.dtype) * (size_t)s.n_layer *
                   (size_t)s.n_kv * (size_t)n_prompt;
    r->bytes_visual = x->bytes_visual;
    r->bytes_text = x->bytes_text;
    r->s_prefill = x->t_token - x->t_joined;
}

static void report_answer(const fv_answer *x, fv_answer_report *r) {
    int32_t n, n_prompt;
    fv_generation_ids(x->seq, &n, &n_prompt);
    r->finish = fv_generation_finish(x->seq);
    r->n_generated = n - n_prompt;
    r->bytes_visual_end = fv_kv_bytes(x->session->kv, FV_SEG_VISUAL);
    r->bytes_text_end = fv_kv_bytes(x->session->kv, FV_SEG_TEXT);
    r->bytes_tables_end = fv_kv_packed_tables(x->session->kv);
    r->entries_evicted = fv_evict_rows(x->session->kv) - x->rows_gone;
    r->attached_s = x->t_attached;
    r->ended_s = x->t_last;
    r->s_attach = x->t_joined - x->t_attached;
    r->s_decode = x->t_last - (x->follows || x->first_held ? x->t_token : x->t_attached);
    r->recompressed = x->session->text.rule.bits ? x->session->text.report : x->again.report;
    strcpy(r->policy, x->session->policy);
    if (x->follows) report_follow_up(x, n_prompt, r);
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
        if (x->keep_s > 0) keep(a, x, &r);
    }
    leave(a, x);
    a->hooks.over(x, st, &r); /* x may be gone after this */
}

/* Its last token is out, and it has left the batch. */
static void complete(fv_scheduler *a, fv_answer *x) {
    x->t_last = fv_clock_s();
    if (x->keep_s > 0 && fv_recompress_begin(&x->again, &x->session->text_keys, x->session->kv))
        set_phase(a, x, FV_ANSWER_FINALIZING);
    else
        end(a, x, FV_OK);
}

/* One that cannot be kept as it should be is not kept; the answer itself is whole. */
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

/* The first that is FINALIZING, by one layer. */
static void finalize_one(fv_scheduler *a) {
    fv_answer *x = a->first;
    while (x && x->phase != FV_ANSWER_FINALIZING) x = x->next;
    if (x) finalize(a, x);
}

/* ---- from the ticket, or a kept conversation, to the batch -------------------------------- */

static fv_status open_sequence(fv_scheduler *a, fv_answer *x, const int32_t *ids, int32_t n,
                               int32_t n_prompt) {
    fv_generation_options opt = fv_engine_generation_options(a->engine, x->ignore_eos);
    opt.sampling = x->sampling;
    opt.max_tokens = x->max_tokens;
    opt.n_stop = x->n_stop;
    opt.stop = x->stop;
    opt.n_forced = x->n_forced;
    opt.forced = x->forced;
    return fv_fail_caller(fv_generation_open(&opt, a->engine->tok, ids, n, n_prompt, &x->seq));
}

/* The prompt ends with the replayed tokens, followed by the hand-off's token. */
static fv_status check_replay(const fv_answer *x, const fv_received *got) {
    int32_t at = got->n - x->n_replay;
    bool same = at > 0 && got->first.step == (uint64_t)x->n_replay + 1;
    for (int32_t i = 0; same && i < x->n_replay; i++)
        same = got->ids[at + i] == (int32_t)x->replay[i];
    return same ? FV_OK
                : fv_fail_origin(
                      FV_FAIL(FV_EINVAL,
                              "the hand-off does not end with the %d tokens to be replayed",
                              x->n_replay),
                      FV_ORIGIN_HANDOFF);
}

/* Its tokens, the first one of the answer after them, become a conversation. */
static fv_status take_over(fv_scheduler *a, fv_answer *x, fv_received *got) {
    int32_t *ids = realloc(got->ids, ((size_t)got->n + 1) * sizeof *ids);
    if (!ids) return FV_FAIL(FV_ENOMEM, "out of memory for %d prompt tokens", got->n);
    got->ids = ids;
    FV_TRY(fv_conversations_begin(a->conversations, &x->session));
    ids[got->n] = got->first.id;
    x->session->kv = got->kv;
    x->session->ids = ids;
    x->session->n = got->n + !x->first_held;
    x->session->policy = got->policy;
    x->session->text_keys = got->plan.text_keys;
    x->session->text = got->text;
    x->session->text.n_prompt = got->n - x->n_replay;
    fv_evict_init(&x->session->evict, &got->plan, got->n - x->n_replay);
    got->kv = NULL;
    got->ids = NULL;
    got->policy = NULL;
    return FV_OK;
}

/* The prompt's last token is what runs next; what is evicted from token to token goes before it,
 * and counts it. */
static fv_status begin_rerun(fv_answer *x) {
    x->n_held--;
    x->session->evict.before = 1;
    return fv_rerun_take_out(&x->rerun, x->session->kv, x->n_held);
}

static fv_status begin(fv_scheduler *a, fv_answer *x, fv_received *got) {
    int32_t n_logprobs = x->sampling.n_logprobs;
    /* Blocks are reserved for what was granted; an answer never needs more. */
    int32_t limit = got->max_tokens + x->n_replay;
    FV_TRY(check_replay(x, got));
    FV_TRY(take_over(a, x, got));
    x->sampling = got->sampling;
    x->sampling.n_logprobs = n_logprobs;
    x->max_tokens = x->max_tokens < limit ? x->max_tokens : limit;
    x->n_held = got->n;
    if (x->session->text.rule.bits)
        FV_TRY(fv_text_codes_reserve(&x->session->text, x->session->kv, x->n_held,
                                     x->max_tokens - x->n_replay));
    if (x->first_held) FV_TRY(begin_rerun(x));
    return open_sequence(a, x, x->session->ids, x->session->n, got->n - x->n_replay);
}

static void ready(fv_scheduler *a, fv_answer *x, fv_status st) {
    if (st != FV_OK)
        end(a, x, st);
    else
        set_phase(a, x, FV_ANSWER_READY);
}

/* Tries the ticket. */
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
    st = begin(a, x, &got);
    fv_received_free(&got);
    ready(a, x, st);
}

/* Is what the tenant has, with what was reserved for this one, no more than it may have? */
static fv_status check_tenant(const fv_answer *x) {
    fv_kv *kv = x->session->kv;
    size_t held = fv_kv_pool_owned(fv_kv_get_pool(kv), fv_kv_owner(kv));
    if (x->tenant_bytes == 0 || held <= x->tenant_bytes) return FV_OK;
    fv_kv_release_unused(kv, 0);
    return FV_REFUSE(TENANT_FULL,
                     "with this answer the tenant would have %zu bytes of KV, and it may have %llu "
                     "on a decode worker; try again later",
                     held, (unsigned long long)x->tenant_bytes);
}

static bool is_compressed(const fv_kv *kv) {
    for (int32_t l = 0; l < fv_kv_get_shape(kv)->n_layer; l++)
        if (fv_kv_packed_at(kv, l) || fv_kv_packed_text(kv, l)) return true;
    return false;
}

/* What is held and what is new, ids [n] in *all; the answer gets no longer than the context. */
static fv_status join_ids(fv_scheduler *a, fv_answer *x, int32_t **all, int32_t *n) {
    const fv_conversation *session = x->session;
    const fv_text_config *text = &fv_checkpoint_config(a->engine->ck)->text;
    int32_t context = fv_text_context(text, is_compressed(session->kv)), n_new, *ids;
    FV_TRY(fv_follow_up_ids(a->engine, &x->prompt, session->ids[session->n - 1], &ids, &n_new));
    int64_t total = (int64_t)session->n + n_new;
    int32_t *joined = total > context ? NULL : malloc((size_t)total * sizeof *joined);
    if (!joined) {
        free(ids);
        return total > context ? FV_FAIL(FV_EINVAL,
                                         "the conversation has %d tokens and %d come with this "
                                         "prompt; the checkpoint's context%s is %d",
                                         session->n, n_new,
                                         context < text->max_position
                                             ? " with compressed tokens, its sliding window,"
                                             : "",
                                         context)
                               : FV_FAIL(FV_ENOMEM, "out of memory for a prompt");
    }
    memcpy(joined, session->ids, (size_t)session->n * sizeof *joined);
    memcpy(joined + session->n, ids, (size_t)n_new * sizeof *joined);
    free(ids);
    int32_t most = context - (int32_t)total + 1; /* one more can be chosen than can be run */
    x->max_tokens = x->max_tokens < most ? x->max_tokens : most;
    *all = joined;
    *n = (int32_t)total;
    return FV_OK;
}

static fv_status resume(fv_scheduler *a, fv_answer *x) {
    int32_t *ids, n;
    FV_TRY(fv_conversations_resume(a->conversations, x->conversation, x->tenant ? x->tenant : "",
                                   &x->session));
    x->rows_gone = fv_evict_rows(x->session->kv);
    FV_TRY(fv_fail_caller(join_ids(a, x, &ids, &n)));
    x->n_held = x->session->n - 1;
    fv_status st = open_sequence(a, x, ids, n, n);
    free(ids);
    FV_TRY(st);
    x->session->text.report = (fv_recompress_report){0};
    FV_TRY(fv_text_codes_reserve(&x->session->text, x->session->kv, x->n_held,
                                 n - x->n_held + x->max_tokens - 1)); /* the last never runs */
    return check_tenant(x);
}

static void follow(fv_scheduler *a, fv_answer *x) {
    x->t_attached = fv_clock_s();
    fv_status st = resume(a, x);
    if (fv_refusal_of(st) == FV_REFUSED_TENANT_FULL) x->refusal = FV_REFUSED_TENANT_FULL;
    ready(a, x, st);
}

void fv_scheduler_add(fv_scheduler *a, fv_answer *x) {
    fv_answer **at = &a->first;
    while (*at) at = &(*at)->next;
    *at = x;
    x->next = NULL;
    x->phase = FV_ANSWER_NONE;
    x->refusal = FV_REFUSED_NONE;
    a->count[FV_ANSWER_NONE]++;
    if (x->follows)
        follow(a, x);
    else
        attach(a, x);
}

void fv_scheduler_drop(fv_scheduler *a, fv_answer *x) {
    if (x->phase == FV_ANSWER_NONE) return;
    fv_sink *sink = fv_receiver_sink(a->receiver);
    if (x->phase == FV_ANSWER_WAITING) sink->ops->abort(sink, &x->ticket);
    leave(a, x);
}

void fv_scheduler_changed(fv_scheduler *a) { a->changed = true; }

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
    fv_status st = take_token(ctx, x, e);
    if (st == FV_OK && e->finish != FV_FINISH_NOT)
        complete(ctx, x);
    else if (e->status != FV_OK || e->finish != FV_FINISH_NOT)
        end(ctx, x, st);
    else
        x->failed = st; /* it is still in the batch, which must not change now */
}

/* Ends those that run and have failed: all of them, when the step itself did. */
static void end_failed(fv_scheduler *a, fv_status step) {
    for (fv_answer *x = a->first, *next; x; x = next) {
        next = x->next;
        if (x->phase != FV_ANSWER_RUNNING) continue;
        if (step != FV_OK)
            end(a, x, step);
        else if (x->failed != FV_OK)
            end(a, x, FV_FAIL(x->failed, "out of memory for the answer"));
    }
}

static void advance(fv_scheduler *a) {
    bool changed = a->changed;
    a->changed = false;
    for (fv_answer *x = a->first, *next; x; x = next) {
        next = x->next;
        if (changed && x->phase == FV_ANSWER_WAITING) attach(a, x);
    }
    for (fv_answer *x = a->first, *next; x; x = next) {
        next = x->next;
        if (x->phase != FV_ANSWER_READY || fv_batch_count(a->batch) == a->batch_max) continue;
        fv_status st = fv_batch_join(a->batch, x->seq, x->session->kv, &x->session->evict,
                                     &x->session->text, x->n_held, x);
        if (st == FV_OK) {
            x->t_joined = fv_clock_s();
            set_phase(a, x, FV_ANSWER_RUNNING);
        } else
            end(a, x, st);
    }
}

/* Who is in which phase, and what each has there. */
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
#else
    (void)a;
#endif
}

bool fv_scheduler_step(fv_scheduler *a) {
    finalize_one(a);
    advance(a);
    if (fv_batch_count(a->batch) > 0) end_failed(a, fv_batch_step(a->batch, on_event, a));
    check(a);
    return a->count[FV_ANSWER_RUNNING] + a->count[FV_ANSWER_READY] +
               a->count[FV_ANSWER_FINALIZING] >
           0;
}
