/* The list of requests that this worker answers, from their tickets to their last tokens. Batch and
 * sequence do the work; here is who is in which phase, and that nothing stays behind. The computing
 * thread. */
#include "decode-worker/answers.h"

#include <stdlib.h>

#include "common/clock.h"

struct fv_answers {
    const fv_engine *engine;
    fv_receiver *receiver;
    fv_batch *batch;
    fv_answers_hooks hooks;
    fv_answer *first; /* all, in the order in which they came */
    int32_t count[FV_ANSWER_RUNNING + 1];
    int32_t batch_max;
    bool changed;
};

fv_status fv_answers_open(const fv_engine *engine, fv_receiver *receiver, int32_t batch_max,
                          int32_t prompt_rows, const fv_answers_hooks *hooks, fv_answers **out) {
    fv_answers *a = calloc(1, sizeof *a);
    if (!a) return FV_FAIL(FV_ENOMEM, "out of memory for answers");
    *a = (fv_answers){
        .engine = engine, .receiver = receiver, .batch_max = batch_max, .hooks = *hooks};
    fv_status st = fv_batch_open(engine->dec, batch_max, prompt_rows, &a->batch);
    if (st != FV_OK) {
        free(a);
        return st;
    }
    *out = a;
    return FV_OK;
}

void fv_answers_close(fv_answers *a) {
    if (!a) return;
    fv_batch_close(a->batch);
    free(a);
}

int32_t fv_answers_count(const fv_answers *a, fv_answer_phase phase) { return a->count[phase]; }

/* ---- phases ---------------------------------------------------------------------------- */

static void set_phase(fv_answers *a, fv_answer *x, fv_answer_phase phase) {
    a->count[x->phase]--;
    a->count[phase]++;
    x->phase = phase;
}

/* Takes it off the list and frees what it holds. */
static void leave(fv_answers *a, fv_answer *x) {
    if (x->phase == FV_ANSWER_RUNNING) fv_batch_leave(a->batch, x->seq);
    set_phase(a, x, FV_ANSWER_NONE);
    for (fv_answer **at = &a->first; *at; at = &(*at)->next)
        if (*at == x) {
            *at = x->next;
            break;
        }
    fv_sequence_close(x->seq);
    fv_received_free(&x->got);
    x->seq = NULL;
}

static void end(fv_answers *a, fv_answer *x, fv_status st, fv_refusal refusal) {
    fv_answer_report r = {.refusal = refusal, .s_claim = x->t_first - x->t_claimed};
    if (x->seq) {
        int32_t n, n_prompt;
        fv_sequence_ids(x->seq, &n, &n_prompt);
        r.n_generated = n - n_prompt;
        r.finish = fv_sequence_finish(x->seq);
        r.s_decode = fv_clock_s() - x->t_claimed;
    }
    if (x->got.kv) {
        r.bytes_visual = fv_kv_bytes(x->got.kv, FV_SEG_VISUAL);
        r.bytes_text = fv_kv_bytes(x->got.kv, FV_SEG_TEXT);
    }
    leave(a, x);
    a->hooks.over(x, st, &r); /* x may be gone after this */
}

/* ---- from the ticket to the batch ------------------------------------------------------- */

/* The prompt as it came ends with what is replayed, and the hand-off's token comes behind it. */
static fv_status check_replay(const fv_answer *x) {
    int32_t at = x->got.n - x->n_replay;
    bool same = at > 0 && x->got.first.step == (uint64_t)x->n_replay + 1;
    for (int32_t i = 0; same && i < x->n_replay; i++)
        same = x->got.ids[at + i] == (int32_t)x->replay[i];
    return same ? FV_OK
                : FV_FAIL(FV_EINVAL, "the hand-off does not end with the %d tokens to be replayed",
                          x->n_replay);
}

static fv_status open_sequence(fv_answers *a, fv_answer *x) {
    const fv_model_config *cfg = fv_checkpoint_config(a->engine->ck);
    fv_received *got = &x->got;
    FV_TRY(check_replay(x));
    int32_t *ids = realloc(got->ids, ((size_t)got->n + 1) * sizeof *ids);
    if (!ids) return FV_FAIL(FV_ENOMEM, "out of memory for %d prompt rows", got->n);
    got->ids = ids;
    ids[got->n] = got->first.id;
    /* Pages are there for what was granted; an answer never asks for more. */
    int32_t room = got->max_tokens + x->n_replay;
    fv_sequence_options opt = {.sampling = got->sampling,
                               .max_tokens = x->max_tokens < room ? x->max_tokens : room,
                               .context = cfg->text.max_position,
                               .n_vocab = a->engine->n_vocab,
                               .n_eos = x->ignore_eos ? 0 : cfg->n_eos,
                               .eos = cfg->eos,
                               .n_stop = x->n_stop,
                               .stop = x->stop};
    opt.sampling.n_logprobs = x->n_logprobs;
    return fv_sequence_open(&opt, a->engine->tok, ids, got->n + 1, got->n - x->n_replay, &x->seq);
}

/* Tries the ticket. */
static void claim(fv_answers *a, fv_answer *x) {
    bool waited = x->phase == FV_ANSWER_WAITING;
    fv_refusal why = fv_receiver_claim(a->receiver, &x->ticket, &x->got);
    if (why == FV_REFUSED_PENDING) {
        if (!waited) set_phase(a, x, FV_ANSWER_WAITING);
        return;
    }
    if (why != FV_REFUSED_NONE) {
        end(a, x,
            waited ? FV_FAIL(FV_EIO, "the hand-off was lost before it was complete: %s",
                             fv_refusal_text(why))
                   : FV_FAIL(FV_ENOTFOUND, "there is no hand-off for this ticket: %s",
                             fv_refusal_text(why)),
            why);
        return;
    }
    x->t_claimed = x->t_first = fv_clock_s();
    fv_status st = open_sequence(a, x);
    if (st != FV_OK)
        end(a, x, st, FV_REFUSED_NONE);
    else
        set_phase(a, x, FV_ANSWER_READY);
}

void fv_answers_add(fv_answers *a, fv_answer *x) {
    fv_answer **at = &a->first;
    while (*at) at = &(*at)->next;
    *at = x;
    x->next = NULL;
    x->phase = FV_ANSWER_NONE;
    a->count[FV_ANSWER_NONE]++;
    claim(a, x);
}

void fv_answers_drop(fv_answers *a, fv_answer *x) {
    if (x->phase == FV_ANSWER_NONE) return;
    fv_sink *sink = fv_receiver_sink(a->receiver);
    if (x->phase == FV_ANSWER_WAITING) sink->ops->abort(sink, &x->ticket);
    leave(a, x);
}

void fv_answers_changed(fv_answers *a) { a->changed = true; }

/* ---- steps ----------------------------------------------------------------------------- */

static fv_status take_token(fv_answers *a, fv_answer *x, const fv_batch_event *e) {
    int32_t n, n_prompt;
    FV_TRY(e->status);
    uint64_t digest =
        x->digests ? fv_logits_digest(e->logits, fv_decoder_config(a->engine->dec)->vocab) : 0;
    fv_sequence_ids(x->seq, &n, &n_prompt);
    return a->hooks.token(x, (uint32_t)(n - n_prompt - 1), e->token, digest, e->text, e->n_text);
}

static void on_event(void *ctx, const fv_batch_event *e) {
    fv_answer *x = e->user;
    fv_status st = take_token(ctx, x, e);
    if (e->status != FV_OK || e->finish != FV_FINISH_NOT)
        end(ctx, x, st, FV_REFUSED_NONE);
    else
        x->failed = st; /* it is still in the batch, which must not change now */
}

/* Ends those that run and have failed: all of them, when the step itself did. */
static void end_failed(fv_answers *a, fv_status step) {
    for (fv_answer *x = a->first, *next; x; x = next) {
        next = x->next;
        if (x->phase != FV_ANSWER_RUNNING) continue;
        if (step != FV_OK)
            end(a, x, step, FV_REFUSED_NONE);
        else if (x->failed != FV_OK)
            end(a, x, FV_FAIL(x->failed, "out of memory for the answer"), FV_REFUSED_NONE);
    }
}

static void advance(fv_answers *a) {
    bool changed = a->changed;
    a->changed = false;
    for (fv_answer *x = a->first, *next; x; x = next) {
        next = x->next;
        if (changed && x->phase == FV_ANSWER_WAITING) claim(a, x);
    }
    for (fv_answer *x = a->first, *next; x; x = next) {
        next = x->next;
        if (x->phase != FV_ANSWER_READY || fv_batch_count(a->batch) == a->batch_max) continue;
        fv_status st = fv_batch_join(a->batch, x->seq, x->got.kv, x->got.n, x);
        if (st == FV_OK) {
            x->t_first = fv_clock_s();
            set_phase(a, x, FV_ANSWER_RUNNING);
        } else
            end(a, x, st, FV_REFUSED_NONE);
    }
}

bool fv_answers_step(fv_answers *a) {
    advance(a);
    if (fv_batch_count(a->batch) == 0) return false;
    end_failed(a, fv_batch_step(a->batch, on_event, a));
    return a->count[FV_ANSWER_RUNNING] + a->count[FV_ANSWER_READY] > 0;
}
