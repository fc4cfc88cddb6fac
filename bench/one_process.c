/* Prefill and decode in turn, in one thread. */
#include "bench/one_process.h"

#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/file.h"
#include "decode-worker/schedule/batch.h"
#include "prefill-worker/job/job.h"

/* Defaults of the workers. */
enum { PREFILL_BATCH = 4, CHUNK = 512, DECODE_BATCH = 64 };

struct one_process {
    fv_engine engine;
    fv_kv_pool *pool;
    fv_batch *batch;
    fv_image_cache *cache;
    char *image; /* encoded image of all requests; NULL: none */
    size_t n_image;
    float *logits; /* [PREFILL_BATCH, vocab] */
};

/* A client and its current request. */
typedef struct client {
    struct run *run;
    bool waiting;
    double due_s, first_s, last_s;
    int32_t n_token;
    fv_chat_turn turn;
    fv_job_image image;
    fv_prefill_job job;
} client;

typedef struct run {
    one_process *p;
    const fv_bench_load *load;
    fv_bench_row *row;
    uint64_t *number;
    char *question;
    client *clients; /* [load->concurrency] */
    int32_t n_begun, n_over;
    fv_status status; /* of a failed answer in the batch */
} run;

/* ---- opening ------------------------------------------------------------------------------ */

static fv_status open_parts(one_process *p, const char *checkpoint, const char *image) {
    fv_engine_options opt = {
        .checkpoint = checkpoint, .backend = "auto", .isa = "auto", .vision = image != NULL};
    FV_TRY(fv_engine_open(&opt, &p->engine));
    const fv_model_config *cfg = fv_checkpoint_config(p->engine.ck);
    fv_kv_shape shape = fv_engine_kv_shape(&p->engine, p->engine.kv_dtype);
    FV_TRY(fv_kv_pool_open(p->engine.be.device, &shape, 0, &p->pool));
    FV_TRY(fv_batch_open(p->engine.dec, DECODE_BATCH, 1, &p->batch));
    FV_TRY(fv_image_cache_open((size_t)64 << 20, &p->cache));
    p->logits = malloc(PREFILL_BATCH * (size_t)cfg->text.vocab * sizeof *p->logits);
    if (!p->logits) return FV_FAIL(FV_ENOMEM, "out of memory for logits");
    size_t most = fv_image_limits_default().bytes_max;
    return image ? fv_file_read(image, most, &p->image, &p->n_image) : FV_OK;
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
    free(p->image);
    fv_image_cache_close(p->cache);
    fv_batch_close(p->batch);
    fv_kv_pool_close(p->pool);
    free(p->logits);
    fv_engine_close(&p->engine);
    free(p);
}

/* ---- a request ---------------------------------------------------------------------------- */

static fv_status begin(client *c) {
    run *r = c->run;
    one_process *p = r->p;
    int32_t n_image = p->image != NULL;
    r->n_begun++;
    c->waiting = true;
    c->n_token = 0;
    c->due_s = fv_clock_s();
    fv_bench_prompt(r->load, (*r->number)++, r->question);
    c->turn = (fv_chat_turn){.role = "user", .text = r->question, .n_image = n_image};
    c->image = (fv_job_image){.bytes = p->image, .n = p->n_image};
    c->job = (fv_prefill_job){.engine = &p->engine,
                              .cache = p->cache,
                              .pool = p->pool,
                              .form = {.chat_template = "", .n_turn = 1, .turn = &c->turn},
                              .n_image = n_image,
                              .image = &c->image,
                              .generation = fv_engine_generation_options(&p->engine, true)};
    c->job.generation.max_tokens = r->load->max_tokens;
    return fv_prefill_job_prepare(&c->job);
}

static void end(client *c) { fv_prefill_job_free(&c->job); }

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

/* Records a complete answer and starts the client's next request, if any is left. */
static fv_status finish(client *c) {
    run *r = c->run;
    r->n_over++;
    r->row->n_ok++;
    r->row->n_token += (uint64_t)c->n_token;
    r->row->n_prompt_row += (uint64_t)c->job.prompt.n;
    FV_TRY(fv_samples_add(&r->row->ttft_s, c->first_s - c->due_s));
    FV_TRY(fv_samples_add(&r->row->e2e_s, c->last_s - c->due_s));
    if (c->n_token > 1)
        FV_TRY(fv_samples_add(&r->row->tpot_s, (c->last_s - c->first_s) / (c->n_token - 1)));
    end(c);
    return r->n_begun < r->load->n_request ? begin(c) : FV_OK;
}

/* ---- the two stages ----------------------------------------------------------------------- */

static fv_status first_token(client *c, const float *logits) {
    fv_prefill_job *j = &c->job;
    FV_TRY(fv_prefill_job_first(j, logits));
    FV_TRY(note_token(c));
    c->waiting = false;
    if (j->finish != FV_FINISH_NOT) return finish(c);
    return fv_batch_join(c->run->p->batch, j->seq, j->kv, NULL, NULL, j->prompt.n, c);
}

static fv_status prefill(run *r, client **who, int32_t n) {
    one_process *p = r->p;
    size_t vocab = (size_t)fv_checkpoint_config(p->engine.ck)->text.vocab;
    fv_prefill_job *job[PREFILL_BATCH];
    fv_prefill_options opt = {.chunk = CHUNK};
    for (int32_t i = 0; i < n; i++) {
        job[i] = &who[i]->job;
        FV_TRY(fv_prefill_job_encode_all(job[i]));
    }
    FV_TRY(fv_prefill_jobs_run(job, n, &opt, p->logits));
    for (int32_t i = 0; i < n; i++) FV_TRY(first_token(who[i], p->logits + (size_t)i * vocab));
    return FV_OK;
}

static void on_step(void *ctx, const fv_batch_event *e) {
    run *r = ctx;
    fv_status st = e->status == FV_OK ? note_token(e->user) : e->status;
    if (st != FV_OK) r->status = st;
}

/* Runs one step of the batch and finishes the answers that have left it. */
static fv_status step(run *r) {
    FV_TRY(fv_batch_step(r->p->batch, on_step, r));
    FV_TRY(r->status);
    for (int32_t i = 0; i < r->load->concurrency; i++) {
        client *c = &r->clients[i];
        if (c->job.seq && !c->waiting && fv_generation_finish(c->job.seq) != FV_FINISH_NOT)
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
        fv_batch_leave(p->batch, r.clients[i].job.seq);
        end(&r.clients[i]);
    }
    free(r.clients);
    free(r.question);
    return st;
}
