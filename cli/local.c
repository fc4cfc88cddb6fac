/* One request from text and pictures to tokens, in this process. The order of the calls below is
 * the order of the pipeline. */
#include "cli/local.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

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
    fv_kv_pool *pool;
    fv_stepper *stepper;
    int32_t n_vocab; /* ids that may be sampled: behind them are padding rows */
    char fingerprint[17];
};

/* ---- opening --------------------------------------------------------------------------- */

static fv_status open_network(fv_local *l) {
    const fv_model_config *cfg = fv_checkpoint_config(l->ck);
    fv_backend_options be = {.n_threads = l->opt.threads, .isa = l->opt.isa};
    FV_TRY(fv_backend_open(&l->be, l->opt.backend, &be));
    l->be_open = true;
    FV_TRY(fv_decoder_open(&l->be, &cfg->text, fv_checkpoint_text(l->ck), &l->dec));
    if (cfg->has_vision)
        FV_TRY(fv_vision_open(&l->be, cfg, fv_checkpoint_vision(l->ck),
                              fv_checkpoint_projector(l->ck), &l->vision));
    fv_kv_shape shape = {.n_layer = cfg->text.n_layer,
                         .n_kv = cfg->text.n_kv,
                         .d_head = cfg->text.d_head,
                         .dtype = l->opt.kv_dtype};
    FV_TRY(fv_kv_pool_open(l->be.device, &shape, l->opt.kv_bytes, &l->pool));
    return fv_stepper_open(l->dec, &l->stepper);
}

fv_status fv_local_open(const fv_local_options *opt, fv_local **out) {
    fv_status st;
    fv_local *l = calloc(1, sizeof *l);
    if (!l) return FV_FAIL(FV_ENOMEM, "out of memory for the engine");
    l->opt = *opt;
    FV_TRY_GOTO(fv_checkpoint_open(opt->checkpoint, &l->ck), st, fail);
    FV_TRY_GOTO(fv_tokenizer_open(opt->checkpoint, &l->tok), st, fail);
    FV_TRY_GOTO(open_network(l), st, fail);
    int32_t vocab = fv_checkpoint_config(l->ck)->text.vocab;
    l->n_vocab = fv_tokenizer_vocab(l->tok) < vocab ? fv_tokenizer_vocab(l->tok) : vocab;
    fv_checkpoint_fingerprint(l->ck, l->fingerprint);
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
    fv_stepper_close(l->stepper);
    fv_kv_pool_close(l->pool);
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

const char *fv_finish_name(fv_finish f) {
    static const char *const names[] = {"length", "eos", "stop"};
    return names[f];
}

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
    fv_kv *kv;
    float *logits; /* [vocab] */
    fv_logprob *scratch;
    int32_t *ids; /* prompt and generated */
    fv_detokenizer *detok;
    fv_stop *stop;
} run;

static void run_fini(run *r) {
    free(r->text);
    fv_prompt_free(&r->prompt);
    fv_encoded_free(&r->encoded);
    fv_kv_close(r->kv);
    free(r->logits);
    free(r->scratch);
    free(r->ids);
    fv_detokenizer_close(r->detok);
    fv_stop_close(r->stop);
}

static fv_status render(run *r) {
    const fv_ask *ask = r->ask;
    if (ask->raw) {
        r->text = strdup(ask->question);
        return r->text ? FV_OK : FV_FAIL(FV_ENOMEM, "out of memory for the prompt");
    }
    const fv_model_config *cfg = fv_checkpoint_config(r->l->ck);
    fv_chat_template chat;
    if (ask->chat)
        FV_TRY(fv_chat_by_name(ask->chat, &chat));
    else
        FV_TRY(fv_chat_detect(fv_checkpoint_dir(r->l->ck), cfg, &chat));
    fv_chat_turn turns[2] = {{"system", ask->system, 0}, {"user", ask->question, ask->n_image}};
    int32_t first = ask->system ? 0 : 1;
    return fv_chat_render(chat, turns + first, 2 - first, &r->text);
}

static fv_status prepare(run *r) {
    fv_local *l = r->l;
    const fv_model_config *cfg = fv_checkpoint_config(l->ck);
    FV_TRY(fv_sampling_check(&r->ask->sampling));
    if (r->ask->max_tokens < 1)
        return FV_FAIL(FV_EINVAL, "max-tokens is %d; it must be at least 1", r->ask->max_tokens);
    FV_TRY(render(r));
    FV_TRY(
        fv_prompt_make(l->tok, cfg, r->text, r->ask->n_image, cfg->text.max_position, &r->prompt));
    fv_plan_shape shape = {.n_layer = cfg->text.n_layer,
                           .n_kv = cfg->text.n_kv,
                           .n_visual = r->prompt.n_visual,
                           .n_text = r->prompt.n_text};
    FV_TRY(fv_plan_make(&r->ask->policy, &shape, &r->plan));
    /* The answer ends where the context does. */
    size_t most = (size_t)r->prompt.n + (size_t)r->ask->max_tokens;
    r->ids = malloc(most * sizeof *r->ids);
    r->logits = malloc((size_t)cfg->text.vocab * sizeof *r->logits);
    r->scratch = malloc((size_t)cfg->text.vocab * sizeof *r->scratch);
    r->report.digest = malloc((size_t)r->ask->max_tokens * sizeof *r->report.digest);
    if (!r->ids || !r->logits || !r->scratch || !r->report.digest)
        return FV_FAIL(FV_ENOMEM, "out of memory for %zu tokens", most);
    memcpy(r->ids, r->prompt.ids, (size_t)r->prompt.n * sizeof *r->ids);
    FV_TRY(fv_detokenizer_open(l->tok, true, &r->detok));
    FV_TRY(fv_stop_open(r->ask->stop, r->ask->n_stop, &r->stop));
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
    FV_TRY(fv_kv_open(l->pool, &r->kv));
    fv_prefill_request req = {.n = r->prompt.n,
                              .ids = r->prompt.ids,
                              .seg = r->prompt.seg,
                              .embeds =
                                  fv_tensor_of(r->encoded.embeds.data, FV_F32, r->prompt.n_visual,
                                               fv_checkpoint_config(l->ck)->text.d_model),
                              .plan = &r->plan,
                              .kv = r->kv};
    FV_TRY(fv_prefill_run(l->dec, &req, 1, l->opt.chunk, r->logits));
    r->report.s_prefill = fv_clock_s() - t;
    r->report.bytes_visual = fv_kv_bytes(r->kv, FV_SEG_VISUAL);
    r->report.bytes_text = fv_kv_bytes(r->kv, FV_SEG_TEXT);
    if (r->hooks->prefilled) FV_TRY(r->hooks->prefilled(r->hooks->user, r->kv));
    return FV_OK;
}

static bool is_eos(const run *r, int32_t id) {
    const fv_model_config *cfg = fv_checkpoint_config(r->l->ck);
    for (int32_t i = 0; i < cfg->n_eos && !r->ask->ignore_eos; i++)
        if (cfg->eos[i] == id) return true;
    return false;
}

static fv_status show(run *r, const char *text, size_t n) {
    return n && r->hooks->text ? r->hooks->text(r->hooks->user, text, n) : FV_OK;
}

/* Chooses a token from the logits, records and shows it. *done: the answer is complete. */
static fv_status take_token(run *r, bool *done) {
    fv_local *l = r->l;
    int32_t at = r->report.n_generated, n = r->prompt.n + at;
    if (r->hooks->logits)
        FV_TRY(
            r->hooks->logits(r->hooks->user, r->logits, fv_checkpoint_config(l->ck)->text.vocab));
    r->report.digest[at] =
        XXH64(r->logits, (size_t)fv_checkpoint_config(l->ck)->text.vocab * sizeof *r->logits, 0);
    fv_sampled token;
    fv_sample(&r->ask->sampling, r->logits, l->n_vocab, r->ids, n, (uint64_t)at, r->scratch,
              &token);
    r->ids[n] = token.id;
    r->report.n_generated++;
    if (at == 0) r->report.s_first_token = fv_clock_s() - r->t0;
    if (r->hooks->token) FV_TRY(r->hooks->token(r->hooks->user, &token));
    if (is_eos(r, token.id)) {
        r->report.finish = FV_FINISH_EOS;
        *done = true;
        return FV_OK;
    }
    const char *piece, *text;
    size_t n_piece, n_text;
    bool hit;
    FV_TRY(fv_detokenizer_push(r->detok, token.id, &piece, &n_piece));
    FV_TRY(fv_stop_push(r->stop, piece, n_piece, &text, &n_text, &hit));
    FV_TRY(show(r, text, n_text));
    int32_t context = fv_checkpoint_config(l->ck)->text.max_position;
    if (hit) r->report.finish = FV_FINISH_STOP;
    *done = hit || at + 1 == r->ask->max_tokens || n + 1 >= context;
    return FV_OK;
}

static fv_status finish_text(run *r) {
    const char *piece, *text;
    size_t n_piece, n_text;
    bool hit;
    if (r->report.finish == FV_FINISH_STOP) return FV_OK;
    FV_TRY(fv_detokenizer_flush(r->detok, &piece, &n_piece));
    FV_TRY(fv_stop_push(r->stop, piece, n_piece, &text, &n_text, &hit));
    FV_TRY(show(r, text, n_text));
    if (hit) {
        r->report.finish = FV_FINISH_STOP;
        return FV_OK;
    }
    fv_stop_flush(r->stop, &text, &n_text);
    return show(r, text, n_text);
}

static fv_status decode(run *r) {
    double t = fv_clock_s();
    bool done = false;
    for (;;) {
        FV_TRY(take_token(r, &done));
        if (done) break;
        int32_t n = r->prompt.n + r->report.n_generated;
        fv_step_seq seq = {.kv = r->kv, .n = 1, .ids = &r->ids[n - 1], .pos = n - 1};
        FV_TRY(fv_stepper_run(r->l->stepper, &seq, 1, r->logits));
    }
    r->report.s_decode = fv_clock_s() - t;
    return finish_text(r);
}

static void fill_report(run *r) {
    fv_report *out = &r->report;
    const fv_kv_shape *s = fv_kv_get_shape(r->kv);
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
    out->bytes_visual_end = fv_kv_bytes(r->kv, FV_SEG_VISUAL);
    out->bytes_text_end = fv_kv_bytes(r->kv, FV_SEG_TEXT);
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
    FV_TRY_GOTO(decode(&r), st, explain);
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
