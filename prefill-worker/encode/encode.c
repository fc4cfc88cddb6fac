/* The vision tower, for the images of one prompt. The thread that owns the
 * tower. */
#include "prefill-worker/encode/encode.h"

#include <stdlib.h>
#include <string.h>

#include "common/clock.h"

static fv_status condense(fv_vision *v, const fv_model_config *cfg, const fv_encode_job *job,
                          fv_device *dev, fv_encoded *e) {
    fv_condensed_rows rows;
    FV_TRY(fv_condense_run(v, &cfg->vision, job->condense, e->pixels, e->n_image, dev, &e->arena,
                           &rows));
    e->n_row = rows.n;
    e->each = rows.each;
    e->source = rows.source;
    e->embeds = rows.embeds;
    return FV_OK;
}

static fv_status encode_all(fv_vision *v, const fv_model_config *cfg, bool want_features,
                            fv_device *dev, fv_encoded *e) {
    int32_t d = cfg->text.d_model, width = fv_vision_feature_width(&cfg->vision);
    fv_vision_out out = {0};
    e->n_row = e->n_image * fv_vision_tokens(&cfg->vision);
    if (want_features) {
        FV_TRY(fv_buf_alloc(dev, (size_t)e->n_row * (size_t)width * sizeof(float), FV_BUF_DEVICE,
                            &e->features));
        out.features = fv_tensor_of(e->features.data, FV_F32, e->n_row, width);
    }
    FV_TRY(
        fv_buf_alloc(dev, (size_t)e->n_row * (size_t)d * sizeof(float), FV_BUF_DEVICE, &e->embeds));
    out.embeds = fv_tensor_of(e->embeds.data, FV_F32, e->n_row, d);
    return fv_vision_encode(v, e->pixels, e->n_image, &out);
}

static fv_status encode(fv_vision *v, const fv_model_config *cfg, const fv_image_config *image,
                        const fv_encode_job *job, fv_device *dev, fv_encoded *e) {
    double begin_s = fv_clock_s();
    size_t each = fv_image_pixels_count(image);
    e->pixels = malloc((size_t)e->n_image * each * sizeof *e->pixels);
    if (!e->pixels) return FV_FAIL(FV_ENOMEM, "out of memory for %d images", e->n_image);
    for (int32_t i = 0; i < e->n_image; i++)
        memcpy(e->pixels + (size_t)i * each, job->pixels[i], each * sizeof *e->pixels);
    FV_TRY(job->condense ? condense(v, cfg, job, dev, e)
                         : encode_all(v, cfg, job->want_features, dev, e));
    e->s_vision = fv_clock_s() - begin_s;
    return FV_OK;
}

fv_status fv_encode_images(fv_vision *v, const fv_model_config *cfg, const fv_image_config *image,
                           const fv_encode_job *job, fv_device *dev, fv_encoded *out) {
    fv_encoded e = {.n_image = job->n};
    if (job->n == 0) {
        *out = e;
        return FV_OK;
    }
    if (image->crop_h != cfg->vision.image || image->crop_w != cfg->vision.image)
        return FV_FAIL(FV_EINVAL,
                       "the preprocessor makes %dx%d pixels and the vision tower reads %dx%d: mend "
                       "crop_size in preprocessor_config.json",
                       image->crop_w, image->crop_h, cfg->vision.image, cfg->vision.image);
    fv_status st = encode(v, cfg, image, job, dev, &e);
    if (st != FV_OK) {
        fv_encoded_free(&e);
        return st;
    }
    *out = e;
    return FV_OK;
}

void fv_encoded_free(fv_encoded *e) {
    free(e->pixels);
    fv_buf_free(&e->features);
    fv_buf_free(&e->embeds);
    fv_arena_fini(&e->arena);
    *e = (fv_encoded){0};
}

/* ---- image by image ------------------------------------------------------------------ */

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

/* Takes the embeddings of an image that was encoded. */
static fv_status take_rows(fv_encoded *e, fv_image_rows *out) {
    fv_image_rows rows = {.n = e->n_row};
    if (e->source) {
        size_t bytes = (size_t)e->n_row * sizeof *rows.source;
        rows.source = malloc(bytes + 1);
        if (!rows.source) return FV_FAIL(FV_ENOMEM, "out of memory for a picture's rows");
        if (bytes) memcpy(rows.source, e->source, bytes);
    }
    rows.rows = e->embeds;
    e->embeds = (fv_buf){0};
    *out = rows;
    return FV_OK;
}

fv_status fv_encode_keep(fv_vision *v, const fv_model_config *cfg, const fv_image_config *fit,
                         const fv_encode_job *job, fv_image_cache *cache, const fv_image_key *key,
                         fv_encoded *out) {
    fv_encoded one;
    fv_image_rows rows = {0};
    FV_TRY(fv_encode_images(v, cfg, fit, job, out->embeds.device, &one));
    out->s_vision += one.s_vision;
    fv_status st = take_rows(&one, &rows);
    fv_encoded_free(&one);
    if (st == FV_OK) st = fv_encoded_add(out, cfg, &rows);
    if (st == FV_OK)
        fv_image_cache_put(cache, key, &rows);
    else
        fv_image_rows_free(&rows);
    return st;
}
