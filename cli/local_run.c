/* Requests from text and images to tokens, in this process. The order of the functions is that of
 * the pipeline.
 *
 *   begin -> WAITING --up to FV_LOCAL_TOGETHER at a time--> prefill -> DECODING -> OVER -> over()
 *      '---- a kept conversation goes on -------------------------------^
 *
 * Those who wait go first, as in most servers: while they are prefilled, nobody gets a token. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/local_again.h"
#include "cli/local_internal.h"
#include "common/clock.h"

struct fv_local_run {
    fv_local *l;
    fv_ask ask;
    fv_ask_hooks hooks;
    fv_local_over over;
    void *user;
    enum { WAITING, DECODING, OVER } state;
    fv_report report;
    double t0, decode_s; /* it began; its first step began */
    char *text;
    size_t
        *image_at; /* [n_image_at] where the text places images; NULL: wherever it says <image> */
    int32_t n_image_at;
    fv_prompt prompt;
    fv_encoded encoded;
    fv_plan plan;
    char pruned[FV_PLAN_NOTE_MAX];  /* what a method that decides by data says */
    float *attention;               /* [n_layer, prompt rows] in the arena, if somebody asks */
    float mass[FV_PLAN_MAX_LAYERS]; /* attention on visual tokens, if somebody asks */
    int32_t visual_tokens[FV_PLAN_MAX_LAYERS];
    fv_kept_map_watch *watch; /* if somebody asks; in the arena */
    fv_arena arena;
    fv_pack_report packed;
    fv_kv *kv;                /* on the prefill side, until it was sent */
    fv_received received;     /* on the decode side, after that; or */
    fv_conversation *session; /* what it goes on with, in use */
    fv_evict evict;           /* of a new one */
    fv_local_again again;
    bool runs_again; /* the prompt's last row does: until the first token is there */
    int32_t n_held;  /* tokens of the prompt that had run before it joined the batch */
    fv_generation *seq;
    fv_first_token first;
    fv_status status; /* what ended it */
};

typedef fv_local_run run;

/* A conversation to which nothing was added stays as it was. */
static void part(run *r) {
    if (!r->session) return;
    if (r->state == WAITING)
        fv_conversations_pause(r->l->conversations, r->session);
    else
        fv_conversations_end(r->l->conversations, r->session);
    r->session = NULL;
}

static void run_free(run *r) {
    fv_batch_leave(r->l->batch, r->seq);
    part(r);
    fv_local_again_free(&r->again);
    free(r->text);
    free(r->image_at);
    fv_prompt_free(&r->prompt);
    fv_encoded_free(&r->encoded);
    fv_kv_close(r->kv);
    fv_received_free(&r->received);
    fv_generation_close(r->seq);
    fv_report_free(&r->report);
    fv_arena_fini(&r->arena);
    free(r);
}

static fv_status render(run *r) {
    const fv_ask *ask = &r->ask;
    if (ask->raw) {
        r->text = strdup(ask->question);
        return r->text ? FV_OK : FV_FAIL(FV_ENOMEM, "out of memory for the prompt");
    }
    const fv_model_config *cfg = fv_checkpoint_config(r->l->ck);
    fv_chat_template chat;
    const char *name = ask->chat ? ask->chat : "";
    FV_TRY(fv_chat_choose(name, fv_checkpoint_dir(r->l->ck), cfg->text.family, cfg->has_vision,
                          &chat));
    if (ask->n_turn > 0)
        return fv_chat_render_at(chat, ask->turns, ask->n_turn, &r->text, &r->image_at,
                                 &r->n_image_at);
    fv_chat_turn turns[2] = {{"system", ask->system, 0}, {"user", ask->question, ask->n_image}};
    int32_t first = ask->system ? 0 : 1;
    FV_TRY(fv_chat_check_question(turns, 2));
    return fv_chat_render_at(chat, turns + first, 2 - first, &r->text, &r->image_at,
                             &r->n_image_at);
}

/* Whoever wants to see what the tower makes sees it made. */
static fv_status encode(run *r) {
    fv_local *l = r->l;
    const fv_choice *condense = r->plan.condenses ? &r->ask.policy.stage[FV_STAGE_CONDENSE] : NULL;
    if (r->encoded.n_image > 0) return FV_OK;
    if (!r->hooks.encoded)
        return fv_local_encode(l, r->ask.images, r->ask.n_image, condense, &r->encoded);
    fv_encode_job job = {.n = r->ask.n_image,
                         .images = r->ask.images,
                         .condense = condense,
                         .want_features = !condense};
    FV_TRY(fv_encode_images(l->vision, fv_checkpoint_config(l->ck), fv_checkpoint_image(l->ck),
                            &job, l->be.device, &r->encoded));
    return r->hooks.encoded(r->hooks.user, &r->encoded);
}

/* Where the first token comes from what is packed, the row that runs again must not be. */
static fv_status plan_for(run *r, const fv_plan_shape *shape) {
    FV_TRY(fv_plan_make(&r->ask.policy, shape, &r->plan));
    if (r->ask.first_held && fv_plan_packs_any(&r->plan)) r->plan.first_packed = true;
    return FV_OK;
}

/* What images are condensed to is part of the prompt: they are encoded first then. */
static fv_status make_plan(run *r) {
    const fv_model_config *cfg = fv_checkpoint_config(r->l->ck);
    fv_plan_shape shape = {.n_layer = cfg->text.n_layer,
                           .n_kv = cfg->text.n_kv,
                           .d_head = cfg->text.d_head,
                           .bytes_value = (int32_t)fv_dtype_bytes(r->l->opt.kv_dtype),
                           .n_visual = r->prompt.n_visual,
                           .n_text = r->prompt.n_text,
                           .n_image = r->prompt.n_image,
                           .calibrated = fv_checkpoint_blocks(r->l->ck),
                           .thresholds = fv_checkpoint_thresholds(r->l->ck),
                           .withdraw = fv_checkpoint_withdraw(r->l->ck),
                           .uncalibrated = fv_checkpoint_uncalibrated(r->l->ck)};
    shape.fitted = fv_checkpoint_schedules(r->l->ck, &shape.n_fitted);
    FV_TRY(plan_for(r, &shape));
    int32_t context = cfg->text.max_position;
    if (!r->plan.condenses) return fv_prompt_condense(&r->prompt, NULL, context);
    FV_TRY(encode(r));
    FV_TRY(fv_prompt_condense(&r->prompt, r->encoded.each, context));
    shape.n_encoded = shape.n_visual;
    shape.n_visual = r->prompt.n_visual;
    return plan_for(r, &shape);
}

/* The prefill runs the last row again by itself where all that rows behind it see is packed. */
static fv_status plan_again(run *r) {
    const fv_plan *plan = &r->plan;
    bool evicts = plan->evict || plan->accum.kind || plan->keeps_packed < 1;
    r->runs_again = r->ask.first_held && fv_plan_sees_less(plan) && (evicts || !plan->first_packed);
    if (r->runs_again && r->prompt.seg[r->prompt.n - 1] != FV_SEG_TEXT)
        return FV_FAIL(FV_EINVAL, "the prompt ends with an image, and its last row is to run again "
                                  "for the first token: put the question behind the image");
    return FV_OK;
}

static fv_status open_sequence(run *r, const int32_t *ids, int32_t n) {
    const fv_model_config *cfg = fv_checkpoint_config(r->l->ck);
    fv_generation_options opt = {.sampling = r->ask.sampling,
                                 .max_tokens = r->ask.max_tokens,
                                 .context = cfg->text.max_position,
                                 .n_vocab = r->l->n_vocab,
                                 .n_eos = r->ask.ignore_eos ? 0 : cfg->n_eos,
                                 .eos = cfg->eos,
                                 .n_stop = r->ask.n_stop,
                                 .stop = r->ask.stop};
    FV_TRY(fv_generation_open(&opt, r->l->tok, ids, n, n, &r->seq));
    r->report.digest = malloc((size_t)r->ask.max_tokens * sizeof *r->report.digest);
    if (!r->report.digest)
        return FV_FAIL(FV_ENOMEM, "out of memory for %d tokens", r->ask.max_tokens);
    return FV_OK;
}

static fv_status prepare(run *r) {
    fv_local *l = r->l;
    const fv_model_config *cfg = fv_checkpoint_config(l->ck);
    FV_TRY(render(r));
    /* Images that are condensed may come to fewer rows than they have now. */
    bool condense = r->ask.policy.stage[FV_STAGE_CONDENSE].method;
    int32_t context = condense ? INT32_MAX : cfg->text.max_position;
    FV_TRY(r->image_at ? fv_prompt_make_at(l->tok, cfg, r->text, r->image_at, r->n_image_at,
                                           r->ask.n_image, context, &r->prompt)
                       : fv_prompt_make(l->tok, cfg, r->text, r->ask.n_image, context, &r->prompt));
    FV_TRY(make_plan(r));
    size_t attention = (size_t)cfg->text.n_layer * (size_t)r->prompt.n;
    if (r->hooks.attention) FV_TRY(FV_ARENA_NEW(&r->arena, attention, r->attention));
    FV_TRY(plan_again(r));
    FV_TRY(open_sequence(r, r->prompt.ids, r->prompt.n));
    if (r->hooks.prompt) FV_TRY(r->hooks.prompt(r->hooks.user, r->text, &r->prompt));
    return FV_OK;
}

/* Prompts of n requests in one pass. */
static fv_status prefill(fv_local *l, run *const *who, int32_t n) {
    int32_t d = fv_checkpoint_config(l->ck)->text.d_model;
    fv_prefill_request req[FV_LOCAL_TOGETHER];
    double t = fv_clock_s();
    for (int32_t i = 0; i < n; i++) {
        run *r = who[i];
        FV_TRY(fv_kv_open(l->prefill_pool, &r->kv));
        bool condensed = r->plan.condenses;
        fv_kept_map_rows rows = {r->plan.shape.n_encoded, condensed ? r->encoded.source : NULL};
        if (r->hooks.kept)
            FV_TRY(fv_kept_map_begin(&r->arena, r->prompt.seg, r->prompt.n, &rows, &r->watch));
        req[i] = (fv_prefill_request){
            .n = r->prompt.n,
            .ids = r->prompt.ids,
            .seg = r->prompt.seg,
            .embeds = fv_tensor_of(r->encoded.embeds.data, FV_F32, r->prompt.n_visual, d),
            .plan = &r->plan,
            .kv = r->kv,
            .attention = r->attention,
            .visual_mass = r->hooks.visual_mass ? r->mass : NULL,
            .visual_tokens = r->visual_tokens,
            .ranked = r->watch ? fv_kept_map_ranked : NULL,
            .ranked_user = r->watch,
            .packed = &r->packed,
            .ablation = r->hooks.ablation,
            .ablation_user = r->hooks.user,
            .head_max = r->hooks.head_max,
            .head_max_user = r->hooks.user,
            .pruned = r->pruned};
    }
    fv_prefill_options opt = {.chunk = l->opt.chunk};
    FV_TRY(fv_prefill_run(l->dec, req, n, &opt, l->logits));
    for (int32_t i = 0; i < n; i++) who[i]->report.s_prefill = fv_clock_s() - t;
    return FV_OK;
}

static fv_status note_prefilled(run *r) {
    r->report.bytes_visual = fv_kv_bytes(r->kv, FV_SEG_VISUAL);
    r->report.bytes_text = fv_kv_bytes(r->kv, FV_SEG_TEXT);
    fv_stage_stats_take(&r->plan, r->visual_tokens, r->kv, &r->report.account);
    const fv_ask_hooks *h = &r->hooks;
    if (h->prefilled) FV_TRY(h->prefilled(h->user, r->kv));
    if (h->kept) {
        fv_kept_map kept;
        FV_TRY(fv_kept_map_end(r->watch, r->kv, &kept));
        FV_TRY(h->kept(h->user, &kept, fv_checkpoint_image(r->l->ck)));
    }
    if (h->attention)
        FV_TRY(h->attention(h->user, r->attention, r->plan.shape.n_layer, r->prompt.n));
    return h->visual_mass ? h->visual_mass(h->user, r->mass, r->plan.shape.n_layer) : FV_OK;
}

/* A token was chosen from `logits`: records and shows it. */
static fv_status note_token(run *r, const float *logits, const fv_sampled *token, const char *text,
                            size_t n_text) {
    const fv_ask_hooks *h = &r->hooks;
    int32_t vocab = fv_checkpoint_config(r->l->ck)->text.vocab, at = r->report.n_generated++;
    if (at == 0) r->report.s_first_token = fv_clock_s() - r->t0;
    r->report.digest[at] = fv_logits_digest(logits, vocab);
    if (h->logits) FV_TRY(h->logits(h->user, logits, vocab));
    if (h->token) FV_TRY(h->token(h->user, token));
    return n_text && h->text ? h->text(h->user, text, n_text) : FV_OK;
}

/* The first token is there that another row than the prefill's came to. */
static fv_status end_again(run *r) {
    r->runs_again = false;
    r->decode_s = fv_clock_s();
    return fv_local_again_put_back(&r->again, r->received.kv);
}

static void on_step(void *ctx, const fv_batch_event *e) {
    run *r = e->user;
    (void)ctx;
    r->status = e->status;
    if (r->status == FV_OK && r->runs_again) r->status = end_again(r);
    if (r->status == FV_OK) r->status = note_token(r, e->logits, e->token, e->text, e->n_text);
    if (r->status != FV_OK || e->finish != FV_FINISH_NOT) r->state = OVER;
}

/* What was prefilled leaves that side and arrives on the other. */
static fv_status send(run *r) {
    const fv_sampling *s = &r->ask.sampling;
    int32_t context = fv_checkpoint_config(r->l->ck)->text.max_position;
    int32_t room = context - r->prompt.n;
    fv_export_request req = {
        .model = r->l->fingerprint,
        .kv = r->kv,
        .plan = &r->plan,
        .n = r->prompt.n,
        .ids = r->prompt.ids,
        .seg = r->prompt.seg,
        .max_tokens = r->ask.max_tokens < room ? r->ask.max_tokens : room,
        .sampling = {.repetition_penalty = s->repetition_penalty,
                     .temperature = s->temperature,
                     .top_p = s->top_p,
                     .top_k = s->top_k,
                     .n_logprobs = s->n_logprobs,
                     .seed = s->seed},
    };
    fv_export *ship;
    fv_status st;
    FV_TRY(fv_export_begin(r->l->transport, &req, &ship));
    FV_TRY_GOTO(fv_export_layers(ship, fv_kv_get_shape(r->kv)->n_layer), st, out);
    FV_TRY_GOTO(fv_export_end(ship, &r->first), st, out);
    st =
        fv_refusal_status(fv_receiver_attach(r->l->receiver, fv_export_ticket(ship), &r->received));
    fv_export_report sent = fv_export_get_report(ship);
    r->report.bytes_sent = sent.bytes;
    r->report.sections = sent.sections;
    r->report.frames = sent.frames;
out:
    fv_export_close(ship, true, NULL, NULL);
    return st;
}

static fv_status handoff(run *r) {
    double t = fv_clock_s();
    FV_TRY(send(r));
    fv_kv_close(r->kv);
    r->kv = NULL;
    r->report.transport = r->l->transport->ops->name;
    r->report.s_handoff = fv_clock_s() - t;
    return FV_OK;
}

static fv_status first_token(run *r, const float *logits) {
    const fv_sampled *token;
    const char *text;
    size_t n;
    FV_TRY(fv_generation_take(r->seq, logits, &token, &text, &n));
    r->first = (fv_first_token){.id = token->id, .logprob = token->logprob, .step = 1};
    return note_token(r, logits, token, text, n);
}

/* The decode side is given the prompt's last row as what runs next; what leaves from token to token
 * leaves ahead of it, and its clock counts it. */
static fv_status begin_again(run *r) {
    int32_t last = r->prompt.n - 1;
    FV_TRY(fv_local_again_take_out(&r->again, r->received.kv, last));
    r->evict.before = 1;
    r->n_held = last;
    return FV_OK;
}

/* The first token is the prefill side's, unless it was asked for otherwise; the others come from
 * what the decode side received. */
static fv_status begin_answer(run *r, const float *logits) {
    r->report.transport = "none";
    if (r->packed.status != FV_OK) return FV_FAIL(r->packed.status, "%s", r->packed.text);
    FV_TRY(note_prefilled(r));
    r->state = OVER;
    if (r->runs_again)
        r->first = (fv_first_token){.id = r->prompt.ids[r->prompt.n - 1], .step = 1};
    else
        FV_TRY(first_token(r, logits));
    if (fv_generation_finish(r->seq) != FV_FINISH_NOT) return FV_OK;
    FV_TRY(handoff(r));
    r->decode_s = fv_clock_s();
    r->state = DECODING;
    r->n_held = r->prompt.n;
    FV_TRY(fv_evict_init(&r->evict, r->received.policy, r->prompt.n));
    if (r->runs_again) FV_TRY(begin_again(r));
    return fv_batch_join(r->l->batch, r->seq, r->received.kv, &r->evict, r->n_held, r);
}

/* ---- conversations ------------------------------------------------------------------------ */

/* What is new, behind what is held: ids [n] in *all. */
static fv_status join_ids(const run *r, int32_t **all, int32_t *n) {
    const fv_local *l = r->l;
    const fv_conversation *session = r->session;
    const fv_engine engine = {.ck = l->ck, .tok = l->tok}; /* what a follow-up is read with */
    fv_follow_up follow = {.form = FV_FOLLOW_UP_CHAT,
                           .chat_template = r->ask.chat ? r->ask.chat : "",
                           .n_turn = r->ask.n_turn,
                           .turn = r->ask.turns};
    int32_t context = fv_checkpoint_config(l->ck)->text.max_position, n_new, *ids;
    FV_TRY(fv_follow_up_ids(&engine, &follow, session->ids[session->n - 1], &ids, &n_new));
    int64_t total = (int64_t)session->n + n_new;
    int32_t *joined = total > context ? NULL : malloc((size_t)total * sizeof *joined);
    if (joined) {
        memcpy(joined, session->ids, (size_t)session->n * sizeof *joined);
        memcpy(joined + session->n, ids, (size_t)n_new * sizeof *joined);
    }
    free(ids);
    if (total > context)
        return FV_FAIL(FV_EINVAL,
                       "the conversation has %d tokens and %d come with this question; the "
                       "checkpoint's context is %d",
                       session->n, n_new, context);
    if (!joined) return FV_FAIL(FV_ENOMEM, "out of memory for a prompt");
    *all = joined;
    *n = (int32_t)total;
    return FV_OK;
}

/* Its new rows run on what is held, in the batch of all answers. */
static fv_status resume(run *r) {
    int32_t *ids, n;
    FV_TRY(fv_conversations_resume(r->l->conversations, r->ask.conversation, &r->session));
    r->n_held = r->session->n - 1; /* the last token was chosen and has not run */
    FV_TRY(join_ids(r, &ids, &n));
    fv_status st = open_sequence(r, ids, n);
    free(ids);
    FV_TRY(st);
    FV_TRY(fv_batch_join(r->l->batch, r->seq, r->session->kv, &r->session->evict, r->n_held, r));
    r->state = DECODING;
    r->report.transport = "none";
    r->decode_s = fv_clock_s();
    return FV_OK;
}

static fv_status begin_session(run *r) {
    FV_TRY(fv_conversations_begin(r->l->conversations, &r->session));
    r->session->kv = r->received.kv;
    r->received.kv = NULL;
    memcpy(r->session->policy, r->received.policy, sizeof r->session->policy);
    r->session->evict = r->evict;
    r->session->text_keys = fv_text_keys_of(&r->ask.policy);
    return FV_OK;
}

/* Keys of its text are factored anew at the end of a kept turn, as on a decode worker. */
static fv_status settle(run *r) {
    fv_recompress again;
    bool more = fv_recompress_begin(&again, &r->session->text_keys, r->session->kv);
    while (more) FV_TRY(fv_recompress_next(&again, r->l->dec, r->session->kv, &more));
    r->report.recompressed = again.report;
    return FV_OK;
}

/* The answer is complete, and what is held stays. */
static fv_status keep(run *r) {
    int32_t n, n_prompt;
    const int32_t *ids = fv_generation_ids(r->seq, &n, &n_prompt);
    if (!r->session) FV_TRY(begin_session(r));
    r->session->evict.before += n - n_prompt;
    FV_TRY(settle(r));
    fv_conversation *session = r->session;
    r->session = NULL;
    r->report.kept =
        fv_conversations_keep(r->l->conversations, session, ids, n, FV_LOCAL_KEEP_S) > 0;
    if (r->report.kept) memcpy(r->report.conversation, session->id, sizeof session->id);
    return FV_OK;
}

/* ---- the report --------------------------------------------------------------------------- */

/* Of an answer in a conversation: what ran for it, and what is held in the end. */
static void fill_follow_up(run *r) {
    fv_report *out = &r->report;
    const fv_kv *kv = r->session->kv;
    int32_t n, n_prompt;
    fv_generation_ids(r->seq, &n, &n_prompt);
    memcpy(out->policy, r->session->policy, sizeof out->policy);
    out->n_prompt = out->n_text = n_prompt - r->n_held;
    out->n_layer = fv_kv_get_shape(kv)->n_layer;
    out->s_decode = fv_clock_s() - r->decode_s;
    out->finish = fv_generation_finish(r->seq);
    out->bytes_visual_end = fv_kv_bytes(kv, FV_SEG_VISUAL);
    out->bytes_text_end = fv_kv_bytes(kv, FV_SEG_TEXT);
    out->bytes_tables_end = fv_kv_packed_tables(kv);
    out->entries_evicted = fv_evict_rows(kv);
}

static void fill_mapped(const fv_plan *plan, fv_report *out) {
    out->n_mapped = plan->n_mapped;
    for (int32_t i = 0; i < plan->n_mapped; i++) {
        const fv_plan_mapped *from = &plan->mapped[i];
        const fv_choice *c = &plan->policy.stage[from->stage];
        fv_report_mapped *to = &out->mapped[i];
        fv_layer_mapping how = fv_choice_layer_mapping(c, from->param, plan->shape.n_layer);
        char written[FV_PARAM_TEXT_MAX];
        fv_choice_print(c, from->param, written);
        snprintf(to->stage, sizeof to->stage, "%s", fv_stage_name(from->stage));
        snprintf(to->param, sizeof to->param, "%s", c->method->param[from->param].name);
        snprintf(to->written, sizeof to->written, "%.31s", written);
        snprintf(to->mapping, sizeof to->mapping, "%s", fv_layer_mapping_name(how));
        to->layer = from->layer;
    }
}

static void fill_report(run *r) {
    fv_report *out = &r->report;
    if (r->decode_s > 0) out->s_decode = fv_clock_s() - r->decode_s;
    out->finish = fv_generation_finish(r->seq);
    const fv_kv *kv = r->kv ? r->kv : r->received.kv;
    const fv_kv_shape *s = fv_kv_get_shape(kv);
    fv_plan_bytes bytes = fv_plan_count(&r->plan);
    fv_policy_print(&r->ask.policy, out->policy);
    memcpy(out->note, r->plan.note, sizeof out->note);
    fill_mapped(&r->plan, out);
    out->packed = r->packed;
    memcpy(out->decided[FV_STAGE_PRUNE], r->pruned, sizeof r->pruned);
    if (r->packed.said)
        snprintf(out->decided[FV_STAGE_PACK], FV_PLAN_NOTE_MAX, "%s", r->packed.said);
    out->n_prompt = r->prompt.n;
    out->n_visual = r->prompt.n_visual;
    out->n_encoded = r->plan.condenses ? r->plan.shape.n_encoded : r->prompt.n_visual;
    out->n_text = r->prompt.n_text;
    out->n_image = r->prompt.n_image;
    out->n_image_cached = r->encoded.n_cached;
    out->n_layer = s->n_layer;
    memcpy(out->visual_tokens, r->visual_tokens, sizeof out->visual_tokens);
    out->bytes_raw = bytes.raw;
    out->bytes_bound = bytes.held;
    out->bytes_visual_end = fv_kv_bytes(kv, FV_SEG_VISUAL);
    out->bytes_text_end = fv_kv_bytes(kv, FV_SEG_TEXT);
    out->bytes_tables_end = fv_kv_packed_tables(kv);
    out->entries_evicted = fv_evict_rows(kv);
    out->s_preprocess = r->encoded.s_preprocess;
    out->s_vision = r->encoded.s_vision;
}

/* Logits that are not finite: says which tensor is to blame, when one is. */
static fv_status explain_nonfinite(const fv_local *l, fv_status st) {
    const char *name = fv_checkpoint_find_nonfinite(l->ck);
    if (!name) return st;
    return FV_FAIL(st,
                   "tensor %s of %s holds NaN or infinity: the checkpoint is damaged, fetch it "
                   "again",
                   name, fv_checkpoint_dir(l->ck));
}

/* ---- several at a time ----------------------------------------------------------------- */

fv_status fv_local_begin(fv_local *l, const fv_ask *ask, const fv_ask_hooks *hooks,
                         fv_local_over over, void *user) {
    static const fv_ask_hooks none = {0};
    if (l->n_run == l->n_run_max)
        return FV_FAIL(FV_EBUSY, "%d requests are under way already", l->n_run);
    run *r = calloc(1, sizeof *r);
    if (!r) return FV_FAIL(FV_ENOMEM, "out of memory for a request");
    *r = (run){.l = l,
               .ask = *ask,
               .hooks = hooks ? *hooks : none,
               .over = over,
               .user = user,
               .t0 = fv_clock_s()};
    fv_status st = ask->conversation ? resume(r) : prepare(r);
    if (st != FV_OK)
        run_free(r);
    else
        l->runs[l->n_run++] = r;
    return st;
}

static void fail(run *r, fv_status st) {
    r->state = OVER;
    r->status = st;
}

/* A pass that fails loses all that were in it. */
static void prefill_some(fv_local *l, run *const *who, int32_t n) {
    int32_t vocab = fv_checkpoint_config(l->ck)->text.vocab;
    fv_status st = FV_OK;
    for (int32_t i = 0; i < n && st == FV_OK; i++) st = encode(who[i]);
    if (st == FV_OK) st = prefill(l, who, n);
    for (int32_t i = 0; i < n; i++) {
        fv_status mine = st;
        if (st == FV_OK) mine = begin_answer(who[i], l->logits + (size_t)i * (size_t)vocab);
        if (mine != FV_OK) fail(who[i], mine);
    }
}

static void step_all(fv_local *l) {
    fv_status st = fv_batch_step(l->batch, on_step, NULL);
    for (int32_t i = 0; i < l->n_run && st != FV_OK; i++)
        if (l->runs[i]->state == DECODING) fail(l->runs[i], st);
}

/* Takes the run out before it is told, so that another may begin there. */
static void end(fv_local *l, int32_t at) {
    run *r = l->runs[at];
    l->n_run--;
    memmove(&l->runs[at], &l->runs[at + 1], (size_t)(l->n_run - at) * sizeof(run *));
    fv_batch_leave(l->batch, r->seq);
    if (r->status == FV_OK && r->ask.conversation)
        fill_follow_up(r);
    else if (r->status == FV_OK)
        fill_report(r);
    bool held = r->session || r->received.kv; /* not where prefill's own token ended the answer */
    if (r->status == FV_OK && r->ask.keep && held) r->status = keep(r);
    if (r->status == FV_EDATA) r->status = explain_nonfinite(l, r->status);
    r->over(r->user, r->status, &r->report);
    run_free(r);
}

void fv_local_step(fv_local *l) {
    run *who[FV_LOCAL_TOGETHER];
    int32_t n = 0;
    for (int32_t i = 0; i < l->n_run && n < FV_LOCAL_TOGETHER; i++)
        if (l->runs[i]->state == WAITING) who[n++] = l->runs[i];
    if (n > 0)
        prefill_some(l, who, n);
    else if (fv_batch_count(l->batch) > 0)
        step_all(l);
    for (int32_t i = 0; i < l->n_run;)
        if (l->runs[i]->state == OVER)
            end(l, i);
        else
            i++;
}

void fv_local_drop(fv_local *l) {
    while (l->n_run > 0) run_free(l->runs[--l->n_run]);
}

/* ---- one that is waited for -------------------------------------------------------------- */

typedef struct outcome {
    bool over;
    fv_status status;
    fv_report *report;
} outcome;

static void on_over(void *user, fv_status st, fv_report *report) {
    outcome *o = user;
    o->over = true;
    o->status = st;
    if (st != FV_OK) return;
    *o->report = *report;
    report->digest = NULL;
}

fv_status fv_local_ask(fv_local *l, const fv_ask *ask, const fv_ask_hooks *hooks,
                       fv_report *report) {
    outcome o = {.report = report};
    FV_TRY(fv_local_begin(l, ask, hooks, on_over, &o));
    while (!o.over) fv_local_step(l);
    return o.status;
}
