/* One request from text and pictures to tokens, in this process. The order of the calls below is
 * the order of the pipeline. */
#include "cli/local.h"

#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/log.h"

struct fv_local {
    fv_local_options opt;
    fv_checkpoint *ck;
    fv_tokenizer *tok;
    fv_backend be;
    bool be_open;
    fv_decoder *dec;
    fv_vision *vision; /* NULL for a text-only checkpoint */
    fv_kv_pool *prefill_pool, *decode_pool;
    fv_receiver *receiver; /* of the decode side */
    fv_transport *transport;
    fv_batch *batch;
    int32_t n_vocab; /* ids that may be sampled: behind them are padding rows */
    char fingerprint[17];
};

/* ---- opening --------------------------------------------------------------------------- */

/* Both sides' KV memory, and the way from one to the other. */
static fv_status open_handoff(fv_local *l) {
    const fv_text_config *text = &fv_checkpoint_config(l->ck)->text;
    fv_kv_shape shape = {.n_layer = text->n_layer,
                         .n_kv = text->n_kv,
                         .d_head = text->d_head,
                         .dtype = l->opt.kv_dtype};
    FV_TRY(fv_kv_pool_open(l->be.device, &shape, l->opt.kv_bytes, &l->prefill_pool));
    FV_TRY(fv_kv_pool_open(l->be.device, &shape, l->opt.kv_bytes, &l->decode_pool));
    fv_receiver_options opt = {.pool = l->decode_pool,
                               .model = l->fingerprint,
                               .n_vocab = text->vocab,
                               .max_position = text->max_position,
                               .grants = fv_grants_options_default()};
    FV_TRY(fv_receiver_open(&opt, &l->receiver));
    return fv_transport_inproc(fv_receiver_sink(l->receiver), &l->transport);
}

static fv_status open_network(fv_local *l) {
    const fv_model_config *cfg = fv_checkpoint_config(l->ck);
    fv_backend_options be = {.n_threads = l->opt.threads, .isa = l->opt.isa};
    FV_TRY(fv_backend_open(&l->be, l->opt.backend, &be));
    l->be_open = true;
    FV_TRY(fv_decoder_open(&l->be, &cfg->text, fv_checkpoint_text(l->ck), &l->dec));
    if (cfg->has_vision)
        FV_TRY(fv_vision_open(&l->be, cfg, fv_checkpoint_vision(l->ck),
                              fv_checkpoint_projector(l->ck), &l->vision));
    return fv_batch_open(l->dec, 1, 1, &l->batch);
}

fv_status fv_local_open(const fv_local_options *opt, fv_local **out) {
    fv_status st;
    fv_local *l = calloc(1, sizeof *l);
    if (!l) return FV_FAIL(FV_ENOMEM, "out of memory for the engine");
    l->opt = *opt;
    FV_TRY_GOTO(fv_checkpoint_open(opt->checkpoint, &l->ck), st, fail);
    FV_TRY_GOTO(fv_tokenizer_open(opt->checkpoint, &l->tok), st, fail);
    fv_checkpoint_fingerprint(l->ck, l->fingerprint);
    FV_TRY_GOTO(open_network(l), st, fail);
    FV_TRY_GOTO(open_handoff(l), st, fail);
    int32_t vocab = fv_checkpoint_config(l->ck)->text.vocab;
    l->n_vocab = fv_tokenizer_vocab(l->tok) < vocab ? fv_tokenizer_vocab(l->tok) : vocab;
    FV_LOG(INFO, MODEL, "checkpoint=%s fingerprint=%s bytes=%zu isa=%s", opt->checkpoint,
           l->fingerprint, fv_checkpoint_bytes(l->ck), fv_backend_isa(&l->be));
    *out = l;
    return FV_OK;
fail:
    fv_local_close(l);
    return st;
}

void fv_local_close(fv_local *l) {
    if (!l) return;
    fv_batch_close(l->batch);
    fv_transport_close(l->transport, NULL, NULL);
    fv_receiver_close(l->receiver);
    fv_kv_pool_close(l->decode_pool);
    fv_kv_pool_close(l->prefill_pool);
    fv_vision_close(l->vision);
    fv_decoder_close(l->dec);
    if (l->be_open) fv_backend_close(&l->be);
    fv_tokenizer_free(l->tok);
    fv_checkpoint_close(l->ck);
    free(l);
}

const fv_model_config *fv_local_config(const fv_local *l) { return fv_checkpoint_config(l->ck); }

const fv_generation_config *fv_local_generation(const fv_local *l) {
    return fv_checkpoint_generation(l->ck);
}

const char *fv_local_isa(const fv_local *l) { return fv_backend_isa(&l->be); }

const char *fv_local_fingerprint(const fv_local *l) { return l->fingerprint; }

void fv_report_free(fv_report *r) {
    free(r->digest);
    r->digest = NULL;
}

/* ---- one request ----------------------------------------------------------------------- */

typedef struct run {
    fv_local *l;
    const fv_ask *ask;
    const fv_ask_hooks *hooks;
    fv_report report;
    double t0;
    char *text;
    fv_prompt prompt;
    fv_encoded encoded;
    fv_plan plan;
    fv_kv *kv;            /* on the prefill side, until it was sent */
    fv_received received; /* on the decode side, after that */
    float *logits;        /* [vocab] behind the prompt */
    fv_sequence *seq;
    fv_first_token first;
    fv_status status; /* of the token that was last taken */
} run;

static void run_fini(run *r) {
    free(r->text);
    fv_prompt_free(&r->prompt);
    fv_encoded_free(&r->encoded);
    fv_kv_close(r->kv);
    fv_received_free(&r->received);
    free(r->logits);
    fv_sequence_close(r->seq);
}

static fv_status render(run *r) {
    const fv_ask *ask = r->ask;
    if (ask->raw) {
        r->text = strdup(ask->question);
        return r->text ? FV_OK : FV_FAIL(FV_ENOMEM, "out of memory for the prompt");
    }
    const fv_model_config *cfg = fv_checkpoint_config(r->l->ck);
    fv_chat_template chat;
    const char *name = ask->chat ? ask->chat : "";
    FV_TRY(fv_chat_choose(name, fv_checkpoint_dir(r->l->ck), cfg, &chat));
    fv_chat_turn turns[2] = {{"system", ask->system, 0}, {"user", ask->question, ask->n_image}};
    int32_t first = ask->system ? 0 : 1;
    return fv_chat_render(chat, turns + first, 2 - first, &r->text);
}

static fv_status prepare(run *r) {
    fv_local *l = r->l;
    const fv_model_config *cfg = fv_checkpoint_config(l->ck);
    FV_TRY(render(r));
    FV_TRY(
        fv_prompt_make(l->tok, cfg, r->text, r->ask->n_image, cfg->text.max_position, &r->prompt));
    fv_plan_shape shape = {.n_layer = cfg->text.n_layer,
                           .n_kv = cfg->text.n_kv,
                           .n_visual = r->prompt.n_visual,
                           .n_text = r->prompt.n_text};
    FV_TRY(fv_plan_make(&r->ask->policy, &shape, &r->plan));
    bool ends = !r->ask->ignore_eos;
    fv_sequence_options opt = {.sampling = r->ask->sampling,
                               .max_tokens = r->ask->max_tokens,
                               .context = cfg->text.max_position,
                               .n_vocab = l->n_vocab,
                               .n_eos = ends ? cfg->n_eos : 0,
                               .eos = cfg->eos,
                               .n_stop = r->ask->n_stop,
                               .stop = r->ask->stop};
    FV_TRY(fv_sequence_open(&opt, l->tok, r->prompt.ids, r->prompt.n, r->prompt.n, &r->seq));
    r->logits = malloc((size_t)cfg->text.vocab * sizeof *r->logits);
    r->report.digest = malloc((size_t)r->ask->max_tokens * sizeof *r->report.digest);
    if (!r->logits || !r->report.digest)
        return FV_FAIL(FV_ENOMEM, "out of memory for %d tokens", r->ask->max_tokens);
    if (r->hooks->prompt) FV_TRY(r->hooks->prompt(r->hooks->user, r->text, &r->prompt));
    return FV_OK;
}

static fv_status encode(run *r) {
    fv_local *l = r->l;
    FV_TRY(fv_encode_images(l->vision, fv_checkpoint_config(l->ck), fv_checkpoint_image(l->ck),
                            r->ask->images, r->ask->n_image, r->hooks->encoded != NULL,
                            l->be.device, &r->encoded));
    if (r->hooks->encoded) FV_TRY(r->hooks->encoded(r->hooks->user, &r->encoded));
    return FV_OK;
}

static fv_status prefill(run *r) {
    fv_local *l = r->l;
    double t = fv_clock_s();
    FV_TRY(fv_kv_open(l->prefill_pool, &r->kv));
    fv_prefill_request req = {.n = r->prompt.n,
                              .ids = r->prompt.ids,
                              .seg = r->prompt.seg,
                              .embeds =
                                  fv_tensor_of(r->encoded.embeds.data, FV_F32, r->prompt.n_visual,
                                               fv_checkpoint_config(l->ck)->text.d_model),
                              .plan = &r->plan,
                              .kv = r->kv};
    fv_prefill_options opt = {.chunk = l->opt.chunk};
    FV_TRY(fv_prefill_run(l->dec, &req, 1, &opt, r->logits));
    r->report.s_prefill = fv_clock_s() - t;
    r->report.bytes_visual = fv_kv_bytes(r->kv, FV_SEG_VISUAL);
    r->report.bytes_text = fv_kv_bytes(r->kv, FV_SEG_TEXT);
    if (r->hooks->prefilled) FV_TRY(r->hooks->prefilled(r->hooks->user, r->kv));
    return FV_OK;
}

/* A token was chosen from `logits`: records and shows it. */
static fv_status note_token(run *r, const float *logits, const fv_sampled *token, const char *text,
                            size_t n_text) {
    const fv_ask_hooks *h = r->hooks;
    int32_t vocab = fv_checkpoint_config(r->l->ck)->text.vocab, at = r->report.n_generated++;
    if (at == 0) r->report.s_first_token = fv_clock_s() - r->t0;
    r->report.digest[at] = fv_logits_digest(logits, vocab);
    if (h->logits) FV_TRY(h->logits(h->user, logits, vocab));
    if (h->token) FV_TRY(h->token(h->user, token));
    return n_text && h->text ? h->text(h->user, text, n_text) : FV_OK;
}

static void on_step(void *ctx, const fv_batch_event *e) {
    run *r = ctx;
    r->status = e->status;
    if (e->status == FV_OK) r->status = note_token(r, e->logits, e->token, e->text, e->n_text);
}

/* What was prefilled leaves that side and arrives on the other. */
static fv_status send(run *r) {
    const fv_sampling *s = &r->ask->sampling;
    int32_t context = fv_checkpoint_config(r->l->ck)->text.max_position;
    int32_t room = context - r->prompt.n;
    fv_ship_request req = {
        .model = r->l->fingerprint,
        .kv = r->kv,
        .plan = &r->plan,
        .n = r->prompt.n,
        .ids = r->prompt.ids,
        .seg = r->prompt.seg,
        .max_tokens = r->ask->max_tokens < room ? r->ask->max_tokens : room,
        .sampling = {.repetition_penalty = s->repetition_penalty,
                     .temperature = s->temperature,
                     .top_p = s->top_p,
                     .top_k = s->top_k,
                     .n_logprobs = s->n_logprobs,
                     .seed = s->seed},
    };
    fv_ship *ship;
    fv_status st;
    FV_TRY(fv_ship_begin(r->l->transport, &req, &ship));
    FV_TRY_GOTO(fv_ship_layers(ship, fv_kv_get_shape(r->kv)->n_layer), st, out);
    FV_TRY_GOTO(fv_ship_end(ship, &r->first), st, out);
    st = fv_refusal_status(fv_receiver_claim(r->l->receiver, fv_ship_ticket(ship), &r->received));
    fv_ship_report sent = fv_ship_get_report(ship);
    r->report.bytes_sent = sent.bytes;
    r->report.sections = sent.sections;
    r->report.frames = sent.frames;
out:
    fv_ship_close(ship, true, NULL, NULL);
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

static fv_status first_token(run *r) {
    const fv_sampled *token;
    const char *text;
    size_t n;
    FV_TRY(fv_sequence_take(r->seq, r->logits, &token, &text, &n));
    r->first = (fv_first_token){.id = token->id, .logprob = token->logprob, .step = 1};
    return note_token(r, r->logits, token, text, n);
}

static fv_status decode(run *r) {
    fv_batch *batch = r->l->batch;
    FV_TRY(fv_batch_join(batch, r->seq, r->received.kv, r->prompt.n, NULL));
    fv_status st = FV_OK;
    while (st == FV_OK && r->status == FV_OK && fv_batch_count(batch) > 0)
        st = fv_batch_step(batch, on_step, r);
    fv_batch_leave(batch, r->seq);
    return st == FV_OK ? r->status : st;
}

/* The first token is the prefill side's; the others come from what the decode side received. */
static fv_status answer(run *r) {
    r->report.transport = "none";
    FV_TRY(first_token(r));
    if (fv_sequence_finish(r->seq) == FV_FINISH_NOT) {
        FV_TRY(handoff(r));
        double t = fv_clock_s();
        FV_TRY(decode(r));
        r->report.s_decode = fv_clock_s() - t;
    }
    r->report.finish = fv_sequence_finish(r->seq);
    return FV_OK;
}

static void fill_report(run *r) {
    fv_report *out = &r->report;
    const fv_kv *kv = r->kv ? r->kv : r->received.kv;
    const fv_kv_shape *s = fv_kv_get_shape(kv);
    size_t row = 2 * (size_t)s->d_head * fv_dtype_bytes(s->dtype);
    fv_policy_print(&r->ask->policy, out->policy);
    memcpy(out->note, r->plan.note, sizeof out->note);
    out->n_prompt = r->prompt.n;
    out->n_visual = r->prompt.n_visual;
    out->n_text = r->prompt.n_text;
    out->n_image = r->prompt.n_image;
    out->n_layer = s->n_layer;
    memcpy(out->visual_rows, r->plan.visual, sizeof out->visual_rows);
    out->bytes_raw = row * (size_t)s->n_layer * (size_t)s->n_kv * (size_t)r->prompt.n;
    out->bytes_bound = row * (size_t)fv_plan_kv_rows(&r->plan);
    out->bytes_visual_end = fv_kv_bytes(kv, FV_SEG_VISUAL);
    out->bytes_text_end = fv_kv_bytes(kv, FV_SEG_TEXT);
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

fv_status fv_local_ask(fv_local *l, const fv_ask *ask, const fv_ask_hooks *hooks,
                       fv_report *report) {
    static const fv_ask_hooks none = {0};
    run r = {.l = l, .ask = ask, .hooks = hooks ? hooks : &none, .t0 = fv_clock_s()};
    fv_status st;
    FV_TRY_GOTO(prepare(&r), st, out);
    FV_TRY_GOTO(encode(&r), st, out);
    FV_TRY_GOTO(prefill(&r), st, explain);
    FV_TRY_GOTO(answer(&r), st, explain);
    fill_report(&r);
    *report = r.report;
    r.report.digest = NULL;
explain:
    if (st == FV_EDATA) st = explain_nonfinite(l, st);
out:
    free(r.report.digest);
    run_fini(&r);
    return st;
}
