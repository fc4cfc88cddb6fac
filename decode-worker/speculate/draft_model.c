/* Runs the draft model, one answer at a time. */
#include "decode-worker/speculate/draft_model.h"

#include <stdlib.h>
#include <string.h>

#include "common/grow.h"

enum { PROMPT_ROWS = 256 }; /* that run with one draft */

struct fv_draft_model {
    fv_decoder *dec;
    fv_kv_pool *pool;
    fv_model_runner *runner;
    int32_t n_vocab, context;
    float *logits; /* [vocab] */
};

struct fv_drafter {
    fv_draft_model *model;
    fv_kv *kv;             /* NULL: something has failed, and there are no more drafts */
    int32_t *held, n_held; /* ids in the store */
    size_t cap;
};

fv_status fv_draft_model_open(fv_decoder *dec, const fv_kv_shape *shape, int32_t n_vocab,
                              size_t kv_bytes, fv_draft_model **out) {
    const fv_text_config *cfg = fv_decoder_config(dec);
    if (shape->state_bytes)
        return FV_FAIL(FV_EUNSUPPORTED, "a model with recurrent layers cannot draft: tokens that "
                                        "were wrong do not leave its state");
    fv_draft_model *m = calloc(1, sizeof *m);
    if (!m) return FV_FAIL(FV_ENOMEM, "out of memory for a draft model");
    *m = (fv_draft_model){.dec = dec, .n_vocab = n_vocab, .context = cfg->max_position};
    m->logits = malloc((size_t)cfg->vocab * sizeof *m->logits);
    fv_status st = m->logits ? FV_OK : FV_FAIL(FV_ENOMEM, "out of memory for a draft model");
    if (st == FV_OK)
        st = fv_kv_pool_open(fv_decoder_backend(dec)->device, shape, kv_bytes, &m->pool);
    if (st == FV_OK) st = fv_model_runner_open(dec, &m->runner);
    if (st != FV_OK) {
        fv_draft_model_close(m);
        return st;
    }
    *out = m;
    return FV_OK;
}

void fv_draft_model_close(fv_draft_model *m) {
    if (!m) return;
    fv_model_runner_close(m->runner);
    fv_kv_pool_close(m->pool);
    free(m->logits);
    free(m);
}

fv_status fv_drafter_open(fv_draft_model *m, fv_drafter **out) {
    fv_drafter *d = calloc(1, sizeof *d);
    if (!d) return FV_FAIL(FV_ENOMEM, "out of memory for drafts");
    d->model = m;
    fv_status st = fv_kv_open(m->pool, &d->kv);
    if (st != FV_OK) {
        free(d);
        return st;
    }
    *out = d;
    return FV_OK;
}

void fv_drafter_close(fv_drafter *d) {
    if (!d) return;
    fv_kv_close(d->kv);
    free(d->held);
    free(d);
}

/* Ends the drafts and gives their memory back. */
static void give_up(fv_drafter *d) {
    fv_kv_close(d->kv);
    d->kv = NULL;
}

/* Runs ids after those that the store holds; the logits are those after the last one. */
static bool run(fv_drafter *d, const int32_t *ids, int32_t n) {
    fv_draft_model *m = d->model;
    fv_step_seq seq = {.kv = d->kv, .n = n, .ids = ids, .pos = d->n_held};
    if (fv_grow(&d->held, &d->cap, (size_t)(d->n_held + n), sizeof *d->held) != FV_OK ||
        fv_model_runner_run(m->runner, &seq, 1, m->logits) != FV_OK) {
        give_up(d);
        return false;
    }
    memcpy(d->held + d->n_held, ids, (size_t)n * sizeof *ids);
    d->n_held += n;
    return true;
}

/* Takes back what the answer does not have. The last of its ids always runs again, for its logits. */
static void go_back(fv_drafter *d, const int32_t *ids, int32_t n) {
    int32_t same = 0;
    while (same < d->n_held && same < n - 1 && d->held[same] == ids[same]) same++;
    if (same < d->n_held) fv_kv_cut(d->kv, d->n_held - same);
    d->n_held = same;
}

static int32_t likeliest(const fv_draft_model *m) {
    int32_t best = 0;
    for (int32_t i = 1; i < m->n_vocab; i++)
        if (m->logits[i] > m->logits[best]) best = i;
    return best;
}

static void draft(void *user, const int32_t *ids, int32_t n, int32_t most, fv_draft *out) {
    fv_drafter *d = user;
    if (!d->kv || n + most > d->model->context) return;
    go_back(d, ids, n);
    int32_t lacks = n - d->n_held, rows = lacks < PROMPT_ROWS ? lacks : PROMPT_ROWS;
    if (!run(d, ids + d->n_held, rows) || rows < lacks) return;
    out->id[out->n++] = likeliest(d->model);
    while (out->n < most && run(d, &out->id[out->n - 1], 1))
        out->id[out->n++] = likeliest(d->model);
}

fv_draft_source fv_drafter_source(fv_drafter *d) { return (fv_draft_source){draft, d}; }
