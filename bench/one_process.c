/* Prefill and decode in turn, in one thread. */
#include "bench/one_process.h"

#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/file.h"
#include "decode-worker/schedule/stages.h"
#include "prefill-worker/job/stages.h"
#include "text/chat.h"

/* As the workers have them unless told otherwise. */
enum { PREFILL_BATCH = 4, CHUNK = 512, DECODE_BATCH = 64 };

struct one_process {
    fv_engine engine;
    fv_kv_pool *pool;
    fv_batch *batch;
    fv_encoded encoded; /* of the image */
    int32_t n_image;
    fv_chat_template chat;
    float *logits; /* [PREFILL_BATCH, vocab] */
};

/* A client and the request it has. */
typedef struct client {
    struct run *run;
    bool waiting;
    double due_s, first_s, last_s;
    int32_t n_token;
    fv_prompt prompt;
    fv_plan plan;
    fv_kv *kv;
    fv_generation *seq;
} client;

typedef struct run {
    one_process *p;
    const fv_bench_load *load;
    fv_bench_row *row;
    uint64_t *number;
    char *question;
    client *clients; /* [load->concurrency] */
    int32_t n_begun, n_over;
    fv_status status; /* of an answer in the batch */
} run;

/* ---- opening ------------------------------------------------------------------------------ */

static fv_status encode(one_process *p, const char *path) {
    const fv_engine *e = &p->engine;
    char *data;
    size_t n;
    fv_image image = {0};
    FV_TRY(fv_file_read(path, fv_image_limits_default().bytes_max, &data, &n));
    fv_status st = fv_image_decode(data, n, NULL, &image);
    free(data);
    FV_TRY(st);
    st = fv_encode_images(e->vision, fv_checkpoint_config(e->ck), fv_checkpoint_image(e->ck),
                          &(fv_encode_job){.n = 1, .images = &image}, e->be.device, &p->encoded);
    fv_image_free(&image);
    p->n_image = 1;
    return st;
}

static fv_status open_parts(one_process *p, const char *checkpoint, const char *image) {
    fv_engine_options opt = {
        .checkpoint = checkpoint, .backend = "auto", .isa = "auto", .vision = image != NULL};
    FV_TRY(fv_engine_open(&opt, &p->engine));
    const fv_model_config *cfg = fv_checkpoint_config(p->engine.ck);
    fv_kv_shape shape = fv_engine_kv_shape(&p->engine, FV_F32);
    FV_TRY(fv_kv_pool_open(p->engine.be.device, &shape, 0, &p->pool));
    FV_TRY(fv_batch_open(p->engine.dec, DECODE_BATCH, 1, &p->batch));
    FV_TRY(fv_chat_detect(fv_checkpoint_dir(p->engine.ck), cfg->text.family, cfg->has_vision,
                          &p->chat));
    p->logits = malloc(PREFILL_BATCH * (size_t)cfg->text.vocab * sizeof *p->logits);
    if (!p->logits) return FV_FAIL(FV_ENOMEM, "out of memory for logits");
    return image ? encode(p, image) : FV_OK;
}

fv_status one_process_open(const char *checkpoint, const char *image, one_process **out) {
    one_process *p = calloc(1, sizeof *p);
    if (!p) return FV_FAIL(FV_ENOMEM, "out of memory for an engine");
    fv_status st = open_parts(p, checkpoint, image);
    if (st == FV_OK)
        *out = p;
    else
        one_process_close(p);
    return st;
}

void one_process_close(one_process *p) {
    if (!p) return;
    fv_encoded_free(&p->encoded);
    fv_batch_close(p->batch);
    fv_kv_pool_close(p->pool);
    free(p->logits);
    fv_engine_close(&p->engine);
    free(p);
}

/* ---- a request ---------------------------------------------------------------------------- */

static fv_status make_prompt(run *r, fv_prompt *out) {
    const fv_engine *e = &r->p->engine;
    const fv_model_config *cfg = fv_checkpoint_config(e->ck);
    char *text;
    fv_bench_prompt(r->load, (*r->number)++, r->question);
    fv_chat_turn turn = {"user", r->question, r->p->n_image};
    FV_TRY(fv_chat_render(r->p->chat, &turn, 1, &text));
    fv_status st = fv_prompt_make(e->tok, cfg, text, r->p->n_image, cfg->text.max_position, out);
    free(text);
    return st;
}

static fv_status begin(client *c) {
    run *r = c->run;
    const fv_engine *e = &r->p->engine;
    const fv_text_config *text = &fv_checkpoint_config(e->ck)->text;
    static const fv_policy exact;
    r->n_begun++;
    c->waiting = true;
    c->n_token = 0;
    c->due_s = fv_clock_s();
    FV_TRY(make_prompt(r, &c->prompt));
    fv_plan_shape shape = {.n_layer = text->n_layer,
                           .n_kv = text->n_kv,
                           .d_head = text->d_head,
                           .bytes_value = 4,
                           .n_visual = c->prompt.n_visual,
                           .n_text = c->prompt.n_text,
                           .n_image = c->prompt.n_image};
    FV_TRY(fv_plan_make(&exact, &shape, &c->plan));
    fv_generation_options opt = {.sampling = fv_sampling_default(),
                                 .max_tokens = r->load->max_tokens,
                                 .context = text->max_position,
                                 .n_vocab = e->n_vocab};
    return fv_generation_open(&opt, e->tok, c->prompt.ids, c->prompt.n, c->prompt.n, &c->seq);
}

static void end(client *c) {
    fv_generation_close(c->seq);
    fv_kv_close(c->kv);
    fv_prompt_free(&c->prompt);
    c->seq = NULL;
    c->kv = NULL;
}

static fv_status note_token(client *c) {
    fv_bench_row *row = c->run->row;
    double now = fv_clock_s();
    if (c->n_token++ == 0)
        c->first_s = now;
    else
        FV_TRY(fv_samples_add(&row->itl_s, now - c->last_s));
    c->last_s = now;
    return FV_OK;
}

/* Its answer is complete: the client has another request, if there is one left. */
static fv_status finish(client *c) {
    run *r = c->run;
    r->n_over++;
    r->row->n_ok++;
    r->row->n_token += (uint64_t)c->n_token;
    r->row->n_prompt_row += (uint64_t)c->prompt.n;
    FV_TRY(fv_samples_add(&r->row->ttft_s, c->first_s - c->due_s));
    FV_TRY(fv_samples_add(&r->row->e2e_s, c->last_s - c->due_s));
    if (c->n_token > 1)
        FV_TRY(fv_samples_add(&r->row->tpot_s, (c->last_s - c->first_s) / (c->n_token - 1)));
    end(c);
    return r->n_begun < r->load->n_request ? begin(c) : FV_OK;
}

/* ---- the two stages ----------------------------------------------------------------------- */

static fv_status first_token(client *c, const float *logits) {
    const fv_sampled *token;
    const char *text;
    size_t n;
    FV_TRY(fv_generation_take(c->seq, logits, &token, &text, &n));
    FV_TRY(note_token(c));
    c->waiting = false;
    if (fv_generation_finish(c->seq) != FV_FINISH_NOT) return finish(c);
    return fv_batch_join(c->run->p->batch, c->seq, c->kv, NULL, c->prompt.n, c);
}

static fv_status prefill(run *r, client **who, int32_t n) {
    one_process *p = r->p;
    const fv_text_config *text = &fv_checkpoint_config(p->engine.ck)->text;
    fv_prefill_request req[PREFILL_BATCH];
    for (int32_t i = 0; i < n; i++) {
        client *c = who[i];
        FV_TRY(fv_kv_open(p->pool, &c->kv));
        req[i] = (fv_prefill_request){.n = c->prompt.n,
                                      .ids = c->prompt.ids,
                                      .seg = c->prompt.seg,
                                      .embeds = fv_tensor_of(p->encoded.embeds.data, FV_F32,
                                                             c->prompt.n_visual, text->d_model),
                                      .plan = &c->plan,
                                      .kv = c->kv};
    }
    fv_prefill_options opt = {.chunk = CHUNK};
    FV_TRY(fv_prefill_run(p->engine.dec, req, n, &opt, p->logits));
    for (int32_t i = 0; i < n; i++)
        FV_TRY(first_token(who[i], p->logits + (size_t)i * (size_t)text->vocab));
    return FV_OK;
}

static void on_step(void *ctx, const fv_batch_event *e) {
    run *r = ctx;
    fv_status st = e->status == FV_OK ? note_token(e->user) : e->status;
    if (st != FV_OK) r->status = st;
}

/* One token for all that run; those whose answer is complete have left the batch. */
static fv_status step(run *r) {
    FV_TRY(fv_batch_step(r->p->batch, on_step, r));
    FV_TRY(r->status);
    for (int32_t i = 0; i < r->load->concurrency; i++) {
        client *c = &r->clients[i];
        if (c->seq && !c->waiting && fv_generation_finish(c->seq) != FV_FINISH_NOT)
            FV_TRY(finish(c));
    }
    return FV_OK;
}

static fv_status serve(run *r) {
    for (int32_t i = 0; i < r->load->concurrency; i++) {
        r->clients[i].run = r;
        FV_TRY(begin(&r->clients[i]));
    }
    while (r->n_over < r->load->n_request) {
        client *who[PREFILL_BATCH];
        int32_t n = 0;
        for (int32_t i = 0; i < r->load->concurrency && n < PREFILL_BATCH; i++)
            if (r->clients[i].waiting) who[n++] = &r->clients[i];
        FV_TRY(n > 0 ? prefill(r, who, n) : step(r));
    }
    return FV_OK;
}

fv_status one_process_run(one_process *p, const fv_bench_load *load, uint64_t *number,
                          fv_bench_row *row) {
    run r = {.p = p, .load = load, .row = row, .number = number};
    r.question = malloc(strlen(load->prompt) + FV_BENCH_PROMPT_MORE);
    r.clients = calloc((size_t)load->concurrency, sizeof *r.clients);
    double begin_s = fv_clock_s();
    fv_status st = r.question && r.clients
                       ? serve(&r)
                       : FV_FAIL(FV_ENOMEM, "out of memory for %d clients", load->concurrency);
    row->seconds += fv_clock_s() - begin_s;
    for (int32_t i = 0; r.clients && i < load->concurrency; i++) {
        fv_batch_leave(p->batch, r.clients[i].seq);
        end(&r.clients[i]);
    }
    free(r.clients);
    free(r.question);
    return st;
}
