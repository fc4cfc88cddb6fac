/* fovea calibrate --latent: fits directions of pack=latent to the visual keys and values of
 * training images, which are run three times (model/latent/fit.h) -> latent.bin beside the
 * checkpoint. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/calibrate/calibrate.h"
#include "cli/calibrate/reads.h"
#include "common/convert.h"
#include "model/latent/fit.h"
#include "model/net/rope.h"

enum { ANSWER_TOKENS = 24 };

typedef struct seen {
    fv_latent_fit *fit;
    fv_kv_shape shape;
    fv_rope rope;
    float *m; /* [n, W] */
    int32_t cap;
} seen;

/* Rot(-p) k, head by head. */
static void turn_back(const seen *s, fv_rope_pos pos, float *row) {
    float cosine[FV_ROPE_MAX_HALF], sine[FV_ROPE_MAX_HALF];
    fv_rope_angles(&s->rope, &pos, 1, cosine, sine);
    for (int32_t g = 0; g < s->shape.n_kv; g++, row += s->shape.d_head)
        for (int32_t i = 0; i < s->rope.half; i++) {
            float x = row[i], y = row[i + s->rope.half];
            row[i] = x * cosine[i] + y * sine[i];
            row[i + s->rope.half] = y * cosine[i] - x * sine[i];
        }
}

static void take_head(seen *s, const fv_kv *kv, int32_t layer, int32_t g, int kind, int32_t n) {
    size_t D = (size_t)s->shape.d_head, W = D * (size_t)s->shape.n_kv;
    size_t size = fv_dtype_bytes(s->shape.dtype);
    for (int32_t row = 0, step; row < n; row += step) {
        void *at;
        step = fv_kv_contiguous(kv, layer, g, FV_SEG_VISUAL, kind == 1, row, n, &at);
        for (int32_t i = 0; i < step; i++)
            widen_row((const char *)at + (size_t)i * D * size, s->shape.dtype, D,
                      s->m + (size_t)(row + i) * W + (size_t)g * D);
    }
}

static fv_status take_rows(seen *s, const fv_kv *kv, int32_t layer, int kind, int32_t n) {
    size_t W = (size_t)s->shape.d_head * (size_t)s->shape.n_kv;
    const int32_t *pos = fv_kv_positions(kv, layer, 0, FV_SEG_VISUAL);
    for (int32_t g = 0; g < s->shape.n_kv; g++) take_head(s, kv, layer, g, kind, n);
    for (int32_t j = 0; j < n && kind == 0; j++)
        turn_back(s, fv_rope_map_at(fv_kv_rope_map(kv), pos[j]), s->m + (size_t)j * W);
    return fv_latent_fit_rows(s->fit, layer, kind, n, s->m);
}

static fv_status on_prefilled(void *user, const fv_kv *kv) {
    seen *s = user;
    int32_t n = fv_kv_len(kv, 0, 0, FV_SEG_VISUAL);
    if (n > s->cap) {
        float *m =
            realloc(s->m, (size_t)n * (size_t)s->shape.n_kv * (size_t)s->shape.d_head * sizeof *m);
        if (!m) return FV_FAIL(FV_ENOMEM, "out of memory for %d tokens", n);
        s->m = m;
        s->cap = n;
    }
    for (int32_t l = 0; l < s->shape.n_layer; l++)
        for (int k = 0; k < 2; k++) FV_TRY(take_rows(s, kv, l, k, n));
    fv_latent_fit_end_rows(s->fit);
    return FV_OK;
}

static fv_status read_weights(const fv_options *o, bool *weighted) {
    const char *said = fv_options_string(o, "latent-weights");
    *weighted = strcmp(said, "attention") == 0;
    if (*weighted || strcmp(said, "none") == 0) return FV_OK;
    return FV_FAIL(FV_EINVAL, "--latent-weights is none or attention, not '%s'", said);
}

static fv_latent_info info_of(const fv_calibrate *c) {
    const fv_text_config *t = &fv_local_config(c->local)->text;
    int32_t group = (int32_t)fv_options_int(c->options, "latent-layers");
    fv_latent_info i = {.n_layer = t->n_layer,
                        .n_kv = t->n_kv,
                        .d_head = t->d_head,
                        .n_group_layer = group == 0 || group > t->n_layer ? t->n_layer : group,
                        .n_dir = (int32_t)fv_options_int(c->options, "directions"),
                        .n_item = c->n_item};
    int32_t most = 2 * t->n_kv * t->d_head; /* limit of the last group, which may be one layer */
    if (i.n_dir > most) i.n_dir = most;
    snprintf(i.fingerprint, sizeof i.fingerprint, "%s", fv_local_fingerprint(c->local));
    snprintf(i.dtype, sizeof i.dtype, "%s", fv_dtype_name(fv_local_kv_dtype(c->local)));
    snprintf(i.compute, sizeof i.compute, "%s", fv_compute_name(fv_local_compute(c->local)));
    return i;
}

static void print_found(const fv_latent_info *i, const fv_latent_fit *fit) {
    for (int32_t g = 0; g * i->n_group_layer < i->n_layer; g++) {
        int32_t last = (g + 1) * i->n_group_layer - 1;
        printf("layers %d-%d: variance in the first", g * i->n_group_layer,
               last < i->n_layer ? last : i->n_layer - 1);
        for (int32_t n = 8; n <= i->n_dir; n *= 2)
            printf("%s %d directions: %.3f", n > 8 ? "," : "", n, fv_latent_fit_energy(fit, g, n));
        printf("\n");
    }
    printf("written: latent.bin, of %zu bytes, for KV in %s and products in %s: pack=latent\n",
           72 + 4 * fv_latent_numbers(i) + 8, i->dtype, i->compute);
}

static fv_status weigh(const fv_calibrate *c, const fv_calibrate_reads *r, fv_latent_fit *fit) {
    const fv_text_config *t = &fv_local_config(c->local)->text;
    const fv_latent_reads *reads;
    FV_TRY(fv_calibrate_reads_found(r, &reads));
    double *m = malloc((size_t)t->n_kv * (size_t)t->d_head * (size_t)t->d_head * sizeof *m);
    fv_status st = m ? FV_OK : FV_FAIL(FV_ENOMEM, "out of memory for weights");
    for (int32_t i = 0; i < 2 * t->n_layer && st == FV_OK; i++) {
        fv_latent_reads_weights(reads, i / 2, i % 2, m);
        st = fv_latent_fit_weigh(fit, i / 2, i % 2, m);
    }
    free(m);
    return st;
}

/* Runs the first pass with whole answers, whose queries determine the weights of errors. */
static fv_status look_weighing(const fv_calibrate *c, const fv_ask_hooks *hooks, const char *what,
                               fv_latent_fit *fit) {
    fv_calibrate_reads *r;
    fv_calibrate look = *c;
    look.answer_tokens = ANSWER_TOKENS;
    FV_TRY(fv_calibrate_reads_open(c->local, &r));
    fv_status st = fv_calibrate_run_items(&look, "", hooks, what);
    if (st == FV_OK) st = weigh(c, r, fit);
    fv_calibrate_reads_close(r);
    return st;
}

static fv_status measure(const fv_calibrate *c, const fv_latent_info *info, seen *s) {
    static const char *const what[FV_LATENT_PASSES] = {"moments", "directions", "levels"};
    fv_ask_hooks hooks = {.user = s, .prefilled = on_prefilled};
    bool weighted;
    FV_TRY(read_weights(c->options, &weighted));
    FV_TRY(fv_latent_fit_open(info, (int)fv_options_int(c->options, "threads"),
                              (size_t)fv_options_int(c->options, "moment-bytes"), &s->fit));
    for (int i = 0; i < FV_LATENT_PASSES; i++) {
        if (i == 0 && weighted)
            FV_TRY(look_weighing(c, &hooks, what[i], s->fit));
        else
            FV_TRY(fv_calibrate_run_items(c, "", &hooks, what[i]));
        FV_TRY(fv_latent_fit_end_pass(s->fit));
    }
    FV_TRY(fv_latent_save(fv_options_string(c->options, "checkpoint"), info,
                          fv_latent_fit_numbers(s->fit)));
    print_found(info, s->fit);
    return FV_OK;
}

fv_status fv_calibrate_latent(const fv_calibrate *c) {
    const fv_text_config *t = &fv_local_config(c->local)->text;
    fv_latent_info info = info_of(c);
    seen s = {.shape = {.n_layer = t->n_layer,
                        .n_kv = t->n_kv,
                        .d_head = t->d_head,
                        .dtype = fv_local_kv_dtype(c->local)}};
    fv_rope_init(&s.rope, &t->rope, t->d_head);
    fv_status st = measure(c, &info, &s);
    fv_latent_fit_close(s.fit);
    free(s.m);
    return st;
}
