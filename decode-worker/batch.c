/* The list of running answers and the step over them. */
#include "decode-worker/batch.h"

#include <stdlib.h>
#include <string.h>

typedef struct member {
    fv_sequence *seq;
    fv_kv *kv;
    void *user;
} member;

struct fv_batch {
    fv_stepper *stepper;
    int32_t n, n_max;
    size_t vocab;
    member *list;       /* [n_max] in the order of joining */
    fv_step_seq *step;  /* [n_max] */
    float *logits;      /* [n_max, vocab], grown as answers join */
    int32_t cap_logits; /* rows of it */
};

fv_status fv_batch_open(fv_decoder *dec, int32_t n_max, fv_batch **out) {
    fv_batch *b = calloc(1, sizeof *b);
    if (!b) return FV_FAIL(FV_ENOMEM, "out of memory for a batch");
    b->n_max = n_max;
    b->vocab = (size_t)fv_decoder_config(dec)->vocab;
    b->list = calloc((size_t)n_max, sizeof *b->list);
    b->step = calloc((size_t)n_max, sizeof *b->step);
    fv_status st = b->list && b->step ? fv_stepper_open(dec, &b->stepper)
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
    fv_stepper_close(b->stepper);
    free(b->list);
    free(b->step);
    free(b->logits);
    free(b);
}

int32_t fv_batch_count(const fv_batch *b) { return b->n; }

fv_status fv_batch_join(fv_batch *b, fv_sequence *seq, fv_kv *kv, void *user) {
    if (b->n == b->n_max)
        return FV_FAIL(FV_EBUSY, "the batch is full: %d answers are running", b->n);
    if (b->n == b->cap_logits) {
        int32_t cap = 2 * b->n + 1 < b->n_max ? 2 * b->n + 1 : b->n_max;
        float *grown = realloc(b->logits, (size_t)cap * b->vocab * sizeof *grown);
        if (!grown) return FV_FAIL(FV_ENOMEM, "out of memory for logits");
        b->logits = grown;
        b->cap_logits = cap;
    }
    b->list[b->n++] = (member){seq, kv, user};
    return FV_OK;
}

void fv_batch_leave(fv_batch *b, const fv_sequence *seq) {
    for (int32_t i = 0; i < b->n; i++) {
        if (b->list[i].seq != seq) continue;
        memmove(&b->list[i], &b->list[i + 1], (size_t)(b->n - i - 1) * sizeof *b->list);
        b->n--;
        return;
    }
}

fv_status fv_batch_step(fv_batch *b, void (*on_event)(void *ctx, const fv_batch_event *e),
                        void *ctx) {
    int32_t n = b->n, stay = 0;
    for (int32_t i = 0; i < n; i++) {
        int32_t n_ids, n_prompt;
        const int32_t *ids = fv_sequence_ids(b->list[i].seq, &n_ids, &n_prompt);
        b->step[i] =
            (fv_step_seq){.kv = b->list[i].kv, .n = 1, .ids = &ids[n_ids - 1], .pos = n_ids - 1};
    }
    b->n = 0;
    FV_TRY(fv_stepper_run(b->stepper, b->step, n, b->logits));
    for (int32_t i = 0; i < n; i++) {
        fv_batch_event e = {.user = b->list[i].user,
                            .seq = b->list[i].seq,
                            .logits = b->logits + (size_t)i * b->vocab};
        e.status = fv_sequence_take(e.seq, e.logits, &e.token, &e.text, &e.n_text);
        e.finish = fv_sequence_finish(e.seq);
        if (e.status == FV_OK && e.finish == FV_FINISH_NOT) b->list[stay++] = b->list[i];
        on_event(ctx, &e);
    }
    b->n = stay;
    return FV_OK;
}
