/* Runs the steps of a job, except its images (images.c). Errors of a request are found before anything is
 * computed for it. */
#include "prefill-worker/job/job.h"

#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "model/net/rope.h"
#include "prefill-worker/job/prefix.h"

static const fv_model_config *config(const fv_prefill_job *j) {
    return fv_checkpoint_config(j->engine->ck);
}

static bool may_condense(const fv_prefill_job *j) {
    return j->policy.stage[FV_STAGE_CONDENSE].method != NULL;
}

/* ---- the prompt ------------------------------------------------------------------------- */

static bool may_pack(const fv_prefill_job *j) {
    return j->policy.stage[FV_STAGE_PACK].method != NULL;
}

/* Returns the limit of prompt tokens; none before images are condensed or text is cut off, because fewer may
 * be left. */
static int32_t context_of(const fv_prefill_job *j) {
    return may_condense(j) || j->n_prompt_most ? INT32_MAX : config(j)->text.max_position;
}

/* Checks that tokens can be packed: packed tokens cannot leave a sliding window one by one, and their keys
 * have the same RoPE in all layers. */
static fv_status check_pack(const fv_prefill_job *j, int32_t n) {
    int32_t most = fv_text_context(&config(j)->text, may_pack(j));
    if (may_pack(j) && config(j)->text.two_ropes)
        return FV_FAIL(FV_EUNSUPPORTED,
                       "pack=%s: this model's sliding-window layers use another RoPE than the "
                       "other layers, and compressed keys need one RoPE",
                       j->policy.stage[FV_STAGE_PACK].method->name);
    if (n <= most || n > config(j)->text.max_position) return FV_OK;
    return FV_FAIL(FV_EINVAL,
                   "pack=%s: the prompt has %d tokens and this model's sliding window %d, out of "
                   "which compressed tokens cannot slide",
                   j->policy.stage[FV_STAGE_PACK].method->name, n, most);
}

/* Puts the texts that belong ahead of images there; templates may have moved the images of a turn. */
static fv_status put_ahead(fv_prefill_job *j, fv_chat_text *text) {
    const fv_prompt_form *f = &j->form;
    const char **ahead;
    int32_t n = 0;
    for (int32_t i = 0; i < f->n_turn; i++) n += fv_chat_turn_images(&f->turn[i]);
    FV_TRY(FV_ARENA_NEW(&j->arena, n, ahead));
    n = 0;
    for (int32_t i = 0; i < f->n_turn; i++) {
        const fv_chat_turn *t = &f->turn[i];
        if (t->n_part == 0) n += t->n_image;
        for (int32_t k = 0; k < t->n_part; k++)
            if (!t->part[k].text && !t->part[k].video) ahead[n++] = t->part[k].ahead;
    }
    return fv_prompt_put_ahead(config(j), ahead, n, text);
}

static fv_status make_chat(fv_prefill_job *j) {
    const fv_engine *e = j->engine;
    const fv_prompt_form *f = &j->form;
    fv_chat *chat;
    fv_chat_text text = {0};
    FV_TRY(fv_engine_chat(e, f->chat_template, &chat));
    fv_status st = fv_chat_render(chat, f->turn, f->n_turn, &f->options, j->until_s, &text);
    if (st == FV_OK) st = put_ahead(j, &text);
    if (st == FV_OK)
        st = fv_prompt_make_chat(e->tok, config(j), &text, j->n_item, j->layout, context_of(j),
                                 &j->prompt);
    j->text = text.text;
    j->generation.rules.reasoning = text.reasoning;
    free(text.user);
    fv_chat_free(chat);
    return st;
}

static fv_status make_text(fv_prefill_job *j) {
    j->text = strdup(j->form.text);
    if (!j->text) return FV_FAIL(FV_ENOMEM, "out of memory for a prompt");
    return fv_prompt_make(j->engine->tok, config(j), j->text, j->form.options.special != FV_CHAT_NO,
                          j->n_item, j->layout, context_of(j), &j->prompt);
}

static fv_status make_prompt(fv_prefill_job *j) {
    switch (j->form.kind) {
    case FV_PROMPT_CHAT: return make_chat(j);
    case FV_PROMPT_TEXT: return make_text(j);
    case FV_PROMPT_IDS: break;
    }
    return fv_prompt_of_ids(j->engine->tok, config(j), j->form.id, j->form.n_id, j->n_item,
                            j->layout, context_of(j), &j->prompt);
}

/* Cuts text off the front of a prompt that is longer than the request allows, before images are condensed. A
 * special token that a text or a chat begins with stays. */
static fv_status truncate(fv_prefill_job *j) {
    const int32_t context = config(j)->text.max_position;
    const int32_t most = j->n_prompt_most < context ? j->n_prompt_most : context - 1;
    const bool bos = j->form.kind != FV_PROMPT_IDS && j->prompt.n > 0 &&
                     fv_tokenizer_is_special(j->engine->tok, j->prompt.ids[0]);
    if (!j->n_prompt_most || j->prompt.n <= most) return FV_OK;
    j->truncated = true;
    return fv_prompt_truncate(&j->prompt, j->engine->tok, bos, most);
}

static fv_status make_plan(fv_prefill_job *j) {
    fv_plan_shape shape = fv_plan_shape_of(j->engine, fv_kv_pool_shape(j->pool)->dtype, &j->prompt);
    if (j->adapter) {
        shape.latent_layers = 0;
        shape.no_latent = "the latent directions were measured for the model without an adapter: "
                          "choose another way to compress, or ask the base model";
    }
    shape.n_encoded = j->n_encoded;
    shape.n_answer = j->n_replay;
    FV_TRY(fv_plan_make(&j->policy, &shape, &j->plan));
    if (j->first_packed && shape.state_bytes && fv_plan_sees_less(&j->plan))
        return FV_FAIL(
            FV_EUNSUPPORTED,
            "the first token cannot be computed from the KV that is held: this model has "
            "recurrent layers, in whose state the prompt's last token is already");
    j->plan.pack.first_packed |= j->first_packed && fv_plan_packs_any(&j->plan);
    return FV_OK;
}

/* Takes text for an image. Its tokens have no rows of embeddings that an image has: models that read these in
 * another way, or rotate them by a grid, are left out. */
static fv_status mark_visual(fv_prefill_job *j) {
    const fv_text_config *c = &config(j)->text;
    if (config(j)->has_vision || c->d_input || fv_rope_has_sections(&c->rope))
        return FV_FAIL(FV_EUNSUPPORTED,
                       "text is taken for an image only by a model that reads text "
                       "only, with one embedding a token and plain RoPE");
    return fv_prompt_mark_visual(&j->prompt, j->visual_first, j->n_visual_text);
}

fv_status fv_prefill_job_open(fv_prefill_job *j) {
    FV_TRY(fv_prefill_job_lay_images(j));
    FV_TRY(make_prompt(j));
    FV_TRY(truncate(j));
    if (j->prompt.n == 0) return FV_FAIL(FV_EINVAL, "the prompt is empty");
    if (j->n_visual_text) FV_TRY(mark_visual(j));
    return may_condense(j) ? make_plan(j) : check_pack(j, j->prompt.n);
}

bool fv_prefill_job_condenses(const fv_prefill_job *j) { return j->plan.condense.acts; }

/* ---- the beginning ---------------------------------------------------------------------- */

static fv_status condense(fv_prefill_job *j) {
    const int32_t *each = j->plan.condense.acts ? j->encoded.each : NULL;
    if (!may_condense(j)) return FV_OK;
    j->n_encoded = j->plan.condense.acts ? j->prompt.n_visual : 0;
    return fv_prompt_condense(&j->prompt, each, config(j)->text.max_position);
}

/* Appends the replayed tokens to the prompt; caps max_tokens so that the answer fits the context. */
static fv_status add_replay(fv_prefill_job *j) {
    int32_t context = fv_text_context(&config(j)->text, may_pack(j));
    int32_t most = context - j->prompt.n + 1; /* the last one is chosen, never run */
    for (int32_t i = 0; i < j->n_replay; i++)
        if (j->replay[i] < 0 || j->replay[i] >= j->engine->n_vocab)
            return FV_FAIL(FV_EINVAL, "replay: id %d is not in the vocabulary", j->replay[i]);
    if (j->n_replay > most)
        return FV_FAIL(FV_EINVAL, "replay has %d tokens, but the context has room for %d",
                       j->n_replay, most);
    fv_generation_options *g = &j->generation;
    if (g->max_tokens > most) g->max_tokens = most;
    FV_TRY(fv_prompt_append(&j->prompt, j->replay, j->n_replay));
    j->n_left = g->max_tokens - j->n_replay;
    if (j->n_left > context - j->prompt.n) j->n_left = context - j->prompt.n;
    return FV_OK;
}

/* Opens a generation that continues after the replayed tokens, unless they are the whole answer. */
static fv_status open_generation(fv_prefill_job *j) {
    const fv_prompt *p = &j->prompt;
    const fv_tokenizer *tok = j->engine->tok;
    int32_t n_prompt = p->n - j->n_replay;
    FV_TRY(fv_generation_ended(&j->generation, tok, p->ids, p->n, n_prompt, &j->finish));
    if (j->finish != FV_FINISH_NOT) return FV_OK;
    return fv_generation_open(&j->generation, tok, p->ids, p->n, n_prompt, &j->seq);
}

static fv_status watch_kept(fv_prefill_job *j) {
    fv_kept_map_rows rows = {j->n_encoded, j->n_encoded ? j->encoded.source : NULL};
    if (!j->want_kept) return FV_OK;
    return fv_kept_map_begin(&j->arena, j->prompt.seg, j->prompt.n, &rows, &j->watch);
}

/* Makes the map from positions to RoPE positions, for models with M-RoPE. */
static fv_status map_rope(fv_prefill_job *j) {
    const fv_prompt *p = &j->prompt;
    fv_rope_grid *grid;
    if (!fv_rope_has_sections(&config(j)->text.rope)) return FV_OK;
    FV_TRY(FV_ARENA_NEW(&j->arena, p->n_span, grid));
    return fv_rope_map_make(grid, fv_rope_grids(p->span, p->n_span, grid), p->n, &j->rope_map);
}

fv_status fv_prefill_job_begin(fv_prefill_job *j) {
    FV_TRY(condense(j));
    FV_TRY(check_pack(j, j->prompt.n + j->n_replay));
    FV_TRY(map_rope(j));
    FV_TRY(add_replay(j));
    FV_TRY(open_generation(j));
    if (j->finish != FV_FINISH_NOT) return FV_OK;
    FV_TRY(make_plan(j));
    FV_TRY(watch_kept(j));
    if (j->want_scores)
        FV_TRY(fv_prompt_scores_open(j->prompt.ids, j->prompt.seg, j->prompt.n, j->n_score_top,
                                     j->engine->n_vocab, &j->arena, &j->scores));
    FV_TRY(fv_kv_open(j->pool, &j->kv));
    fv_kv_get_sequence(j->kv)->adapter = j->adapter;
    return FV_OK;
}

fv_status fv_prefill_job_prepare(fv_prefill_job *j) {
    FV_TRY(fv_prefill_job_open(j));
    if (fv_prefill_job_condenses(j)) FV_TRY(fv_prefill_job_encode_all(j));
    return fv_prefill_job_begin(j);
}

/* ---- the run ------------------------------------------------------------------------------ */

/* The embeddings of the visual rows that are computed. */
static fv_tensor embeds_of(const fv_prefill_job *j) {
    const fv_model_config *c = config(j);
    if (j->n_visual_text) return fv_tensor_of(NULL, FV_F32, j->n_visual_text, c->text.d_model);
    fv_tensor all =
        fv_tensor_of(j->encoded.embeds.data, FV_F32, j->encoded.n_row,
                     c->has_vision ? fv_vision_embed_width(&c->vision) : c->text.d_model);
    int32_t n = j->prompt.n_visual - j->prefix.n_visual;
    return fv_tensor_rows(all, all.rows - n, n);
}

/* Completes the job's prefill request, in which the caller has set what it wants to observe. */
static fv_prefill_request request_of(fv_prefill_job *j) {
    fv_prefill_request r = j->prefill;
    r.n = j->prompt.n;
    r.n_answer = j->n_replay;
    r.ids = j->prompt.ids;
    r.seg = j->prompt.seg;
    r.rope_map = j->rope_map;
    r.embeds = embeds_of(j);
    r.visual_ids = j->n_visual_text > 0;
    r.n_kept = j->prefix.rows;
    r.fill = fv_prefill_job_fill;
    r.computed = j->link && !fv_prefill_job_shares(j) ? fv_prefill_job_draft : NULL;
    r.join_layer = j->link ? fv_prefill_job_join_layer(j) : 0;
    r.join = fv_prefill_job_join;
    r.joined = fv_prefill_job_joined;
    r.kept_user = j;
    r.plan = &j->plan;
    r.kv = j->kv;
    r.visual_tokens = j->visual_tokens;
    r.ranked = j->watch ? fv_kept_map_ranked : NULL;
    r.ranked_user = j->watch;
    r.row_logits = j->want_scores ? fv_prompt_scores_take : NULL;
    r.row_logits_user = &j->scores;
    r.packed = &j->packed;
    r.pruned = j->pruned;
    return r;
}

fv_status fv_prefill_jobs_run(fv_prefill_job *const *job, int32_t n, const fv_prefill_options *opt,
                              float *logits) {
    fv_prefill_request *req = calloc((size_t)n, sizeof *req);
    if (!req) return FV_FAIL(FV_ENOMEM, "out of memory for a batch of %d", n);
    double begin_s = fv_clock_s();
    for (int32_t i = 0; i < n; i++) req[i] = request_of(job[i]);
    fv_status st = fv_prefill_run(job[0]->engine->dec, req, n, opt, logits);
    for (int32_t i = 0; i < n; i++) job[i]->s_prefill = fv_clock_s() - begin_s;
    free(req);
    return st;
}

fv_status fv_prefill_job_packed(const fv_prefill_job *j) {
    return j->packed.status == FV_OK ? FV_OK : FV_FAIL(j->packed.status, "%s", j->packed.text);
}

fv_status fv_prefill_job_end(fv_prefill_job *j) {
    FV_TRY(fv_prefill_job_packed(j));
    j->bytes_visual = fv_kv_bytes(j->kv, FV_SEG_VISUAL);
    j->bytes_text = fv_kv_bytes(j->kv, FV_SEG_TEXT);
    j->bytes_tables = fv_kv_packed_tables(j->kv);
    fv_stage_stats_take(&j->plan, j->visual_tokens, j->kv, &j->stats);
    return j->watch ? fv_kept_map_end(j->watch, j->kv, &j->kept) : FV_OK;
}

fv_status fv_prefill_job_first(fv_prefill_job *j, const float *logits) {
    const fv_sampled *token;
    const char *text;
    size_t n;
    FV_TRY(fv_generation_take(j->seq, logits, &token, &text, &n));
    j->token_text = malloc(n + 1);
    if (!j->token_text) return FV_FAIL(FV_ENOMEM, "out of memory for the answer");
    if (n) memcpy(j->token_text, text, n);
    j->token_text[n] = '\0';
    j->n_token_text = n;
    j->token = *token;
    j->finish = fv_generation_finish(j->seq);
    if (j->want_digest) j->digest = fv_logits_digest(logits, config(j)->text.vocab);
    j->has_token = true;
    return FV_OK;
}

fv_export_request fv_prefill_job_export(const fv_prefill_job *j) {
    const fv_sampling *s = &j->generation.sampling;
    return (fv_export_request){.model = j->engine->fingerprint,
                               .sums = fv_engine_sums(j->engine),
                               .kv = j->kv,
                               .plan = &j->plan,
                               .n = j->prompt.n,
                               .ids = j->prompt.ids,
                               .seg = j->prompt.seg,
                               .n_chain = fv_prefill_job_sends_raw(j) ? j->n_link : 0,
                               .chain = j->link,
                               .max_tokens = j->n_left,
                               .sampling = {.repetition_penalty = s->repetition_penalty,
                                            .frequency_penalty = s->frequency_penalty,
                                            .presence_penalty = s->presence_penalty,
                                            .temperature = s->temperature,
                                            .min_p = s->min_p,
                                            .top_p = s->top_p,
                                            .top_k = s->top_k,
                                            .n_logprobs = s->n_logprobs,
                                            .n_bias = s->n_bias,
                                            .bias = s->bias,
                                            .seed = s->seed}};
}

/* ---- the end ------------------------------------------------------------------------------ */

void fv_prefill_job_release(fv_prefill_job *j) {
    for (int32_t i = 0; j->pixels && i < j->n_item; i++) free(j->pixels[i]);
    j->pixels = NULL;
    fv_encoded_free(&j->encoded);
    fv_prefill_job_give_prefix(j);
    fv_generation_close(j->seq);
    j->seq = NULL;
    fv_kv_close(j->kv);
    j->kv = NULL;
}

void fv_prefill_job_free(fv_prefill_job *j) {
    fv_prefill_job_release(j);
    free(j->text);
    free(j->token_text);
    fv_prompt_free(&j->prompt);
    fv_arena_fini(&j->arena);
    *j = (fv_prefill_job){0};
}
