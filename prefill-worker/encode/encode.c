/* The vision tower, image by image. The thread that owns the tower. */
#include "prefill-worker/encode/encode.h"

#include <stdlib.h>
#include <string.h>

#include "common/clock.h"

fv_status fv_encoded_open(const fv_model_config *cfg, int32_t n, fv_device *dev, fv_encoded *out) {
    size_t rows = (size_t)n * (size_t)fv_vision_tokens(&cfg->vision);
    fv_encoded e = {.n_image = n};
    fv_status st = FV_ARENA_NEW(&e.arena, n, e.each);
    if (st == FV_OK) st = FV_ARENA_NEW(&e.arena, rows, e.source);
    if (st == FV_OK)
        st = fv_buf_alloc(dev, rows * (size_t)cfg->text.d_model * sizeof(float), FV_BUF_DEVICE,
                          &e.embeds);
    if (st == FV_OK)
        *out = e;
    else
        fv_encoded_free(&e);
    return st;
}

/* Values of an image's pixels. */
static size_t pixels_count(const fv_model_config *cfg) {
    return (size_t)3 * (size_t)cfg->layout.tile * (size_t)cfg->layout.tile;
}

fv_status fv_encoded_watch(fv_encoded *e, const fv_model_config *cfg, bool features) {
    size_t n = (size_t)e->n_image, rows = n * (size_t)fv_vision_tokens(&cfg->vision);
    size_t width = (size_t)fv_vision_feature_width(&cfg->vision);
    FV_TRY(FV_ARENA_NEW(&e->arena, n * pixels_count(cfg), e->pixels));
    if (!features) return FV_OK;
    return fv_buf_alloc(e->embeds.device, rows * width * sizeof(float), FV_BUF_DEVICE,
                        &e->features);
}

void fv_encoded_free(fv_encoded *e) {
    fv_buf_free(&e->features);
    fv_buf_free(&e->embeds);
    fv_arena_fini(&e->arena);
    *e = (fv_encoded){0};
}

fv_status fv_encoded_add(fv_encoded *e, const fv_model_config *cfg, const fv_image_rows *rows) {
    int32_t first = e->n_added * fv_vision_tokens(&cfg->vision);
    size_t row = (size_t)cfg->text.d_model * sizeof(float);
    for (int32_t r = 0; r < rows->n; r++) {
        int32_t source = rows->source ? rows->source[r] : r;
        e->source[e->n_row + r] = source < 0 ? source : first + source;
    }
    char *to = (char *)e->embeds.data + (size_t)e->n_row * row;
    e->each[e->n_added++] = rows->n;
    e->n_row += rows->n;
    if (rows->n == 0) return FV_OK;
    fv_device *dev = e->embeds.device;
    return dev->ops->copy_async(dev, to, rows->rows.data, (size_t)rows->n * row);
}

/* ---- one image ---------------------------------------------------------------------------- */

static fv_status encode(fv_vision *v, const fv_model_config *cfg, const float *pixels,
                        const fv_encoded *e, fv_image_rows *out) {
    int32_t n = fv_vision_tokens(&cfg->vision), d = cfg->text.d_model;
    int32_t width = fv_vision_feature_width(&cfg->vision);
    FV_TRY(fv_buf_alloc(e->embeds.device, (size_t)n * (size_t)d * sizeof(float), FV_BUF_DEVICE,
                        &out->rows));
    fv_vision_out to = {.embeds = fv_tensor_of(out->rows.data, FV_F32, n, d)};
    if (e->features.data)
        to.features = fv_tensor_rows(fv_tensor_of(e->features.data, FV_F32, e->n_image * n, width),
                                     e->n_added * n, n);
    out->n = n;
    return fv_vision_encode(v, pixels, 1, &to);
}

static fv_status condense(fv_vision *v, const fv_model_config *cfg, const float *pixels,
                          const fv_choice *choice, const fv_encoded *e, fv_image_rows *out) {
    fv_arena arena = {0};
    fv_condensed_rows rows;
    fv_status st =
        fv_condense_run(v, &cfg->vision, choice, pixels, 1, e->embeds.device, &arena, &rows);
    if (st == FV_OK) {
        size_t bytes = (size_t)rows.n * sizeof *rows.source;
        out->n = rows.n;
        out->rows = rows.embeds;
        out->source = malloc(bytes + 1);
        if (!out->source) st = FV_FAIL(FV_ENOMEM, "out of memory for an image's tokens");
        if (out->source && bytes) memcpy(out->source, rows.source, bytes);
    }
    fv_arena_fini(&arena);
    return st;
}

fv_status fv_encode_image(fv_vision *v, const fv_model_config *cfg, const float *pixels,
                          const fv_choice *choice, fv_image_cache *cache, const fv_image_key *key,
                          fv_encoded *e) {
    double begin_s = fv_clock_s();
    size_t n_pixel = pixels_count(cfg);
    fv_image_rows rows = {0};
    if (e->pixels)
        memcpy(e->pixels + (size_t)e->n_added * n_pixel, pixels, n_pixel * sizeof *pixels);
    fv_status st =
        choice ? condense(v, cfg, pixels, choice, e, &rows) : encode(v, cfg, pixels, e, &rows);
    e->s_vision += fv_clock_s() - begin_s;
    if (st == FV_OK) st = fv_encoded_add(e, cfg, &rows);
    if (st == FV_OK)
        fv_image_cache_put(cache, key, &rows);
    else
        fv_image_rows_free(&rows);
    return st;
}
