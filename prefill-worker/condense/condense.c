/* The stage: the tower with a capture, the method image by image on the host, the projector on the
 * remaining features. Methods merge features, so the projector runs after them; its rows are
 * independent, so a token that was only selected has the bits that it has in `exact`. */
#include "prefill-worker/condense/condense.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "policy/stage_rows.h"

static const fv_condense_method *const methods[] = {
#undef CONDENSE
#define CONDENSE(name) [FV_METHOD_CONDENSE_##name] = &fv_condense_##name,
#define FV_METHOD(stage, name, source, summary) stage(name)
#include "policy/methods.def"
};

const fv_condense_method *fv_condense_method_of(fv_method_id id) { return methods[id]; }

/* ---- what methods share ----------------------------------------------------------------- */

/* p[j] = exp(s_j - max s), s_j = scale q k_j; gives their sum. */
static double exponents(const float *q, const float *k, int32_t n, int32_t d, int32_t ld,
                        double *p) {
    double most = -INFINITY, sum = 0, scale = 1 / sqrt((double)d);
    for (int32_t j = 0; j < n; j++) {
        double dot = 0;
        for (int32_t c = 0; c < d; c++)
            dot += (double)q[c] * (double)k[(size_t)j * (size_t)ld + (size_t)c];
        p[j] = scale * dot;
        if (p[j] > most) most = p[j];
    }
    for (int32_t j = 0; j < n; j++) sum += p[j] = exp(p[j] - most);
    return sum;
}

fv_status fv_condense_score(const float *q, const float *k, int32_t n, int32_t d, int32_t n_head,
                            fv_arena *arena, float *score) {
    double *p, *total;
    int32_t d_head = d / n_head;
    FV_TRY(FV_ARENA_NEW(arena, n, p));
    FV_TRY(FV_ARENA_NEW(arena, n, total));
    for (int32_t h = 0; h < n_head; h++) {
        double sum =
            exponents(q + (ptrdiff_t)h * d_head, k + (ptrdiff_t)h * d_head, n, d_head, d, p);
        for (int32_t j = 0; j < n; j++) total[j] += p[j] / sum;
    }
    for (int32_t j = 0; j < n; j++) score[j] = (float)total[j];
    return FV_OK;
}

fv_status fv_condense_take(const fv_condense_context *ctx, const int32_t *source, int32_t n,
                           fv_condensed *out) {
    float *feature;
    size_t width = (size_t)ctx->width;
    FV_TRY(FV_ARENA_NEW(ctx->arena, (size_t)n * width, feature));
    for (int32_t i = 0; i < n; i++)
        memcpy(feature + (size_t)i * width, ctx->feature + (size_t)source[i] * width,
               width * sizeof *feature);
    *out = (fv_condensed){.n = n, .feature = feature, .source = source};
    return FV_OK;
}

/* ---- the stage -------------------------------------------------------------------------- */

/* What the tower says of n images, on the host. */
typedef struct seen {
    fv_vision_capture capture;
    int32_t n_key, n_row; /* of an image: rows in the tower, rows that it gives */
    float *feature;       /* [n, n_row, width] */
} seen;

static fv_status look(fv_vision *v, const fv_vision_config *cfg, const fv_condense_method *method,
                      const float *pixels, int32_t n, fv_device *dev, fv_arena *arena, seen *s) {
    int32_t side = cfg->image / cfg->patch, width = fv_vision_feature_width(cfg);
    int32_t last = fv_vision_layers(v) - (method->after ? 0 : 1);
    fv_buf features;
    if (last >= cfg->n_layer) last = cfg->n_layer - 1;
    s->n_key = 1 + side * side;
    s->n_row = fv_vision_tokens(cfg);
    s->capture.layer = last > 0 ? last : 0;
    size_t d = (size_t)cfg->d_model, rows = (size_t)n * (size_t)s->n_row;
    FV_TRY(FV_ARENA_NEW(arena, (size_t)n * d, s->capture.q));
    FV_TRY(FV_ARENA_NEW(arena, (size_t)n * (size_t)s->n_key * d, s->capture.k));
    FV_TRY(FV_ARENA_NEW(arena, rows * (size_t)width, s->feature));
    size_t bytes = rows * (size_t)width * sizeof *s->feature;
    FV_TRY(fv_buf_alloc(dev, bytes, FV_BUF_DEVICE, &features));
    fv_vision_out to = {.features = fv_tensor_of(features.data, FV_F32, (int32_t)rows, width),
                        .capture = &s->capture};
    fv_status st = fv_vision_encode(v, pixels, n, &to);
    if (st == FV_OK) st = fv_device_copy(dev, s->feature, features.data, bytes);
    fv_buf_free(&features);
    return st;
}

/* The method on image i. */
static fv_status condense_one(const fv_vision_config *cfg, const fv_choice *choice, const seen *s,
                              int32_t i, fv_arena *arena, fv_condensed *out) {
    const fv_condense_method *method = methods[choice->method->id];
    fv_params params;
    int32_t d = cfg->d_model, width = fv_vision_feature_width(cfg);
    size_t skip = (size_t)(s->n_key - s->n_row);
    const float *key = s->capture.k + (size_t)i * (size_t)s->n_key * (size_t)d;
    float *score;
    fv_choice_params(choice, 32, &params); /* does not refer to a layer of the text model */
    FV_TRY(FV_ARENA_NEW(arena, s->n_key, score));
    FV_TRY(fv_condense_score(s->capture.q + (ptrdiff_t)i * d, key, s->n_key, d,
                             method->whole ? 1 : cfg->n_head, arena, score));
    fv_condense_context ctx = {.params = &params,
                               .n = s->n_row,
                               .width = width,
                               .feature = s->feature + (size_t)i * (size_t)s->n_row * (size_t)width,
                               .score = score + skip,
                               .d_key = d,
                               .key = key + skip * (size_t)d,
                               .arena = arena};
    return method->run(&ctx, out);
}

/* Rows of all images in one matrix, and where they came from. */
static fv_status join(const fv_condensed *one, int32_t n, int32_t n_row, int32_t width,
                      fv_arena *arena, float **feature, fv_condensed_rows *out) {
    size_t row = (size_t)width;
    FV_TRY(FV_ARENA_NEW(arena, n, out->each));
    for (int32_t i = 0; i < n; i++) out->n += out->each[i] = one[i].n;
    FV_TRY(FV_ARENA_NEW(arena, out->n, out->source));
    FV_TRY(FV_ARENA_NEW(arena, (size_t)out->n * row, *feature));
    for (int32_t i = 0, at = 0; i < n; at += one[i++].n) {
        for (int32_t r = 0; r < one[i].n; r++) {
            int32_t from = one[i].source[r];
            out->source[at + r] = from < 0 ? from : i * n_row + from;
        }
        if (one[i].n == 0) continue;
        memcpy(*feature + (size_t)at * row, one[i].feature, (size_t)one[i].n * row * sizeof(float));
    }
    return FV_OK;
}

static fv_status project(fv_vision *v, const float *feature, int32_t n, int32_t width,
                         fv_device *dev, fv_tensor embeds) {
    fv_buf features;
    size_t bytes = (size_t)n * (size_t)width * sizeof *feature;
    if (n == 0) return FV_OK;
    FV_TRY(fv_buf_alloc(dev, bytes, FV_BUF_DEVICE, &features));
    fv_status st = fv_device_copy(dev, features.data, feature, bytes);
    if (st == FV_OK)
        st = fv_vision_project(v, fv_tensor_of(features.data, FV_F32, n, width), embeds);
    fv_buf_free(&features);
    return st;
}

fv_status fv_condense_run(fv_vision *v, const fv_vision_config *cfg, const fv_choice *choice,
                          const float *pixels, int32_t n, fv_device *dev, fv_arena *arena,
                          fv_condensed_rows *out) {
    const fv_condense_method *method = methods[choice->method->id];
    int32_t width = fv_vision_feature_width(cfg), d = cfg->d_text;
    fv_condensed_rows rows = {0};
    fv_condensed *one;
    float *feature;
    seen s;
    FV_TRY(look(v, cfg, method, pixels, n, dev, arena, &s));
    FV_TRY(FV_ARENA_NEW(arena, n, one));
    for (int32_t i = 0; i < n; i++) FV_TRY(condense_one(cfg, choice, &s, i, arena, &one[i]));
    FV_TRY(join(one, n, s.n_row, width, arena, &feature, &rows));
    size_t bytes = (size_t)rows.n * (size_t)d * sizeof(float);
    FV_TRY(fv_buf_alloc(dev, bytes, FV_BUF_DEVICE, &rows.embeds));
    fv_status st =
        project(v, feature, rows.n, width, dev, fv_tensor_of(rows.embeds.data, FV_F32, rows.n, d));
    if (st == FV_OK)
        *out = rows;
    else
        fv_buf_free(&rows.embeds);
    return st;
}
