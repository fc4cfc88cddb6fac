/* A request as it came -> everything that prefilling it needs, and room at a decode worker asked
 * for. What is wrong with a request is found here, before anything is computed for it. The
 * computing thread. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "prefill-worker/service/internal.h"
#include "serving/policy_message.h"
#include "serving/worker/model_info.h"
#include "serving/worker/request.h"

typedef Fovea__Inference__V1__Chat chat_message;

/* ---- the prompt ------------------------------------------------------------------------- */

/* Images that are condensed may come to fewer rows than they have now. */
static int32_t context_of(const fv_task *t) {
    const fv_text_config *cfg = &fv_checkpoint_config(t->worker->line.engine->ck)->text;
    return t->policy.stage[FV_STAGE_CONDENSE].method ? INT32_MAX : cfg->max_position;
}

static fv_status make_chat(fv_task *t, const chat_message *chat, int32_t n_image) {
    const fv_engine *e = t->worker->line.engine;
    const fv_model_config *cfg = fv_checkpoint_config(e->ck);
    fv_chat_template kind;
    fv_chat_turn *turns;
    char *text;
    size_t *at;
    int32_t n_at;
    FV_TRY(fv_chat_choose(chat->template_, fv_checkpoint_dir(e->ck), cfg->text.family,
                          cfg->has_vision, &kind));
    FV_TRY(fv_request_turns(chat, n_image, &t->arena, &turns));
    FV_TRY(fv_chat_check_question(turns, (int32_t)chat->n_turns));
    FV_TRY(fv_chat_render_at(kind, turns, (int32_t)chat->n_turns, &text, &at, &n_at));
    fv_status st =
        fv_prompt_make_at(e->tok, cfg, text, at, n_at, n_image, context_of(t), &t->prompt);
    free(at);
    free(text);
    return st;
}

static fv_status make_prompt(fv_task *t, int32_t n_image) {
    const fv_engine *e = t->worker->line.engine;
    const fv_model_config *cfg = fv_checkpoint_config(e->ck);
    const Fovea__Inference__V1__Prompt *p = t->msg->request->prompt;
    int32_t *ids;
    switch (p ? p->form_case : FOVEA__INFERENCE__V1__PROMPT__FORM__NOT_SET) {
    case FOVEA__INFERENCE__V1__PROMPT__FORM_CHAT: return make_chat(t, p->chat, n_image);
    case FOVEA__INFERENCE__V1__PROMPT__FORM_TEXT:
        return fv_prompt_make(e->tok, cfg, p->text, n_image, context_of(t), &t->prompt);
    case FOVEA__INFERENCE__V1__PROMPT__FORM_IDS:
        FV_TRY(fv_request_ids(p->ids->id, p->ids->n_id, cfg->text.max_position, &t->arena, &ids));
        return fv_prompt_of_ids(cfg, ids, (int32_t)p->ids->n_id, n_image, context_of(t),
                                &t->prompt);
    default: return FV_FAIL(FV_EINVAL, "the request has no prompt");
    }
}

/* ---- the answer ------------------------------------------------------------------------- */

static fv_wire_sampling wire_sampling(const fv_sampling *s) {
    return (fv_wire_sampling){.repetition_penalty = s->repetition_penalty,
                              .temperature = s->temperature,
                              .top_p = s->top_p,
                              .top_k = s->top_k,
                              .n_logprobs = s->n_logprobs,
                              .seed = s->seed};
}

static fv_status check_replay(const fv_task *t, const int32_t *ids, int32_t n) {
    int32_t n_vocab = t->worker->line.engine->n_vocab;
    for (int32_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= n_vocab)
            return FV_FAIL(FV_EINVAL, "replay: id %d is none that can have been chosen", ids[i]);
    return FV_OK;
}

/* No longer than the context lets it become. */
static fv_status limit_answer(fv_task *t, int32_t n_prompt, int32_t n_replay) {
    int32_t context = fv_checkpoint_config(t->worker->line.engine->ck)->text.max_position;
    uint32_t asked = t->msg->request->max_tokens;
    int32_t most = context - n_prompt + 1; /* one more can be chosen than can be run */
    if (n_replay > most)
        return FV_FAIL(FV_EINVAL, "%d tokens to go on from, and the context has room for %d",
                       n_replay, most);
    if (asked == 0) asked = FV_MAX_TOKENS_DEFAULT;
    t->max_tokens = asked < (uint32_t)most ? (int32_t)asked : most;
    return FV_OK;
}

/* The sequence begins behind what the client has already got, unless that is all: then t->finish
 * says how it ended, and there is nothing to do. */
static fv_status open_sequence(fv_task *t, const fv_sampling *sampling, int32_t n_prompt) {
    const fv_engine *e = t->worker->line.engine;
    const fv_model_config *cfg = fv_checkpoint_config(e->ck);
    const fv_generate_message *r = t->msg->request;
    fv_generation_options opt = {.sampling = *sampling,
                                 .max_tokens = t->max_tokens,
                                 .context = cfg->text.max_position,
                                 .n_vocab = e->n_vocab,
                                 .n_eos = r->ignore_eos ? 0 : cfg->n_eos,
                                 .eos = cfg->eos,
                                 .n_stop = (int32_t)r->n_stop,
                                 .stop = (const char *const *)r->stop};
    const fv_prompt *p = &t->prompt;
    FV_TRY(fv_generation_ended(&opt, e->tok, p->ids, p->n, n_prompt, &t->finish));
    if (t->finish != FV_FINISH_NOT) return FV_OK;
    return fv_generation_open(&opt, e->tok, p->ids, p->n, n_prompt, &t->seq);
}

/* ---- room ------------------------------------------------------------------------------- */

/* A bound on what the store holds at a time: all rows of a layer are there until the select stage
 * has run, which it does behind each group of layers. */
static fv_status check_room(fv_task *t) {
    const fv_kv_shape *s = fv_kv_pool_shape(t->worker->line.pool);
    size_t row = 2 * (size_t)s->d_head * fv_dtype_bytes(s->dtype) * (size_t)s->n_kv;
    int32_t twice = t->plan.twice;
    t->bytes_peak = fv_kv_text_bytes(s, t->plan.shape.n_text + twice, 0);
    for (int32_t l = 0; l < s->n_layer; l++)
        t->bytes_peak += row * (size_t)(t->plan.visual[l] + twice);
    size_t limit = t->probe ? 0 : t->worker->opt.kv_bytes;
    t->bytes_peak += fv_plan_count(&t->plan).tables;
    if (limit && t->bytes_peak > limit)
        return FV_FAIL(FV_ENOMEM,
                       "the prompt's KV takes %zu bytes, and this worker has %zu: shorten the "
                       "prompt, or start the worker with a larger --kv-bytes",
                       t->bytes_peak, limit);
    return FV_OK;
}

static uint32_t milliseconds(double s) {
    return s <= 0 ? 0 : s < 1e-3 * UINT32_MAX ? (uint32_t)(1e3 * s) : UINT32_MAX;
}

/* The oldest request is served first, and one whose time is over waits no more. */
static fv_asking asking_of(const fv_task *t, double now_s) {
    return (fv_asking){.request_id = t->msg->request->request_id,
                       .age_ms = milliseconds(now_s - t->born_s),
                       .wait_ms = milliseconds(t->until_s - now_s),
                       .open_token = t->msg->open_token,
                       .pair_token = t->msg->pair_token};
}

/* Asks the decode worker for room, unless the first token must be the last. */
static fv_status ask_for_room(fv_task *t, const fv_sampling *sampling, int32_t left) {
    const fv_engine *e = t->worker->line.engine;
    int32_t context = fv_checkpoint_config(e->ck)->text.max_position;
    int32_t room = context - t->prompt.n;
    if (room < left) left = room;
    fv_prefill_line *l = &t->worker->line;
    FV_TRY(fv_kv_open(t->probe ? l->probe.pool : l->pool, &t->kv));
    const fv_kv_shape *s = fv_kv_get_shape(t->kv);
    int32_t n_text = t->prompt.n_text + t->plan.twice;
    t->bytes_bound = t->bytes_peak - fv_kv_text_bytes(s, n_text, 0) +
                     fv_kv_text_bytes(s, n_text + (left > 0 ? left : 0), 0);
    t->state = FV_TASK_READY;
    if (!t->transport || left < 2) return FV_OK;
    fv_export_request req = {.model = e->fingerprint,
                             .kv = t->kv,
                             .plan = &t->plan,
                             .n = t->prompt.n,
                             .ids = t->prompt.ids,
                             .seg = t->prompt.seg,
                             .max_tokens = left,
                             .sampling = wire_sampling(sampling),
                             .asking = asking_of(t, fv_clock_s())};
    t->opened_s = fv_clock_s();
    t->state = FV_TASK_OPENING;
    return fv_export_begin(t->transport, &req, &t->ship);
}

static fv_status make_plan(fv_task *t, int32_t n_answer) {
    const fv_checkpoint *ck = t->worker->line.engine->ck;
    const fv_text_config *cfg = &fv_checkpoint_config(ck)->text;
    fv_plan_shape shape = {.n_layer = cfg->n_layer,
                           .n_kv = cfg->n_kv,
                           .d_head = cfg->d_head,
                           .bytes_value = (int32_t)fv_dtype_bytes(t->worker->opt.kv_dtype),
                           .n_visual = t->prompt.n_visual,
                           .n_text = t->prompt.n_text,
                           .n_image = t->prompt.n_image,
                           .n_encoded = t->n_encoded,
                           .calibrated = fv_checkpoint_blocks(ck),
                           .thresholds = fv_checkpoint_thresholds(ck),
                           .withdraw = fv_checkpoint_withdraw(ck),
                           .uncalibrated = fv_checkpoint_uncalibrated(ck),
                           .n_answer = n_answer};
    shape.fitted = fv_checkpoint_schedules(ck, &shape.n_fitted);
    return fv_plan_make(&t->policy, &shape, &t->plan);
}

/* How many rows images are condensed to is part of the prompt, and known when they were encoded:
 * ahead of the grant, then, and of the others of the batch. READING behind this: not yet. */
static fv_status condense(fv_task *t) {
    int32_t context = fv_checkpoint_config(t->worker->line.engine->ck)->text.max_position;
    if (!t->policy.stage[FV_STAGE_CONDENSE].method) return FV_OK;
    if (!t->plan.condenses) return fv_prompt_condense(&t->prompt, NULL, context);
    FV_TRY(fv_task_encode(t));
    if (t->state == FV_TASK_READING) return FV_OK;
    t->n_encoded = t->prompt.n_visual;
    return fv_prompt_condense(&t->prompt, t->encoded.each, context);
}

static fv_status watch_rows(fv_task *t) {
    fv_kept_map_rows rows = {t->n_encoded, t->n_encoded ? t->encoded.source : NULL};
    if (!t->msg->request->kept_tokens) return FV_OK;
    return fv_kept_map_begin(&t->arena, t->prompt.seg, t->prompt.n, &rows, &t->watch);
}

fv_status fv_task_prepare_rest(fv_task *t) {
    const fv_prefill_message *m = t->msg;
    const fv_generate_message *r = m->request;
    int32_t *replay, context = fv_checkpoint_config(t->worker->line.engine->ck)->text.max_position;
    FV_TRY(condense(t));
    if (t->state == FV_TASK_READING) return FV_OK;
    int32_t n_prompt = t->prompt.n, n_replay = (int32_t)m->n_replay;
    FV_TRY(fv_request_ids(m->replay, m->n_replay, context, &t->arena, &replay));
    FV_TRY(check_replay(t, replay, n_replay));
    FV_TRY(limit_answer(t, n_prompt, n_replay));
    FV_TRY(fv_prompt_append(&t->prompt, replay, n_replay));
    fv_sampling sampling = fv_request_sampling(r->sampling, r->n_logprobs);
    FV_TRY(open_sequence(t, &sampling, n_prompt));
    if (t->finish != FV_FINISH_NOT) return FV_OK;
    FV_TRY(make_plan(t, n_replay));
    FV_TRY(watch_rows(t));
    FV_TRY(check_room(t));
    return ask_for_room(t, &sampling, t->max_tokens - n_replay);
}

fv_status fv_task_prepare(fv_task *t) {
    const fv_generate_message *r = t->msg->request;
    if (r->conversation.len)
        return FV_FAIL(FV_EINVAL,
                       "a kept conversation goes on where it is kept, on a decode worker");
    FV_TRY(fv_policy_from_message(r->policy, &t->policy));
    FV_TRY(make_prompt(t, (int32_t)r->n_images));
    if (t->prompt.n == 0) return FV_FAIL(FV_EINVAL, "the prompt is empty");
    if (t->policy.stage[FV_STAGE_CONDENSE].method) {
        FV_TRY(make_plan(t, 0));
        if (t->plan.condenses) FV_TRY(fv_task_read_images(t));
        if (t->state == FV_TASK_READING) return FV_OK;
    }
    return fv_task_prepare_rest(t);
}

static void on_gone(void *kv) { fv_kv_close(kv); }

/* The store goes when the network has let go of its rows: nobody waits for a peer that is mute. */
void fv_task_release(fv_task *t, bool keep) {
    fv_export_close(t->ship, keep, on_gone, t->kv);
    fv_generation_close(t->seq);
    fv_encoded_free(&t->encoded);
    for (size_t i = 0; t->images.pixels && i < t->msg->request->n_images; i++)
        free(t->images.pixels[i]);
    t->ship = NULL;
    t->kv = NULL;
    t->seq = NULL;
    t->images.pixels = NULL;
}

void fv_task_fini(fv_task *t) {
    free(t->token_text);
    fv_prompt_free(&t->prompt);
    fv_arena_fini(&t->arena);
    t->token_text = NULL;
}
