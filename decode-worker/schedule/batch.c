/* The list of running answers and the step over them. */
#include "decode-worker/schedule/batch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct member {
    fv_generation *seq;
    fv_kv *kv;
    fv_evict *evict;     /* or NULL */
    fv_text_codes *text; /* or NULL */
    int32_t n_held;      /* ids that have run */
    int32_t n_now;       /* ids that run in this step */
    int32_t n_told;      /* ids that had run at its last token, or when it joined */
    bool last;           /* the last id runs in this step */
    void *user;
} member;

/* The result of choosing a token: the token, or why it failed. */
typedef struct choice {
    fv_batch_event event;
    char failure[256];
} choice;

struct fv_batch {
    fv_decoder *dec;
    fv_model_runner *runner;
    fv_device *device;
    int32_t n, n_max, prompt_tokens;
    size_t vocab;
    member *list;       /* [n_max] in the order of joining */
    fv_step_seq *step;  /* [n_max] */
    choice *choice;     /* [n_max] results of a step */
    fv_buf logits;      /* [n_max, vocab], grown as answers join; a GPU writes to it directly */
    int32_t cap_logits; /* rows of it */
};

fv_status fv_batch_open(fv_decoder *dec, int32_t n_max, int32_t prompt_tokens, fv_batch **out) {
    fv_batch *b = calloc(1, sizeof *b);
    if (!b) return FV_FAIL(FV_ENOMEM, "out of memory for a batch");
    b->dec = dec;
    b->device = fv_decoder_backend(dec)->device;
    b->n_max = n_max;
    b->prompt_tokens = prompt_tokens;
    b->vocab = (size_t)fv_decoder_config(dec)->vocab;
    b->list = calloc((size_t)n_max, sizeof *b->list);
    b->step = calloc((size_t)n_max, sizeof *b->step);
    b->choice = calloc((size_t)n_max, sizeof *b->choice);
    fv_status st = b->list && b->step && b->choice
                       ? fv_model_runner_open(dec, &b->runner)
                       : FV_FAIL(FV_ENOMEM, "out of memory for a batch");
    if (st != FV_OK) {
        fv_batch_close(b);
        return st;
    }
    *out = b;
    return FV_OK;
}

void fv_batch_close(fv_batch *b) {
    if (!b) return;
    fv_model_runner_close(b->runner);
    free(b->list);
    free(b->step);
    free(b->choice);
    fv_buf_free(&b->logits);
    free(b);
}

int32_t fv_batch_count(const fv_batch *b) { return b->n; }

fv_status fv_batch_join(fv_batch *b, fv_generation *seq, fv_kv *kv, fv_evict *evict,
                        fv_text_codes *text, int32_t n_held, void *user) {
    if (b->n == b->n_max)
        return FV_FAIL(FV_EBUSY, "the batch is full: %d answers are running", b->n);
    if (b->n == b->cap_logits) {
        int32_t cap = 2 * b->n + 1 < b->n_max ? 2 * b->n + 1 : b->n_max;
        fv_buf grown;
        FV_TRY(
            fv_buf_alloc(b->device, (size_t)cap * b->vocab * sizeof(float), FV_BUF_PINNED, &grown));
        fv_buf_free(&b->logits);
        b->logits = grown;
        b->cap_logits = cap;
    }
    b->list[b->n++] = (member){.seq = seq,
                               .kv = kv,
                               .evict = evict,
                               .text = text,
                               .n_held = n_held,
                               .n_told = n_held,
                               .user = user};
    return FV_OK;
}

int32_t fv_batch_leave(fv_batch *b, const fv_generation *seq) {
    for (int32_t i = 0; i < b->n; i++) {
        if (b->list[i].seq != seq) continue;
        int32_t n_held = b->list[i].n_held;
        memmove(&b->list[i], &b->list[i + 1], (size_t)(b->n - i - 1) * sizeof *b->list);
        b->n--;
        return n_held;
    }
    return -1;
}

static fv_status evict(fv_decoder *dec, const member *m) {
    int32_t n_ids, n_prompt;
    if (m->text) FV_TRY(fv_text_codes_step(m->text, dec, m->kv, m->n_held));
    if (!m->evict) return FV_OK;
    fv_generation_ids(m->seq, &n_ids, &n_prompt);
    return fv_evict_step(m->evict, m->kv, n_ids - n_prompt);
}

/* Evicts entries and compresses text before the step; removes answers for which that fails. */
static void evict_all(fv_batch *b, fv_batch_on_event on_event, void *ctx) {
    int32_t n = b->n;
    b->n = 0;
    for (int32_t i = 0; i < n; i++) {
        member m = b->list[i];
        fv_batch_event e = {.user = m.user, .seq = m.seq, .status = evict(b->dec, &m)};
        if (e.status == FV_OK)
            b->list[b->n++] = m;
        else
            on_event(ctx, &e);
    }
}

/* Returns how many rows may run before text becomes due. */
static int32_t until_due(const member *m) {
    return m->text ? fv_text_until(&m->text->rule, m->text->n_prompt, m->n_held) : INT32_MAX;
}

/* Plans which rows run now: one for each answer, and as many prompt rows as a step may have. */
static int32_t plan_step(fv_batch *b) {
    int32_t n_seq = 0, left = b->prompt_tokens;
    for (int32_t i = 0; i < b->n; i++) {
        member *m = &b->list[i];
        int32_t n_ids, n_prompt;
        const int32_t *ids = fv_generation_ids(m->seq, &n_ids, &n_prompt);
        int32_t pending = n_ids - m->n_held;
        m->n_now = pending == 1 || pending < left ? pending : left;
        if (m->n_now > until_due(m)) m->n_now = until_due(m);
        m->last = m->n_now == pending;
        if (pending > 1) left -= m->n_now;
        if (m->n_now == 0) continue;
        b->step[n_seq++] = (fv_step_seq){.kv = m->kv,
                                         .n = m->n_now,
                                         .ids = ids + m->n_held,
                                         .pos = m->n_held,
                                         .partial = !m->last};
    }
    return n_seq;
}

/* Runs on any thread: answers share no state. */
static void choose(void *arg, fv_backend *be, int32_t slot, int32_t i) {
    choice *c = &((fv_batch *)arg)->choice[i];
    fv_batch_event *e = &c->event;
    (void)be, (void)slot;
    e->status = fv_generation_take(e->seq, e->logits, &e->token, &e->text, &e->n_text);
    e->finish = fv_generation_finish(e->seq);
    if (e->status != FV_OK) snprintf(c->failure, sizeof c->failure, "%s", fv_last_error());
}

/* Chooses the next tokens in parallel, because sampling from a large vocabulary takes time. */
static fv_status choose_all(fv_batch *b, int32_t n) {
    const float *logits = b->logits.data;
    int32_t n_choice = 0;
    for (int32_t i = 0; i < n; i++) {
        const member *m = &b->list[i];
        if (!m->last) continue;
        b->choice[n_choice++].event =
            (fv_batch_event){.user = m->user, .seq = m->seq, .logits = logits};
        logits += b->vocab;
    }
    return fv_backend_each(fv_decoder_backend(b->dec), n_choice, choose, b);
}

fv_status fv_batch_step(fv_batch *b, fv_batch_on_event on_event, void *ctx) {
    evict_all(b, on_event, ctx);
    int32_t n = b->n, n_seq = plan_step(b), stay = 0;
    choice *c = b->choice;
    b->n = 0;
    FV_TRY(fv_model_runner_run(b->runner, b->step, n_seq, b->logits.data));
    FV_TRY(choose_all(b, n));
    for (int32_t i = 0; i < n; i++) {
        member m = b->list[i];
        m.n_held += m.n_now;
        if (!m.last) {
            b->list[stay++] = m;
            continue;
        }
        fv_batch_event *e = &c->event;
        e->n_rows = m.n_held - m.n_told;
        m.n_told = m.n_held;
        if (e->status != FV_OK) (void)FV_FAIL(e->status, "%s", c->failure);
        if (e->status == FV_OK && e->finish == FV_FINISH_NOT) b->list[stay++] = m;
        on_event(ctx, e);
        c++;
    }
    b->n = stay;
    return FV_OK;
}
