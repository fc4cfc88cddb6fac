/* See copies.h. */
#include "bench/copies.h"

#include <stdlib.h>

/* An answer on the decode side. */
typedef struct copy {
    fv_received received;
    fv_generation *seq;
    fv_evict evict;
} copy;

struct copies {
    fv_kv_pool *pool;
    fv_receiver *receiver;
    fv_transport *transport;
    fv_batch *batch;
    copy *copy; /* [n] */
    int32_t n;
    fv_status status; /* of a failed answer */
};

static fv_status open_side(const fv_engine *e, fv_dtype dtype, size_t bytes, int32_t most,
                           copies *c) {
    fv_kv_shape shape = fv_engine_kv_shape(e, dtype);
    FV_TRY(fv_kv_pool_open(e->be.device, &shape, bytes, &c->pool));
    fv_receiver_options opt = {.pool = c->pool,
                               .model = e->fingerprint,
                               .n_vocab = fv_checkpoint_config(e->ck)->text.vocab,
                               .max_position = fv_checkpoint_config(e->ck)->text.max_position,
                               .grants = fv_grants_options_default()};
    FV_TRY(fv_receiver_open(&opt, &c->receiver));
    FV_TRY(fv_transport_inproc(fv_receiver_sink(c->receiver), &c->transport));
    FV_TRY(fv_batch_open(e->dec, most, 1, &c->batch));
    c->copy = calloc((size_t)most, sizeof *c->copy);
    return c->copy ? FV_OK : FV_FAIL(FV_ENOMEM, "out of memory for %d answers", most);
}

/* *fits: whether there was room. */
static fv_status hand_off(copies *c, const fv_engine *e, const prefilled *from,
                          const fv_first_token *first, fv_received *out, bool *fits) {
    fv_export_request req = {.model = e->fingerprint,
                             .kv = from->kv,
                             .plan = from->plan,
                             .n = from->n,
                             .ids = from->ids,
                             .seg = from->seg,
                             .max_tokens = from->max_tokens,
                             .sampling = {.repetition_penalty = 1, .top_p = 1}};
    fv_export *ship = NULL;
    fv_status st = fv_export_begin(c->transport, &req, &ship);
    *fits = st != FV_EBUSY;
    if (!*fits) return FV_OK;
    FV_TRY(st);
    FV_TRY_GOTO(fv_export_layers(ship, fv_kv_get_shape(from->kv)->n_layer), st, out);
    FV_TRY_GOTO(fv_export_end(ship, first), st, out);
    st = fv_receiver_attach(c->receiver, fv_export_ticket(ship), out);
out:
    fv_export_close(ship, true, NULL, NULL);
    return st;
}

static fv_status add(copies *c, const fv_engine *e, const prefilled *from, bool *fits) {
    copy *x = &c->copy[c->n];
    const fv_sampled *token;
    const char *text;
    size_t n_text;
    fv_generation_options opt = {.sampling = fv_sampling_default(),
                                 .max_tokens = from->max_tokens,
                                 .context = fv_checkpoint_config(e->ck)->text.max_position,
                                 .n_vocab = e->n_vocab};
    FV_TRY(fv_generation_open(&opt, e->tok, from->ids, from->n, from->n, &x->seq));
    c->n++;
    FV_TRY(fv_generation_take(x->seq, from->logits, &token, &text, &n_text));
    fv_first_token first = {.id = token->id, .logprob = token->logprob, .step = 1};
    FV_TRY(hand_off(c, e, from, &first, &x->received, fits));
    if (!*fits) {
        fv_generation_close(x->seq);
        x->seq = NULL;
        c->n--;
        return FV_OK;
    }
    fv_evict_init(&x->evict, &x->received.plan, from->n);
    return fv_batch_join(c->batch, x->seq, x->received.kv, &x->evict, &x->received.text, from->n,
                         x);
}

fv_status copies_open(const fv_engine *e, const prefilled *from, size_t bytes, int32_t most,
                      copies **out) {
    copies *c = calloc(1, sizeof *c);
    if (!c) return FV_FAIL(FV_ENOMEM, "out of memory for copies");
    bool fits = true;
    fv_status st = open_side(e, fv_kv_get_shape(from->kv)->dtype, bytes, most, c);
    while (st == FV_OK && fits && c->n < most) st = add(c, e, from, &fits);
    if (st == FV_OK && c->n == 0) st = FV_FAIL(FV_EBUSY, "not even one answer fits");
    if (st == FV_OK)
        *out = c;
    else
        copies_close(c);
    return st;
}

void copies_close(copies *c) {
    if (!c) return;
    for (int32_t i = 0; i < c->n; i++) {
        fv_batch_leave(c->batch, c->copy[i].seq);
        fv_received_free(&c->copy[i].received);
        fv_generation_close(c->copy[i].seq);
    }
    free(c->copy);
    fv_batch_close(c->batch);
    fv_transport_close(c->transport, NULL, NULL);
    fv_receiver_close(c->receiver);
    fv_kv_pool_close(c->pool);
    free(c);
}

int32_t copies_count(const copies *c) { return c->n; }

size_t copies_bytes(const copies *c) { return fv_kv_pool_used(c->pool); }

static void on_step(void *ctx, const fv_batch_event *e) {
    copies *c = ctx;
    if (e->status != FV_OK) c->status = e->status;
}

fv_status copies_step(copies *c) {
    FV_TRY(fv_batch_step(c->batch, on_step, c));
    return c->status;
}
