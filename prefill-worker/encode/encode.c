/* Runs the vision tower image by image. For the thread that owns the tower. */
#include "prefill-worker/encode/encode.h"

#include <stdlib.h>
#include <string.h>

#include "common/clock.h"

/* Number of pixel values of n images. */
static size_t count_pixels(const fv_layout *layout, int32_t n) {
    size_t count = 0;
    for (int32_t i = 0; i < n; i++) count += fv_image_pixels_count(&layout[i]);
    return count;
}

static int32_t tokens_of(const fv_encoded *e, const fv_layout *l) {
    const fv_vision_config tower = fv_vision_config_of(e->cfg, l->video);
    return l->n_tile * fv_vision_tokens_of(&tower, l->tile.w, l->tile.h);
}

int32_t fv_encoded_features(const fv_encoded *e, int32_t n_image) {
    int32_t count = 0;
    for (int32_t i = 0; i < n_image; i++) count += tokens_of(e, &e->layout[i]);
    return count;
}

fv_status fv_encoded_open(const fv_model_config *cfg, const fv_layout *layout, int32_t n,
                          fv_device *dev, fv_encoded *out) {
    size_t rows = 0, spans = 0;
    fv_encoded e = {.cfg = cfg, .layout = layout, .n_image = n};
    for (int32_t i = 0; i < n; i++) {
        rows += (size_t)layout[i].n_visual;
        spans += (size_t)layout[i].n_span;
    }
    fv_status st = FV_ARENA_NEW(&e.arena, spans, e.each);
    if (st == FV_OK) st = FV_ARENA_NEW(&e.arena, rows, e.source);
    if (st == FV_OK)
        st = fv_buf_alloc(dev, rows * (size_t)fv_vision_embed_width(&cfg->vision) * sizeof(float),
                          FV_BUF_DEVICE, &e.embeds);
    if (st == FV_OK)
        *out = e;
    else
        fv_encoded_free(&e);
    return st;
}

fv_status fv_encoded_keep_inputs(fv_encoded *e, bool features) {
    const fv_vision_config *v = &e->cfg->vision;
    size_t rows = (size_t)fv_encoded_features(e, e->n_image);
    FV_TRY(FV_ARENA_NEW(&e->arena, count_pixels(e->layout, e->n_image), e->pixels));
    if (!features) return FV_OK;
    return fv_buf_alloc(e->embeds.device, rows * (size_t)fv_vision_feature_width(v) * sizeof(float),
                        FV_BUF_DEVICE, &e->features);
}

void fv_encoded_free(fv_encoded *e) {
    fv_buf_free(&e->features);
    fv_buf_free(&e->embeds);
    fv_arena_fini(&e->arena);
    *e = (fv_encoded){0};
}

/* Appends to `each` the number of tokens in each span of the next image; a merged token counts for the
 * span of the token before it. */
static void count_spans(fv_encoded *e, const fv_layout *l, const fv_image_rows *rows) {
    int32_t *each = e->each + e->n_span, span = 0, end = l->span[0].n;
    for (int32_t r = 0; r < rows->n; r++) {
        int32_t source = rows->source ? rows->source[r] : r;
        while (source >= end && span + 1 < l->n_span) end += l->span[++span].n;
        each[span]++;
    }
    e->n_span += l->n_span;
}

fv_status fv_encoded_add(fv_encoded *e, const fv_image_rows *rows) {
    const fv_layout *layout = &e->layout[e->n_added];
    size_t row = (size_t)fv_vision_embed_width(&e->cfg->vision) * sizeof(float);
    for (int32_t r = 0; r < rows->n; r++) {
        int32_t source = rows->source ? rows->source[r] : r;
        e->source[e->n_row + r] = source < 0 ? source : e->n_source + source;
    }
    char *to = (char *)e->embeds.data + (size_t)e->n_row * row;
    count_spans(e, layout, rows);
    e->n_added++;
    e->n_row += rows->n;
    e->n_source += layout->n_visual;
    if (rows->n == 0) return FV_OK;
    fv_device *dev = e->embeds.device;
    return dev->ops->copy_async(dev, to, rows->rows.data, (size_t)rows->n * row);
}

/* ---- one image ---------------------------------------------------------------------------- */

/* Tiles -> tower and connector -> the image's tokens, in the order of the prompt. */
static fv_status encode(fv_vision *v, const float *pixels, const fv_encoded *e,
                        fv_image_rows *out) {
    const fv_layout *layout = &e->layout[e->n_added];
    const fv_vision_config *c = &e->cfg->vision;
    int32_t n = tokens_of(e, layout), d = fv_vision_embed_width(c);
    int32_t width = fv_vision_feature_width(c);
    size_t row = (size_t)d * sizeof(float);
    fv_buf tiles;
    FV_TRY(fv_buf_alloc(e->embeds.device, (size_t)n * row, FV_BUF_DEVICE, &tiles));
    fv_vision_out to = {.embeds = fv_tensor_of(tiles.data, FV_F32, n, d)};
    if (e->features.data)
        to.features = fv_tensor_rows(
            fv_tensor_of(e->features.data, FV_F32, fv_encoded_features(e, e->n_image), width),
            fv_encoded_features(e, e->n_added), n);
    fv_status st =
        fv_vision_encode_sized(v, layout->tile, layout->frames, pixels, layout->n_tile, &to);
    out->n = layout->n_visual;
    if (st == FV_OK && fv_layout_is_of_tiles(layout)) {
        out->rows = tiles;
        return FV_OK;
    }
    if (st == FV_OK)
        st = fv_buf_alloc(e->embeds.device, (size_t)out->n * row, FV_BUF_DEVICE, &out->rows);
    if (st == FV_OK)
        st = fv_vision_assemble(v, layout, to.embeds,
                                fv_tensor_of(out->rows.data, FV_F32, out->n, d));
    fv_buf_free(&tiles);
    return st;
}

static fv_status condense(fv_vision *v, const float *pixels, const fv_choice *choice,
                          const fv_encoded *e, fv_image_rows *out) {
    fv_arena arena = {0};
    fv_condensed_image rows;
    fv_status st = fv_condense_run(v, &e->cfg->vision, choice, &e->layout[e->n_added], pixels,
                                   e->embeds.device, &arena, &rows);
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

fv_status fv_encode_image(fv_vision *v, const float *pixels, const fv_choice *choice,
                          fv_image_cache *cache, const fv_image_key *key, fv_encoded *e) {
    double begin_s = fv_clock_s();
    size_t n = count_pixels(&e->layout[e->n_added], 1);
    fv_image_rows rows = {0};
    if (e->pixels)
        memcpy(e->pixels + count_pixels(e->layout, e->n_added), pixels, n * sizeof *pixels);
    fv_status st = choice ? condense(v, pixels, choice, e, &rows) : encode(v, pixels, e, &rows);
    e->s_vision += fv_clock_s() - begin_s;
    if (st == FV_OK) st = fv_encoded_add(e, &rows);
    if (st == FV_OK)
        fv_image_cache_put(cache, key, &rows);
    else
        fv_image_rows_free(&rows);
    return st;
}
