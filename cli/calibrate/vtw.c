/* Chooses the layer of prune=vtw for a checkpoint (Visual Tokens Withdrawal, arXiv 2405.05803):
 * from a shallow layer on, the first k with
 *     mean over items of KL(p | p_k) <= eta
 * p: the distribution after the last prompt token; p_k: the same if every visual token is dropped
 * before layer k. The authors search from layer 5 of 32 on, with 20 items. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/calibrate/calibrate.h"
#include "eval/scenes/divergence.h"

enum { ITEMS_MOST = 20, FIRST_OF_32 = 5 };

typedef struct seen {
    int32_t n_item, item, n_vocab; /* item: index of the next distribution */
    float *full;                   /* [n_item, n_vocab] */
    bool first;                    /* `full` is being written */
    double sum;                    /* of divergences from `full` */
} seen;

static fv_status on_logits(void *user, const float *logits, int32_t n_vocab) {
    seen *s = user;
    float *full = s->full + (size_t)s->item++ * (size_t)s->n_vocab;
    if (s->first)
        memcpy(full, logits, (size_t)n_vocab * sizeof *full);
    else
        s->sum += fv_kl_divergence(full, logits, n_vocab);
    return FV_OK;
}

static fv_status look(const fv_calibrate *c, const char *policy, const char *what, seen *s) {
    fv_ask_hooks hooks = {.user = s, .logits = on_logits};
    s->item = 0;
    s->sum = 0;
    return fv_calibrate_run_items(c, policy, &hooks, what);
}

/* kl[k] of the layers tried, the first of them, and the layer found; n_layer: none found. */
typedef struct found {
    int32_t from, layer;
    double kl[FV_PLAN_MAX_LAYERS];
} found;

static fv_status search(const fv_calibrate *c, double eta, seen *s, found *f) {
    s->first = true;
    FV_TRY(look(c, "", "next tokens", s));
    s->first = false;
    f->from = fv_layer_of_32(FIRST_OF_32, c->n_layer);
    if (f->from < 1) f->from = 1;
    for (f->layer = f->from; f->layer < c->n_layer; f->layer++) {
        char policy[64], what[64];
        snprintf(policy, sizeof policy, "prune=vtw,layer=%d", f->layer);
        snprintf(what, sizeof what, "without images from layer %d on", f->layer);
        FV_TRY(look(c, policy, what, s));
        f->kl[f->layer] = s->sum / s->n_item;
        if (f->kl[f->layer] <= eta) return FV_OK;
    }
    return FV_OK;
}

static fv_status write_found(const fv_calibrate *c, double eta, const found *f) {
    json_t *kl = json_array();
    for (int32_t k = f->from; k <= f->layer && k < c->n_layer; k++)
        json_array_append_new(kl, json_real(f->kl[k]));
    json_t *json = json_pack("{s:i, s:f, s:i, s:i, s:o}", "layer", (int)f->layer, "eta", eta,
                             "items", (int)c->n_item, "from", (int)f->from, "kl", kl);
    return fv_calibrate_write(c, "vtw", json);
}

static void print_found(const fv_calibrate *c, double eta, const found *f) {
    if (f->layer < c->n_layer)
        printf("prune=vtw: without visual tokens from layer %d of 0..%d on, next tokens differ by "
               "%.2g nats on %d items: prune=vtw,from=calibrated\n",
               f->layer, c->n_layer - 1, f->kl[f->layer], c->n_item);
    else
        printf("prune=vtw: visual tokens are needed in every layer: without them next tokens "
               "differ by more than %g nats\n",
               eta);
}

fv_status fv_calibrate_vtw(const fv_calibrate *c) {
    double eta = fv_options_float(c->options, "eta");
    fv_calibrate few = *c;
    found f = {0};
    if (few.n_item > ITEMS_MOST) few.n_item = ITEMS_MOST;
    seen s = {.n_item = few.n_item, .n_vocab = fv_local_config(c->local)->text.vocab};
    s.full = calloc((size_t)s.n_item * (size_t)s.n_vocab, sizeof *s.full);
    if (!s.full) return FV_FAIL(FV_ENOMEM, "out of memory for %d distributions", s.n_item);
    fv_status st = search(&few, eta, &s, &f);
    if (st == FV_OK) st = write_found(&few, eta, &f);
    if (st == FV_OK) print_found(&few, eta, &f);
    free(s.full);
    return st;
}
