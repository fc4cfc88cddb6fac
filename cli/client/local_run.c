/* Runs requests in this process, from text and images to tokens: prefill jobs
 * (prefill-worker/job/job.h), a hand-off in memory, the decode worker's scheduler.
 *
 *   begin -> WAITING --up to FV_LOCAL_TOGETHER at a time--> prefill -> DECODING -> OVER -> over()
 *      '---- a kept conversation continues -----------------------------^
 *
 * Prefill has priority, as in most servers: during a prefill no request gets a token. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/client/local_internal.h"
#include "common/clock.h"

struct fv_local_run {
    fv_answer answer; /* first, so that an answer is its run */
    fv_local *l;
    fv_ask ask;
    fv_ask_hooks hooks;
    fv_local_over over;
    void *user;
    enum { WAITING, DECODING, OVER } state;
    fv_report report;
    double begin_s;
    fv_chat_turn turn[2];           /* for a plain question */
    float *attention;               /* [n_layer, prompt tokens] in the arena, if requested */
    float mass[FV_PLAN_MAX_LAYERS]; /* attention to visual tokens, if requested */
    fv_prefill_job job;
    fv_arena arena;
    fv_status status; /* status that ended it, */
    char text[512];   /* and its message */
};

typedef fv_local_run run;

static void run_free(run *r) {
    fv_scheduler_drop(r->l->scheduler, &r->answer);
    fv_prefill_job_free(&r->job);
    fv_report_free(&r->report);
    fv_arena_fini(&r->arena);
    free(r);
}

static void fail(run *r, fv_status st) {
    r->state = OVER;
    r->status = st;
    if (!r->text[0]) snprintf(r->text, sizeof r->text, "%s", fv_last_error());
}

static int32_t n_layer_of(const run *r) {
    return fv_checkpoint_config(r->l->engine.ck)->text.n_layer;
}

/* ---- the request -------------------------------------------------------------------------- */

static fv_prompt_form form_of(run *r) {
    const fv_ask *ask = &r->ask;
    fv_prompt_form form = {.chat_template = ask->chat ? ask->chat : "",
                           .n_turn = ask->n_turn,
                           .turn = ask->turns,
                           .options = {.variables = ask->variables}};
    if (ask->n_id > 0)
        return (fv_prompt_form){.kind = FV_PROMPT_IDS, .n_id = ask->n_id, .id = ask->id};
    if (ask->raw) return (fv_prompt_form){.kind = FV_PROMPT_TEXT, .text = ask->question};
    if (ask->n_turn > 0) return form;
    int32_t n = 0;
    if (ask->system) r->turn[n++] = (fv_chat_turn){.role = "system", .text = ask->system};
    r->turn[n++] = (fv_chat_turn){.role = "user",
                                  .text = ask->question,
                                  .n_image = ask->n_image,
                                  .n_part = ask->n_part,
                                  .part = ask->part};
    form.n_turn = n;
    form.turn = r->turn;
    return form;
}

static fv_generation_options generation_of(const run *r) {
    const fv_ask *ask = &r->ask;
    fv_generation_options opt =
        fv_engine_generation_options(&r->l->engine, ask->ignore_eos && !ask->form.kind);
    opt.rules.grammar = ask->form;
    opt.sampling = ask->sampling;
    opt.max_tokens = ask->max_tokens;
    opt.n_stop = ask->n_stop;
    opt.stop = ask->stop;
    opt.n_forced = ask->n_forced;
    opt.forced = ask->forced;
    return opt;
}

static fv_status open_job(run *r) {
    const fv_ask *ask = &r->ask;
    const fv_ask_hooks *h = &r->hooks;
    fv_job_image *image;
    FV_TRY(FV_ARENA_NEW(&r->arena, ask->n_image, image));
    for (int32_t i = 0; i < ask->n_image; i++) image[i].decoded = &ask->images[i];
    const fv_adapters *adapters = &r->l->engine.adapters;
    const char *preset = r->l->opt.model ? r->l->opt.model : "";
    const char *model = ask->model ? ask->model : preset;
    if (model[0] && !fv_adapters_named(adapters, model))
        return FV_FAIL(FV_ENOTFOUND,
                       "--model %s: there is no such adapter; name one with --adapter", model);
    r->job = (fv_prefill_job){.engine = &r->l->engine,
                              .adapter = fv_adapters_named(adapters, model),
                              .cache = r->l->images,
                              .pool = r->l->prefill_pool,
                              .policy = ask->policy,
                              .form = form_of(r),
                              .visual_first = ask->visual_first,
                              .n_visual_text = ask->n_visual_text,
                              .n_image = ask->n_image,
                              .image = image,
                              .n_video = ask->n_video,
                              .video = ask->videos,
                              .generation = generation_of(r),
                              .first_packed = ask->first_held,
                              .want_features = h->encoded != NULL,
                              .want_kept = h->kept != NULL,
                              .want_digest = true,
                              .prefill = {.visual_mass = h->visual_mass ? r->mass : NULL,
                                          .ablation = h->ablation,
                                          .ablation_user = h->user,
                                          .head_max = h->head_max,
                                          .head_max_user = h->user}};
    return fv_prefill_job_prepare(&r->job);
}

/* The prefill itself runs the last token again if all KV that it sees is packed. */
static fv_status plan_rerun(run *r) {
    const fv_plan *plan = &r->job.plan;
    const fv_prompt *prompt = &r->job.prompt;
    bool evicts = plan->evict.share || plan->evict.accum.kind || plan->evict.keep_packed < 1;
    r->answer.first_held =
        r->ask.first_held && fv_plan_sees_less(plan) && (evicts || !plan->pack.first_packed);
    if (r->answer.first_held && prompt->seg[prompt->n - 1] != FV_SEG_TEXT)
        return FV_FAIL(FV_EINVAL,
                       "the prompt ends with an image, but its last token must be text to run "
                       "again for the first token: put the question after the image");
    return FV_OK;
}

static fv_status prepare(run *r) {
    const fv_prefill_job *j = &r->job;
    FV_TRY(open_job(r));
    FV_TRY(plan_rerun(r));
    size_t attention = (size_t)n_layer_of(r) * (size_t)j->prompt.n;
    if (r->hooks.attention) FV_TRY(FV_ARENA_NEW(&r->arena, attention, r->attention));
    r->job.prefill.attention = r->attention;
    if (r->hooks.prompt) FV_TRY(r->hooks.prompt(r->hooks.user, j->text, &j->prompt));
    return FV_OK;
}

/* ---- prefill ------------------------------------------------------------------------------ */

static fv_status encode(run *r) {
    FV_TRY(fv_prefill_job_encode_all(&r->job));
    return r->hooks.encoded ? r->hooks.encoded(r->hooks.user, &r->job.encoded) : FV_OK;
}

static fv_status show_prefilled(run *r) {
    const fv_ask_hooks *h = &r->hooks;
    const fv_prefill_job *j = &r->job;
    if (h->prefilled) FV_TRY(h->prefilled(h->user, j->kv));
    if (h->kept) FV_TRY(h->kept(h->user, &j->kept, &fv_local_config(r->l)->layout));
    if (h->attention)
        FV_TRY(h->attention(h->user, r->attention, n_layer_of(r), j->prompt.n, j->prompt.n_visual));
    return h->visual_mass ? h->visual_mass(h->user, r->mass, n_layer_of(r)) : FV_OK;
}

/* Records and shows a token sampled from `logits`. */
static fv_status note_token(run *r, const float *logits, uint64_t digest, const fv_sampled *token,
                            const char *text, size_t n_text) {
    const fv_ask_hooks *h = &r->hooks;
    int32_t vocab = fv_checkpoint_config(r->l->engine.ck)->text.vocab;
    if (r->report.n_generated == 0) r->report.s_first_token = fv_clock_s() - r->begin_s;
    r->report.digest[r->report.n_generated++] = digest;
    if (h->logits) FV_TRY(h->logits(h->user, logits, vocab));
    if (h->token) FV_TRY(h->token(h->user, token));
    return n_text && h->text ? h->text(h->user, text, n_text) : FV_OK;
}

/* Hands off the prefilled KV to the decode side. */
static fv_status send(run *r, const fv_first_token *first) {
    fv_export_request req = fv_prefill_job_export(&r->job);
    fv_export *ship;
    fv_status st;
    FV_TRY(fv_export_begin(r->l->transport, &req, &ship));
    FV_TRY_GOTO(fv_export_layers(ship, n_layer_of(r)), st, out);
    FV_TRY_GOTO(fv_export_end(ship, first), st, out);
    fv_export_report sent = fv_export_get_report(ship);
    r->answer.ticket = *fv_export_ticket(ship);
    r->report.bytes_sent = sent.bytes;
    r->report.sections = sent.sections;
    r->report.frames = sent.frames;
out:
    fv_export_close(ship, true, NULL, NULL);
    return st;
}

static fv_status hand_off(run *r) {
    fv_prefill_job *j = &r->job;
    fv_first_token first = {.id = j->token.id, .logprob = j->token.logprob, .step = 1};
    double begin_s = fv_clock_s();
    if (r->answer.first_held) first.id = j->prompt.ids[j->prompt.n - 1];
    FV_TRY(send(r, &first));
    fv_kv_close(j->kv);
    j->kv = NULL;
    r->report.transport = r->l->transport->ops->name;
    r->report.s_handoff = fv_clock_s() - begin_s;
    r->state = DECODING;
    fv_scheduler_add(r->l->scheduler, &r->answer);
    return FV_OK;
}

/* The prefill side computes the first token, unless first_held is set; the others are computed from
 * the KV that the decode side received. */
static fv_status begin_answer(run *r, const float *logits) {
    fv_prefill_job *j = &r->job;
    FV_TRY(fv_prefill_job_end(j));
    FV_TRY(show_prefilled(r));
    if (r->answer.first_held) return hand_off(r);
    FV_TRY(fv_prefill_job_first(j, logits));
    FV_TRY(note_token(r, logits, j->digest, &j->token, j->token_text, j->n_token_text));
    if (j->finish == FV_FINISH_NOT) return hand_off(r);
    r->report.finish = j->finish;
    r->report.bytes_visual_end = j->bytes_visual;
    r->report.bytes_text_end = j->bytes_text;
    r->report.bytes_tables_end = j->bytes_tables;
    r->state = OVER;
    return FV_OK;
}

/* Prefills the prompts of n requests in one batch. */
static fv_status prefill(fv_local *l, run *const *who, int32_t n) {
    fv_prefill_job *job[FV_LOCAL_TOGETHER];
    fv_prefill_options opt = {.chunk = l->opt.chunk};
    for (int32_t i = 0; i < n; i++) {
        job[i] = &who[i]->job;
        FV_TRY(encode(who[i]));
    }
    return fv_prefill_jobs_run(job, n, &opt, l->logits);
}

/* If a batch fails, all its requests fail. */
static void prefill_some(fv_local *l, run *const *who, int32_t n) {
    int32_t vocab = fv_checkpoint_config(l->engine.ck)->text.vocab;
    fv_status st = prefill(l, who, n);
    for (int32_t i = 0; i < n; i++) {
        fv_status mine = st;
        if (st == FV_OK) mine = begin_answer(who[i], l->logits + (size_t)i * (size_t)vocab);
        if (mine != FV_OK) fail(who[i], mine);
    }
}

/* ---- decode ------------------------------------------------------------------------------- */

static fv_status on_token(fv_answer *x, uint32_t index, const fv_batch_event *e, uint64_t digest) {
    run *r = (run *)x;
    (void)index;
    fv_status st = note_token(r, e->logits, digest, e->token, e->text, e->n_text);
    if (st != FV_OK) snprintf(r->text, sizeof r->text, "%s", fv_last_error());
    return st;
}

static void on_answered(fv_answer *x, fv_status st, const fv_answer_report *a) {
    run *r = (run *)x;
    fv_report *out = &r->report;
    r->state = OVER;
    if (st != FV_OK) fail(r, st);
    out->finish = a->finish;
    out->bytes_visual_end = a->bytes_visual_end;
    out->bytes_text_end = a->bytes_text_end;
    out->bytes_tables_end = a->bytes_tables_end;
    out->entries_evicted = a->entries_evicted;
    out->s_decode = a->s_decode;
    out->n_drafted = a->n_drafted;
    out->n_drafts_kept = a->n_drafts_kept;
    out->s_drafts_saved = a->s_drafts_saved;
    out->recompressed = a->recompressed;
    out->kept = a->keep_s > 0;
    memcpy(out->conversation, a->conversation, sizeof out->conversation);
    if (!x->follows) return;
    memcpy(out->policy, a->policy, sizeof out->policy);
    out->n_prompt = out->n_text = a->n_prompt;
    out->n_layer = n_layer_of(r);
}

const fv_scheduler_hooks fv_local_scheduler_hooks = {.token = on_token, .over = on_answered};

/* Continues a conversation: its new tokens run in the batch of all answers. */
static fv_status go_on(run *r) {
    r->answer.follows = true;
    r->answer.model = r->ask.model;
    r->answer.prompt = form_of(r);
    memcpy(r->answer.conversation, r->ask.conversation, sizeof r->answer.conversation);
    r->state = DECODING;
    fv_scheduler_add(r->l->scheduler, &r->answer);
    return r->status == FV_OK ? FV_OK : FV_FAIL(r->status, "%s", r->text);
}

/* ---- the report --------------------------------------------------------------------------- */

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
    const fv_prefill_job *j = &r->job;
    fv_plan_bytes bytes = fv_plan_count(&j->plan);
    fv_policy_print(&j->policy, out->policy);
    memcpy(out->note, j->plan.note, sizeof out->note);
    fill_mapped(&j->plan, out);
    out->packed = j->packed;
    out->account = j->stats;
    memcpy(out->decided[FV_STAGE_PRUNE], j->pruned, sizeof j->pruned);
    if (j->packed.said)
        snprintf(out->decided[FV_STAGE_PACK], FV_PLAN_NOTE_MAX, "%s", j->packed.said);
    out->n_prompt = j->prompt.n;
    out->n_visual = j->prompt.n_visual;
    out->n_encoded = j->plan.condense.acts ? j->plan.shape.n_encoded : j->prompt.n_visual;
    out->n_text = j->prompt.n_text;
    out->n_image = j->prompt.n_image;
    out->n_image_cached = j->n_cached;
    out->n_layer = n_layer_of(r);
    memcpy(out->visual_tokens, j->visual_tokens, sizeof out->visual_tokens);
    out->bytes_raw = bytes.raw;
    out->bytes_bound = bytes.held;
    out->bytes_visual = j->bytes_visual;
    out->bytes_text = j->bytes_text;
    out->s_preprocess = j->s_preprocess;
    out->s_vision = j->s_vision;
    out->s_prefill = j->s_prefill;
}

/* Names the damaged tensor, if there is one, when logits are not finite. */
static fv_status explain_nonfinite(const fv_local *l, fv_status st) {
    const char *name = fv_checkpoint_find_nonfinite(l->engine.ck);
    if (!name) return st;
    return FV_FAIL(st,
                   "tensor %s of %s holds NaN or infinity: the checkpoint is damaged, fetch it "
                   "again",
                   name, fv_checkpoint_dir(l->engine.ck));
}

/* ---- several requests at a time -------------------------------------------------------- */

fv_status fv_local_begin(fv_local *l, const fv_ask *ask, const fv_ask_hooks *hooks,
                         fv_local_over over, void *user) {
    static const fv_ask_hooks none = {0};
    if (l->n_run == l->n_run_max)
        return FV_FAIL(FV_EBUSY, "%d requests are already running", l->n_run);
    run *r = calloc(1, sizeof *r);
    if (!r) return FV_FAIL(FV_ENOMEM, "out of memory for a request");
    *r = (run){.answer = {.sampling = ask->sampling,
                          .keep_s = ask->keep ? FV_LOCAL_KEEP_S : 0,
                          .max_tokens = ask->max_tokens,
                          .n_stop = ask->n_stop,
                          .stop = ask->stop,
                          .ignore_eos = ask->ignore_eos && !ask->form.kind,
                          .rules = {.grammar = ask->form},
                          .n_forced = ask->n_forced,
                          .forced = ask->forced,
                          .speculate = ask->speculate,
                          .prediction = ask->prediction,
                          .n_prediction = ask->prediction ? strlen(ask->prediction) : 0,
                          .digests = true},
               .l = l,
               .ask = *ask,
               .hooks = hooks ? *hooks : none,
               .over = over,
               .user = user,
               .report = {.transport = "none"},
               .begin_s = fv_clock_s()};
    r->report.digest = malloc((size_t)ask->max_tokens * sizeof *r->report.digest);
    fv_status st = !r->report.digest
                       ? FV_FAIL(FV_ENOMEM, "out of memory for %d tokens", ask->max_tokens)
                   : ask->conversation ? go_on(r)
                                       : prepare(r);
    if (st != FV_OK)
        run_free(r);
    else
        l->runs[l->n_run++] = r;
    return st;
}

/* Removes the run before its callback, so that another can begin there. */
static void end(fv_local *l, int32_t at) {
    run *r = l->runs[at];
    l->n_run--;
    memmove(&l->runs[at], &l->runs[at + 1], (size_t)(l->n_run - at) * sizeof(run *));
    if (r->status == FV_OK && !r->ask.conversation) fill_report(r);
    if (r->status != FV_OK) r->status = FV_FAIL(r->status, "%s", r->text);
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
    else
        fv_scheduler_step(l->scheduler);
    for (int32_t i = 0; i < l->n_run;)
        if (l->runs[i]->state == OVER)
            end(l, i);
        else
            i++;
}

void fv_local_drop(fv_local *l) {
    while (l->n_run > 0) run_free(l->runs[--l->n_run]);
}

/* ---- one request at a time --------------------------------------------------------------- */

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
